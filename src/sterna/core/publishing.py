"""What a client advertises and publishes, on its way to a broker."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from sterna.core import facts, inputs
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import (
    AdvertisementChange,
    Events,
    InterestAsked,
    InterestKnown,
    Message,
    Route,
    SubscriptionChange,
)
from sterna.core.names import NEVER, LinkId, LocalProtocolError, RouteId, Time
from sterna.core.quenching import Interest, KeptInterest, KeptOutbox, Outbox
from sterna.core.settings import ClientOptions
from sterna.core.sizes import batches
from sterna.matching import MatchIndex
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.model.filters.tree import Always

if TYPE_CHECKING:
    from sterna.core.client import Client

ANYTHING = ""
"""The name of the advertisement of a client that has not had to advertise."""

EVERYTHING = Filter.from_condition(Always(verdict=True))  # Needs no parser.


class KeptPublishing(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of what a client advertises and publishes."""

    advertisements: dict[str, Filter]
    seq: int
    first_seq: int
    announced: list[Route]
    undo: list[tuple[int, tuple[Route, ...]]]
    """For each change of advertisements that is not confirmed, its place among the messages that
    are not, and the advertisements that it ended."""
    interest: KeptInterest
    has_asked: bool
    outbox: KeptOutbox


class Publishing:
    """Numbers a client's events, and keeps them while they cannot go out.

    Advertisements and events go out in the order in which the application made them.
    """

    def __init__(self, client: "Client", options: ClientOptions, seq: int) -> None:
        self._client = client
        self.options = options
        self.advertisements: dict[str, Filter] = {}
        self.seq = self._first_seq = seq
        """The number of the last event."""
        self._offered: MatchIndex[str] = MatchIndex()
        self._announced: dict[RouteId, Route] = {}
        """The advertisements in force for what goes out next; others may wait among the events."""
        self._undo: list[tuple[AdvertisementChange, tuple[Route, ...]]] = []
        """Changes of advertisements that may not have arrived, with those that each ended."""
        self._interest = Interest()
        """What is wanted, as far as the broker has announced; only used if the network quenches."""
        self._has_asked = False
        """Whether the broker was asked what is wanted since the link came up."""
        self._outbox = Outbox(options.buffer_events_max, self._known_interest)

    def configure(self, options: ClientOptions, now: Time) -> None:
        """The network has other settings."""
        before, self.options = self.options, options
        self._outbox.configure(options.buffer_events_max, self._known_interest)
        if options.advertisements and not before.advertisements and not self.advertisements:
            # The application did not have to advertise so far: it may publish anything, and what
            # waits was published already.
            self._announce(self._offer(ANYTHING, EVERYTHING, now), now)
        self.flush(now)

    @property
    def _known_interest(self) -> Interest | None:
        """What is wanted, if the network quenches."""
        return self._interest if self.options.quenching else None

    @property
    def waits(self) -> bool:
        """Whether something waits to go out."""
        return bool(self._outbox)

    @property
    def accepted(self) -> int:
        """The number up to which the broker has all of the client's events."""
        waiting = self._outbox.first_seq()
        link = self._client.link
        if link is not None and link in self._client.peers:
            waiting = min(waiting, self._unaccepted(link))
        return min(self.seq, waiting - 1)

    def _unaccepted(self, link: LinkId) -> int:
        for message in self._client.unconfirmed_first(link):
            if type(message) is Events:
                return message.events[0].seq
        return NEVER

    # ---- From the application

    def advertise(self, given: inputs.Advertise, now: Time) -> None:
        """The application is going to publish events that match a filter."""
        name = given.advertisement
        if name in self.advertisements:
            raise LocalProtocolError(
                f"{self._client.id} has an advertisement {name!r}; unadvertise it first"
            )
        self._announce_in_order(self._offer(name, given.filter, now), now)
        if name != ANYTHING and ANYTHING in self.advertisements:  # Now it names what it publishes.
            self.unadvertise(inputs.Unadvertise(advertisement=ANYTHING), now)

    def _offer(self, name: str, filter_: Filter, now: Time) -> AdvertisementChange:
        client = self._client
        self._offered.add(name, filter_)
        self.advertisements[name] = filter_
        client.state(facts.Advertised(at=client.id, time=now, advertisement=name, filter=filter_))
        return AdvertisementChange(added=(Route(client.route(name), filter_),))

    def unadvertise(self, given: inputs.Unadvertise, now: Time) -> None:
        """The application ends an advertisement."""
        client, name = self._client, given.advertisement
        if name not in self.advertisements:
            raise LocalProtocolError(f"{client.id} has no advertisement {name!r}")
        del self.advertisements[name]
        self._offered.remove(name)
        client.state(facts.Unadvertised(at=client.id, time=now, advertisement=name))
        self._announce_in_order(AdvertisementChange(removed=(client.route(name),)), now)

    def publish(self, given: inputs.Publish, now: Time) -> None:
        """The application publishes an event."""
        self._publish(((given.attributes, given.payload),), now, now)

    def publish_many(self, given: inputs.PublishMany, now: Time) -> None:
        """The application publishes events at once."""
        self._publish(given.events, now if given.time_us is None else given.time_us, now)

    def _publish(
        self, given: Sequence[tuple[Mapping[str, Scalar], bytes]], time_us: Time, now: Time
    ) -> None:
        """Publish all or none: an event that cannot be published leaves nothing behind."""
        client, first = self._client, self.seq + 1
        events = tuple(
            Event(
                publisher=client.id,
                seq=seq,
                time_us=time_us,
                attributes=attributes,
                payload=payload,
            )
            for seq, (attributes, payload) in enumerate(given, first)
        )
        if self.options.advertisements and not all(
            self._offered.match(event.attributes) for event in events
        ):
            raise LocalProtocolError(
                f"{client.id} has advertised nothing that matches this event; advertise it first"
            )
        self.seq += len(events)
        client.state(facts.Published(at=client.id, time=now, events=events))
        self._ask_for_interest(now)
        if self._may_go:
            for batch in batches(events):
                self._emit(batch, now)
            return
        for event in events:
            victim = self._outbox.put(event)
            if victim is not None:
                client.state(facts.Purged(at=client.id, time=now, events=(victim,)))

    # ---- From the broker

    def interest_changed(self, message: SubscriptionChange) -> None:
        """The broker announces what others want."""
        self._interest.change(message)

    def interest_known(self, message: InterestKnown, now: Time) -> None:
        """The broker has announced everything that is wanted."""
        if message.number == self._interest.asked:
            self._interest.current = True
            self.flush(now)

    def arrived(self, last: int, now: Time) -> None:
        """The network has the events up to a number; they need not be sent again.

        If the last one is of another life, it has not: subscribers would take those that wait for
        repeated ones.
        """
        client, dropped = self._client, self._outbox.drop(last)
        if dropped and dropped[-1].seq != last:
            client.state(facts.Purged(at=client.id, time=now, events=tuple(dropped)))

    def number_above(self, seq: int) -> None:
        """Another life of the client has used numbers up to this one; those that wait keep theirs.

        Subscribers take an event with a smaller number than another one for a repeated one.
        """
        if self.seq == self._first_seq:
            self._first_seq = max(self._first_seq, seq)
        self.seq = max(self.seq, seq)

    # ---- Links

    def link_new(self) -> None:
        """The broker knows nothing of this client."""
        self._interest.forget()

    def link_up(self, now: Time) -> None:
        """The link is up (again)."""
        self._interest.current = self._has_asked = False
        self.flush(now)

    def introduction(self) -> tuple[Route, ...]:
        """The advertisements that a new broker has to know; from now on only changes are sent."""
        self._undo.clear()
        return tuple(self._announced.values())

    def take_back(self, unconfirmed: Sequence[Message]) -> None:
        """Send again to the next broker, in order, what may not have arrived."""
        changes = [
            (change, before)
            for change, before in self._undo
            if any(message is change for message in unconfirmed)
        ]
        for change, before in reversed(changes):
            for route in change.added:
                del self._announced[route.id]
            self._announced |= {route.id: route for route in before}
        self._undo.clear()
        back: list[Event | Message] = []
        for message in unconfirmed:
            if isinstance(message, Events):
                back += message.events
            elif any(message is change for change, _ in changes):
                back.append(message)
        self._outbox.put_back(back)

    # ---- Going out

    @property
    def _may_go(self) -> bool:
        """Whether events can go out at once."""
        return self._client.may_publish and (not self.options.quenching or self._interest.current)

    def flush(self, now: Time) -> None:
        """Send everything that waited, if it can be sent now."""
        if self.seq > self._first_seq or self._outbox:
            self._ask_for_interest(now)
        if self._may_go:
            for waiting in self._outbox.take():
                if isinstance(waiting, Message):
                    self._announce(cast("AdvertisementChange", waiting), now)
                else:
                    self._emit(waiting, now)

    def _ask_for_interest(self, now: Time) -> None:
        """Ask what is wanted, if the client publishes; others need not know."""
        client = self._client
        if not self.options.quenching or self._has_asked:
            return
        if client.is_introduced and client.link in client.up:
            self._has_asked = True
            self._interest.asked += 1
            client.tell(InterestAsked(number=self._interest.asked), now)

    def _emit(self, events: tuple[Event, ...], now: Time) -> None:
        client = self._client
        if self.options.quenching:
            published = events
            events = tuple(event for event in published if self._interest.wants(event))
            if len(events) < len(published):
                wanted = {event.seq for event in events}
                quenched = tuple(event for event in published if event.seq not in wanted)
                client.state(facts.Quenched(at=client.id, time=now, events=quenched))
        if events:
            client.tell(Events(events=events), now)

    def _announce_in_order(self, change: AdvertisementChange, now: Time) -> None:
        """Announce a change that must not overtake the events that wait, nor a farewell."""
        if self._outbox or self._client.has_sent_farewell:
            self._outbox.put_message(change)
        else:
            self._announce(change, now)

    def _announce(self, change: AdvertisementChange, now: Time) -> None:
        client = self._client
        before = tuple(self._announced.pop(id_) for id_ in change.removed)
        self._announced |= {route.id: route for route in change.added}
        if client.is_introduced and client.link is not None:
            if not client.backlog(client.link):
                self._undo.clear()
            self._undo.append((change, before))
        client.tell(change, now)

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptPublishing:
        """What a snapshot has to hold."""
        client, link = self._client, self._client.link
        sent = list(client.unconfirmed_first(link)) if link in client.peers else []
        return KeptPublishing(
            advertisements=self.advertisements,
            seq=self.seq,
            first_seq=self._first_seq,
            announced=list(self._announced.values()),
            undo=[
                (place, ended)
                for change, ended in self._undo
                for place, message in enumerate(sent)
                if message is change
            ],
            interest=self._interest.keep(),
            has_asked=self._has_asked,
            outbox=self._outbox.keep(writer),
        )

    def restore(self, kept: KeptPublishing, reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        self.advertisements = kept.advertisements
        for name, filter_ in self.advertisements.items():
            self._offered.add(name, filter_)
        self.seq, self._first_seq = kept.seq, kept.first_seq
        self._announced = {route.id: route for route in kept.announced}
        if kept.undo:
            sent = list(self._client.unconfirmed_first(self._client.link or ""))
            self._undo = [
                (cast("AdvertisementChange", sent[place]), ended) for place, ended in kept.undo
            ]
        self._interest.restore(kept.interest)
        self._has_asked = kept.has_asked
        self._outbox.restore(kept.outbox, reader)
