"""The work of a task: read its pieces and make rows of a table of them."""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source import damage
from sterna.pipeline.source.brokers import Brokers
from sterna.pipeline.source.journals import Directory
from sterna.pipeline.source.options import BadRecords, ReadOptions
from sterna.pipeline.source.origins import Origin, Piece
from sterna.pipeline.source.query import Bad, Query
from sterna.pipeline.source.tables import converted, raw_columns

ROWS_MAX = 65_536
"""Larger batches are cut, so that Spark's side never holds much at once."""

JOINED_BYTES = 2**20
"""Smaller batches are joined: nodes write a few facts at a time, and Spark takes batch by batch."""

log = logging.getLogger("sterna.pipeline")


class Task(InputPartition):
    """The pieces that one task reads, in order."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(pieces)


def origin_of(options: ReadOptions, *, live: bool) -> Origin:
    """The origin that the options name."""
    if options.path is not None:
        return Directory(options.path, live=live)
    return Brokers(options.brokers, options.patience_s(has_begun=live))


def read(task: InputPartition, query: Query) -> Iterator[pa.RecordBatch]:
    """The rows of a task."""
    pieces: Sequence[Piece] = task.value or ()  # Spark makes up a task if there is none.
    if query.bad_records is BadRecords.ONLY:
        return damage.read(pieces, query.schema)
    return _rows(pieces, query)


def _rows(pieces: Sequence[Piece], query: Query) -> Iterator[pa.RecordBatch]:
    columns = raw_columns(query)
    for piece in pieces:
        for batch in _joined(piece.batches(columns)):
            if isinstance(batch, Bad):
                _lost(batch, query)
                continue
            bad: list[Bad] = []
            rows = converted(batch, piece.journal, query, bad)
            for each in bad:
                _unreadable(each, piece.journal, query)
            for place in range(0, len(rows), ROWS_MAX):
                yield rows.slice(place, ROWS_MAX)


def _joined(batches: Iterator[pa.RecordBatch | Bad]) -> Iterator[pa.RecordBatch | Bad]:
    """The same facts in fewer batches; what cannot be read stays in its place among them."""
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if isinstance(batch, Bad):
            yield from _as_one(small)
            yield batch
        else:
            small.append(batch)
            size += batch.nbytes
            if size < JOINED_BYTES:
                continue
            yield from _as_one(small)
        small, size = [], 0
    yield from _as_one(small)


def _as_one(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) < 2:
        yield from batches
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def _lost(bad: Bad, query: Query) -> None:
    if query.fail_on_data_loss and (bad.is_gone or query.bad_records is BadRecords.FAIL):
        raise PipelineError(
            f"{bad.reason}; set failOnDataLoss=false to read the rest, or badRecords=only to see "
            "all that cannot be read"
        )
    log.warning("%s: left out", bad.reason)


def _unreadable(bad: Bad, journal: str, query: Query) -> None:
    what = f"fact {bad.position}.{bad.turn} ({bad.kind}) of {journal}: {bad.reason}"
    if query.bad_records is BadRecords.FAIL:
        raise PipelineError(
            f"{what}; set badRecords=skip to read the rest, or badRecords=only to see all that "
            "cannot be read"
        )
    log.warning("%s: left out", what)
