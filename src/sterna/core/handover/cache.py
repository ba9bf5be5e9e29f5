"""What a border broker keeps for a client that is away: a ring for each subscription, for a time.

(Fiege, A.2: "a ring buffer … together with a Time-to-Live mechanism".)
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from sterna.core.depot import PLACE_BYTES, Depot, PageId
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, RouteId, Time
from sterna.core.sizes import EVENT_BYTES, Load, weight
from sterna.model.event import Event


class InPage(NamedTuple):
    """Where an event is that was spilled."""

    page: PageId
    place: int


class Kept(msgspec.Struct, gc=False):
    """An event, once, however many subscriptions it was kept for."""

    event: Event | InPage
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
        self._spilled: Counter[PageId] = Counter()
        """How many of the events are in each page."""
        self._spared_bytes = 0
        self._in_memory_from = 0
        """No event with a lower number is in memory."""
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
        return Load(len(self._kept), self.bytes, self._spared_bytes)

    def shrink(self, memory_bytes: int) -> list[Event | InPage]:
        """Discard the oldest events until the others take no more memory than this."""
        gone: list[Event | InPage] = []
        while self._kept and self.load.memory_bytes > memory_bytes:
            gone += self._leave_rings()
        return gone

    def keep(
        self, event: Event, subscriptions: Iterable[RouteId], now: Time
    ) -> list[Event | InPage]:
        """Keep an event for the subscriptions that it matches; return what was discarded for it."""
        self._count += 1
        kept = self._kept[self._count] = Kept(event, now, weight(event))
        bytes_max = max(self._bytes_max, self.bytes)
        self.bytes += kept.weight
        gone: list[Event | InPage] = []
        for subscription in subscriptions:
            ring = self._rings.setdefault(subscription, deque())
            ring.append(self._count)
            kept.rings += 1
            if len(ring) > self._events_max:
                gone += self._leave_ring(ring.popleft())
        while self.bytes > bytes_max:
            gone += self._leave_rings()
        return gone

    def _leave_rings(self) -> list[Event | InPage]:
        """Discard the oldest event, whatever it was kept for."""
        number = next(iter(self._kept))
        gone: list[Event | InPage] = []
        for ring in self._rings.values():
            if ring and ring[0] == number:
                ring.popleft()
                gone += self._leave_ring(number)
        return gone

    def expire(self, now: Time) -> list[Event | InPage]:
        """Discard what was kept too long."""
        gone: list[Event | InPage] = []
        for subscription in list(self._rings):
            ring = self._rings[subscription]
            while ring and self._until(self._kept[ring[0]]) <= now:
                gone += self._leave_ring(ring.popleft())
            if not ring:
                del self._rings[subscription]
        return gone

    def _leave_ring(self, number: int) -> list[Event | InPage]:
        """Take an event out of one ring; if that was its last one, it is gone."""
        kept = self._kept[number]
        kept.rings -= 1
        if kept.rings:
            return []
        del self._kept[number]
        self.bytes -= kept.weight
        return [self._out(kept)]

    def _out(self, kept: Kept) -> Event | InPage:
        """The event that was kept, and is not any more."""
        event = kept.event
        if isinstance(event, InPage):
            self._spared_bytes -= _spared(kept)
            self._spilled[event.page] -= 1
            if not self._spilled[event.page]:
                del self._spilled[event.page]
        return event

    # ---- Spilling

    def to_spill(self, bytes_max: int) -> list[tuple[int, Event]]:
        """The oldest events in memory, with their numbers: about so many bytes."""
        found: list[tuple[int, Event]] = []
        size = 0
        self._in_memory_from = max(self._in_memory_from, next(iter(self._kept), 0))
        for number in range(self._in_memory_from, self._count + 1):
            if size >= bytes_max:
                break
            kept = self._kept.get(number)
            if kept is not None and not isinstance(kept.event, InPage):
                found.append((number, kept.event))
                size += kept.weight + EVENT_BYTES
            elif not found:
                self._in_memory_from = number + 1
        return found

    def still_in_memory(self, events: Iterable[tuple[int, Event]]) -> set[int]:
        """Of such events, the numbers of those that are still there."""
        return {
            number
            for number, event in events
            if number in self._kept and self._kept[number].event is event
        }

    def spill(self, number: int, page: PageId, place: int) -> None:
        """An event is in a page now; one that is not in memory is ignored."""
        kept = self._kept.get(number)
        if kept is not None and not isinstance(kept.event, InPage):
            kept.event = InPage(page, place)
            self._spilled[page] += 1
            self._spared_bytes += _spared(kept)

    def pages(self) -> Iterable[PageId]:
        """The pages that hold some of the events."""
        return self._spilled

    # ---- Time

    def _until(self, kept: Kept) -> Time:
        return NEVER if self._ttl_us is None else kept.since + self._ttl_us

    @property
    def expires_at(self) -> Time:
        """When the oldest has been kept too long."""
        oldest = next(iter(self._kept.values()), None)
        return NEVER if oldest is None else self._until(oldest)

    def keep_all(self, writer: Writer) -> "KeptCache":
        """What a snapshot has to hold."""
        events: list[tuple[int, int, Time]] = []
        spilled: list[tuple[int, PageId, int, int, Time]] = []
        for number, kept in self._kept.items():
            if isinstance(kept.event, InPage):
                spilled.append((number, *kept.event, kept.weight, kept.since))
            else:
                events.append((number, writer.event(kept.event), kept.since))
        rings = {subscription: list(ring) for subscription, ring in self._rings.items()}
        return KeptCache(events, rings, self._count, spilled)

    def restore(self, kept: "KeptCache", reader: Reader) -> None:
        """Hold what a snapshot has held."""
        self._count = kept.count
        found: dict[int, Kept] = {}
        for number, event_number, since in kept.events:
            event = reader.event(event_number)
            found[number] = Kept(event, since, weight(event))
        for number, page, place, size, since in kept.spilled:
            found[number] = Kept(InPage(page, place), since, size)
            self._spilled[page] += 1
            self._spared_bytes += _spared(found[number])
        self._kept = {number: found[number] for number in sorted(found)}
        self.bytes += sum(each.weight for each in found.values())
        for subscription, ring in kept.rings.items():
            self._rings[subscription] = deque(ring)
            for number in ring:
                self._kept[number].rings += 1

    def take(self) -> list[Event | InPage]:
        """Take all events out of the cache."""
        events = [self._out(kept) for kept in self._kept.values()]
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
    spilled: list[tuple[int, PageId, int, int, Time]] = []
    """The running number of each event that is in a page, the page, its place there, about how many
    bytes it takes, and since when it is kept."""


def read(events: Sequence[Event | InPage], depot: Depot) -> list[Event]:
    """Events that have left a cache, wherever they are."""
    return [depot.event(*event) if isinstance(event, InPage) else event for event in events]


def _spared(kept: Kept) -> int:
    """How many bytes of memory it spares that an event is in a page."""
    return kept.weight + EVENT_BYTES - PLACE_BYTES


def after(earlier: Sequence[Event], later: Sequence[Event]) -> list[Event]:
    """Of events that came over another path, those that their publishers published later."""
    last = {event.publisher: event.seq for event in earlier}
    return [event for event in later if event.seq > last.get(event.publisher, 0)]
