"""Which events were discarded while they were kept for a client, in little memory."""

from array import array
from collections.abc import Iterable, Iterator

from sterna.core.names import NodeId
from sterna.model.event import EventId
from sterna.model.ranges import INT_MAX

PUBLISHER_BYTES = 250
"""About how many bytes it takes to remember that something of one more publisher was discarded."""


class Missed:
    """The identities of events, grouped by publisher."""

    __slots__ = ("_by_publisher",)

    def __init__(self, events: Iterable[EventId] = ()) -> None:
        self._by_publisher: dict[NodeId, array[int]] = {}
        self.add(events)

    def add(self, events: Iterable[EventId]) -> None:
        """More were discarded."""
        for publisher, seq in events:
            if not 0 <= seq <= INT_MAX:
                continue  # From an older release: nobody could read the news of it.
            seqs = self._by_publisher.get(publisher)
            if seqs is None:
                seqs = self._by_publisher[publisher] = array("q")
            seqs.append(seq)

    def __iter__(self) -> Iterator[EventId]:
        for publisher, seqs in self._by_publisher.items():
            for seq in seqs:
                yield EventId(publisher, seq)

    def __bool__(self) -> bool:
        return bool(self._by_publisher)

    @property
    def memory_bytes(self) -> int:
        """About how much memory they take."""
        numbers = sum(map(len, self._by_publisher.values()))
        return 8 * numbers + PUBLISHER_BYTES * len(self._by_publisher)
