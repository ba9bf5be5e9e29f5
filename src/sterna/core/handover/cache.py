"""What a border broker keeps for a client that is away: a ring for each subscription, for a time.

(Fiege, A.2: "a ring buffer … together with a Time-to-Live mechanism".)
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from sterna.core.names import NEVER, RouteId, Time
from sterna.core.sizes import weight
from sterna.model.event import Event


class Kept(msgspec.Struct, gc=False):
    """An event, once, however many subscriptions it was kept for."""

    event: Event
    since: Time
    weight: int
    rings: int = 0
    """In how many rings it is."""


class Cache:
    """Events in the order in which they came."""

    def __init__(self, events_max: int, ttl_us: Time | None, bytes_max: int | None = None) -> None:
        """Keep so many events for each subscription, so many bytes for all of them."""
        self._events_max = events_max
        self._ttl_us = ttl_us
        self._bytes_max = NEVER if bytes_max is None else bytes_max
        self.bytes = 0
        """About how much is kept."""
        self._kept: dict[int, Kept] = {}
        """By a running number."""
        self._rings: dict[RouteId, deque[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, event: Event, subscriptions: Iterable[RouteId], now: Time) -> list[Event]:
        """Keep an event for the subscriptions that it matches; the events that had to go for it."""
        self._count += 1
        kept = self._kept[self._count] = Kept(event, now, weight(event))
        self.bytes += kept.weight
        gone = []
        for subscription in subscriptions:
            ring = self._rings.setdefault(subscription, deque())
            ring.append(self._count)
            kept.rings += 1
            if len(ring) > self._events_max:
                gone += self._leave_ring(ring.popleft())
        while self.bytes > self._bytes_max:
            gone += self._leave_rings()
        return gone

    def _leave_rings(self) -> list[Event]:
        """The oldest event goes, whatever it was kept for."""
        number = next(iter(self._kept))
        gone: list[Event] = []
        for ring in self._rings.values():
            if ring and ring[0] == number:
                ring.popleft()
                gone += self._leave_ring(number)
        return gone

    def expire(self, now: Time) -> list[Event]:
        """Discard what was kept too long."""
        gone: list[Event] = []
        for subscription in list(self._rings):
            ring = self._rings[subscription]
            while ring and self._until(self._kept[ring[0]]) <= now:
                gone += self._leave_ring(ring.popleft())
            if not ring:
                del self._rings[subscription]
        return gone

    def _leave_ring(self, number: int) -> list[Event]:
        """An event is in one ring less; if that was the last one, it is gone."""
        kept = self._kept[number]
        kept.rings -= 1
        if kept.rings:
            return []
        del self._kept[number]
        self.bytes -= kept.weight
        return [kept.event]

    def _until(self, kept: Kept) -> Time:
        return NEVER if self._ttl_us is None else kept.since + self._ttl_us

    @property
    def expires_at(self) -> Time:
        """When the oldest has been kept too long."""
        oldest = next(iter(self._kept.values()), None)
        return NEVER if oldest is None else self._until(oldest)

    def take(self) -> list[Event]:
        """Everything; from now on the cache is empty."""
        events = [kept.event for kept in self._kept.values()]
        self._kept.clear()
        self._rings.clear()
        self.bytes = 0
        return events


def after(earlier: Sequence[Event], later: Sequence[Event]) -> list[Event]:
    """Of events that came over another path, those that each publisher published later."""
    last = {event.publisher: event.seq for event in earlier}
    return [event for event in later if event.seq > last.get(event.publisher, 0)]
