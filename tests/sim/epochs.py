"""What a walk's clients must get and must not get, by the script alone: Fiege, Fig. 4.

An event belongs to the epoch in which it arrives. When it arrives is known to the microsecond only
where links have no jitter and nothing breaks; else it is known to lie within a window. If an event
matches wherever the client is within that window, it must be delivered; if it matches nowhere, it
must not; else either may happen. Publishers that quench are not foreseen: they let events wait.
"""

from functools import cached_property
from itertools import pairwise

from sterna.core.inputs import Publish
from sterna.core.names import NodeId, Time
from sterna.model.event import EventId
from sterna.sim.script import Crash, Drop, Partition
from tests.sim.walks import TICK_US, Known, Walk, delay_us, way

SLACK_US = 50_000
"""Longer than a node waits before it acknowledges."""

Window = tuple[Time, Time]
"""From when to when, both included."""


class Epochs:
    """The verdicts on all events of a walk, for all clients that walk."""

    def __init__(self, walk: Walk, known: Known) -> None:
        assert not walk.base.client.quenching
        self._walk = walk
        self._known = known

    @cached_property
    def events(self) -> dict[EventId, tuple[Time, Publish]]:
        """What is published, and when."""
        found: dict[EventId, tuple[Time, Publish]] = {}
        for ticks, client, what in self._walk.happenings:
            if isinstance(what, Publish):
                seq = 1 + sum(id_.publisher == client for id_ in found)
                found[EventId(client, seq)] = ticks * TICK_US, what
        return found

    def is_exact(self, id_: EventId, client: NodeId) -> bool:
        """Whether nothing on its way can make an event late, nor what brokers know there old."""
        return not self._walk.base.link.jitter_us and not self._troubles(id_, client)

    def verdict(self, id_: EventId, client: NodeId) -> bool | None:
        """Whether a client must get an event, or must not; None: either may happen."""
        matches = {
            any(each.matches(self.events[id_][1].attributes) for each in wants)
            for place in self._walk.places_between(client, *self._window(id_, client))
            for wants in [self._walk.wants(client, place)]
        }
        return matches.pop() if len(matches) == 1 else None

    def _window(self, id_: EventId, client: NodeId) -> Window:
        """From where the client was when it was filtered for, to where it may be on arrival.

        While something is broken, brokers may know of no move since it broke, and what waits was
        filtered for where the client was then. If the dwell time is not known, that matters not.
        """
        begin = self.events[id_][0] + self._quickest_us(id_, client)
        end = self.events[id_][0] + self._slowest_us(id_, client)
        for broke, well in self._troubles(id_, client):
            if self._known is not Known.UNKNOWN:
                begin = min(begin, broke - 2 * self._slowest_us(id_, client))
            end = max(end, well + self._slowest_us(id_, client))
        return begin, end

    def _quickest_us(self, id_: EventId, client: NodeId) -> Time:
        return delay_us(self._walk.base.latencies, id_.publisher, client)

    def _slowest_us(self, id_: EventId, client: NodeId) -> Time:
        hops = len(way(self._walk.base.latencies, id_.publisher, client)) - 1
        return self._quickest_us(id_, client) + hops * self._walk.base.link.jitter_us

    def _troubles(self, id_: EventId, client: NodeId) -> list[Window]:
        """When something is broken on the way of an event, while it is there or those before it.

        A broken link needs a round trip to be as before, and then what waited needs its time.
        """
        path = way(self._walk.base.latencies, id_.publisher, client)
        slowest_us = self._slowest_us(id_, client)
        broken = [
            (ticks * TICK_US, ticks * TICK_US + fault.us + 3 * slowest_us + SLACK_US)
            for ticks, fault in self._walk.faults
            if _breaks(fault, path)
        ]
        begin = self.events[id_][0]
        end = begin + slowest_us
        found: list[Window] = []
        while touching := [w for w in broken if w[0] <= end and w[1] >= begin and w not in found]:
            found += touching
            begin, end = min(begin, *(w[0] for w in found)), max(end, *(w[1] for w in found))
        return found


def _breaks(fault: Drop | Crash | Partition, path: tuple[NodeId, ...]) -> bool:
    match fault:
        case Drop():
            return {fault.a, fault.b} <= set(path)
        case Crash():
            return fault.broker in path
        case Partition():  # It cuts links between brokers, not those to clients.
            inside = [node in fault.brokers for node in path[1:-1]]
            return any(one != other for one, other in pairwise(inside))
