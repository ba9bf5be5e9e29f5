"""What cannot be read in journals, as a table of its own."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sterna.journal.columns import WITH_CONTENT
from sterna.pipeline.source import events, tables
from sterna.pipeline.source.origins import Piece
from sterna.pipeline.source.query import Bad


def read(pieces: Sequence[Piece], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A row for each file or part of one, and for each fact, that cannot be read."""
    for piece in pieces:
        for batch in piece.batches(_COLUMNS):
            # What an earlier trigger reported is not reported again.
            found = [] if isinstance(batch, Bad) else bad_facts(batch)
            if isinstance(batch, Bad) and (batch.position or 0) >= piece.span.start:
                found = [batch]
            if found:
                yield _rows(found, piece.journal, schema)


def bad_facts(batch: pa.RecordBatch) -> list[Bad]:
    """The facts of a batch that a table would have to leave out."""
    bad: list[Bad] = []
    tables.fitting(batch, bad)
    events.decoded(batch.filter(pc.is_in(batch["kind"], _WITH_CONTENT)), bad)
    return sorted(bad, key=lambda each: (each.position, each.turn))


_COLUMNS = ["position", "turn", "kind", "publishers", "seqs", "events"]
_WITH_CONTENT = pa.array(sorted(WITH_CONTENT))


def _rows(found: list[Bad], journal: str, schema: pa.Schema) -> pa.RecordBatch:
    rows = [{**bad._asdict(), "journal": journal} for bad in found]
    return pa.RecordBatch.from_pylist(
        [{name: row[name] for name in schema.names} for row in rows], schema=schema
    )
