"""Which events were discarded while they were kept for a client, in little memory."""

from array import array
from collections.abc import Iterable, Iterator

from sterna.core.names import NodeId
from sterna.model.event import EventId
from sterna.model.ranges import INT_MAX

MISSED_BYTES = 12
"""How many bytes each of them takes."""

PUBLISHER_BYTES = 200
"""About how many bytes the name of a publisher takes."""


class Missed:
    """The identities of events, in their order."""

    __slots__ = ("_publishers", "_seqs", "_whose")

    def __init__(self, events: Iterable[EventId] = ()) -> None:
        self._publishers: dict[NodeId, int] = {}
        """The publishers, numbered from 0."""
        self._whose: array[int] | None = None
        """The number of the publisher of each event; None if there are none, as mostly."""
        self._seqs: array[int] | None = None
        self.add(events)

    def add(self, events: Iterable[EventId]) -> None:
        """More were discarded."""
        for publisher, seq in events:
            if not 0 <= seq <= INT_MAX:
                continue  # From an older release: nobody could read the news of it.
            if self._whose is None or self._seqs is None:
                self._whose, self._seqs = array("I"), array("q")
            self._whose.append(self._publishers.setdefault(publisher, len(self._publishers)))
            self._seqs.append(seq)

    def __iter__(self) -> Iterator[EventId]:
        names = list(self._publishers)
        for number, seq in zip(self._whose or (), self._seqs or (), strict=True):
            yield EventId(names[number], seq)

    def __bool__(self) -> bool:
        return self._seqs is not None

    @property
    def memory_bytes(self) -> int:
        """About how much memory they take."""
        return MISSED_BYTES * len(self._seqs or ()) + PUBLISHER_BYTES * len(self._publishers)
