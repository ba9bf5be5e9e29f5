"""A client: what the papers call the local broker, between an application and its border broker."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from sterna.core import facts, inputs
from sterna.core.actions import Connect, Deliver, Disconnect
from sterna.core.component import Component, overriding
from sterna.core.handover.messages import Farewell, KeptFor
from sterna.core.history.messages import PastAsked
from sterna.core.history.recent import Recall
from sterna.core.keeping import Part, Reader, Record, Writer
from sterna.core.link import LinkTiming
from sterna.core.location.whereabouts import Whereabouts
from sterna.core.messages import (
    AdvertisementChange,
    Events,
    InterestAsked,
    InterestKnown,
    Message,
    Route,
    SubscriptionChange,
)
from sterna.core.names import NEVER, LinkId, LocalProtocolError, NodeId, RouteId, Time
from sterna.core.node import Node, PartsOf
from sterna.core.quenching import Interest, KeptInterest, KeptOutbox, Outbox
from sterna.core.settings import ClientOptions, Settings
from sterna.core.sizes import batches
from sterna.matching import MatchIndex
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter

ANYTHING = ""
"""The name of the advertisement of a client that has not had to advertise."""

EVERYTHING = Filter("TRUE")

CLIENT = "client"
"""The name under which a snapshot holds what every client keeps."""


class KeptClient(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of every client."""

    subscriptions: dict[str, Filter]
    advertisements: dict[str, Filter]
    seq: int
    first_seq: int
    link: LinkId | None
    is_introduced: bool
    announced: list[Route]
    undo: list[tuple[int, tuple[Route, ...]]]
    """For each change of advertisements that is not confirmed, its place among the messages that
    are not, and the advertisements that it ended."""
    interest: KeptInterest
    has_asked: bool
    is_leaving: bool
    has_said_farewell: bool
    comes_back: bool
    outbox: KeptOutbox


KEPT_CLIENT = Record(1, KeptClient)


class Client(Node):
    """Publishes and subscribes for one application, over a link to one broker."""

    def __init__(
        self,
        id_: NodeId,
        options: ClientOptions | None = None,
        components: Sequence[Component] = (),
        *,
        settings: Settings | None = None,
        parts: PartsOf | None = None,
        timing: LinkTiming | None = None,
        incarnation: int = 0,
        seq: int = 0,
    ) -> None:
        """`seq` is the number of the last event it has ever published, if it was there before."""
        super().__init__(
            id_, components, settings=settings, parts=parts, timing=timing, incarnation=incarnation
        )
        self.options = options or ClientOptions()
        self.subscriptions: dict[str, Filter] = {}
        self.advertisements: dict[str, Filter] = {}
        self._wanted: MatchIndex[str] = MatchIndex()
        self._offered: MatchIndex[str] = MatchIndex()
        self._seq = self._first_seq = seq
        self._link: LinkId | None = None
        """The broker it works through, or wants to."""
        self._is_introduced = False
        """Whether that broker knows what the client wants and offers."""
        self._announced: dict[RouteId, Route] = {}
        """The advertisements that hold for what is said next; others may wait with the events."""
        self._undo: list[tuple[AdvertisementChange, tuple[Route, ...]]] = []
        """What was said of advertisements and may not have arrived, with those that it ended."""
        self._interest = Interest()
        """What is wanted, as far as the broker has told; only used if the network quenches."""
        self._has_asked = False
        """Whether the broker was asked what is wanted since the link is up."""
        self._is_leaving = False
        """Whether the application wants to be forgotten, …"""
        self._has_said_farewell = False
        """… whether the broker was told, …"""
        self._comes_back = False
        """… and whether it comes back then, as a new client."""
        self._outgoing = Outbox(self.options.buffer_events_max, self._known_interest)
        self._handlers |= {
            inputs.Subscribe: self._subscribe,
            inputs.Unsubscribe: self._unsubscribe,
            inputs.Advertise: self._advertise,
            inputs.Unadvertise: self._unadvertise,
            inputs.Publish: self._publish,
            inputs.PublishMany: self._publish_many,
            inputs.Leave: self._leave,
            inputs.Attach: self._attach,
            inputs.Detach: self._detach,
            inputs.MoveTo: self._move_to,
            inputs.SetVariable: self._set_variable,
        }

    def _assemble(self) -> None:
        super()._assemble()
        self._on_message.setdefault(SubscriptionChange, self.on_subscription_change)
        self._on_message.setdefault(InterestKnown, self.on_interest_known)
        self._at_events_arriving = overriding(self.components, "events_arriving")
        self._at_delivering = overriding(self.components, "delivering")
        self._at_introduces = overriding(self.components, "introduces")
        self._at_introduction = overriding(self.components, "introduction")
        self._at_introduction_sent = overriding(self.components, "introduction_sent")
        self._at_may_publish = overriding(self.components, "may_publish")
        self._at_left = overriding(self.components, "left")
        self._at_unsubscribed = overriding(self.components, "unsubscribed")

    # ---- Settings and snapshots

    def reconfigured(self, before: Settings, now: Time) -> None:
        self.options = options = self.settings.client
        if options.quenching and not before.client.quenching:
            self._interest.current = self._has_asked = False
        self._outgoing.configure(options.buffer_events_max, self._known_interest)
        if options.advertisements and not before.client.advertisements and not self.advertisements:
            # The application did not have to advertise so far: it may publish anything, and what
            # waits was published already.
            self._say(self._offer(ANYTHING, EVERYTHING, now), now)
        self.flush(now)

    def keep(self, writer: Writer) -> list[Part]:
        sent: dict[int, int] = {}
        if self._link is not None and self._link in self.peers:
            for place, message in enumerate(self.unconfirmed_first(self._link)):
                for number, (change, _) in enumerate(self._undo):
                    if message is change:
                        sent[number] = place
        kept = KeptClient(
            subscriptions=self.subscriptions,
            advertisements=self.advertisements,
            seq=self._seq,
            first_seq=self._first_seq,
            link=self._link,
            is_introduced=self._is_introduced,
            announced=list(self._announced.values()),
            undo=[(place, self._undo[number][1]) for number, place in sent.items()],
            interest=self._interest.keep(),
            has_asked=self._has_asked,
            is_leaving=self._is_leaving,
            has_said_farewell=self._has_said_farewell,
            comes_back=self._comes_back,
            outbox=self._outgoing.keep(writer),
        )
        return [*super().keep(writer), Part(CLIENT, KEPT_CLIENT.version, kept)]

    def records(self) -> dict[str, Record]:
        return {**super().records(), CLIENT: KEPT_CLIENT}

    def restore(self, kept: Mapping[str, Any], reader: Reader) -> None:
        super().restore(kept, reader)
        mine: KeptClient = kept[CLIENT]
        self.subscriptions, self.advertisements = mine.subscriptions, mine.advertisements
        for name, filter_ in self.subscriptions.items():
            exact = filter_ if filter_.is_bound else self._whereabouts.context.exact(filter_)
            self._wanted.add(name, exact)
        for name, filter_ in self.advertisements.items():
            self._offered.add(name, filter_)
        self._seq, self._first_seq, self._link = mine.seq, mine.first_seq, mine.link
        self._is_introduced = mine.is_introduced
        self._announced = {route.id: route for route in mine.announced}
        if mine.undo and mine.link is not None:
            sent = list(self.unconfirmed_first(mine.link))
            self._undo = [
                (cast("AdvertisementChange", sent[place]), ended) for place, ended in mine.undo
            ]
        self._interest.restore(mine.interest)
        self._has_asked, self._is_leaving = mine.has_asked, mine.is_leaving
        self._has_said_farewell, self._comes_back = mine.has_said_farewell, mine.comes_back
        self._outgoing.restore(mine.outbox, reader)

    @property
    def _known_interest(self) -> Interest | None:
        """What is wanted, if the network quenches."""
        return self._interest if self.options.quenching else None

    @property
    def link(self) -> LinkId | None:
        """The broker it works through, or wants to."""
        return self._link

    @property
    def is_introduced(self) -> bool:
        """Whether that broker knows what the client wants and offers."""
        return self._is_introduced

    @property
    def is_welcome(self) -> bool:
        """Whether its broker takes what it publishes, and gives it what it wants."""
        return self._link in self.up and all(may() for may in self._at_may_publish)

    @property
    def published(self) -> int:
        """The number of its last event."""
        return self._seq

    # ---- From the application

    def _subscribe(self, given: inputs.Subscribe, now: Time) -> None:
        name, filter_ = given.subscription, given.filter
        if name in self.subscriptions:
            raise LocalProtocolError(f"{self.id} has a subscription {name!r}; unsubscribe it first")
        wants_past = given.past_events_max is not None or given.past_since_us is not None
        if wants_past and filter_.uses_myloc:
            raise LocalProtocolError(
                "the past of a subscription with `myloc` depends on where the client was; "
                "ask for places by name"
            )
        exact = filter_ if filter_.is_bound else self._whereabouts.context.exact(filter_)
        self._wanted.add(name, exact)
        self.subscriptions[name] = filter_
        self.state(facts.Subscribed(at=self.id, time=now, subscription=name, filter=filter_))
        if not filter_.is_bound:
            self.state(facts.Adapted(at=self.id, time=now, subscription=name, filter=exact))
        if filter_.uses_myloc:
            self._whereabouts.tell(now)
        elif wants_past:
            self._recall.ask(
                PastAsked(
                    route=self.told(name),
                    events_max=given.past_events_max,
                    since_us=given.past_since_us,
                ),
                now,
            )
        else:
            self.tell_again([name], now)

    def _unsubscribe(self, given: inputs.Unsubscribe, now: Time) -> None:
        name = given.subscription
        if name not in self.subscriptions:
            raise LocalProtocolError(f"{self.id} has no subscription {name!r}")
        filter_ = self.subscriptions.pop(name)
        self._wanted.remove(name)
        for unsubscribed in self._at_unsubscribed:
            unsubscribed(name, now)
        self.state(facts.Unsubscribed(at=self.id, time=now, subscription=name))
        if filter_.uses_myloc:
            self._whereabouts.tell(now)
        else:
            self._say(SubscriptionChange(removed=(self.route(name),)), now)

    def _advertise(self, given: inputs.Advertise, now: Time) -> None:
        name, filter_ = given.advertisement, given.filter
        if name in self.advertisements:
            raise LocalProtocolError(
                f"{self.id} has an advertisement {name!r}; unadvertise it first"
            )
        self._say_in_order(self._offer(name, filter_, now), now)
        if name != ANYTHING and ANYTHING in self.advertisements:  # Now it says what it publishes.
            self._unadvertise(inputs.Unadvertise(advertisement=ANYTHING), now)

    def _offer(self, name: str, filter_: Filter, now: Time) -> AdvertisementChange:
        self._offered.add(name, filter_)
        self.advertisements[name] = filter_
        self.state(facts.Advertised(at=self.id, time=now, advertisement=name, filter=filter_))
        return AdvertisementChange(added=(Route(self.route(name), filter_),))

    def _unadvertise(self, given: inputs.Unadvertise, now: Time) -> None:
        name = given.advertisement
        if name not in self.advertisements:
            raise LocalProtocolError(f"{self.id} has no advertisement {name!r}")
        del self.advertisements[name]
        self._offered.remove(name)
        self.state(facts.Unadvertised(at=self.id, time=now, advertisement=name))
        self._say_in_order(AdvertisementChange(removed=(self.route(name),)), now)

    def _publish(self, given: inputs.Publish, now: Time) -> None:
        self._publish_all(((given.attributes, given.payload),), now)

    def _publish_many(self, given: inputs.PublishMany, now: Time) -> None:
        self._publish_all(given.events, now)

    def _publish_all(self, given: Sequence[tuple[Mapping[str, Scalar], bytes]], now: Time) -> None:
        """All or none: an event that cannot be published leaves nothing behind."""
        first = self._seq + 1
        events = tuple(
            Event(publisher=self.id, seq=seq, time_us=now, attributes=attributes, payload=payload)
            for seq, (attributes, payload) in enumerate(given, first)
        )
        if self.options.advertisements and not all(
            self._offered.match(event.attributes) for event in events
        ):
            raise LocalProtocolError(
                f"{self.id} has advertised nothing that matches this event; advertise it first"
            )
        self._seq += len(events)
        self.state(facts.Published(at=self.id, time=now, events=events))
        self._ask_for_interest(now)
        if self._ready:
            for batch in batches(events):
                self._emit(batch, now)
            return
        for event in events:
            victim = self._outgoing.put(event)
            if victim is not None:
                self.state(facts.Purged(at=self.id, time=now, events=(victim,)))

    @property
    def accepted(self) -> int:
        """The number of the last event that its broker has, and all before it."""
        waiting = self._outgoing.first_seq()
        if self._link is not None and self._link in self.peers:
            waiting = min(waiting, self._unaccepted(self._link))
        return min(self._seq, waiting - 1)

    def _unaccepted(self, link: LinkId) -> int:
        for message in self.unconfirmed_first(link):
            if type(message) is Events:
                return message.events[0].seq
        return NEVER

    def _leave(self, _given: inputs.Leave, now: Time) -> None:
        for subscription in list(self.subscriptions):
            self._unsubscribe(inputs.Unsubscribe(subscription=subscription), now)
        for advertisement in list(self.advertisements):
            self._unadvertise(inputs.Unadvertise(advertisement=advertisement), now)
        self._is_leaving = True
        self._comes_back = False
        self._say_farewell(now)

    def _attach(self, given: inputs.Attach, now: Time) -> None:
        self._comes_back = self._is_leaving
        if self._link is not None and self._link != given.broker:
            self.act(Disconnect(self._link))
            self.forget(self._link, now)
        self._link = given.broker
        self.act(Connect(given.broker))

    def _detach(self, _given: inputs.Detach, _now: Time) -> None:
        self._comes_back = False
        self.act(Disconnect(self._broker()))

    def _move_to(self, given: inputs.MoveTo, now: Time) -> None:
        self._whereabouts.move(given, now)

    def _set_variable(self, given: inputs.SetVariable, now: Time) -> None:
        self._whereabouts.set(given, now)

    # ---- From the broker

    def events_arrived(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        for arriving in self._at_events_arriving:
            events = arriving(events, link, now)
        self.take(events, now)

    def take(self, events: Sequence[Event], now: Time, *, kept_for: KeptFor | None = None) -> None:
        """Give the application what it wants of these events.

        What was kept for the client may be for a moving subscription at a place where it was.
        """
        found = [tuple(self._wanted.match(event.attributes)) for event in events]
        if kept_for is not None:
            kept = dict(kept_for)
            found = [
                tuple(dict.fromkeys((*names, *self._wanted_then(kept.get(event.id, ())))))
                for event, names in zip(events, found, strict=True)
            ]
        wanted = tuple(event for event, names in zip(events, found, strict=True) if names)
        if wanted:
            self._deliver(wanted, tuple(filter(None, found)), now, anywhere=kept_for is not None)
        if len(wanted) < len(events):
            stray = tuple(event for event, names in zip(events, found, strict=True) if not names)
            self.state(facts.Stray(at=self.id, time=now, events=stray))

    def _deliver(
        self, events: tuple[Event, ...], subscriptions: tuple[tuple[str, ...], ...], now: Time, *,
        anywhere: bool,
    ) -> None:  # fmt: skip
        for delivering in self._at_delivering:
            going = delivering(events, subscriptions, now, anywhere=anywhere)
            if going is not None:
                events = tuple(event for event, _ in going)
                subscriptions = tuple(names for _, names in going)
        if events:
            self.deliver(events, subscriptions, now, anywhere=anywhere)

    def deliver(
        self, events: tuple[Event, ...], subscriptions: tuple[tuple[str, ...], ...], now: Time, *,
        anywhere: bool = False,
    ) -> None:  # fmt: skip
        """Give the application events, each for the subscriptions that want it."""
        self.act(Deliver(events, subscriptions))
        self.state(facts.Delivered(at=self.id, time=now, events=events, anywhere=anywhere))

    def wanting(self, event: Event) -> tuple[str, ...]:
        """The subscriptions that want an event, here and now."""
        return tuple(self._wanted.match(event.attributes))

    def on_subscription_change(
        self, message: SubscriptionChange, _link: LinkId, _now: Time
    ) -> None:
        """The broker tells what others want."""
        self._interest.change(message)

    def on_interest_known(self, message: InterestKnown, _link: LinkId, now: Time) -> None:
        """The broker has told all of it."""
        if message.number == self._interest.asked:
            self._interest.current = True
            self.flush(now)

    # ---- Links

    def _link_up(self, given: inputs.LinkUp, now: Time) -> None:
        if self._link is None:
            self._link = given.link
        if self._link == given.link:  # Else it has turned elsewhere since.
            super()._link_up(given, now)

    def link_new(self, link: LinkId, now: Time) -> None:
        """The broker knows nothing of this client: tell it all."""
        self._is_introduced = self._has_said_farewell = False
        self._interest.forget()
        if not any(introduces() for introduces in self._at_introduces):
            self.introduce(now)
        super().link_new(link, now)

    def introduce(self, now: Time) -> None:
        """Say all that a new broker has to know."""
        subscriptions, advertisements, others = self.introduction()
        said: list[Message] = [*others]
        if advertisements:
            said.insert(0, AdvertisementChange(added=advertisements))
        if subscriptions:
            said.insert(0, SubscriptionChange(added=subscriptions))
        for message in said:
            self.send(self._broker(), message, now)
        self.introduction_sent(now)

    def introduction_sent(self, now: Time) -> None:
        """The broker knows what the client wants and offers, and has welcomed it."""
        for sent in self._at_introduction_sent:
            sent(now)

    def introduction(self) -> tuple[tuple[Route, ...], tuple[Route, ...], tuple[Message, ...]]:
        """All that a new broker has to know; from now on it has to hear of changes."""
        self._is_introduced = True
        self._undo.clear()
        return (
            tuple(self.told(name) for name, f in self.subscriptions.items() if not f.uses_myloc),
            tuple(self._announced.values()),
            tuple(message for introduction in self._at_introduction for message in introduction()),
        )

    def _broker(self) -> LinkId:
        if self._link is None:
            raise LocalProtocolError(f"{self.id} is attached to no broker; attach it first")
        return self._link

    def link_up(self, link: LinkId, now: Time) -> None:
        if not self._is_introduced and not any(introduces() for introduces in self._at_introduces):
            self.introduce(now)  # The component that would have done it is gone.
        super().link_up(link, now)
        self._interest.current = self._has_asked = False
        self.flush(now)

    def link_reset(self, link: LinkId, unconfirmed: list[Message], now: Time) -> None:
        self._take_back(unconfirmed)
        super().link_reset(link, unconfirmed, now)

    def link_gone(self, link: LinkId, unconfirmed: list[Message], now: Time) -> None:
        if self._link == link:
            self._link = None
            self._is_introduced = self._has_said_farewell = False
            self._take_back(unconfirmed)
        super().link_gone(link, unconfirmed, now)

    def _take_back(self, unconfirmed: list[Message]) -> None:
        """What may not have arrived is said again to the next broker, in its order."""
        changes = [
            (said, before)
            for said, before in self._undo
            if any(message is said for message in unconfirmed)
        ]
        for said, before in reversed(changes):
            for route in said.added:
                del self._announced[route.id]
            self._announced |= {route.id: route for route in before}
        self._undo.clear()
        back: list[Event | Message] = []
        for message in unconfirmed:
            if isinstance(message, Events):
                back += message.events
            elif any(message is said for said, _ in changes):
                back.append(message)
        self._outgoing.put_back(back)

    @property
    def is_settled(self) -> bool:
        """Nor does an event wait that could go, or the client itself."""
        waits = bool(self._outgoing) or self._is_leaving
        return super().is_settled and not (self._link in self.up and waits)

    def arrived(self, last: int) -> None:
        """The network has the client's events up to a number; they need not be said again."""
        self._outgoing.drop(last)

    # ---- Going out

    @property
    def _ready(self) -> bool:
        """Whether events can go out at once."""
        return (
            self._link in self.up
            and self._is_introduced
            and (not self.options.quenching or self._interest.current)
            and all(may() for may in self._at_may_publish)
        )

    def _ask_for_interest(self, now: Time) -> None:
        """A client that publishes wants to hear what is wanted; others need not."""
        if not self.options.quenching or self._has_asked:
            return
        if self._is_introduced and self._link in self.up:
            self._has_asked = True
            self._interest.asked += 1
            self._say(InterestAsked(number=self._interest.asked), now)

    def flush(self, now: Time) -> None:
        """Let everything go that waited, if it can."""
        if self._seq > self._first_seq or self._outgoing:
            self._ask_for_interest(now)
        if self._ready:
            for waiting in self._outgoing.take():
                if isinstance(waiting, Message):
                    self._say(waiting, now)
                else:
                    self._emit(waiting, now)
        self._say_farewell(now)

    def _emit(self, events: tuple[Event, ...], now: Time) -> None:
        if self.options.quenching:
            published = events
            events = tuple(event for event in published if self._interest.wants(event))
            if len(events) < len(published):
                wanted = {event.seq for event in events}
                quenched = tuple(event for event in published if event.seq not in wanted)
                self.state(facts.Quenched(at=self.id, time=now, events=quenched))
        if events:
            self._say(Events(events=events), now)

    def _say_in_order(self, message: Message, now: Time) -> None:
        """Say something that must not pass the events that wait, nor a farewell."""
        if self._outgoing or self._has_said_farewell:
            self._outgoing.put_message(message)
        else:
            self._say(message, now)

    def _say(self, message: Message, now: Time) -> None:
        is_heard = self._is_introduced and self._link is not None
        if isinstance(message, AdvertisementChange):
            before = tuple(self._announced.pop(id_) for id_ in message.removed)
            self._announced |= {route.id: route for route in message.added}
            if is_heard:
                if not self.backlog(self._broker()):
                    self._undo.clear()
                self._undo.append((message, before))
        if is_heard:  # Else the introduction will say it.
            self.send(self._broker(), message, now)

    def route(self, name: str) -> RouteId:
        """What the broker is to call a subscription or an advertisement."""
        return f"{self.id}/{name}"

    # ---- Leaving for good

    def _say_farewell(self, now: Time) -> None:
        """Ask to be forgotten, once all else is said."""
        if (
            self._is_leaving
            and self._is_introduced
            and self._link in self.up
            and not self._outgoing
        ):
            self._say(Farewell(), now)
            self._is_introduced = False
            self._has_said_farewell = True

    def _received(self, given: inputs.Received, now: Time) -> None:
        super()._received(given, now)
        if self._has_said_farewell and not self.backlog(self._broker()):
            self._left(now)

    def _left(self, now: Time) -> None:
        """The broker has heard it."""
        broker, comes_back = self._broker(), self._comes_back
        self._is_leaving = self._comes_back = False
        self.act(Disconnect(broker))
        self.forget(broker, now)
        for left in self._at_left:
            left(now)
        self.state(facts.Left(at=self.id, time=now, published=self.accepted))
        if comes_back:
            self._attach(inputs.Attach(broker=broker), now)

    # ---- Subscriptions that depend on the client's location or variables

    def adapt(self, name: str, exact: Filter, now: Time) -> None:
        """A subscription means something else from now on."""
        self._wanted.remove(name)
        self._wanted.add(name, exact)
        self.state(facts.Adapted(at=self.id, time=now, subscription=name, filter=exact))

    def tell_again(self, names: Sequence[str], now: Time) -> None:
        """Tell the broker what it has to know of subscriptions that are new or mean something else.

        Those that use `myloc` are told otherwise.
        """
        if names:
            self._say(SubscriptionChange(added=tuple(self.told(name) for name in names)), now)

    def told(self, name: str) -> Route:
        filter_ = self.subscriptions[name]
        told = filter_ if filter_.is_bound else self._whereabouts.context.told(filter_)
        return Route(self.route(name), told)

    def _wanted_then(self, routes: Sequence[RouteId]) -> list[str]:
        """The moving subscriptions that wanted an event then, and still are."""
        names = [route.removeprefix(self.route("")) for route in routes]
        return [name for name in names if not self._is_static(name)]

    def _is_static(self, name: str) -> bool:
        return name not in self.subscriptions or self.subscriptions[name].is_bound

    @property
    def _recall(self) -> Recall:
        part = self.part(Recall.name)
        if part is None:
            raise LocalProtocolError(
                f"{self.id} cannot ask for the past: its network has no protocol {Recall.name!r}"
            )
        return cast("Recall", part)

    @property
    def _whereabouts(self) -> Whereabouts:
        part = self.part(Whereabouts.name)
        if part is None:
            raise LocalProtocolError(
                f"{self.id} knows nothing of locations and variables: its network has no places"
            )
        return cast("Whereabouts", part)
