"""The last events that passed a broker, and which of them a request for the past is about.

They form a chain of batches. A request holds on to the batch that it begins with: so what it still
needs stays in memory when the broker itself has no more use for it, and one copy is enough for all.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice, repeat

from sterna.core.actions import LookUp
from sterna.core.history.facts import PastFound
from sterna.core.history.messages import PastAsked
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.routing.foresight import PastVerdicts
from sterna.model.event import Event, EventId

LONG_AGO: Time = -(2**63)
"""Before anything has come."""

_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


class Batch:
    """Events that passed together, their approximate size in bytes, and the next batch."""

    __slots__ = ("events", "link", "next", "place", "size", "time")

    def __init__(self, place: int) -> None:
        self.events: Sequence[Event] = ()
        self.size = 0
        self.link: LinkId = ""
        """Where they came from; not known of those from a snapshot of an earlier release."""
        self.time: Time = 0
        """When they came."""
        self.place = place
        """The place of the first event among all that have passed since this process began."""
        self.next: Batch | None = None


class Passed:
    """The last events that passed a broker; the chain ends with a batch that is still empty."""

    def __init__(self, events_max: int, bytes_max: int) -> None:
        self.events_max = events_max
        self.bytes_max = bytes_max
        self.first = self.end = Batch(0)
        self._count = 0
        self._bytes = 0
        self.gone_bytes = 0
        """How many bytes of events have been dropped so far."""
        self.gone_us: Time = LONG_AGO
        """When the last of them had come."""
        self._by_id: dict[EventId, Event] | None = None
        """The events by their identities, once somebody has asked for some by these."""

    def add(self, events: Sequence[Event], size: int, link: LinkId = "", time: Time = 0) -> bool:
        """Add events that have passed now; whether `trim` may have something to do."""
        batch = self.end
        batch.events, batch.size, batch.link, batch.time = events, size, link, time
        batch.next = self.end = Batch(batch.place + len(events))
        self._count += len(events)
        self._bytes += size
        if self._by_id is not None:
            self._by_id |= {event.id: event for event in events}
        return self._count > self.events_max or self._bytes > self.bytes_max

    def trim(self) -> None:
        """Drop the oldest events beyond the limits."""
        while self.first.next is not None and (
            self._bytes > self.bytes_max or self._count - len(self.first.events) >= self.events_max
        ):
            self._drop_first(self.first.next)

    def expire(self, before: Time) -> None:
        """Drop what came before a time."""
        while self.first.next is not None and self.first.time < before:
            self._drop_first(self.first.next)

    def _drop_first(self, following: Batch) -> None:
        self._count -= len(self.first.events)
        self._bytes -= self.first.size
        self.gone_bytes += self.first.size
        self.gone_us = self.first.time
        if self._by_id is not None:
            for event in self.first.events:
                self._by_id.pop(event.id, None)
        self.first = following

    def find(self, ids: Iterable[EventId]) -> list[Event]:
        """Of the events with these identities, those that are there."""
        if self._by_id is None:
            self._by_id = {event.id: event for event in self.events()}
        return [self._by_id[id_] for id_ in ids if id_ in self._by_id]

    def restore(self, older: int, gone_bytes: int) -> None:
        """All batches of a snapshot were added; the first ones are there for requests only."""
        for _ in range(older):
            if self.first.next is not None:
                self._drop_first(self.first.next)
        self.gone_bytes = gone_bytes

    def batches(self, first: Batch | None = None) -> Iterator[Batch]:
        """All batches with events, or those from one on."""
        batch = first or self.first
        while batch.next is not None:
            yield batch
            batch = batch.next

    def events(self) -> Iterator[Event]:
        """All events, without those that are dropped with the next batch."""
        every = chain.from_iterable(batch.events for batch in self.batches())
        return islice(every, self._beyond, None)

    def events_left(self) -> Iterator[Event | None]:
        """All events, while others are added and dropped: None for those that are dropped."""
        batch, end, beyond = self.first, self.end.place, self._beyond
        while (following := batch.next) is not None and batch.place < end:
            if batch.place < self.first.place:
                yield from repeat(None, min(end, self.first.place) - batch.place - beyond)
                batch = self.first
            else:
                yield from islice(batch.events, beyond, None)
                batch = following
            beyond = 0

    def untested(self) -> PastVerdicts:
        """Verdicts on these events, before any is tested."""
        return PastVerdicts(self.first_place, bytearray())

    @property
    def first_place(self) -> int:
        """The place of the first event that counts, among all that have passed."""
        return self.first.place + self._beyond

    @property
    def _beyond(self) -> int:
        """How many of the first events count no more, although others of their batch do."""
        return max(0, self._count - self.events_max)

    def marked(self, asked: PastAsked, known: PastVerdicts | None) -> "Marked":
        """Mark the events that a client asks for; of some of them it may be known already."""
        matches, since_us = asked.route.filter.matches, asked.since_us or 0
        first = self.first_place
        verdicts = bytearray()
        if known is not None and known.first <= first:
            verdicts = known.verdicts[first - known.first :]
        verdicts += bytes(
            event.time_us >= since_us and matches(event.attributes)
            for event in islice(self.events(), len(verdicts), None)
        )
        marks = int(verdicts.translate(_DIGITS), 2) if verdicts else 0
        return Marked(self.first, self._beyond + len(verdicts), marks, self.gone_bytes)


@dataclass(slots=True)
class Marked:
    """Some of the events of a chain: a bit for each event, the lowest one for the last."""

    first: Batch
    count: int
    marks: int
    gone_bytes: int
    """How many bytes of events had been dropped when the first batch was still there."""

    def events(self) -> list[Event]:
        """The marked events, those of each publisher in order, none twice."""
        if not self.marks:
            return []
        every = chain.from_iterable(batch.events for batch in _chain(self.first))
        digits = f"{self.marks:0{self.count}b}"
        return in_order(compress(every, map("1".__eq__, digits)))

    def catch_up(self, passed: Passed) -> None:
        """Let go of events that the broker itself has dropped."""
        self.count = max(0, self.count - (passed.first.place - self.first.place))
        self.first, self.gone_bytes = passed.first, passed.gone_bytes
        self.marks &= (1 << self.count) - 1


def _chain(batch: Batch | None) -> Iterator[Batch]:
    while batch is not None:
        yield batch
        batch = batch.next


@dataclass(slots=True)
class Request:
    """A client's request for the past, and how far its answer is."""

    asked: PastAsked
    link: LinkId
    marked: Marked | None
    """The events that the broker had when it was asked; None once the answer has begun."""
    answer: list[Event] | None = None
    """All events of the answer; until it begins, what the broker had, if that is not marked."""
    sent: int = 0
    """How many events of the answer were sent."""
    gone_bytes: int = 0
    """How many bytes of events had been dropped when the answer began."""
    look_up: LookUp | None = None
    """The lookup in the archive that is not answered yet."""
    archived_bytes: int = 0
    """About how many bytes of the answer are from the archive."""
    missed: tuple[EventId, ...] = ()
    """Events of the answer that the broker had to drop."""
    search: int | None = None
    """The number of the search at other brokers that has not ended yet."""
    found: PastFound | None = None
    """What was found so far; stated when all is."""

    @property
    def waits(self) -> bool:
        """Whether somebody else has to answer first."""
        return self.look_up is not None or self.search is not None

    def own(self) -> list[Event]:
        """The events that the broker had itself when it was asked."""
        return self.marked.events() if self.marked is not None else self.answer or []

    def begin(self, found: list[Event], passed: Passed) -> None:
        """Answer with the last of the events that were found."""
        events_max = self.asked.events_max
        if events_max is not None:
            found = found[max(0, len(found) - events_max) :]
        self.gone_bytes = passed.gone_bytes if self.marked is None else self.marked.gone_bytes
        self.answer, self.marked, self.look_up = found, None, None
        self.search = None

    def let_go(self, passed: Passed) -> None:
        """Drop what only this request still needs, if that is too much by now."""
        since = self.gone_bytes if self.marked is None else self.marked.gone_bytes
        if passed.gone_bytes - since <= passed.bytes_max:
            return
        if self.marked is not None:
            self.marked.catch_up(passed)
        elif not self.waits and self.answer is not None:
            self.missed += tuple(event.id for event in self.answer[self.sent :])
            del self.answer[self.sent :]


def in_order(events: Iterable[Event]) -> list[Event]:
    """The events of each publisher in the order of their numbers, none twice.

    They arrive in that order, except from publishers that move in a network without such a promise.
    """
    found = list(events)
    last: dict[NodeId, int] = {}
    for event in found:
        if event.seq <= last.get(event.publisher, -1):
            return _sorted(found)
        last[event.publisher] = event.seq
    return found


def _sorted(events: Iterable[Event]) -> list[Event]:
    once = {event.id: event for event in events}
    places = [id_.publisher for id_ in once]
    numbers: dict[NodeId, list[int]] = defaultdict(list)
    for id_ in once:
        numbers[id_.publisher].append(id_.seq)
    turns = {publisher: iter(sorted(seqs)) for publisher, seqs in numbers.items()}
    return [once[EventId(publisher, next(turns[publisher]))] for publisher in places]
