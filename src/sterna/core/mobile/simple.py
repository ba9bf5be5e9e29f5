"""Simple routing, with subscribers that move: Amozarrain and Larrea, Algorithms 1 and 2.

Each broker knows each subscriber: what it wants, and the next hop to it. (The entries (f, z, s) of
the paper's table R, by s.) What cannot go on waits in the subscriber's queue (Q) at the broker
where the way ends, until there is another way.

The tables are routes of the broker like any others, so events are matched as ever. A subscriber
without a way stands there under a name that no node can have, and takes what would be sent to it.

Errata: line 28 of Algorithm 1 passes MIG on unless this is the broker that it names. A subscriber
may come back to that one, and by then the way may lead elsewhere, for brokers move as well: MIG
goes on as long as the way does. Line 44 of Algorithm 2 finds no next hop if nothing is known of
the subscriber: its events wait until something is. Line 18 puts an event into the queues of all
whose filter matches it, and not only of those behind the interface that is gone.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.facts import Discarded
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Events, Message, Route, SubscriptionChange
from sterna.core.mobile.messages import (
    BranchMoved,
    EventOnward,
    FiltersKnown,
    OwnFilters,
    SubscriberChange,
    SubscriberMigrated,
    SubscribersMoved,
)
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Protocol
from sterna.model.event import Event
from sterna.model.filters import Filter

VISIT = 2**20
"""A subscriber has as many numbers for the changes that it makes at one broker."""


@dataclass(slots=True)
class Subscriber:
    """What a broker knows of a subscriber."""

    next_hop: LinkId
    """The link that leads to it; its own name at its own broker."""
    is_lost: bool = False
    """Whether that link is gone, so that there is no way to it."""
    filters: dict[RouteId, Filter] = field(default_factory=dict)
    time: int = 0
    hops: int = 0
    queue: deque[Event] = field(default_factory=deque)
    """What waits until there is a way to it."""
    entered: dict[RouteId, LinkId] = field(default_factory=dict)
    """Its filters that are routes now because the protocol has made them, each under a link."""
    since: int = 0
    """At its own broker: the number of the last change that was known there when it came."""
    told: set[LinkId] = field(default_factory=set)
    """The neighbours that were told of its last change."""

    def routes(self) -> tuple[Route, ...]:
        """Its filters with their names."""
        return tuple(Route(id_, filter_) for id_, filter_ in self.filters.items())


class KeptSubscriber(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a subscriber."""

    next_hop: LinkId
    is_lost: bool
    filters: dict[RouteId, Filter]
    time: int
    hops: int
    queue: list[int]
    entered: dict[RouteId, LinkId]
    since: int = 0
    told: list[LinkId] = []


class KeptSubscribers(msgspec.Struct, frozen=True):
    """What a snapshot holds of all of them."""

    subscribers: dict[NodeId, KeptSubscriber]
    arrived: list[LinkId] = []
    moved: list[LinkId] = []
    unsure: dict[NodeId, tuple[LinkId, list[int]]] = {}


class SimpleRouting(BrokerComponent):
    """Knows all subscribers and the next hop to each; protocols for moving brokers build on it."""

    name = "simple-routing"
    handles: ClassVar[tuple[type[Message], ...]] = (
        SubscriberChange,
        SubscriberMigrated,
        EventOnward,
    )
    Kept = KeptSubscribers

    def __init__(self) -> None:
        self.subscribers: dict[NodeId, Subscriber] = {}
        self._arrived: dict[LinkId, None] = {}
        """The clients that have said something over their present link."""

    # ---- The tables

    def neighbours(self, but: LinkId | None = None) -> list[LinkId]:
        """The links to other brokers. (N)"""
        known, peers = self.broker.known, self.broker.peers
        return [link for link in known if peers[link] is Peer.BROKER and link != but]

    def local(self) -> list[NodeId]:
        """The subscribers that are connected to this broker. (C)"""
        return [name for name in self.subscribers if self.is_here(name)]

    def is_own(self, subscriber: NodeId) -> bool:
        """Whether a subscriber is at this broker, or was here last, as far as is known here."""
        each = self.subscribers.get(subscriber)
        return each is not None and each.next_hop == subscriber

    def is_here(self, subscriber: NodeId) -> bool:
        """Whether a subscriber is connected to this broker, and has said so itself."""
        return (
            self.is_own(subscriber)
            and subscriber in self._arrived
            and self.broker.is_connected(subscriber)
        )

    def known(self, subscriber: NodeId) -> Subscriber:
        """What is known of a subscriber, which may be nothing yet."""
        return self.subscribers.setdefault(subscriber, Subscriber("", is_lost=True))

    def set_filters(self, subscriber: NodeId, filters: dict[RouteId, Filter]) -> None:
        """A subscriber wants these, and nothing else."""
        each = self.known(subscriber)
        self._withdraw(each)
        each.filters = filters
        self._enter(subscriber, each)

    def turn(self, subscriber: NodeId, link: LinkId) -> None:
        """A link leads to a subscriber from now on."""
        each = self.known(subscriber)
        if each.next_hop != link or each.is_lost:
            self._withdraw(each)
            each.next_hop, each.is_lost = link, False
            self._enter(subscriber, each)

    def lose(self, subscriber: NodeId) -> None:
        """There is no way to a subscriber any more."""
        each = self.subscribers[subscriber]
        self._withdraw(each)
        each.is_lost = True
        self._enter(subscriber, each)

    def turn_any(self, subscriber: NodeId, link: LinkId, now: Time) -> None:
        """The same for any subscriber, also for one that was here last and is elsewhere now."""
        if self.is_own(subscriber) and link != subscriber:
            self.let_go(subscriber, link, now)
        else:
            self.turn(subscriber, link)

    def _enter(self, subscriber: NodeId, each: Subscriber) -> None:
        router = self.broker.router
        link = nowhere(subscriber) if each.is_lost else each.next_hop
        announced = router.subscriptions.routes(link) if link == subscriber else ()
        for id_, filter_ in each.filters.items():
            if id_ not in announced:  # The client's own subscriptions are routes already.
                router.enter(link, id_, filter_, filter_)
                each.entered[id_] = link

    def _withdraw(self, each: Subscriber) -> None:
        for id_, link in each.entered.items():
            self.broker.router.withdraw(link, id_)
        each.entered.clear()

    def let_go(self, subscriber: NodeId, link: LinkId, now: Time) -> None:
        """A subscriber of this broker is over a link now; what it has not confirmed is, too."""
        each, router = self.subscribers[subscriber], self.broker.router
        if subscriber in self.broker.peers:
            lost = list(self.broker.unconfirmed(subscriber))
            router.drop([*router.subscriptions.routes(subscriber)], subscriber)
            if not self.broker.is_connected(subscriber):  # Else it may have just come back.
                self.broker.disown(subscriber, now)
            self._wait(subscriber, _undelivered(lost, subscriber, each), now)
        self.turn(subscriber, link)

    def flood(self, message: SubscriberChange | FiltersKnown, source: LinkId, now: Time) -> None:
        """Send a message to all neighbours but the one that it comes from."""
        for link in self.neighbours(but=source):
            self.broker.send(link, message, now)

    # ---- SUB and UNS

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        """A client of this broker subscribes or unsubscribes."""
        if self.broker.peers[link] is Peer.CLIENT:
            self._arrived[link] = None
            self.turn(link, link)
            said = self.next_change(link, change)
            self._change(said)
            self.flood(said, link, now)
            self.send_queued((link,), now)
            self.broker.router.tell(now)

    def next_change(self, client: NodeId, change: SubscriptionChange) -> SubscriberChange:
        """What all brokers are told of a change of a client here."""
        return SubscriberChange(subscriber=client, added=change.added, removed=change.removed)

    def on_subscriber_change(self, message: SubscriberChange, link: LinkId, now: Time) -> None:
        name = message.subscriber
        if self.is_here(name):
            self._correct(message, link, now)
        else:
            self.enrol(name, link, now)
            if self._change(message):
                self.flood(message, link, now)
        self.broker.router.tell(now)

    def _correct(self, message: SubscriberChange, link: LinkId, now: Time) -> None:
        """Nobody else knows what a subscriber of this broker wants: that change is an old one."""
        name, own = message.subscriber, self.subscribers[message.subscriber]
        added = tuple(route for route in own.routes() if route.id in message.removed)
        removed = tuple(r.id for r in message.added if own.filters.get(r.id) != r.filter)
        if added or removed:
            change = SubscriberChange(subscriber=name, added=added, removed=removed)
            self.broker.send(link, change, now)

    def enrol(self, subscriber: NodeId, link: LinkId, now: Time) -> None:
        """Note the way to a subscriber that is not in the table yet, or wants nothing so far, or to
        which there is no way any more.
        """
        each = self.known(subscriber)
        if each.is_lost or not (each.filters or self.is_here(subscriber)):
            self.turn_any(subscriber, link, now)
            self.send_queued((subscriber,), now)

    def _change(self, message: SubscriberChange) -> bool:
        """Enter a change; whether it is news."""
        before = self.known(message.subscriber).filters
        filters = {id_: each for id_, each in before.items() if id_ not in message.removed}
        filters |= {route.id: route.filter for route in message.added}
        if filters == before:
            return False
        self.set_filters(message.subscriber, filters)
        return True

    # ---- MIG and FILTERS

    def on_subscriber_migrated(self, message: SubscriberMigrated, link: LinkId, now: Time) -> None:
        """A subscriber has come, here or somewhere in this direction."""
        name = message.subscriber
        if self.broker.peers[link] is Peer.CLIENT:
            if name != link:
                return  # Nobody moves others.
            self.broker.send(link, OwnFilters(routes=self.known(name).routes()), now)
        elif self.is_here(name):
            return  # It has come here since.
        self.follow(message, link, now)

    def follow(self, message: SubscriberMigrated, link: LinkId, now: Time) -> None:
        """Turn the old way to a subscriber around, and send it what has waited."""
        name = message.subscriber
        if link == name:
            self._arrived[link] = None
        before = self.known(name).next_hop
        if before in self.neighbours(but=link):
            self.broker.send(before, message, now)
        self.turn_any(name, link, now)
        self.send_queued((name,), now)
        self.broker.router.tell(now)

    # ---- PUB and REP

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Keep what is for a subscriber without a way."""
        subscriber = who(link)
        if subscriber is None:
            return events
        self._wait(subscriber, events, now)
        return ()

    def on_event_onward(self, message: EventOnward, _link: LinkId, now: Time) -> None:
        """An event that has waited is on its way to a subscriber."""
        self._send_on(message, now)

    def _send_on(self, message: EventOnward, now: Time) -> None:
        each = self.known(message.subscriber)
        if each.is_lost:
            self._wait(message.subscriber, (message.event,), now)
        elif each.next_hop == message.subscriber:
            self.broker.send(each.next_hop, Events(events=(message.event,)), now)
        else:
            self.broker.send(each.next_hop, message, now)

    def _wait(self, subscriber: NodeId, events: Iterable[Event], now: Time) -> None:
        """Keep events until there is a way to a subscriber, but no more than the settings allow."""
        queue = self.subscribers[subscriber].queue
        queue.extend(events)
        surplus = len(queue) - self.broker.settings.handover.cache_events_max
        if surplus > 0:
            dropped = tuple(queue.popleft() for _ in range(surplus))
            self.broker.state(
                Discarded(at=self.broker.id, time=now, client=subscriber, events=dropped)
            )

    def send_queued(self, subscribers: Iterable[NodeId], now: Time) -> None:
        """There is a way to some subscribers: send what has waited for it."""
        for name in subscribers:
            each = self.subscribers[name]
            if not each.is_lost:
                waiting = list(each.queue)
                each.queue.clear()
                for event in waiting:
                    self._send_on(EventOnward(subscriber=name, event=event), now)

    # ---- Links

    def link_new(self, link: LinkId, now: Time) -> None:
        """A client that has come says so itself."""
        del now
        self._arrived.pop(link, None)

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """The other end knows nothing of what it was told: it is as if the link were another."""
        if self.broker.peers[link] is Peer.BROKER:
            self.link_gone(link, unconfirmed, now)
        elif self.is_own(link):
            each = self.subscribers[link]
            self._wait(link, _undelivered(list(unconfirmed), link, each), now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """What was not delivered waits for another way."""
        self._arrived.pop(link, None)
        if self.broker.peers[link] is Peer.CLIENT and self.is_own(link):
            ended = SubscriptionChange(removed=tuple(self.subscribers[link].filters))
            if ended.removed:
                self.subscriptions_changed(ended, link, now)
        lost = list(unconfirmed)
        for name, each in self.subscribers.items():
            if each.next_hop == link:
                self.lose(name)
                self._wait(name, _undelivered(lost, name, each), now)
        self._send_again(lost, link, now)

    def _send_again(self, lost: Sequence[Message], link: LinkId, now: Time) -> None:
        """A subscriber was over the link until a message has turned the way around, or told it."""
        turned: dict[NodeId, None] = {}
        found: list[EventOnward] = []
        for message in reversed(lost):
            if isinstance(message, EventOnward):
                if message.subscriber in turned:
                    found.append(message)
            elif isinstance(message, Events):
                found += [
                    EventOnward(subscriber=name, event=event)
                    for name in turned
                    for event in reversed(message.events)
                    if any(
                        each.matches(event.attributes) for each in self.known(name).filters.values()
                    )
                ]
            else:
                turned |= dict.fromkeys(turned_by(message))
        for onward in reversed(found):
            if self.known(onward.subscriber).next_hop != link:
                self._send_on(onward, now)

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptSubscribers:
        return KeptSubscribers(
            {
                name: KeptSubscriber(
                    next_hop=each.next_hop,
                    is_lost=each.is_lost,
                    filters=dict(each.filters),
                    time=each.time,
                    hops=each.hops,
                    queue=[writer.event(event) for event in each.queue],
                    entered=dict(each.entered),
                    since=each.since,
                    told=sorted(each.told),
                )
                for name, each in self.subscribers.items()
            },
            list(self._arrived),
        )

    def restore(self, kept: Any, reader: Reader) -> None:
        self._arrived = dict.fromkeys(kept.arrived)
        for name, each in kept.subscribers.items():
            queue = deque(reader.event(number) for number in each.queue)
            filters = dict(each.filters)
            self.subscribers[name] = Subscriber(
                next_hop=each.next_hop,
                is_lost=each.is_lost,
                filters=filters,
                time=each.time,
                hops=each.hops,
                queue=queue,
                entered=dict(each.entered),
                since=each.since,
                told=set(each.told),
            )


SIMPLE = Protocol(name=SimpleRouting.name, broker=SimpleRouting, needs=("ordering",))


def nowhere(subscriber: NodeId) -> LinkId:
    """The name under which a subscriber without a way stands in the routing table."""
    return f"?{subscriber}"


def who(link: LinkId) -> NodeId | None:
    """The subscriber that stands under a name; None if it is a link."""
    return link[1:] if link.startswith("?") else None


def turned_by(message: Message) -> Iterable[NodeId]:
    """The subscribers that are in the direction of the sender of a message from then on."""
    if isinstance(message, SubscriberChange | SubscriberMigrated | FiltersKnown):
        return (message.subscriber,)
    if isinstance(message, SubscribersMoved):
        return message.subscribers
    if isinstance(message, BranchMoved):
        return [known.subscriber for known in message.behind]
    return ()


def _undelivered(lost: Sequence[Message], name: NodeId, each: Subscriber) -> Iterator[Event]:
    """The events of those for a subscriber that were not confirmed."""
    for message in lost:
        if isinstance(message, EventOnward):
            if message.subscriber == name:
                yield message.event
        elif isinstance(message, Events):
            for event in message.events:
                if any(filter_.matches(event.attributes) for filter_ in each.filters.values()):
                    yield event
