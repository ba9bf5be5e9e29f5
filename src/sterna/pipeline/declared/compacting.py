"""Makes few large files of many small ones, and removes what nobody needs any more."""

import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties

from sterna.delta import DAY, has_log, open_table
from sterna.pipeline.declared import place
from sterna.pipeline.declared.files import ROW_GROUP_ROWS, TIME
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.tables.schemas import GROWING

FILE_BYTES = 128 * 2**20
"""About how large a file becomes."""
HISTORY = timedelta(days=7)
"""For so long the files that were replaced are kept, for who still reads them, and no longer: the
log forgets when they were."""

_WRITER = WriterProperties(compression="ZSTD", max_row_group_size=ROW_GROUP_ROWS)


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a table."""

    files_before: int
    files: int
    rows: int
    rows_dropped: int
    removed: int
    """How many files are gone that were replaced long enough ago."""


def compact(
    root: Path, *, keep_days: int | None = None, history: timedelta = HISTORY
) -> dict[str, Compacted]:
    """Compact the tables in a folder; of those by day, keep so many days only.

    Readers of the Delta log see the same rows before, meanwhile and after. Those who read the files
    without it would see rows twice until the replaced files are gone.
    """
    root = root.absolute()
    if history > HISTORY:
        raise PipelineError(
            f"--history {history.days}d is longer than the log remembers: give 7d or less"
        )
    place.check_tables(root)
    before = _first_kept(keep_days)
    found: dict[str, Compacted] = {}
    with place.held(root):
        for name, table in GROWING.items():
            if has_log(root / name):
                found[name] = _compacted(root / name, before if table.is_daily else None, history)
    return found


def _compacted(path: Path, before: date | None, history: timedelta) -> Compacted:
    table = open_table(path)
    files_before, rows_before = len(table.file_uris()), table.count()
    if before is not None:
        table.delete(f"{DAY} < '{before.isoformat()}'")
    rows = table.count()
    _rewrite(table)
    # It removes what a killed compaction has left, too.
    removed = table.vacuum(
        math.ceil(history.total_seconds() / 3600),
        dry_run=False,
        enforce_retention_duration=False,
        full=True,
    )
    table.create_checkpoint()
    table.cleanup_metadata()
    return Compacted(
        files_before=files_before,
        files=len(table.file_uris()),
        rows=rows,
        rows_dropped=rows_before - rows,
        removed=len(removed),
    )


def _rewrite(table: DeltaTable) -> None:
    """Make large files of small ones; those of a day are sorted by time again."""
    if not table.metadata().partition_columns:
        table.optimize.compact(target_size=FILE_BYTES, writer_properties=_WRITER)
        return
    for day in _divided(table):
        table.optimize.z_order(
            [TIME],
            partition_filters=[(DAY, "=", day)],
            target_size=FILE_BYTES,
            writer_properties=_WRITER,
        )


def _divided(table: DeltaTable) -> list[str]:
    """The days that have more than one file that could be larger."""
    files = pa.table(table.get_add_actions(flatten=True))
    small = files.filter(pc.less(files["size_bytes"], FILE_BYTES // 2))
    days = Counter(small[f"partition.{DAY}"].to_pylist())
    return sorted(day.isoformat() for day, count in days.items() if day is not None and count > 1)


def _first_kept(keep_days: int | None) -> date | None:
    if keep_days is None:
        return None
    if keep_days < 1:
        raise PipelineError(f"--keep-days {keep_days} keeps nothing: give 1 or more")
    today = datetime.now(UTC).date()
    return today - timedelta(days=min(keep_days - 1, (today - date.min).days))
