"""What a border broker keeps for a client that is away: a ring for each subscription, for a time.

(Fiege, A.2: "a ring buffer … together with a Time-to-Live mechanism".)

A subscription may have a policy of its own, beside the bounds for all: then its ring keeps less.
What is in several rings is kept until it has left all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sterna.core.depot import PLACE_BYTES, Depot, PageId
from sterna.core.handover.queues import Lifetimes, Queue, Values, queue_for
from sterna.core.handover.spilled import NOTHING_SPILLED, InPage, KeptSpilled, Spilled
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, RouteId, Time
from sterna.core.sizes import EVENT_BYTES, Load, weight
from sterna.model.event import Event, EventId
from sterna.model.queue_policies import QueuePolicy, policy_or_none

Policies = Mapping[RouteId, QueuePolicy]
"""The policies of subscriptions; those that are not there keep everything."""

NO_POLICIES: Policies = {}


class Kept(msgspec.Struct, gc=False):
    """An event, once, however many subscriptions it was kept for."""

    event: Event
    since: Time
    weight: int
    rings: int = 0
    """How many rings it is in."""


class Gone(NamedTuple):
    """An event that is kept no longer."""

    event: Event | InPage
    policy: str = ""
    """The policy that did without it; empty if it had to go because of a bound."""


class Due(NamedTuple):
    """When an event has to go, as policies give times to events."""

    time: Time
    lifetime_us: Time
    """The shortest of these times."""


NOT_DUE = Due(NEVER, NEVER)


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
        self._rings: dict[RouteId, Queue] = {}
        self._lifetimes: dict[RouteId, Lifetimes] = {}
        """Those of them that have a time of their own."""
        self._bounded: set[int] = set()
        """Where there are policies: the events that have left some ring because of a bound."""
        self._has_policies = False
        self._outlived: dict[int, Time] = {}
        """The events that are kept although the time that a policy gives them is over: since when
        they have waited, at the latest. It must not begin anew at another broker."""
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

    def shrink(self, memory_bytes: int) -> list[Gone]:
        """Discard the oldest events until the others take no more memory than this."""
        gone: list[Gone] = []
        while len(self) and self.load.memory_bytes > memory_bytes:
            gone += self._leave_rings()
        return gone

    def keep(
        self, event: Event, subscriptions: Iterable[RouteId], now: Time,
        policies: Policies = NO_POLICIES, waited: Time = 0,
    ) -> list[Gone]:  # fmt: skip
        """Keep an event for the subscriptions that it matches; return what was discarded for it.

        It may have `waited` elsewhere before, which counts for policies, but not for the bounds.
        """
        self._count += 1
        number = self._count
        rings = {id_: self._ring(id_, policies.get(id_), now) for id_ in subscriptions}
        kept = self._kept[number] = Kept(event, now, weight(event), len(rings))
        bytes_max = max(self._bytes_max, self.bytes)
        self.bytes += kept.weight
        gone: list[Gone] = []
        for ring in rings.values():
            for each in ring.enter(number, event, now, waited):
                if isinstance(ring, Lifetimes):
                    self._outlived[each] = now - waited
                gone += self._leave_ring(each, ring)
            if len(ring) > self._events_max:
                gone += self._leave_ring(ring.shift())
        while self.bytes > bytes_max:
            gone += self._leave_rings()
        return gone

    def _ring(self, subscription: RouteId, policy: QueuePolicy | None, now: Time) -> Queue:
        """The ring of a subscription. What is in it when its policy changes is kept like events of
        which the new one says nothing.
        """
        ring = self._rings.get(subscription)
        if ring is None or (ring.policy is not policy and ring.policy != policy):
            before, ring = ring, queue_for(policy)
            if before is not None:
                ring.restore(list(before), [], now)
            self._enter(subscription, ring)
        return ring

    def _enter(self, subscription: RouteId, ring: Queue) -> None:
        self._rings[subscription] = ring
        self._lifetimes.pop(subscription, None)
        if isinstance(ring, Lifetimes):
            self._lifetimes[subscription] = ring
        self._has_policies |= ring.policy is not None

    def _leave_rings(self) -> list[Gone]:
        """Discard the oldest event, whatever it was kept for."""
        number = self._spilled.oldest if self._spilled.count else next(iter(self._kept))
        gone: list[Gone] = []
        for ring in self._rings.values():
            if ring.oldest == number:
                gone += self._leave_ring(ring.shift())
        return gone

    def expire(self, now: Time) -> list[Gone]:
        """Discard what was kept too long."""
        gone: list[Gone] = []
        for subscription in list(self._rings):
            ring = self._rings[subscription]
            for number in ring.expire(now):
                if isinstance(ring, Lifetimes):
                    self._outlived[number] = now - ring.policy.ttl_us
                gone += self._leave_ring(number, ring)
            oldest = ring.oldest
            while oldest is not None and self._until(self._since(oldest)) <= now:
                gone += self._leave_ring(ring.shift())
                oldest = ring.oldest
            if oldest is None:
                del self._rings[subscription]
                self._lifetimes.pop(subscription, None)
        return gone

    def due(self, subscriptions: Iterable[RouteId] | None = None) -> Due:
        """When the policies of subscriptions let the next event go: of all, or of these only."""
        if not self._lifetimes:
            return NOT_DUE
        ids = self._lifetimes if subscriptions is None else subscriptions
        rings = [self._lifetimes[id_] for id_ in ids if id_ in self._lifetimes]
        if not rings:
            return NOT_DUE
        return Due(min(ring.due for ring in rings), min(ring.policy.ttl_us for ring in rings))

    def _leave_ring(self, number: int, ring: Queue | None = None) -> list[Gone]:
        """An event has left one ring; if that was its last one, it is gone.

        It has left because of the policy of that `ring`, or else because of a bound.
        """
        policy = "" if ring is None or ring.policy is None else ring.policy.text
        kept = self._kept.get(number)
        event: Event | InPage | None
        if kept is None:
            before, event = self._spilled.bytes, self._spilled.leave_ring(number)
            self.bytes -= before - self._spilled.bytes
        else:
            kept.rings -= 1
            event = None if kept.rings else kept.event
            if not kept.rings:
                del self._kept[number]
                self.bytes -= kept.weight
        if not self._has_policies:
            return [] if event is None else [Gone(event)]
        if not policy:
            self._bounded.add(number)
        if event is None:
            return []
        self._outlived.pop(number, None)
        if number in self._bounded:
            self._bounded.remove(number)
            policy = ""
        return [Gone(event, policy)]

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

    def discard_spilled(self, bytes_max: int) -> list[Gone]:
        """Discard the oldest events until no more than so many bytes are in pages."""
        gone: list[Gone] = []
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
            {
                subscription: KeptPolicy(ring.policy.text, ring.values())
                for subscription, ring in self._rings.items()
                if ring.policy is not None
            },
            sorted(self._bounded),
            dict(self._outlived),
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
        self._bounded = set(kept.bounded)
        self._outlived = dict(kept.outlived)
        for subscription, ring in kept.rings.items():
            policy = kept.policies.get(subscription, NO_POLICY)
            queue = queue_for(policy_or_none(policy.text) if policy.text else None)
            queue.restore(ring, policy.values, now=0)
            self._enter(subscription, queue)
            for number in ring:
                if number in self._kept:
                    self._kept[number].rings += 1
                else:
                    self._spilled.enter_ring(number)

    def waited(self, now: Time) -> list[Time]:
        """For how long each of the events has waited, here and elsewhere, if a policy counts that;
        else 0.
        """
        waited = {number: now - since for number, since in self._outlived.items()}
        waited |= {n: time for ring in self._lifetimes.values() for n, time in ring.waited(now)}
        return [waited.get(number, 0) for number in (*self._spilled.numbers(), *self._kept)]

    def events(self) -> list[Event | InPage]:
        """All events that are kept."""
        return [*self._spilled, *(kept.event for kept in self._kept.values())]

    def take(self) -> list[Event | InPage]:
        """Take all events out of the cache."""
        events = self.events()
        self._kept.clear()
        self._spilled = NOTHING_SPILLED
        self._rings.clear()
        self._lifetimes.clear()
        self._bounded.clear()
        self._outlived.clear()
        self.bytes = 0
        return events


class KeptPolicy(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of the policy of a ring."""

    text: str
    values: Values = []
    """What it goes by, for each event of the ring; empty if it needs nothing."""


NO_POLICY = KeptPolicy("")


class KeptCache(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of a cache."""

    events: list[tuple[int, int, Time]]
    """The running number of each event, the number that the writer gave it, and since when."""
    rings: dict[RouteId, list[int]]
    count: int
    spilled: KeptSpilled = KeptSpilled()
    """The events that are in pages."""
    policies: dict[RouteId, KeptPolicy] = {}
    bounded: list[int] = []
    """Where there are policies: the events that have left some ring because of a bound."""
    outlived: dict[int, Time] = {}
    """Those that are kept although a policy gives them no more time: since when they wait."""


def read(events: Sequence[Event | InPage], depot: Depot) -> list[Event]:
    """Events that have left a cache, wherever they are."""
    return [depot.event(*event) if isinstance(event, InPage) else event for event in events]


def after(
    earlier: Sequence[Event], later: Sequence[Event], purged: Iterable[EventId] = ()
) -> list[Event]:
    """Of events that came over another path, those that their publishers published later.

    Of the earlier ones, policies may have `purged` some.
    """
    last = dict(purged)
    for event in earlier:
        last[event.publisher] = max(event.seq, last.get(event.publisher, 0))
    return [event for event in later if event.seq > last.get(event.publisher, 0)]
