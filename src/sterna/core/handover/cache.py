"""What a border broker keeps for a client that is away: a ring for each subscription, for a time.

(Fiege, A.2: "a ring buffer … together with a Time-to-Live mechanism".)
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, RouteId, Time
from sterna.core.sizes import Load, weight
from sterna.model.event import Event


class Kept(msgspec.Struct, gc=False):
    """An event, once, however many subscriptions it was kept for."""

    event: Event
    since: Time
    weight: int
    rings: int = 0
    """How many rings it is in."""


class Cache:
    """Events in the order in which they came."""

    def __init__(self, events_max: int, ttl_us: Time | None, bytes_max: int | None = None) -> None:
        """Keep up to so many events for each subscription, and so many bytes for all together."""
        self.bytes = 0
        """About how many bytes are kept."""
        self._kept: dict[int, Kept] = {}
        """The kept events, by a running number."""
        self._rings: dict[RouteId, deque[int]] = {}
        self._count = 0
        self._ttl_us = ttl_us
        self.bound(events_max, ttl_us, bytes_max, now=0)

    def bound(
        self, events_max: int, ttl_us: Time | None, bytes_max: int | None, *, now: Time
    ) -> None:
        """Other bounds hold from now on.

        They discard nothing that is kept already: as long as there is more than they allow, each
        new event takes the place of older ones, and a shorter lifetime begins anew.
        """
        self._events_max = events_max
        self._bytes_max = NEVER if bytes_max is None else bytes_max
        if ttl_us is not None and (self._ttl_us is None or ttl_us < self._ttl_us):
            for kept in self._kept.values():
                kept.since = max(kept.since, now)
        self._ttl_us = ttl_us

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def load(self) -> Load:
        """How much is kept."""
        return Load(len(self._kept), self.bytes)

    def shrink(self, memory_bytes: int) -> list[Event]:
        """Discard the oldest events until the others take no more memory than this."""
        gone: list[Event] = []
        while self._kept and self.load.memory_bytes > memory_bytes:
            gone += self._leave_rings()
        return gone

    def keep(self, event: Event, subscriptions: Iterable[RouteId], now: Time) -> list[Event]:
        """Keep an event for the subscriptions that it matches; return what was discarded for it."""
        self._count += 1
        kept = self._kept[self._count] = Kept(event, now, weight(event))
        bytes_max = max(self._bytes_max, self.bytes)
        self.bytes += kept.weight
        gone = []
        for subscription in subscriptions:
            ring = self._rings.setdefault(subscription, deque())
            ring.append(self._count)
            kept.rings += 1
            if len(ring) > self._events_max:
                gone += self._leave_ring(ring.popleft())
        while self.bytes > bytes_max:
            gone += self._leave_rings()
        return gone

    def _leave_rings(self) -> list[Event]:
        """Discard the oldest event, whatever it was kept for."""
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
        """Take an event out of one ring; if that was its last one, it is gone."""
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

    def keep_all(self, writer: Writer) -> "KeptCache":
        """What a snapshot has to hold."""
        return KeptCache(
            [(number, writer.event(kept.event), kept.since) for number, kept in self._kept.items()],
            {subscription: list(ring) for subscription, ring in self._rings.items()},
            self._count,
        )

    def restore(self, kept: "KeptCache", reader: Reader) -> None:
        """Hold what a snapshot has held."""
        self._count = kept.count
        for number, event_number, since in kept.events:
            event = reader.event(event_number)
            self._kept[number] = Kept(event, since, weight(event))
            self.bytes += self._kept[number].weight
        for subscription, ring in kept.rings.items():
            self._rings[subscription] = deque(ring)
            for number in ring:
                self._kept[number].rings += 1

    def take(self) -> list[Event]:
        """Take all events out of the cache."""
        events = [kept.event for kept in self._kept.values()]
        self._kept.clear()
        self._rings.clear()
        self.bytes = 0
        return events


class KeptCache(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of a cache."""

    events: list[tuple[int, int, Time]]
    """The running number of each event, the number that the writer gave it, and since when."""
    rings: dict[RouteId, list[int]]
    count: int


def after(earlier: Sequence[Event], later: Sequence[Event]) -> list[Event]:
    """Of events that came over another path, those that their publishers published later."""
    last = {event.publisher: event.seq for event in earlier}
    return [event for event in later if event.seq > last.get(event.publisher, 0)]
