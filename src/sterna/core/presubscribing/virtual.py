"""A virtual client: a subscription at a place where its client may come, and what came for it.

It begins like a client that subscribes into the past: with what a search finds, if there is one.
Events that come meanwhile wait, and follow. So there is no gap in what it has of a publisher.

It keeps the events in the order in which they were published, whenever they come, and drops the
first ones. So it has the latest events of all publishers, as a search would find them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from sterna.core.history.runs import latest
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, LinkId, NodeId, Time
from sterna.core.presubscribing.facts import VirtualEnded
from sterna.core.presubscribing.messages import VirtualRoute
from sterna.core.sizes import weight
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter


class KeptVirtual(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a virtual client."""

    client: NodeId
    route: VirtualRoute
    owners: list[NodeId]
    events: list[int]
    is_ready: bool
    has_dropped: bool
    search: int | None
    again: Time
    ends: Time
    lost: dict[NodeId, int] = {}
    times: list[Time] = []
    lacks_until: Time = -1
    came: int = 0
    repeated: int = 0
    dropped: int = 0
    handed: int = 0
    used: list[EventId] = []


@dataclass(slots=True)
class Virtual:
    """One subscription of a client at one place."""

    client: NodeId
    route: VirtualRoute
    owners: dict[NodeId, None] = field(default_factory=dict)
    """The brokers that expect the client here."""
    events: list[Event] = field(default_factory=list)
    """In the order of their times; those of a publisher in that of their numbers."""
    bytes: int = 0
    is_ready: bool = False
    """Whether it has begun: before, it may not get everything yet."""
    has_dropped: bool = False
    """Whether there were more events than it keeps."""
    search: int | None = None
    """The number of the search that it begins with."""
    again: Time = NEVER
    """When it searches again, because not all have answered."""
    ends: Time = NEVER
    """When it ends, if nobody wants it again."""
    lost: dict[NodeId, int] = field(default_factory=dict)
    """Of publishers whose events were dropped before it has begun, the number of the last one."""
    lacks_until: Time = -1
    """When the last of the events was published that came before it has begun and that it does not
    have. Of those before, some may be missing."""
    _times: list[Time] = field(default_factory=list)
    """The times that put the events in their order."""
    _newest: dict[NodeId, tuple[int, Time]] = field(default_factory=dict)
    """Of each publisher, the number of its last event here, and the time that counts for it."""
    came: int = 0
    """How many events came, those included that a search has found."""
    repeated: int = 0
    """How many of them had come already."""
    dropped: int = 0
    """How many it has not kept, and its client has not got."""
    handed: int = 0
    """How many it has kept no longer after its client has got them."""
    used: dict[EventId, None] = field(default_factory=dict)
    """The events that it keeps and its client has got."""

    @property
    def link(self) -> LinkId:
        """The name under which it stands in the routing table; no node has such a name."""
        return f"~{self.route.id}@{self.route.place}"

    def begin(self, past: Sequence[Event], events_max: int, bytes_max: int) -> None:
        """It has got all since a search has begun, and this before.

        Of a publisher of which nothing was found, it is not known whether something is missing
        between events that have come so far.
        """
        lost, self.lost = self.lost, {}
        known = {event.id for event in (*past, *self.events)}
        self.came += len(past)
        self.repeated += len(past) + len(self.events) - len(known)
        past = [event for event in past if event.seq > lost.get(event.publisher, -1)]
        last = {event.publisher: event.seq for event in past}
        since = [event for event in self.events if event.seq > last.get(event.publisher, event.seq)]
        for event, time in zip(self.events, self._times, strict=True):
            if event.publisher not in last:
                self.lacks_until = max(self.lacks_until, time)
        for kept in (self.events, self._times, self._newest):
            kept.clear()
        self.bytes = 0
        self.is_ready, self.search = True, None
        self.has_dropped |= bool(lost)
        self.dropped += len(known) - len(past) - len(since)
        self._keep([*past, *since], events_max, bytes_max)

    def add(self, events: Sequence[Event], events_max: int, bytes_max: int) -> None:
        """Events have come: keep them, and drop the oldest if there are too many."""
        self.came += len(events)
        self._keep(events, events_max, bytes_max)

    def _keep(self, events: Iterable[Event], events_max: int, bytes_max: int) -> None:
        for event in events:
            self._insert(event)
            self.bytes += weight(event)
        while self.events and (len(self.events) > events_max or self.bytes > bytes_max):
            dropped = self.events.pop(0)
            time = self._times.pop(0)
            if self._newest[dropped.publisher][0] == dropped.seq:
                del self._newest[dropped.publisher]
            self.bytes -= weight(dropped)
            if dropped.id in self.used:
                del self.used[dropped.id]
                self.handed += 1
            else:
                self.dropped += 1
            self.has_dropped |= self.is_ready
            if not self.is_ready:
                self.lost[dropped.publisher] = dropped.seq
                self.lacks_until = max(self.lacks_until, time)

    def _insert(self, event: Event) -> None:
        """Put an event behind those that were published before, and behind its publisher's."""
        _, last_us = self._newest.get(event.publisher, (0, event.time_us))
        time = max(event.time_us, last_us)
        self._newest[event.publisher] = event.seq, time
        place = bisect_right(self._times, time)
        self._times.insert(place, time)
        self.events.insert(place, event)

    def restore(self, events: Sequence[Event], times: Sequence[Time]) -> None:
        """Have the events that a snapshot has held."""
        self.events, self._times = list(events), list(times)
        self.bytes = sum(map(weight, events))
        self._newest = {
            event.publisher: (event.seq, time) for event, time in zip(events, times, strict=True)
        }

    def answer(
        self, filter_: Filter, events_max: int | None, since_us: Time | None
    ) -> list[Event] | None:
        """What the client gets when it comes; None if others may have more."""
        if not self.is_ready:
            return None
        runs: dict[NodeId, list[Event]] = {}
        for event in self.events:
            if filter_.matches(event.attributes):
                runs.setdefault(event.publisher, []).append(event)
        found = latest(runs, events_max, since_us)
        if events_max is not None and len(found) >= events_max:
            is_whole = all(event.time_us > self.lacks_until for event in found)
        else:
            is_whole = not self.has_dropped and self.lacks_until < 0
        return found if is_whole else None

    def hand_over(self, events: Iterable[Event]) -> None:
        """The client gets some of the events; they are kept in case that it comes back."""
        self.used |= dict.fromkeys(event.id for event in events)

    def ended(self, at: NodeId, now: Time) -> VirtualEnded:
        """What has become of all events, when it ends."""
        return VirtualEnded(
            at=at,
            time=now,
            client=self.client,
            subscription=self.route.id,
            place=self.route.place,
            came=self.came,
            repeated=self.repeated,
            handed=self.handed + len(self.used),
            dropped=self.dropped,
            unused=len(self.events) - len(self.used),
        )

    def keep(self, writer: Writer) -> KeptVirtual:
        """What a snapshot has to hold."""
        return KeptVirtual(
            client=self.client,
            route=self.route,
            owners=list(self.owners),
            events=[writer.event(event) for event in self.events],
            is_ready=self.is_ready,
            has_dropped=self.has_dropped,
            search=self.search,
            again=self.again,
            ends=self.ends,
            lost=dict(self.lost),
            times=list(self._times),
            lacks_until=self.lacks_until,
            came=self.came,
            repeated=self.repeated,
            dropped=self.dropped,
            handed=self.handed,
            used=list(self.used),
        )


def restored(kept: KeptVirtual, reader: Reader) -> Virtual:
    """The virtual client that a snapshot has held."""
    virtual = Virtual(
        kept.client,
        kept.route,
        dict.fromkeys(kept.owners),
        is_ready=kept.is_ready,
        has_dropped=kept.has_dropped,
        search=kept.search,
        again=kept.again,
        ends=kept.ends,
        lost=dict(kept.lost),
        lacks_until=kept.lacks_until,
        came=kept.came,
        repeated=kept.repeated,
        dropped=kept.dropped,
        handed=kept.handed,
        used=dict.fromkeys(kept.used),
    )
    virtual.restore([reader.event(number) for number in kept.events], kept.times)
    return virtual
