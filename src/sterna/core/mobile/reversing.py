"""Brokers that move: our own rule, which converges whatever moves, breaks and meets meanwhile.

As in the efficient protocol of Amozarrain and Larrea (section 6), two brokers that meet say which
subscribers are behind them, and the old way to these is turned around, link by link. What differs
is how a disagreement is settled. The paper compares hop counts, which are old wherever something
has moved: a broker whose link is dead still claims to be near. Here

- **a way over a lost link is no claim**: a broker that has lost the way to a subscriber leaves it
  to the other side;
- **who has moved is believed**, as it knows best what is behind it;
- **a subscriber's own broker contradicts**: if a claim was wrong, the turning comes to the broker
  where the subscriber is. That one turns the way around again, back to where the claim came from;
- **what is newer wins**: each change of a subscriber has a number.

**Why it converges.** Take one subscriber and one partition at rest, and any link in it. One of the
two ends points over it to the other, never both: so it is in a fresh tree; a link that goes takes
its own pointer away, and a link that is made gets one, for one of its ends yields. To turn a way
around changes one pointer on each of its links, and the message that does it stands for the
pointer while it is on its way. A partition of n brokers has n - 1 links, and each broker at most
one pointer, so just one broker has none: all others lead to it. (The arrow protocol of Demmer and
Herlihy keeps the same invariant.) If the subscriber is in the partition, its broker never points
anywhere, so it is that one. If not, it is the broker where the way was lost, and there events wait
for it.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from sterna.core.facts import Discarded
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message, SubscriptionChange
from sterna.core.mobile.messages import (
    BranchMoved,
    FiltersAsked,
    FiltersKnown,
    Known,
    OwnFilters,
    SubscriberChange,
    SubscriberForgotten,
    SubscriberMigrated,
)
from sterna.core.mobile.simple import VISIT, KeptSubscribers, SimpleRouting
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Protocol
from sterna.model.event import Event
from sterna.model.filters import Filter

NOBODY = ""
"""What this broker says by itself comes over no link."""

TIME_MAX = 2**62
"""No client has a number like this, but for one that means no good."""


@dataclass(slots=True)
class Unsure:
    """What comes for a subscriber until it is known what that one wants."""

    link: LinkId
    """The neighbour that has left it to this broker, and that was asked."""
    events: deque[Event] = field(default_factory=deque)


class Reversing(SimpleRouting):
    """Moves a branch of the tree by turning ways around; the subscriber's own broker is right."""

    name = "reversing"
    handles = (
        *SimpleRouting.handles,
        BranchMoved,
        FiltersAsked,
        FiltersKnown,
        SubscriberForgotten,
    )

    def __init__(self) -> None:
        super().__init__()
        self._moved: dict[LinkId, None] = {}
        """The neighbours to which this broker has moved."""
        self._unsure: dict[NodeId, Unsure] = {}
        """The subscribers that a neighbour has left to this broker, which does not know yet what
        they want."""

    def time_of(self, subscriber: NodeId) -> int:
        """The number of the last change of a subscriber that is known here."""
        each = self.subscribers.get(subscriber)
        return 0 if each is None else each.time

    # ---- Changes of subscriptions

    def next_change(self, client: NodeId, change: SubscriptionChange) -> SubscriberChange:
        each = self.known(client)
        each.time += 1
        return SubscriberChange(
            subscriber=client,
            added=change.added,
            removed=change.removed,
            time=each.time,
            since=each.since if each.time % VISIT == 1 else 0,
        )

    def flood(self, message: SubscriberChange | FiltersKnown, source: LinkId, now: Time) -> None:
        super().flood(message, source, now)
        self.known(message.subscriber).told = set(self.neighbours(but=source))

    def on_subscriber_change(self, message: SubscriberChange, link: LinkId, now: Time) -> None:
        """A subscriber has changed; each broker needs all changes in turn."""
        name, mine = message.subscriber, self.time_of(message.subscriber)
        is_next = message.time == mine + 1 or (
            message.time % VISIT == 1 and message.time > VISIT and message.since == mine
        )
        if message.time == mine:
            self._agree(name, link, now)
        elif message.time > mine and self._knows_better(name, message.time):
            self._insist(name, message.time, now)
        elif is_next:
            self.turn_any(name, link, now)
            self.known(name).time = message.time
            self._change(message)
            self.flood(message, link, now)
            self.send_queued((name,), now)
        elif message.time > mine:
            self.broker.send(link, FiltersAsked(subscriber=name, time=mine, hops=0), now)
        else:
            self._tell_of_later_visit(name, message.time, link, now)
        self.broker.router.tell(now)

    def on_filters_asked(self, message: FiltersAsked, link: LinkId, now: Time) -> None:
        """A neighbour has not got all changes of a subscriber. (BQUERY)"""
        if self.time_of(message.subscriber) > message.time:
            self._tell(message.subscriber, link, now)

    def on_filters_known(self, message: FiltersKnown, link: LinkId, now: Time) -> None:
        """All that a subscriber wants. (BSUB)"""
        name, mine = message.subscriber, self.time_of(message.subscriber)
        if message.time == mine:
            self._agree(name, link, now)
        elif message.time > mine and self._knows_better(name, message.time):
            self._insist(name, message.time, now)
        elif message.time > mine:
            self.turn_any(name, link, now)
            self.set_filters(name, {})
            self.set_filters(name, {route.id: route.filter for route in message.routes})
            self._unsure.pop(name, None)  # Now it is known.
            self.known(name).time = message.time
            self.flood(message, link, now)
            self.send_queued((name,), now)
        else:
            self._tell_of_later_visit(name, message.time, link, now)
        self.broker.router.tell(now)

    def _tell_of_later_visit(self, name: NodeId, time: int, link: LinkId, now: Time) -> None:
        """A neighbour has said something of a subscriber that has been elsewhere since.

        Not all brokers learn of each visit; all learn of each change during a visit.
        """
        if time // VISIT < self.time_of(name) // VISIT:
            self._tell(name, link, now)

    def _knows_better(self, name: NodeId, time: int) -> bool:
        """Whether a subscriber has not been elsewhere since it came to this broker.

        What others know later than this broker is from before it lost its memory.
        """
        return self.is_own(name) and time // VISIT <= self.time_of(name) // VISIT

    def _insist(self, name: NodeId, time: int, now: Time) -> None:
        """Tell all what a subscriber of this broker wants, as news."""
        each = self.subscribers[name]
        each.time = time + 1
        known = FiltersKnown(subscriber=name, routes=each.routes(), time=each.time, nearest=0)
        self.flood(known, name, now)

    def _agree(self, name: NodeId, link: LinkId, now: Time) -> None:
        """The same news has come to both ends of a link, from elsewhere: one of them yields."""
        each = self.known(name)
        if each.next_hop == link and not each.is_lost:
            return
        if self.is_own(name):
            self._turn_around((name,), link, now)
        elif self.broker.id < link or link not in each.told:  # Else the other end yields.
            self._yield_to(link, (name,), now)

    def _tell(self, subscriber: NodeId, link: LinkId, now: Time) -> None:
        """Tell a neighbour something newer: then the way leads from there to here."""
        each = self.subscribers[subscriber]
        if each.next_hop == link:
            self.lose(subscriber)
        known = FiltersKnown(subscriber=subscriber, routes=each.routes(), time=each.time, nearest=0)
        self.broker.send(link, known, now)
        each.told.add(link)

    # ---- Subscribers that move

    def on_subscriber_migrated(self, message: SubscriberMigrated, link: LinkId, now: Time) -> None:
        """What a subscriber does at its new broker is newer than all that it did elsewhere. (MIG)

        Only the brokers on its old way learn of it, if they know all that its new broker knew.
        """
        name, mine = message.subscriber, self.time_of(message.subscriber)
        each = self.known(name)
        if self.broker.peers[link] is Peer.CLIENT:
            if name != link:
                return  # Nobody moves others.
            is_later = mine < message.time < TIME_MAX
            time = message.time if is_later else (mine // VISIT + 1) * VISIT
            self.broker.send(link, OwnFilters(routes=each.routes(), time=time), now)
            each.time, each.since, each.told = time, mine, {each.next_hop}
            onward = msgspec.structs.replace(message, time=time, since=mine)
            self.follow(onward, link, now)
        elif message.time > mine:
            before = each.next_hop
            self.follow(message, link, now)
            if message.since == mine:
                each.time, each.told = message.time, {before}
            else:
                self.broker.send(link, FiltersAsked(subscriber=name, time=mine, hops=0), now)
        elif message.time == mine:
            self._agree(name, link, now)
        else:
            self._tell_of_later_visit(name, message.time, link, now)

    # ---- Subscribers that nobody hears of

    def forget_subscriber(self, subscriber: NodeId, now: Time) -> None:
        """Give up a subscriber without a way, and have all others in this part do the same.

        It is as if all of them had lost their memory: whoever meets one that knows it, learns it.
        """
        time = self.time_of(subscriber)
        self._forget(subscriber, NOBODY, time, now)

    def on_subscriber_forgotten(
        self, message: SubscriberForgotten, link: LinkId, now: Time
    ) -> None:
        name = message.subscriber
        each = self.subscribers.get(name)
        if each is None or not each.time:
            return
        if each.next_hop == link and not each.is_lost and each.time <= message.time:
            self._forget(name, link, message.time, now)
        else:
            self._tell(name, link, now)
            self.broker.router.tell(now)

    def _forget(self, name: NodeId, source: LinkId, time: int, now: Time) -> None:
        self.set_filters(name, {})
        self._discard(name, tuple(self.subscribers.pop(name).queue), now)
        for link in self.neighbours(but=source):
            self.broker.send(link, SubscriberForgotten(subscriber=name, time=time), now)
        self.broker.router.tell(now)

    # ---- Links that are made

    def migrated(self, before: LinkId, to: LinkId, now: Time) -> None:
        """It is a hint: of two brokers that meet, the one that has moved is mostly right."""
        del before, now
        self._moved[to] = None

    def link_new(self, link: LinkId, now: Time) -> None:
        """One of the two ends, always the same, says what it knows."""
        super().link_new(link, now)
        if self.broker.peers[link] is Peer.BROKER and self.broker.id < link:
            self._introduce(link, now)

    def _introduce(self, link: LinkId, now: Time) -> None:
        """Claim the subscribers that there is a way to, and leave the others to the neighbour."""
        behind: list[Known] = []
        others: list[Known] = []
        for name, each in self.subscribers.items():
            if each.time:  # Else nothing is known but that events wait for it.
                (others if each.is_lost else behind).append(Known(name, each.time, 0))
        for known in others:
            self.turn(known.subscriber, link)
        message = BranchMoved(
            behind=tuple(behind), others=tuple(others), has_moved=link in self._moved
        )
        self.broker.send(link, message, now)
        self.send_queued((known.subscriber for known in others), now)
        self.broker.router.tell(now)

    def on_branch_moved(self, message: BranchMoved, link: LinkId, now: Time) -> None:
        """The ways to some subscribers lead in this direction now. (BMIG)"""
        for known in message.others:
            if known.time > self.time_of(known.subscriber):
                self._unsure.setdefault(known.subscriber, Unsure(link)).link = link
        for name, time, _ in (*map(_parts, message.behind), *map(_parts, message.others)):
            mine = self.time_of(name)
            if time > mine:
                self.broker.send(link, FiltersAsked(subscriber=name, time=mine, hops=0), now)
            elif time < mine:
                self._tell(name, link, now)
        if message.hops == 0:
            said = {known.subscriber for known in (*message.behind, *message.others)}
            for name in [n for n, each in self.subscribers.items() if each.time and n not in said]:
                self._tell(name, link, now)
        claimed = [k.subscriber for k in message.behind if k.time == self.time_of(k.subscriber)]
        insists = message.hops == 0 and link in self._moved and not message.has_moved
        stay = [name for name in claimed if self.is_own(name) or (insists and self._has(name))]
        if stay:
            self._turn_around(stay, link, now)
        self._yield_to(link, [name for name in claimed if name not in stay], now)
        self.broker.router.tell(now)

    def _has(self, name: NodeId) -> bool:
        """Whether there is a way to a subscriber, as far as it is known here."""
        return not self.subscribers[name].is_lost

    def _yield_to(self, link: LinkId, names: Iterable[NodeId], now: Time) -> None:
        """Some subscribers are over a link; so are they for those that led there before."""
        turned: dict[LinkId, list[NodeId]] = {}
        names = list(names)
        for name in names:
            each = self.subscribers[name]
            if each.next_hop != link and not each.is_lost:
                turned.setdefault(each.next_hop, []).append(name)
            self.turn(name, link)
        for before, those in turned.items():
            self._turn_around(those, before, now)
        self.send_queued(names, now)

    def _turn_around(self, names: Iterable[NodeId], link: LinkId, now: Time) -> None:
        """Have a neighbour point here."""
        behind = tuple(Known(name, self.time_of(name), 0) for name in names)
        self.broker.send(link, BranchMoved(behind=behind, hops=1), now)

    # ---- Events for subscribers that are not known yet

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        """A neighbour that has left subscribers to this broker sends their events here."""
        for name, unsure in self._unsure.items():
            if unsure.link == link:
                unsure.events.extend(events)
                surplus = len(unsure.events) - self.broker.settings.handover.cache_events_max
                if surplus > 0:
                    dropped = tuple(unsure.events.popleft() for _ in range(surplus))
                    self._discard(name, dropped, now)

    def set_filters(self, subscriber: NodeId, filters: dict[RouteId, Filter]) -> None:
        super().set_filters(subscriber, filters)
        unsure = self._unsure.pop(subscriber, None) if filters else None
        if unsure is not None:
            self.subscribers[subscriber].queue.extend(
                event
                for event in unsure.events
                if any(each.matches(event.attributes) for each in filters.values())
            )

    def _discard(self, name: NodeId, events: tuple[Event, ...], now: Time) -> None:
        if events:
            at = self.broker.id
            self.broker.state(Discarded(at=at, time=now, client=name, events=events))

    # ---- Links that end

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        self._moved.pop(link, None)
        for each in self.subscribers.values():
            each.told.discard(link)
        super().link_gone(link, unconfirmed, now)

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptSubscribers:
        unsure = {
            name: (each.link, [writer.event(event) for event in each.events])
            for name, each in self._unsure.items()
        }
        moved = list(self._moved)
        return msgspec.structs.replace(super().keep(writer), moved=moved, unsure=unsure)

    def restore(self, kept: KeptSubscribers, reader: Reader) -> None:
        super().restore(kept, reader)
        self._moved = dict.fromkeys(kept.moved)
        for name, (link, numbers) in kept.unsure.items():
            self._unsure[name] = Unsure(link, deque(map(reader.event, numbers)))


REVERSING = Protocol(name="reversing", broker=Reversing, needs=("ordering",))


def _parts(known: Known) -> tuple[NodeId, int, int]:
    return known.subscriber, known.time, known.hops
