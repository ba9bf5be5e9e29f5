"""The files of a table that grows: whole batches, each once, whatever is killed when.

Tasks write files to `_staged`, under names that no reader looks for. A commit moves those of a
batch to their places and then enters them in the table's Delta log, all at once and with the number
of the batch. What is not in the log is not in the table; `recover` removes it.
"""

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, Schema, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions

from sterna.delta import DAY, LOG, has_log, is_day, listed, open_table
from sterna.journal.writing import sync_directory
from sterna.pipeline.declared.known import Known

HELD_BYTES_MAX = 64 * 2**20
"""How many bytes a task holds in memory to sort them; more become several files."""
ROW_GROUP_ROWS = 64 * 2**10
"""Small enough that a reader of a few minutes skips most of a day."""

APP = "sterna"
"""Whose batches the log numbers."""
NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose day no calendar has: clocks of clients may be wrong."""
CONFIGURATION: Mapping[str, str | None] = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 7 days",
}
"""The log is summed up after so many commits, and those long before that are removed."""

STAGED, TIME = "_staged", "time"
EPOCH = datetime.fromtimestamp(0, UTC)

_PARTS = f"part-{'[0-9]' * 8}-*.parquet"


class StagedTableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is written, but not yet part of the table."""

    name: str
    day: str | None
    rows: int
    times: tuple[int, int] | None = None
    """The first and the last time of its rows, in microseconds."""


class StagedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What a task has written."""

    files: list[StagedTableFile]
    known: str | None = None
    """A file with the numbers of the events in them."""


@dataclass(frozen=True)
class TableFiles:
    """A table in a directory, by day or not, each event once or not."""

    path: Path
    is_daily: bool
    is_unique: bool = False
    """Whether rows are events, by publisher and number, which are there once."""

    def create(self, schema: pa.Schema, *, comment: str) -> None:
        """Make the table, if it is not there; add the columns that an older one lacks."""
        if not has_log(self.path):
            self.begin(schema, [], comment=comment)
            return
        table = open_table(self.path)
        there = {field.name for field in table.schema().fields}
        new = [field for field in Schema.from_arrow(schema).fields if field.name not in there]
        if new:
            table.alter.add_columns(new)
            self._sync_log()

    def begin(
        self,
        schema: pa.Schema,
        entries: Sequence[AddAction],
        *,
        comment: str,
        batch: int | None = None,
    ) -> None:
        """Make the log of the table, which has these files from a batch on."""
        done = [Transaction(APP, batch)] if batch is not None else []
        self.path.mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            str(self.path),
            Schema.from_arrow(schema),
            [*entries],
            partition_by=self.partition_by,
            name=self.path.name,
            description=comment,
            configuration=CONFIGURATION,
            commit_properties=CommitProperties(app_transactions=done),
        )
        self._sync_log()

    def stage(self, batches: Iterable[pa.RecordBatch]) -> StagedBatch:
        """Write the rows of a task that are new, sorted by time as far as memory goes."""
        files: list[StagedTableFile] = []
        known = self.known.reader() if self.is_unique else None
        for table in _in_parts(batches):
            files += self._write(table.filter(known.new(table)) if known is not None else table)
        if files:
            sync_directory(self._staged)
        return StagedBatch(files=files, known=known.stage(self._staged) if known else None)

    def commit(self, batch: int, staged: Sequence[StagedBatch]) -> None:
        """Make the rows of a batch part of the table; a batch that is in it stays as it was."""
        with self._held():
            self._commit(batch, staged)

    def _commit(self, batch: int, staged: Sequence[StagedBatch]) -> None:
        table = open_table(self.path)
        last = table.transaction_version(APP)
        files = [file for each in staged for file in each.files]
        self.known.settle(last)
        if last is not None and batch <= last:
            self._discard(batch, staged)
            return
        if not files:
            return
        self.known.place(batch, [self._staged / each.known for each in staged if each.known])
        added = [self._place(file, batch) for file in files]
        for folder in {(self.path / each.path).parent for each in added} | {self.path}:
            sync_directory(folder)
        table.create_write_transaction(
            [*added],
            "append",
            table.schema(),
            self.partition_by,
            commit_properties=CommitProperties(app_transactions=[Transaction(APP, batch)]),
        )
        self._sync_log()
        self.known.settle(batch)

    def discard(self, batch: int, staged: Iterable[StagedBatch]) -> None:
        """Remove files that will not be part of the table.

        Spark also discards the files of a commit that failed half-way; they may be in the table.
        """
        with self._held():
            self._discard(batch, staged)

    def _discard(self, batch: int, staged: Iterable[StagedBatch]) -> None:
        last = self.last_batch()
        self.known.settle(last)
        for each in staged:
            if each.known is not None:
                (self._staged / each.known).unlink(missing_ok=True)
            for file in each.files:
                (self._staged / file.name).unlink(missing_ok=True)
                if last is None or batch > last:
                    (self.path / self._place_of(file, batch)).unlink(missing_ok=True)

    def recover(self) -> None:
        """Remove what a run that was killed left; no other run may write now."""
        if self.path.exists():
            with self._held():
                self._recover()

    def _recover(self) -> None:
        last = self.last_batch()
        for left in self._staged.glob("*"):
            left.unlink()
        for file in self.path.glob(f"{DAY}=*/{_PARTS}" if self.is_daily else _PARTS):
            if last is None or int(file.name.split("-")[1]) > last:
                file.unlink()
        self.known.settle(last)

    def last_batch(self) -> int | None:
        """The number of the last batch that is part of the table."""
        return open_table(self.path).transaction_version(APP) if has_log(self.path) else None

    @property
    def total_rows(self) -> int:
        """How many rows the table has."""
        return open_table(self.path).count() if has_log(self.path) else 0

    def parts(self) -> list[Path]:
        """The files of the table, by day and batch."""
        return listed(open_table(self.path), self.path)

    def read(self, part: Path, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a file, with these columns; what an older release did not write is null."""
        with pq.ParquetFile(part) as file:
            stored = [name for name in columns.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(columns=stored):
                arrays = {name: pa.nulls(len(batch)) for name in columns.names}
                arrays |= {name: batch[name] for name in stored}
                if self.is_daily:
                    day = _day_of(part.parent)
                    arrays[DAY] = pa.repeat(pa.scalar(day, pa.date32()), len(batch))
                yield pa.RecordBatch.from_arrays(
                    [arrays[field.name].cast(field.type) for field in columns], schema=columns
                )

    @property
    def partition_by(self) -> list[str]:
        """The columns that are folders."""
        return [DAY] if self.is_daily else []

    @property
    def _staged(self) -> Path:
        return self.path / STAGED

    @property
    def known(self) -> Known:
        """The events that it has."""
        return Known(self.path / "_known")

    def _write(self, table: pa.Table) -> list[StagedTableFile]:
        if not table.num_rows:
            return []
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
        name = f"{uuid.uuid4().hex}.half"
        with (self._staged / name).open("wb") as file:
            pq.write_table(table, file, row_group_size=ROW_GROUP_ROWS, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        times = _times(table) if self.is_daily else None
        return StagedTableFile(name=name, day=day, rows=table.num_rows, times=times)

    def _place_of(self, file: StagedTableFile, batch: int) -> str:
        folder = f"{DAY}={_partition(file.day) or NO_DAY}/" if self.is_daily else ""
        return f"{folder}part-{batch:08d}-{file.name.removesuffix('.half')}.parquet"

    def _place(self, file: StagedTableFile, batch: int) -> AddAction:
        """Move a file to where the log will have it."""
        place = self._place_of(file, batch)
        target = self.path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._staged / file.name).rename(target)
        return self.entry(place, day=file.day, rows=file.rows, times=file.times)

    def entry(
        self, place: str, *, day: str | None, rows: int, times: tuple[int, int] | None
    ) -> AddAction:
        """The line of the log for a file at its place."""
        return AddAction(
            path=place,
            size=(self.path / place).stat().st_size,
            partition_values={DAY: _partition(day)} if self.is_daily else {},
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=_statistics(rows, times),
        )

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Wait for a process of Spark that outlives a run that was killed, and may still commit."""
        lock = os.open(self.path / "_lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _sync_log(self) -> None:
        """Make durable what the log says: its writer leaves that to the operating system."""
        log = self.path / LOG
        newest = max(log.glob("*.json"))
        descriptor = os.open(newest, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(log)


def _in_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows in tables of a size that fits in memory."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= HELD_BYTES_MAX:
            yield pa.Table.from_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _times(table: pa.Table) -> tuple[int, int] | None:
    """The first and the last time of rows that are sorted by it; None if some have none."""
    times = table[TIME].cast(pa.int64())
    if times.null_count:
        return None
    return times[0].as_py(), times[-1].as_py()


def _statistics(rows: int, times: tuple[int, int] | None) -> str:
    """What readers need to know of a file before they open it."""
    said: dict[str, object] = {"numRecords": rows}
    if times is not None:
        first, last = times[0] // 1000, -(-times[1] // 1000)  # The log has milliseconds.
        with contextlib.suppress(OverflowError, ValueError):  # No calendar has such times.
            said |= {"minValues": {TIME: _moment(first)}, "maxValues": {TIME: _moment(last)}}
    return json.dumps(said)


def _moment(time_ms: int) -> str:
    moment = EPOCH + timedelta(milliseconds=time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _partition(day: str | None) -> str | None:
    """A day as the log has it, if it has it."""
    return day if day is not None and is_day(day) else None


def _day_of(folder: Path) -> date | None:
    day = _partition(folder.name.removeprefix(f"{DAY}="))
    return date.fromisoformat(day) if day is not None else None
