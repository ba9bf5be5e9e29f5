"""Brokers that move: the modular protocol, Amozarrain and Larrea, Algorithm 3.

A broker that has moved trusts only its own subscribers. It tells its new neighbour about them,
takes over that one's table, and has all brokers behind it do the same.

Errata: Fig. 2 numbers the table (BTAB) before the forwarded notice (BMIG), lines 7 to 10 send it
after. They go different ways, so nothing depends on it; here it is as in the figure.
"""

from sterna.core.mobile.messages import (
    Entry,
    MigrationForced,
    SubscriberChange,
    SubscribersMoved,
    TableKnown,
)
from sterna.core.mobile.simple import SimpleRouting
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.protocol import Protocol


class Modular(SimpleRouting):
    """Moves a branch of the tree broker by broker."""

    name = "modular"
    handles = (*SimpleRouting.handles, SubscribersMoved, TableKnown, MigrationForced)

    def migrated(self, before: LinkId, to: LinkId, now: Time) -> None:
        del before
        self._tell_of_own(to, now)

    def _tell_of_own(self, link: LinkId, now: Time) -> None:
        message = SubscribersMoved(subscribers=tuple(self.local()), broker=self.broker.id)
        self.broker.send(link, message, now)

    def on_subscribers_moved(self, message: SubscribersMoved, link: LinkId, now: Time) -> None:
        """The subscribers of a broker are in this direction. (BMIG)"""
        known = [
            name
            for name in message.subscribers
            if name in self.subscribers and not self.is_here(name)
        ]
        beside = self.neighbours(but=link)
        turned = dict.fromkeys(self.subscribers[name].next_hop for name in known)
        for name in known:
            self.turn_any(name, link, now)
        if link == message.broker:
            entries = tuple(Entry(name, e.routes()) for name, e in self.subscribers.items())
            self.broker.send(link, TableKnown(entries=entries), now)
        for neighbour in turned:
            if neighbour in beside:
                self.broker.send(neighbour, message, now)
        self.send_queued(known, now)
        self.broker.router.tell(now)

    def on_table_known(self, message: TableKnown, link: LinkId, now: Time) -> None:
        """The table of the new neighbour. (BTAB)"""
        there = {entry.subscriber: entry for entry in message.entries}
        own = [
            name
            for name in self.subscribers
            if self.is_here(name) or (self.is_own(name) and name not in there)
        ]
        for name in [each for each in self.subscribers if each not in own and each not in there]:
            self._forget(name)
        others = [name for name in there if name not in own]
        for name in others:
            self.turn_any(name, link, now)
            self.set_filters(name, {})
            self.set_filters(name, {route.id: route.filter for route in there[name].routes})
        for name in own:
            mine = self.subscribers[name].filters
            routes = there[name].routes if name in there else ()
            added = tuple(r for r in self.subscribers[name].routes() if r not in routes)
            removed = tuple(route.id for route in routes if route.id not in mine)
            if added or removed:
                change = SubscriberChange(subscriber=name, added=added, removed=removed)
                self.broker.send(link, change, now)
        for neighbour in self.neighbours(but=link):
            self.broker.send(neighbour, MigrationForced(), now)
        self.send_queued(others, now)
        self.broker.router.tell(now)

    def _forget(self, name: NodeId) -> None:
        """The new neighbour knows nothing of a subscriber; what waits for it may still."""
        self.set_filters(name, {})
        if not self.subscribers[name].queue:
            del self.subscribers[name]

    def on_migration_forced(self, _message: MigrationForced, link: LinkId, now: Time) -> None:
        """The neighbour has moved, and this broker with it. (FMIG)"""
        self._tell_of_own(link, now)


MODULAR = Protocol(name="modular", broker=Modular, needs=("ordering",))
