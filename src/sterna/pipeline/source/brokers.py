"""Journals of running brokers: the driver asks how far they reach, the workers for the facts."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import monotonic, sleep
from typing import TypeVar

import pyarrow as pa

from sterna.errors import FactsMissingError, NotConnectedError, SternaError
from sterna.net import remote
from sterna.net.remote import Extent
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.origins import Origin, Piece, Span, Spans
from sterna.pipeline.source.query import Bad

PAUSE_S = 0.2
"""How long to wait before a broker that did not answer is asked again."""

log = logging.getLogger("sterna.pipeline")


class Patience:
    """Waits for a broker that does not answer, but not for ever."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None
        """When the broker was first found not to answer."""

    def answered(self) -> None:
        """The broker has answered: the next time that it does not is another one."""
        self._since = None

    def wait(self, error: NotConnectedError) -> None:
        """Wait a little; PipelineError if that has been so for too long."""
        now = monotonic()
        if self._since is None:
            self._since = now
            if self._limit_s:
                log.warning("%s (waiting for %g s at most)", error, self._limit_s)
        if now - self._since >= self._limit_s:
            waited = (
                f"waited for {self._limit_s:g} s; to wait longer, set brokerTimeout"
                if self._limit_s
                else "to wait for brokers, set brokerTimeout, such as 2m"
            )
            raise PipelineError(f"{error} ({waited})") from None
        sleep(min(PAUSE_S, self._limit_s))


@dataclass(frozen=True)
class BrokerPiece:
    """A stretch of a broker's journal."""

    journal: str
    url: str
    span: Span
    incarnation: int | None = None
    patience_s: float = 0.0

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Bad]:  # noqa: ARG002
        """The facts, with all columns, and a `Bad` in the place of what cannot be read."""
        start, end = self.span
        patience = Patience(self.patience_s)
        while start < end:
            try:
                for batches, following in remote.pages(self.url, start, end, self.incarnation):
                    patience.answered()
                    yield from batches
                    start = following
            except FactsMissingError as error:
                yield Bad(str(error), position=start, file=self.url, is_gone=True)
                start = max(error.following, start + 1)
            except NotConnectedError as error:
                patience.wait(error)
            except SternaError as error:
                raise PipelineError(str(error)) from None


class Brokers(Origin):
    """The journals of brokers at these addresses."""

    def __init__(self, urls: Sequence[str], patience_s: float = 0.0) -> None:
        """Workers wait so many seconds for a broker that does not answer."""
        self._urls = urls
        self._patience_s = patience_s
        self._url_of: dict[str, str] = {}
        self._incarnation_of: dict[str, int | None] = {}

    def extents(self, patience_s: float = 0.0) -> dict[str, Extent]:
        """The stretch of its journal that each broker has."""
        found: dict[str, Extent] = {}
        for url in self._urls:
            extent = _asked(partial(remote.extent, url), patience_s)
            if extent.node in found:
                raise PipelineError(
                    f"{self._url_of[extent.node]} and {url} are the same broker, {extent.node}: "
                    "give one of them"
                )
            found[extent.node] = extent
            self._url_of[extent.node] = url
            self._incarnation_of[extent.node] = extent.incarnation
        return dict(sorted(found.items()))

    def tasks(self, spans: Spans, count_min: int | None) -> list[list[Piece]]:
        """One task a broker, or several with equal numbers of positions."""
        wanted = {node: span for node, span in spans.items() if span.start < span.end}
        each = -(-(count_min or 1) // max(1, len(wanted)))
        return [
            [self._piece(node, part)]
            for node, span in wanted.items()
            for part in _parts(span, each)
        ]

    def first_batch(self, journal: str, span: Span) -> pa.RecordBatch | None:
        """The first facts of a stretch."""
        for batch in self._piece(journal, span).batches([]):
            if not isinstance(batch, Bad) and len(batch):
                return batch
        return None

    def _piece(self, node: str, span: Span) -> BrokerPiece:
        return BrokerPiece(
            node, self._url_of[node], span, self._incarnation_of[node], self._patience_s
        )


_Answer = TypeVar("_Answer")


def _asked(ask: Callable[[], _Answer], patience_s: float) -> _Answer:
    patience = Patience(patience_s)
    while True:
        try:
            return ask()
        except NotConnectedError as error:
            patience.wait(error)
        except SternaError as error:
            raise PipelineError(str(error)) from None


def _parts(span: Span, count: int) -> list[Span]:
    size = span.end - span.start
    cuts = [span.start + size * number // count for number in range(count + 1)]
    return [Span(a, b) for a, b in pairwise(cuts) if a < b]
