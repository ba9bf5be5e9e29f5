"""Brokers that move: the efficient protocol, literally as printed (Amozarrain and Larrea, 4 to 7).

A broker that has moved says which subscribers it takes to be behind it. Brokers compare how new
that is and how near, and send each other only what differs.

It is here to be compared with: **it does not converge**. When a broker moves to a neighbour three
or more hops from the old one, that one, whose link is dead, still claims to be closer.

Errata: line 19 of Algorithm 6 forwards the older timestamp. Step 7 of Fig. 4 has h = 2, not 1, and
steps 10 to 12 go from b2 to b1, b4 and b3. Lines 3 and 4 of Algorithm 4 keep the old next hop of a
newer subscription. The condition of line 48 compares T_j with T_i.
"""

from typing import NamedTuple

import msgspec

from sterna.core.messages import SubscriptionChange
from sterna.core.mobile.messages import (
    BranchMoved,
    FiltersAsked,
    FiltersKnown,
    Known,
    OwnFilters,
    SubscriberChange,
    SubscriberMigrated,
)
from sterna.core.mobile.simple import SimpleRouting
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.protocol import Protocol


class Age(NamedTuple):
    """How new something is; of what is equally new, the nearer is better. (The paper's (t, h))"""

    time: int
    hops: int

    def is_better_than(self, other: "Age") -> bool:
        return (self.time, -self.hops) > (other.time, -other.hops)


UNKNOWN = Age(0, 2**62)


class Efficient(SimpleRouting):
    """Moves a branch of the tree with one message along the old way, if nothing else has moved."""

    name = "efficient"
    handles = (*SimpleRouting.handles, BranchMoved, FiltersAsked, FiltersKnown)

    def age(self, subscriber: NodeId) -> Age:
        """How new and how near what is known of a subscriber is. (T)"""
        each = self.subscribers.get(subscriber)
        return UNKNOWN if each is None else Age(each.time, each.hops)

    # ---- Algorithm 4

    def next_change(self, client: NodeId, change: SubscriptionChange) -> SubscriberChange:
        each = self.known(client)
        each.time, each.hops = each.time + 1, 1
        return SubscriberChange(
            subscriber=client, added=change.added, removed=change.removed, time=each.time, hops=1
        )

    def on_subscriber_change(self, message: SubscriberChange, link: LinkId, now: Time) -> None:
        if not Age(message.time, message.hops).is_better_than(self.age(message.subscriber)):
            return
        self.enrol(message.subscriber, link, now)
        each = self.known(message.subscriber)
        each.time, each.hops = message.time, message.hops + 1
        self._change(message)
        onward = SubscriberChange(
            subscriber=message.subscriber,
            added=message.added,
            removed=message.removed,
            time=message.time,
            hops=message.hops + 1,
        )
        self.flood(onward, link, now)
        self.broker.router.tell(now)

    def on_subscriber_migrated(self, message: SubscriberMigrated, link: LinkId, now: Time) -> None:
        name = message.subscriber
        if self.broker.peers[link] is Peer.CLIENT and name != link:
            return  # Nobody moves others.
        if not Age(message.time, message.hops).is_better_than(self.age(name)):
            return
        each = self.known(name)
        each.time, each.hops = message.time, message.hops + 1
        if name == link:
            own = OwnFilters(routes=each.routes(), time=message.time)
            self.broker.send(link, own, now)
        self.follow(msgspec.structs.replace(message, hops=message.hops + 1), link, now)

    # ---- Algorithm 5

    def migrated(self, before: LinkId, to: LinkId, now: Time) -> None:
        behind: list[Known] = []
        others: list[Known] = []
        for name, each in self.subscribers.items():
            known = Known(name, each.time, each.hops)
            (others if each.next_hop == before else behind).append(known)
        for known in others:
            self.turn(known.subscriber, to)
        self.broker.send(to, BranchMoved(behind=tuple(behind), others=tuple(others)), now)
        self.send_queued((known.subscriber for known in others), now)
        self.broker.router.tell(now)

    # ---- Algorithm 6

    def on_branch_moved(self, message: BranchMoved, link: LinkId, now: Time) -> None:
        """The subscribers of a branch are in this direction. (BMIG)"""
        behind: list[Known] = []
        for name, time, hops in map(_parts, message.behind):
            mine = self.age(name)
            if time > mine.time:
                self._ask(name, mine, link, now)
                behind.append(Known(name, mine.time, hops))
            elif time < mine.time or message.hops > mine.hops:
                self._tell(name, link, now)
            else:
                behind.append(Known(name, mine.time, hops))
                each = self.known(name)
                each.time, each.hops = time, message.hops + hops + 1
        for name, time, _ in map(_parts, message.others):
            mine = self.age(name)
            if time > mine.time:
                self._ask(name, mine, link, now)
            elif time < mine.time:
                self._tell(name, link, now)
        if message.hops == 0:
            said = {known.subscriber for known in (*message.behind, *message.others)}
            for name in [each for each in self.subscribers if each not in said]:
                self._tell(name, link, now)
        names = [known.subscriber for known in behind]
        beside = self.neighbours(but=link)
        turned = dict.fromkeys(self.known(name).next_hop for name in names)
        for name in names:
            self.turn(name, link)
        onward = BranchMoved(behind=tuple(behind), hops=message.hops + 1)
        for neighbour in turned:
            if neighbour in beside:
                self.broker.send(neighbour, onward, now)
        self.send_queued(names, now)
        self.broker.router.tell(now)

    # ---- Algorithm 7

    def on_filters_known(self, message: FiltersKnown, link: LinkId, now: Time) -> None:
        """What is known of a subscriber elsewhere. (BSUB)"""
        name = message.subscriber
        if not Age(message.time, message.nearest).is_better_than(self.age(name)):
            return
        self.set_filters(name, {})
        self.turn(name, link)
        self.set_filters(name, {route.id: route.filter for route in message.routes})
        each = self.known(name)
        each.time, each.hops = message.time, message.nearest + message.hops + 1
        onward = FiltersKnown(
            subscriber=name,
            routes=message.routes,
            time=message.time,
            nearest=message.nearest,
            hops=message.hops + 1,
        )
        self.flood(onward, link, now)
        self.send_queued((name,), now)
        self.broker.router.tell(now)

    def on_filters_asked(self, message: FiltersAsked, link: LinkId, now: Time) -> None:
        """A neighbour knows something older. (BQUERY)"""
        if self.age(message.subscriber).is_better_than(Age(message.time, message.hops)):
            self._tell(message.subscriber, link, now)

    def _ask(self, subscriber: NodeId, mine: Age, link: LinkId, now: Time) -> None:
        asked = FiltersAsked(subscriber=subscriber, time=mine.time, hops=mine.hops)
        self.broker.send(link, asked, now)

    def _tell(self, subscriber: NodeId, link: LinkId, now: Time) -> None:
        """The paper's sendSubscriptions."""
        each = self.subscribers[subscriber]
        known = FiltersKnown(
            subscriber=subscriber, routes=each.routes(), time=each.time, nearest=each.hops
        )
        self.broker.send(link, known, now)


EFFICIENT = Protocol(name="efficient", broker=Efficient, needs=("ordering",))


def _parts(known: Known) -> tuple[NodeId, int, int]:
    return known.subscriber, known.time, known.hops
