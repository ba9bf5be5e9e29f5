"""Tables of subscribers and queues for those without a way: Amozarrain and Larrea, Algorithms 1, 2.

Each broker knows each subscriber: what it wants, and the next hop to it. (The entries (f, z, s) of
the paper's table R, by s.) What cannot go on waits in the subscriber's queue (Q) at the broker
where the way ends, until there is another way.

The tables are routes of the broker like any others, so events are matched as ever. A subscriber
without a way stands there under a name that no node can have, and takes what would be sent to it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Events, Message, Route, SubscriptionChange
from sterna.core.mobile.messages import EventOnward, SubscriberChange
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.model.event import Event
from sterna.model.filters import Filter


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
    entered: LinkId | None = None
    """The link under which its filters are routes now, if the protocol has made them."""

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
    entered: LinkId | None


class KeptSubscribers(msgspec.Struct, frozen=True):
    """What a snapshot holds of all of them."""

    subscribers: dict[NodeId, KeptSubscriber]


class SimpleRouting(BrokerComponent):
    """Knows all subscribers and the next hop to each; protocols for moving brokers build on it."""

    handles: ClassVar[tuple[type[Message], ...]] = (SubscriberChange, EventOnward)
    Kept = KeptSubscribers

    def __init__(self) -> None:
        self.subscribers: dict[NodeId, Subscriber] = {}

    # ---- The tables

    def neighbours(self, but: LinkId | None = None) -> list[LinkId]:
        """The links to other brokers. (N)"""
        known, peers = self.broker.known, self.broker.peers
        return [link for link in known if peers[link] is Peer.BROKER and link != but]

    def local(self) -> list[NodeId]:
        """The subscribers of this broker. (C)"""
        return [name for name, each in self.subscribers.items() if each.next_hop == name]

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

    def _enter(self, subscriber: NodeId, each: Subscriber) -> None:
        if each.next_hop == subscriber or not each.filters:
            return  # The client's own subscriptions are routes already.
        link = nowhere(subscriber) if each.is_lost else each.next_hop
        for id_, filter_ in each.filters.items():
            self.broker.router.enter(link, id_, filter_, filter_)
        each.entered = link

    def _withdraw(self, each: Subscriber) -> None:
        if each.entered is not None:
            for id_ in each.filters:
                self.broker.router.withdraw(each.entered, id_)
            each.entered = None

    def flood(self, message: Message, source: LinkId, now: Time) -> None:
        """Send a message to all neighbours but the one that it comes from."""
        for link in self.neighbours(but=source):
            self.broker.send(link, message, now)

    # ---- SUB and UNS

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        """A client of this broker subscribes or unsubscribes."""
        if self.broker.peers[link] is Peer.CLIENT:
            self.turn(link, link)
            said = self.next_change(link, change)
            self._change(said)
            self.flood(said, link, now)
            self.broker.router.tell(now)

    def next_change(self, client: NodeId, change: SubscriptionChange) -> SubscriberChange:
        """What all brokers are told of a change of a client here."""
        return SubscriberChange(subscriber=client, added=change.added, removed=change.removed)

    def on_subscriber_change(self, message: SubscriberChange, link: LinkId, now: Time) -> None:
        if message.subscriber not in self.subscribers:
            self.turn(message.subscriber, link)
        if self._change(message):
            self.flood(message, link, now)
        self.broker.router.tell(now)

    def _change(self, message: SubscriberChange) -> bool:
        """Enter a change; whether it is news."""
        before = self.known(message.subscriber).filters
        filters = {id_: each for id_, each in before.items() if id_ not in message.removed}
        filters |= {route.id: route.filter for route in message.added}
        if filters == before:
            return False
        self.set_filters(message.subscriber, filters)
        return True

    # ---- PUB and REP

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Keep what is for a subscriber without a way."""
        del now
        subscriber = who(link)
        if subscriber is None:
            return events
        self.subscribers[subscriber].queue.extend(events)
        return ()

    def on_event_onward(self, message: EventOnward, _link: LinkId, now: Time) -> None:
        """An event that has waited is on its way to a subscriber."""
        if message.subscriber in self.subscribers:
            self._send_on(message, now)

    def _send_on(self, message: EventOnward, now: Time) -> None:
        each = self.subscribers[message.subscriber]
        if each.is_lost:
            each.queue.append(message.event)
        elif each.next_hop == message.subscriber:
            self.broker.send(each.next_hop, Events(events=(message.event,)), now)
        else:
            self.broker.send(each.next_hop, message, now)

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

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """What was not delivered waits for another way."""
        del now
        lost = list(unconfirmed)
        for name, each in self.subscribers.items():
            if each.next_hop == link:
                self._withdraw(each)
                each.is_lost = True
                each.queue.extend(_undelivered(lost, name, each))
                self._enter(name, each)

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
                    entered=each.entered,
                )
                for name, each in self.subscribers.items()
            }
        )

    def restore(self, kept: Any, reader: Reader) -> None:
        for name, each in kept.subscribers.items():
            queue = deque(reader.event(number) for number in each.queue)
            filters = dict(each.filters)
            self.subscribers[name] = Subscriber(
                each.next_hop, each.is_lost, filters, each.time, each.hops, queue, each.entered
            )


def nowhere(subscriber: NodeId) -> LinkId:
    """The name under which a subscriber without a way stands in the routing table."""
    return f"?{subscriber}"


def who(link: LinkId) -> NodeId | None:
    """The subscriber that stands under a name; None if it is a link."""
    return link[1:] if link.startswith("?") else None


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
