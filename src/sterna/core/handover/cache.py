"""What a border broker keeps for a client that is away: a ring for each subscription, for a time.

(Fiege, A.2: "a ring buffer … together with a Time-to-Live mechanism".)
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sterna.core.names import NEVER, RouteId, Time
from sterna.model.event import Event


@dataclass(slots=True)
class Kept:
    """An event, once, however many subscriptions it was kept for."""

    event: Event
    since: Time
    rings: int = 0
    """In how many rings it is."""


class Cache:
    """Events in the order in which they came."""

    def __init__(self, events_max: int, ttl_us: Time | None) -> None:
        self._events_max = events_max
        self._ttl_us = ttl_us
        self._kept: deque[Kept] = deque()
        self._rings: dict[RouteId, deque[Kept]] = {}

    def __len__(self) -> int:
        return sum(kept.rings > 0 for kept in self._kept)

    def keep(self, event: Event, subscriptions: Iterable[RouteId], now: Time) -> list[Event]:
        """Keep an event for the subscriptions that it matches; the events that had to go for it."""
        kept = Kept(event, now)
        self._kept.append(kept)
        gone = []
        for subscription in subscriptions:
            ring = self._rings.setdefault(subscription, deque())
            ring.append(kept)
            kept.rings += 1
            if len(ring) > self._events_max:
                oldest = ring.popleft()
                oldest.rings -= 1
                if not oldest.rings:
                    gone.append(oldest.event)
        while self._kept and not self._kept[0].rings:
            self._kept.popleft()
        return gone

    def expire(self, now: Time) -> list[Event]:
        """Discard what was kept too long."""
        gone = []
        while self._kept and self._kept[0].since + (self._ttl_us or NEVER) <= now:
            kept = self._kept.popleft()
            if kept.rings:
                gone.append(kept.event)
        for subscription in list(self._rings):
            ring = self._rings[subscription]
            while ring and ring[0].since + (self._ttl_us or NEVER) <= now:
                ring.popleft()
            if not ring:
                del self._rings[subscription]
        return gone

    @property
    def expires_at(self) -> Time:
        """When the oldest has been kept too long."""
        if self._ttl_us is None or not self._kept:
            return NEVER
        return self._kept[0].since + self._ttl_us

    def take(self) -> list[Event]:
        """Everything; from now on the cache is empty."""
        events = [kept.event for kept in self._kept if kept.rings]
        self._kept.clear()
        self._rings.clear()
        return events


def after(earlier: Sequence[Event], later: Sequence[Event]) -> list[Event]:
    """Of events that came over another path, those that each publisher published later."""
    last = {event.publisher: event.seq for event in earlier}
    return [event for event in later if event.seq > last.get(event.publisher, 0)]
