"""The facts journal: what happened at a node, as Arrow files that the data pipeline reads."""

from sterna.errors import JournalFailedError, SegmentDamagedError
from sterna.extras import require

require("broker", "a journal", "numpy", "pyarrow")

from sterna.journal.rows import SCHEMA, VERSION, OtherFact, facts_in, rows_of
from sterna.journal.segments import read_journal, read_segment
from sterna.journal.writing import Journal, Place, Recovery

__all__ = [
    "SCHEMA",
    "VERSION",
    "Journal",
    "JournalFailedError",
    "OtherFact",
    "Place",
    "Recovery",
    "SegmentDamagedError",
    "facts_in",
    "read_journal",
    "read_segment",
    "rows_of",
]
