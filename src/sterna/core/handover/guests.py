"""The clients of a border broker, and what it keeps for them.

A guest is here, away, or forgetful: its link was reset, and it is going to introduce itself again.
Whatever it is, what it missed elsewhere may still be on its way; until that has come, the guest
*waits* and gets nothing else (the paper's blocking flag).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from sterna.core import facts
from sterna.core.broker import Broker
from sterna.core.handover.cache import (
    NO_POLICIES,
    NOT_DUE,
    Cache,
    Due,
    Gone,
    KeptCache,
    Policies,
    read,
)
from sterna.core.handover.messages import Arrival, Replayed
from sterna.core.handover.missed import PUBLISHER_BYTES, Missed
from sterna.core.handover.options import HandoverOptions
from sterna.core.handover.transfers import KeptTransfer, Transfer
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Events, Message
from sterna.core.names import NEVER, NodeId, RouteId, Time
from sterna.core.sizes import Load, weight
from sterna.model.event import Event, EventId
from sterna.model.ranges import VISIT_MAX

KeptForMoving = dict[EventId, tuple[RouteId, ...]]
"""The moving subscriptions that each event is kept for, by where the client was then."""


Ages = dict[EventId, Time]
"""For how long events have waited, here and elsewhere, as far as a policy counts that."""

ONE_BY_ONE_MAX = 32
"""Up to so many subscriptions of a client are tested one by one: that is faster then."""


WHATEVER = ""
"""Stands for no subscription: the event is kept as long as it may be."""

VISITOR = ""
"""Stands for all subscriptions of a visitor, which its home broker knows."""


class Presence(Enum):
    """Whether events can be sent to a guest."""

    HERE = "here"
    AWAY = "away"
    FORGETFUL = "forgetful"
    """It has yet to introduce itself: its link was reset, or it has not come yet."""


class Moment(Enum):
    """What changes the presence of a guest."""

    LINK_UP = "link up"
    LINK_DOWN = "link down"
    LINK_RESET = "link reset"
    ARRIVAL = "arrival"


TRANSITIONS: Mapping[tuple[Presence, Moment], Presence] = {
    (Presence.HERE, Moment.LINK_UP): Presence.HERE,
    (Presence.HERE, Moment.LINK_DOWN): Presence.AWAY,
    (Presence.HERE, Moment.LINK_RESET): Presence.FORGETFUL,
    (Presence.HERE, Moment.ARRIVAL): Presence.HERE,
    (Presence.AWAY, Moment.LINK_UP): Presence.HERE,
    (Presence.AWAY, Moment.LINK_DOWN): Presence.AWAY,
    (Presence.AWAY, Moment.LINK_RESET): Presence.FORGETFUL,
    (Presence.AWAY, Moment.ARRIVAL): Presence.HERE,
    (Presence.FORGETFUL, Moment.LINK_UP): Presence.FORGETFUL,
    (Presence.FORGETFUL, Moment.LINK_DOWN): Presence.FORGETFUL,
    (Presence.FORGETFUL, Moment.LINK_RESET): Presence.FORGETFUL,
    (Presence.FORGETFUL, Moment.ARRIVAL): Presence.HERE,
}


@dataclass(slots=True)
class Guest:
    """A client whose border broker this is, or is about to be."""

    visit: int
    born: int
    cache: Cache
    presence: Presence = Presence.HERE
    awaits: int | None = None
    """The number of the request whose replay has to come first; None if the guest does not wait."""
    stay: int = 0
    """The visit on which the guest was welcomed."""
    sent: int = 0
    """How many events were sent to the guest since it was welcomed."""
    lost: list[Event] = field(default_factory=list)
    """Events that the guest had not confirmed when its link was reset."""
    missed: Missed = field(default_factory=Missed)
    """Events that were discarded while they were kept for the guest, because of a bound."""
    purged: dict[NodeId, int] = field(default_factory=dict)
    """The last event of each publisher that a policy of the guest did without."""
    moving: KeptForMoving = field(default_factory=dict)
    published: int = 0
    """The number of the guest's last event that came through here."""
    departing: int = 0
    """The visit on which the guest sent its farewell; 0 if it has not."""
    away_since: Time | None = None
    """When the guest's connection was lost; None while it is up."""
    numbered: int | None = None
    """The number of its last event when it arrived, or of an earlier life's; None: not known."""
    latest: int = 0
    """The last visit to a broker that has handed the guest over to this one."""
    brings: bool = True
    """Whether it brought its subscriptions and advertisements when it arrived."""
    previous: NodeId = ""
    """The broker that has handed it over; empty if none has."""
    transfer: Transfer | None = None
    """What it waits for, if that is fetched from a broker that it named."""
    home: NodeId = ""
    """The broker that keeps its subscriptions, if that is another one: then it is a visitor."""
    known: int = 0
    """Stands for what that broker has subscribed for it."""
    has_changed: bool = False
    """Whether that broker was told of changes since."""
    names: dict[RouteId, None] = field(default_factory=dict)
    """The names of a visitor's subscriptions, which count towards what a client may have."""
    is_unaware: bool = False
    """Whether it has to be welcomed once more on this visit, to hear what is known of it now."""
    new_after: Time = NEVER
    """What was published later than this is surely new to the guest; NEVER if nothing surely is."""
    ahead: dict[EventId, None] = field(default_factory=dict)
    """The events that were sent to the guest ahead of what it waits for; they are kept as well."""
    weighed: tuple[int, int] = 0, 0
    """How many events were lost when they were last weighed, and about how many bytes these are."""

    @property
    def load(self) -> Load:
        """How much is kept for the guest."""
        return self.cache.load.plus(self.burden)

    @property
    def burden(self) -> Load:
        """What cannot be discarded: events that may be lost, and the news of those that are."""
        if self.weighed[0] != len(self.lost):
            self.weighed = len(self.lost), sum(map(weight, self.lost))
        news_bytes = self.missed.memory_bytes + PUBLISHER_BYTES * len(self.purged)
        return Load(len(self.lost), self.weighed[1] + news_bytes)

    def pass_through(self, moment: Moment) -> None:
        """Follow a moment that changes the guest's presence."""
        self.presence = TRANSITIONS[self.presence, moment]

    def arrive(self, message: Arrival) -> None:
        """Follow an arrival of the guest."""
        self.visit, self.away_since, self.brings = message.visit, None, message.brings
        self.pass_through(Moment.ARRIVAL)

    @property
    def is_here(self) -> bool:
        """Whether events can be sent to the guest."""
        return self.presence is Presence.HERE

    @property
    def waits(self) -> bool:
        """Whether what the guest missed elsewhere is still on its way."""
        return self.awaits is not None

    @property
    def is_served(self) -> bool:
        """Whether events go to the guest as they arrive."""
        return self.awaits is None and self.presence is Presence.HERE


class KeptGuest(msgspec.Struct, frozen=True):
    """What a snapshot holds of a guest."""

    client: NodeId
    visit: int
    born: int
    presence: Presence
    awaits: int | None
    stay: int
    sent: int
    cache: KeptCache
    lost: list[int]
    missed: list[EventId]
    moving: list[tuple[EventId, tuple[RouteId, ...]]]
    published: int
    departing: int
    away_since: Time | None
    numbered: int | None = None
    latest: int = VISIT_MAX
    brings: bool = True
    previous: NodeId = ""
    transfer: KeptTransfer | None = None
    home: NodeId = ""
    known: int = 0
    has_changed: bool = False
    is_unaware: bool = False
    new_after: Time = NEVER
    ahead: tuple[EventId, ...] = ()
    purged: dict[NodeId, int] = {}
    names: tuple[RouteId, ...] = ()


class Guests(dict[NodeId, Guest]):
    """The guests of one broker by name, with the bounds of what is kept for them."""

    def __init__(self, options: HandoverOptions) -> None:
        super().__init__()
        self.options = options

    def configure(self, options: HandoverOptions, now: Time) -> None:
        """Other bounds hold from now on; see `Cache.bound`. A shorter absence begins anew."""
        before, self.options = self.options.away_max_us, options
        is_shorter = options.away_max_us is not None and (
            before is None or options.away_max_us < before
        )
        for guest in self.values():
            guest.cache.bound(
                options.cache_events_max, options.cache_ttl_us, options.cache_bytes_max, now=now
            )
            if is_shorter and guest.away_since is not None:
                guest.away_since = max(guest.away_since, now)

    def admit(self, client: NodeId, visit: int, born: int, *, is_here: bool = True) -> Guest:
        """A client is a guest from now on."""
        presence = Presence.HERE if is_here else Presence.AWAY
        guest = self[client] = Guest(visit, born, self._cache(), presence)
        return guest

    def _cache(self) -> Cache:
        options = self.options
        return Cache(options.cache_events_max, options.cache_ttl_us, options.cache_bytes_max)

    # ---- What is kept

    def keep(
        self, broker: Broker, client: NodeId, events: Sequence[Event], now: Time,
        policies: Policies = NO_POLICIES, *, again: bool = False, waited: Ages | None = None,
    ) -> Due:  # fmt: skip
        """Keep the events that are wanted; `again` if that was decided when they arrived.

        They may have `waited` elsewhere before. Return when policies do without the first.
        """
        guest, waited, due = self[client], waited or {}, NOT_DUE
        for event in events:
            wanting = [VISITOR] if guest.home else matching(broker, client, event)
            if again:
                wanting += guest.moving.get(event.id, ())
            else:
                wanting += _matching_here(broker, client, guest, event)
            if wanting:
                gone = guest.cache.keep(event, wanting, now, policies, waited.get(event.id, 0))
                self._discard(broker, client, gone, now)
                time, lifetime_us = guest.cache.due(wanting)
                due = Due(min(due.time, time), min(due.lifetime_us, lifetime_us))
        return due

    def sift(
        self, broker: Broker, client: NodeId, events: Sequence[Event], now: Time,
        policies: Policies, waited: Ages,
    ) -> list[Event]:  # fmt: skip
        """Of events that have waited at several places, those that one queue would have kept."""
        if not policies:
            return [*events]
        guest, queue = self[client], Cache(len(events) + 1, None)
        gone: list[Gone] = []
        for event in {event.id: event for event in events}.values():
            wanting = [*matching(broker, client, event), *guest.moving.get(event.id, ())]
            wanting = wanting or [WHATEVER]
            gone += queue.keep(event, wanting, now, policies, waited.get(event.id, 0))
        self._discard(broker, client, gone, now)
        return read(queue.take(), broker.depot)

    def kept(
        self, broker: Broker, client: NodeId, now: Time, waited: Ages | None = None
    ) -> list[Event]:
        """All that is kept for a guest, and stays here: what it did not confirm comes first.

        Those that have `waited` are entered there.
        """
        guest = self[client]
        unconfirmed = broker.unconfirmed(client) if client in broker.peers else ()
        cached = read(guest.cache.events(), broker.depot)
        if waited is not None:
            ages = guest.cache.waited(now)
            waited.update(zip((event.id for event in cached), ages, strict=True))
        return [*guest.lost, *events_in(unconfirmed), *cached]

    def take(
        self, broker: Broker, client: NodeId, now: Time, waited: Ages | None = None
    ) -> list[Event]:
        """Take what is kept for a guest, without what has just expired.

        Those that have `waited` are entered there.
        """
        guest = self[client]
        self._discard(broker, client, guest.cache.expire(now), now)
        ages = () if waited is None else guest.cache.waited(now)
        events = read(guest.cache.take(), broker.depot)
        if waited is not None:
            waited.update(zip((event.id for event in events), ages, strict=True))
        return events

    def expire(self, broker: Broker, now: Time, look_again: Callable[[Time], None]) -> None:
        """Discard what has expired, and ask to be called when the next expiry is due."""
        for client, guest in self.items():
            self._discard(broker, client, guest.cache.expire(now), now)
            look_again(guest.cache.expires_at)

    def expire_by_policy(
        self, broker: Broker, now: Time, look_again: Callable[[Due], None]
    ) -> None:
        """The same for events to which policies give a time."""
        for client, guest in self.items():
            if guest.cache.due().time <= now:
                self._discard(broker, client, guest.cache.expire(now), now)
            look_again(guest.cache.due())

    def away(self) -> list[NodeId]:
        """The guests whose connections are lost."""
        return [client for client, guest in self.items() if guest.away_since is not None]

    def keep_less(self, broker: Broker, memory_bytes: int, now: Time) -> None:
        """Keep no more than so many bytes for all guests that are away: for each at most as much
        as for any other that has to lose something.
        """
        sizes = {client: self[client].cache.load.memory_bytes for client in self.away()}
        level = _level(sizes.values(), memory_bytes)
        for client, size in sizes.items():
            if level is not None and size > level:
                self._discard(broker, client, self[client].cache.shrink(level), now)

    def discard_spilled(self, broker: Broker, bytes_: int, now: Time) -> bool:
        """Discard about so many bytes of what was spilled for guests that are away, from those for
        which the most was. Whether there was something.
        """
        sizes = {client: self[client].cache.spilled_bytes for client in self.away()}
        level = _level(sizes.values(), max(0, sum(sizes.values()) - bytes_))
        for client, size in sizes.items():
            if level is not None and size > level:
                self._discard(broker, client, self[client].cache.discard_spilled(level), now)
        return any(sizes.values())

    def not_received(
        self, broker: Broker, client: NodeId, stay: int, received: int, unconfirmed: list[Event]
    ) -> list[Event]:
        """Of the events that were sent and not confirmed, those that were lost and wanted.

        The guest has received so many events on the stay on which it was last welcomed.
        """
        guest = self[client]
        received = received if stay == guest.stay else 0
        lost = unconfirmed[max(0, len(unconfirmed) - (guest.sent - received)) :]
        return [
            event
            for event in lost
            if event.id in guest.moving
            or (not guest.home and matching(broker, client, event))
            or _matching_here(broker, client, guest, event)
            or guest.home
        ]

    def _discard(self, broker: Broker, client: NodeId, gone: Sequence[Gone], now: Time) -> None:
        """State which events are kept no longer. The guest misses those that no policy named."""
        guest = self[client]
        events = read([each.event for each in gone], broker.depot)
        by_policy: dict[str, list[Event]] = {}
        for event, each in zip(events, gone, strict=True):
            guest.moving.pop(event.id, None)
            by_policy.setdefault(each.policy, []).append(event)
        for policy, found in by_policy.items():
            if policy:
                for event in found:
                    last = guest.purged.get(event.publisher, 0)
                    guest.purged[event.publisher] = max(event.seq, last)
            else:
                guest.missed.add(event.id for event in found)
            broker.state(
                facts.Discarded(
                    at=broker.id, time=now, client=client, events=tuple(found), policy=policy
                )
            )

    # ---- Snapshots

    def keep_all(self, writer: Writer) -> list[KeptGuest]:
        """What a snapshot has to hold."""
        return [
            KeptGuest(
                client=client,
                visit=guest.visit,
                born=guest.born,
                presence=guest.presence,
                awaits=guest.awaits,
                stay=guest.stay,
                sent=guest.sent,
                cache=guest.cache.keep_all(writer),
                lost=[writer.event(event) for event in guest.lost],
                missed=list(guest.missed),
                moving=list(guest.moving.items()),
                published=guest.published,
                departing=guest.departing,
                away_since=guest.away_since,
                numbered=guest.numbered,
                latest=guest.latest,
                brings=guest.brings,
                previous=guest.previous,
                transfer=None if guest.transfer is None else guest.transfer.keep(writer),
                home=guest.home,
                known=guest.known,
                has_changed=guest.has_changed,
                is_unaware=guest.is_unaware,
                new_after=guest.new_after,
                ahead=tuple(guest.ahead),
                purged=dict(guest.purged),
                names=tuple(guest.names),
            )
            for client, guest in self.items()
        ]

    def restore(self, kept: Iterable[KeptGuest], reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        for each in kept:
            guest = self[each.client] = Guest(
                visit=each.visit,
                born=each.born,
                cache=self._cache(),
                presence=each.presence,
                awaits=each.awaits,
                stay=each.stay,
                sent=each.sent,
                lost=[reader.event(number) for number in each.lost],
                missed=Missed(each.missed),
                moving=dict(each.moving),
                published=each.published,
                departing=each.departing,
                away_since=each.away_since,
                numbered=each.numbered,
                latest=each.latest,
                brings=each.brings,
                previous=each.previous,
                transfer=None if each.transfer is None else each.transfer.restored(reader),
                home=each.home,
                known=each.known,
                has_changed=each.has_changed,
                is_unaware=each.is_unaware,
                new_after=each.new_after,
                ahead=dict.fromkeys(each.ahead),
                purged=dict(each.purged),
                names=dict.fromkeys(each.names),
            )
            guest.cache.restore(each.cache, reader)


def _level(sizes: Collection[int], total: int) -> int | None:
    """The size that none may exceed for all to have no more than a total; None if they have not."""
    left = total
    for place, size in enumerate(sorted(sizes)):
        level = left // (len(sizes) - place)
        if size > level:
            return level
        left -= size
    return None


def events_in(messages: Iterable[Message]) -> list[Event]:
    """The events that messages to a guest hold."""
    return [
        event
        for message in messages
        if isinstance(message, Events | Replayed)
        for event in message.events
    ]


def missed_in(messages: Iterable[Message]) -> list[EventId]:
    """The events that messages to a guest report as discarded."""
    return [id_ for message in messages if isinstance(message, Replayed) for id_ in message.missed]


def moving_in(messages: Iterable[Message]) -> KeptForMoving:
    """For which moving subscriptions the events in messages to a guest were kept."""
    return {
        id_: wanting
        for message in messages
        if isinstance(message, Replayed)
        for id_, wanting in message.moving
    }


def matching(broker: Broker, client: NodeId, event: Event) -> list[RouteId]:
    """The client's subscriptions that want an event."""
    table, texts = broker.router.subscriptions, broker.texts
    routes = table.routes(client)
    if len(routes) > ONE_BY_ONE_MAX and texts is None:
        return table.wanting(client, event)
    return [id_ for id_, each in routes.items() if each.filter.matches(event.attributes, texts)]


def _matching_here(
    broker: Broker, client: NodeId, guest: Guest, event: Event
) -> tuple[RouteId, ...]:
    """The client's moving subscriptions that want an event where it was last."""
    found = tuple(
        id_
        for exact in broker.hooks.exact
        for id_, filter_ in exact(client)
        if filter_.matches(event.attributes, broker.texts)
    )
    if found:
        guest.moving[event.id] = found
    return found
