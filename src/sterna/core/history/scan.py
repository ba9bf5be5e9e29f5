"""Finds the events that match a filter in all that a broker has, a little at a time.

That may take longer than a broker may be away from its other peers. So it can be done in slices
before a question is handled, while events come and go; what came meanwhile is tested at the end.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter

from sterna.core.history.passed import Batch, Passed
from sterna.core.history.published import Own, Published
from sterna.core.names import NodeId
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.filters.long_texts import LongTexts, checked

Testing = Generator[None, None, None]
"""Yields whenever time is up."""

Chain = Sequence[tuple[Batch, Event]]
"""Events of a chain, the oldest first, each with its batch."""


class Scan:
    """The events of some chains, and of a broker's own publishers, that match a filter."""

    def __init__(self, filter_: Filter, chains: Iterable[Passed], published: Published) -> None:
        self.filter = filter_
        self._chains = [ChainScan(filter_, passed) for passed in chains]
        self._published = published
        self._own: dict[NodeId, OwnScan] = {}

    def test(self, texts: LongTexts) -> Testing:
        """Test what was not tested yet."""
        for chain in self._chains:
            yield from chain.test(texts)
        for publisher, own in list(self._published.items()):
            yield from self._of(publisher, own).test(texts)

    def finish(self, texts: LongTexts) -> None:
        """Test what has come since; what is not there any more is left out."""
        for _ in self.test(texts):
            pass

    def passed(self) -> list[Chain]:
        """For each chain, what matches, the oldest first."""
        return [chain.left() for chain in self._chains]

    def published(self) -> Iterator[tuple[NodeId, Own, Sequence[Event]]]:
        """Each of the broker's own publishers, and what matches of it."""
        for publisher, own in self._published.items():
            yield publisher, own, self._own[publisher].left()

    def _of(self, publisher: NodeId, own: Own) -> "OwnScan":
        found = self._own.get(publisher)
        if found is None or found.own is not own:  # It has begun anew meanwhile.
            found = self._own[publisher] = OwnScan(self.filter, own)
        return found


class ChainScan:
    """The events of a chain that match."""

    def __init__(self, filter_: Filter, passed: Passed) -> None:
        self._matches = filter_.matches
        self._passed = passed
        self._next = passed.first
        """The first batch that was not tested."""
        self._found: list[tuple[int, Batch, Event]] = []
        """What matches: its place among all that have passed, its batch, and itself."""

    def test(self, texts: LongTexts) -> Testing:
        """Test what was not tested yet."""
        while True:
            if self._next.place < self._passed.first.place:
                self._next = self._passed.first  # What was before is gone.
            batch = self._next
            if batch.next is None:
                return
            for place, event in enumerate(batch.events, batch.place):
                if (yield from checked(self._matches, event.attributes, texts)):
                    self._found.append((place, batch, event))
                if texts.is_time_up:
                    yield
            self._next = batch.next

    def left(self) -> Chain:
        """What matches and is still there."""
        first = bisect_left(self._found, self._passed.first_place, key=itemgetter(0))
        return [(batch, event) for _, batch, event in self._found[first:]]


class OwnScan:
    """The events of a publisher that match."""

    def __init__(self, filter_: Filter, own: Own) -> None:
        self.own = own
        self._matches = filter_.matches
        self._tested = -1
        """The number of the last event that was tested."""
        self._found: list[Event] = []

    def test(self, texts: LongTexts) -> Testing:
        """Test what was not tested yet."""
        if self.own.events[-1].seq <= self._tested:
            return
        for event in [each for each in self.own.events if each.seq > self._tested]:
            if (yield from checked(self._matches, event.attributes, texts)):
                self._found.append(event)
            self._tested = event.seq
            if texts.is_time_up:
                yield

    def left(self) -> Sequence[Event]:
        """What matches and is still there."""
        gone = bisect_left(self._found, self.own.first, key=attrgetter("seq"))
        return self._found[gone:] if gone else self._found
