"""Origins of facts: journals, each with positions, in directories or at brokers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from sterna.net.remote import Extent
from sterna.pipeline.source.query import Bad


class Span(NamedTuple):
    """A stretch of a journal: positions from `start` to before `end`."""

    start: int
    end: int


Spans = Mapping[str, Span]
"""A stretch for each journal."""

Extents = Mapping[str, Extent]
"""What there is of each journal."""


class Piece(Protocol):
    """Some facts of one journal that a worker reads by itself."""

    @property
    def journal(self) -> str:
        """The name of the journal."""

    @property
    def span(self) -> Span:
        """The stretch that the facts are part of."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Bad]:
        """The facts with at least these columns, and a `Bad` in place of what cannot be read."""


class Origin(Protocol):
    """Journals that belong together."""

    def extents(self, patience_s: float = 0.0) -> dict[str, Extent]:
        """The present extent of each journal, by name in order.

        Brokers that do not answer are waited for, at most so many seconds.
        """

    def tasks(self, spans: Spans, count_min: int | None) -> list[list[Piece]]:
        """These stretches in pieces, a list for each task; at least so many if possible."""

    def first_batch(self, journal: str, span: Span) -> pa.RecordBatch | None:
        """The first facts of a stretch, with their positions and times; None if it is empty."""
