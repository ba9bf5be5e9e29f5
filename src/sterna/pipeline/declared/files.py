"""The files of a table that grows: whole batches, each once, whatever is killed when.

Tasks write files to `_staged`. A commit records in `_commits` which of them are a batch, and only
then are they moved to where readers look. So every file there is whole and belongs to a batch that
was committed; `recover` finishes what a crash left undone.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sterna.journal.writing import sync_directory

HELD_BYTES_MAX = 64 * 2**20
"""How many bytes a task holds in memory to sort them; more become several files."""
ROW_GROUP_ROWS = 64 * 2**10
"""Small enough that a reader of a few minutes skips most of a day."""

DAY, TIME = "day", "time"


class StagedTableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is written, but not yet part of the table."""

    name: str
    day: str | None
    rows: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is part of the table."""

    batch: int
    rows: int
    total_rows: int
    """How many rows the table has, with this batch."""
    files: list[tuple[str, str]]
    """For each file its name in `_staged`, and its path in the table."""


@dataclass(frozen=True)
class TableFiles:
    """A table in a directory, by day or not."""

    path: Path
    is_daily: bool

    def stage(self, batches: Iterable[pa.RecordBatch]) -> list[StagedTableFile]:
        """Write the rows of a task, sorted by time as far as memory goes."""
        staged: list[StagedTableFile] = []
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes >= HELD_BYTES_MAX:
                staged += self._write(pa.Table.from_batches(held))
                held, held_bytes = [], 0
        if held:
            staged += self._write(pa.Table.from_batches(held))
        if staged:
            sync_directory(self._staged)
        return staged

    def commit(self, batch: int, staged: Sequence[StagedTableFile]) -> None:
        """Make the files of a batch part of the table; a batch that is in it stays as it was."""
        last = self.last_commit()
        if last is not None and batch <= last.batch:
            self._finish(last)
            self.discard(staged)
            return
        rows = sum(file.rows for file in staged)
        commit = Commit(
            batch=batch,
            rows=rows,
            total_rows=rows + (last.total_rows if last is not None else 0),
            files=[
                (file.name, _placed(file, f"{batch:08d}-{number:05d}"))
                for number, file in enumerate(staged)
            ],
        )
        self._say(commit)
        self._finish(commit)

    def discard(self, staged: Iterable[StagedTableFile]) -> None:
        """Remove files that will not be part of the table.

        Spark also discards the files of a commit that failed half-way; those are part of the table.
        """
        last = self.last_commit()
        committed = {name for name, _ in last.files} if last is not None else set()
        for file in staged:
            if file.name not in committed:
                (self._staged / file.name).unlink(missing_ok=True)

    def recover(self) -> None:
        """Finish what a run that was killed left; no other process may write now."""
        last = self.last_commit()
        if last is not None:
            self._finish(last)
        for left in self._staged.glob("*"):
            left.unlink()

    def last_commit(self) -> Commit | None:
        """The last batch that is part of the table."""
        commits = self._commits()
        return _decoder.decode(commits[-1].read_bytes()) if commits else None

    @property
    def total_rows(self) -> int:
        """How many rows the table has."""
        last = self.last_commit()
        return last.total_rows if last is not None else 0

    def parts(self) -> list[Path]:
        """The files of the table, by day and batch."""
        return sorted(self.path.glob(f"{DAY}=*/*.parquet" if self.is_daily else "*.parquet"))

    def read(self, part: Path, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a file, with these columns; what an older release did not write is null."""
        with pq.ParquetFile(part) as file:
            stored = [name for name in columns.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(columns=stored):
                arrays = {name: pa.nulls(len(batch)) for name in columns.names}
                arrays |= {name: batch[name] for name in stored}
                if self.is_daily:
                    day = date.fromisoformat(part.parent.name.removeprefix(f"{DAY}="))
                    arrays[DAY] = pa.repeat(pa.scalar(day, pa.date32()), len(batch))
                yield pa.RecordBatch.from_arrays(
                    [arrays[field.name].cast(field.type) for field in columns], schema=columns
                )

    @property
    def _staged(self) -> Path:
        return self.path / "_staged"

    def _commits(self) -> list[Path]:
        return sorted((self.path / "_commits").glob("*.json"))

    def _write(self, table: pa.Table) -> list[StagedTableFile]:
        self._staged.mkdir(parents=True, exist_ok=True)
        if not self.is_daily:
            return [self._write_file(table, None)]
        order = pc.sort_indices(table, sort_keys=[(DAY, "ascending"), (TIME, "ascending")])
        table = table.take(order)
        days = table[DAY].to_numpy()
        table = table.drop_columns([DAY])
        begins = [0, *(np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), len(days)]
        return [
            self._write_file(table.slice(begin, end - begin), str(days[begin]))
            for begin, end in pairwise(begins)
        ]

    def _write_file(self, table: pa.Table, day: str | None) -> StagedTableFile:
        name = f"{uuid.uuid4().hex}.parquet"
        with (self._staged / name).open("wb") as file:
            pq.write_table(table, file, row_group_size=ROW_GROUP_ROWS, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        return StagedTableFile(name=name, day=day, rows=table.num_rows)

    def _say(self, commit: Commit) -> None:
        path = self.path / "_commits" / f"{commit.batch:020d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        with half.open("wb") as file:
            file.write(msgspec.json.encode(commit))
            file.flush()
            os.fsync(file.fileno())
        half.rename(path)
        for folder in (path.parent, self.path):
            sync_directory(folder)

    def _finish(self, commit: Commit) -> None:
        """Move files to where they belong; those that are not staged any more are there."""
        for name, place in commit.files:
            target = self.path / place
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self._staged / name).rename(target)
            except FileNotFoundError:
                if not target.exists():
                    raise
        for folder in {self.path, *((self.path / place).parent for _, place in commit.files)}:
            sync_directory(folder)
        for old in self._commits():
            if int(old.stem) < commit.batch:
                old.unlink(missing_ok=True)


_decoder = msgspec.json.Decoder(Commit)


def _placed(file: StagedTableFile, name: str) -> str:
    folder = f"{DAY}={file.day}/" if file.day is not None else ""
    return f"{folder}part-{name}.parquet"
