"""Tables of release 0.1, which had a log of their own: they become Delta tables where they are.

Their commits are in `_commits`, one file each; files of the last one may still be in `_staged`. The
files themselves stay as they are.
"""

import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sterna.delta import DAY, has_log
from sterna.pipeline.declared.files import STAGED, TableFiles

COMMITS = "_commits"


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is part of the table."""

    batch: int
    rows: int
    total_rows: int
    files: list[tuple[str, str]]
    """For each file its name in `_staged`, and its path in the table."""


def adopt(table: TableFiles, schema: pa.Schema, *, comment: str) -> None:
    """Give a table its log, with all that it has; killed at any time, this can be done again."""
    if not has_log(table.path):
        last = last_commit(table.path)
        if last is not None:
            _finish(table.path, last)
        parts = sorted(table.path.glob(f"{DAY}=*/*.parquet" if table.is_daily else "*.parquet"))
        if table.is_unique:
            table.known.rebuild(parts)
        entries = [
            table.entry(
                str(part.relative_to(table.path)),
                day=part.parent.name.removeprefix(f"{DAY}="),
                rows=pq.read_metadata(part).num_rows,
                times=None,
            )
            for part in parts
        ]
        table.begin(schema, entries, comment=comment, batch=last.batch if last else None)
    shutil.rmtree(table.path / COMMITS, ignore_errors=True)


def last_commit(path: Path) -> Commit | None:
    """The last batch of a table of release 0.1."""
    commits = sorted((path / COMMITS).glob("*.json"))
    return msgspec.json.decode(commits[-1].read_bytes(), type=Commit) if commits else None


def _finish(path: Path, commit: Commit) -> None:
    """Move files to where they belong; those that are not staged any more are there."""
    for name, place in commit.files:
        target = path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            (path / STAGED / name).rename(target)
        except FileNotFoundError:
            if not target.exists():
                raise
