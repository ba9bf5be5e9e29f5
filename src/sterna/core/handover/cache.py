"""What a border broker keeps for a client that is away: a ring for each subscription, for a time.

(Fiege, A.2: "a ring buffer … together with a Time-to-Live mechanism".)
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from sterna.core.depot import PLACE_BYTES, Depot, PageId
from sterna.core.handover.spilled import NOTHING_SPILLED, InPage, KeptSpilled, Spilled
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, RouteId, Time
from sterna.core.sizes import EVENT_BYTES, Load, weight
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
        """The events that are kept in memory, by a running number."""
        self._spilled = NOTHING_SPILLED
        """Those that are in pages: all of them are older."""
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
            self._spilled.begin_anew(now)
        self._ttl_us = ttl_us

    def __len__(self) -> int:
        return len(self._kept) + self._spilled.count

    @property
    def load(self) -> Load:
        """How much is kept."""
        spilled = self._spilled
        spared_bytes = spilled.bytes + (EVENT_BYTES - PLACE_BYTES) * spilled.count
        return Load(len(self), self.bytes, spared_bytes)

    def shrink(self, memory_bytes: int) -> list[Event | InPage]:
        """Discard the oldest events until the others take no more memory than this."""
        gone: list[Event | InPage] = []
        while len(self) and self.load.memory_bytes > memory_bytes:
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
        number = self._spilled.oldest if self._spilled.count else next(iter(self._kept))
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
            while ring and self._until(self._since(ring[0])) <= now:
                gone += self._leave_ring(ring.popleft())
            if not ring:
                del self._rings[subscription]
        return gone

    def _leave_ring(self, number: int) -> list[Event | InPage]:
        """Take an event out of one ring; if that was its last one, it is gone."""
        kept = self._kept.get(number)
        if kept is None:
            before, where = self._spilled.bytes, self._spilled.leave_ring(number)
            self.bytes -= before - self._spilled.bytes
            return [] if where is None else [where]
        kept.rings -= 1
        if kept.rings:
            return []
        del self._kept[number]
        self.bytes -= kept.weight
        return [kept.event]

    # ---- Spilling

    def to_spill(self, bytes_max: int) -> list[tuple[int, Event]]:
        """The oldest events in memory, with their numbers: about so many bytes."""
        found: list[tuple[int, Event]] = []
        size = 0
        for number, kept in self._kept.items():
            if size >= bytes_max:
                break
            found.append((number, kept.event))
            size += kept.weight + EVENT_BYTES
        return found

    def still_in_memory(self, events: Iterable[tuple[int, Event]]) -> set[int]:
        """Of such events, the numbers of those that are still there."""
        return {
            number
            for number, event in events
            if number in self._kept and self._kept[number].event is event
        }

    def spill(self, number: int, page: PageId, place: int) -> None:
        """The oldest event in memory is in a page now; one that is not the oldest is ignored."""
        if next(iter(self._kept), None) == number:
            kept = self._kept.pop(number)
            if self._spilled is NOTHING_SPILLED:
                self._spilled = Spilled()
            self._spilled.add(number, InPage(page, place), kept.weight, kept.since, kept.rings)

    @property
    def spilled_bytes(self) -> int:
        """About how many bytes of the events are in pages."""
        return self._spilled.bytes

    def discard_spilled(self, bytes_max: int) -> list[Event | InPage]:
        """Discard the oldest events until no more than so many bytes are in pages."""
        gone: list[Event | InPage] = []
        while self._spilled.bytes > bytes_max:
            gone += self._leave_rings()
        return gone

    def pages(self) -> Iterable[PageId]:
        """The pages that hold some of the events."""
        return self._spilled.pages

    # ---- Time

    def _since(self, number: int) -> Time:
        kept = self._kept.get(number)
        return self._spilled.since(number) if kept is None else kept.since

    def _until(self, since: Time) -> Time:
        return NEVER if self._ttl_us is None else since + self._ttl_us

    @property
    def expires_at(self) -> Time:
        """When the oldest has been kept too long."""
        if self._spilled.count:
            return self._until(self._spilled.since(self._spilled.oldest))
        oldest = next(iter(self._kept.values()), None)
        return NEVER if oldest is None else self._until(oldest.since)

    def keep_all(self, writer: Writer) -> "KeptCache":
        """What a snapshot has to hold."""
        writer.more(self._spilled.count)
        return KeptCache(
            [(number, writer.event(kept.event), kept.since) for number, kept in self._kept.items()],
            {subscription: list(ring) for subscription, ring in self._rings.items()},
            self._count,
            self._spilled.keep(),
        )

    def restore(self, kept: "KeptCache", reader: Reader) -> None:
        """Hold what a snapshot has held."""
        self._count = kept.count
        self._spilled = Spilled.restored(kept.spilled)
        self.bytes += self._spilled.bytes
        for number, event_number, since in kept.events:
            event = reader.event(event_number)
            self._kept[number] = Kept(event, since, weight(event))
            self.bytes += self._kept[number].weight
        for subscription, ring in kept.rings.items():
            self._rings[subscription] = deque(ring)
            for number in ring:
                if number in self._kept:
                    self._kept[number].rings += 1
                else:
                    self._spilled.enter_ring(number)

    def events(self) -> list[Event | InPage]:
        """All events that are kept."""
        return [*self._spilled, *(kept.event for kept in self._kept.values())]

    def take(self) -> list[Event | InPage]:
        """Take all events out of the cache."""
        events = self.events()
        self._kept.clear()
        self._spilled = NOTHING_SPILLED
        self._rings.clear()
        self.bytes = 0
        return events


class KeptCache(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of a cache."""

    events: list[tuple[int, int, Time]]
    """The running number of each event, the number that the writer gave it, and since when."""
    rings: dict[RouteId, list[int]]
    count: int
    spilled: KeptSpilled = KeptSpilled()
    """The events that are in pages."""


def read(events: Sequence[Event | InPage], depot: Depot) -> list[Event]:
    """Events that have left a cache, wherever they are."""
    return [depot.event(*event) if isinstance(event, InPage) else event for event in events]


def after(earlier: Sequence[Event], later: Sequence[Event]) -> list[Event]:
    """Of events that came over another path, those that their publishers published later."""
    last = {event.publisher: event.seq for event in earlier}
    return [event for event in later if event.seq > last.get(event.publisher, 0)]
