"""Journals of running brokers: the driver asks how far they reach, the workers for the facts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from sterna.errors import FactsMissingError, SternaError
from sterna.net import remote
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.origins import Origin, Piece, Span, Spans
from sterna.pipeline.source.query import Bad


@dataclass(frozen=True)
class BrokerPiece:
    """A stretch of a broker's journal."""

    journal: str
    url: str
    span: Span

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Bad]:  # noqa: ARG002
        """The facts, with all columns, and a `Bad` in the place of what cannot be read."""
        start, end = self.span
        while start < end:
            try:
                yield from remote.read(self.url, start, end)
            except FactsMissingError as error:
                yield Bad(str(error), position=start, file=self.url, is_gone=True)
                start = max(error.following, start + 1)
            except SternaError as error:
                raise PipelineError(str(error)) from None
            else:
                return


class Brokers(Origin):
    """The journals of brokers at these addresses."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._url_of: dict[str, str] = {}

    def extents(self) -> dict[str, Span]:
        """The stretch of its journal that each broker has."""
        found: dict[str, Span] = {}
        for url in self._urls:
            try:
                extent = remote.extent(url)
            except SternaError as error:
                raise PipelineError(str(error)) from None
            if extent.node in found:
                raise PipelineError(
                    f"{self._url_of[extent.node]} and {url} are the same broker, {extent.node}: "
                    "give one of them"
                )
            found[extent.node] = Span(extent.start, extent.end)
            self._url_of[extent.node] = url
        return dict(sorted(found.items()))

    def tasks(self, spans: Spans, count_min: int | None) -> list[list[Piece]]:
        """One task a broker, or several with equal numbers of positions."""
        wanted = {node: span for node, span in spans.items() if span.start < span.end}
        each = -(-(count_min or 1) // max(1, len(wanted)))
        return [
            [BrokerPiece(node, self._url_of[node], part)]
            for node, span in wanted.items()
            for part in _parts(span, each)
        ]

    def first_batch(self, journal: str, span: Span) -> pa.RecordBatch | None:
        """The first facts of a stretch."""
        piece = BrokerPiece(journal, self._url_of[journal], span)
        for batch in piece.batches([]):
            if not isinstance(batch, Bad) and len(batch):
                return batch
        return None


def _parts(span: Span, count: int) -> list[Span]:
    size = span.end - span.start
    cuts = [span.start + size * number // count for number in range(count + 1)]
    return [Span(a, b) for a, b in pairwise(cuts) if a < b]
