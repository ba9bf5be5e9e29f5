"""Which events a table has, as intervals of numbers for each publisher.

Publishers number their events without gaps, so a few intervals say what a key for each event would
say. They are in files, sorted by bucket: a hash of the publisher, by which tasks divide their work,
so that each task reads its own share. A batch adds a file when it is committed; many are merged.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sterna.journal.writing import sync_directory
from sterna.pipeline.tables.buckets import bucket

FILES_MAX = 16
"""More files than this are merged to one."""

_GROUP_ROWS = 8 * 2**10
_ENDING, _PENDING = ".intervals", "pending-"
_COLUMNS = ["publisher", "first", "last"]
_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("publisher", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)


def _frame(publishers: Any = (), firsts: Any = (), lasts: Any = ()) -> pd.DataFrame:
    frame = pd.DataFrame({"publisher": publishers, "first": firsts, "last": lasts})
    return frame.astype({"publisher": object, "first": "int64", "last": "int64"})


@dataclass(frozen=True)
class Known:
    """The files of a folder, of which those count whose batch is committed."""

    folder: Path

    def reader(self) -> "Reader":
        """For one task."""
        return Reader(self._files())

    def place(self, batch: int, staged: Iterable[Path]) -> None:
        """Make the files of a batch ready, before it is committed."""
        for file in staged:
            self.folder.mkdir(parents=True, exist_ok=True)
            file.rename(self.folder / f"{_PENDING}{batch:08d}-{file.name}")
        if self.folder.exists():
            sync_directory(self.folder)

    def settle(self, last: int | None) -> None:
        """Let those files count whose batches are committed, and remove others."""
        for file in self.folder.glob(f"{_PENDING}*"):
            name = file.name.removeprefix(_PENDING)
            if last is not None and int(name.split("-")[0]) <= last:
                file.rename(self.folder / name)
            else:
                file.unlink()
        for half in self.folder.glob("*.half"):
            half.unlink()
        files = self._files()
        if len(files) > FILES_MAX:
            self._replace(files, merged(_read(files)))

    def rebuild(self, parts: Iterable[Path]) -> None:
        """Learn what is in the files of a table, whatever was known before."""
        found = merged(_frame())
        for part in parts:
            rows = pq.read_table(part, columns=["publisher", "seq"], partitioning=None)
            found = merged(pd.concat([found, _runs(_identities(rows))]))
        self._replace(self._files(), found)

    @property
    def is_there(self) -> bool:
        """Whether anything is known here."""
        return bool(self._files())

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"[0-9]*{_ENDING}"))

    def _replace(self, files: list[Path], intervals: pd.DataFrame) -> None:
        """Write one file instead of others; until those are removed, it says the same again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f"{uuid.uuid4().hex}.half"
        _write(half, intervals)
        half.rename(self.folder / f"{0:08d}-{half.stem}{_ENDING}")
        sync_directory(self.folder)
        for file in files:
            file.unlink()


@dataclass
class Reader:
    """What a task knows: of its own buckets, what was known before, and what it has seen since."""

    files: list[Path]
    _buckets: set[int] = field(default_factory=set)
    _known: pd.DataFrame = field(default_factory=_frame)
    _added: list[pd.DataFrame] = field(default_factory=list)

    def new(self, rows: pa.Table) -> pa.Array:
        """Which rows are events that were never seen before; they are known from now on."""
        events = _identities(rows)
        self._learn({bucket(name) for name in events["publisher"].unique()})
        is_new = _is_new(events, self._known)
        added = _runs(events[is_new])
        self._added.append(added)
        self._known = merged(pd.concat([self._known, added]))
        return pa.array(is_new)

    def stage(self, folder: Path) -> str | None:
        """Write what was added; the name of the file, if anything was."""
        added = merged(pd.concat([_frame(), *self._added]))
        if added.empty:
            return None
        name = f"{uuid.uuid4().hex}{_ENDING}"
        _write(folder / name, added)
        return name

    def _learn(self, buckets: set[int]) -> None:
        if new := buckets - self._buckets:
            self._buckets |= new
            self._known = merged(pd.concat([self._known, _read(self.files, new)]))


def merged(intervals: pd.DataFrame) -> pd.DataFrame:
    """The same numbers in as few intervals as possible, in order."""
    rows = intervals.sort_values(_COLUMNS, ignore_index=True)
    publishers, firsts = rows["publisher"].to_numpy(), rows["first"].to_numpy()
    reached = rows.groupby("publisher", sort=False)["last"].cummax().to_numpy()
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (publishers[1:] != publishers[:-1]) | (firsts[1:] - 1 > reached[:-1])
    ends = np.roll(begins, -1)  # The row before a beginning, and the last one.
    return _frame(publishers[begins], firsts[begins], reached[ends])


def _is_new(events: pd.DataFrame, known: pd.DataFrame) -> np.ndarray:
    """For each event whether no interval has it, and none before it is the same."""
    names = pd.concat([events["publisher"], known["publisher"]], ignore_index=True)
    codes, _ = pd.factorize(names)
    count = len(events)
    firsts = np.concatenate([events["seq"].to_numpy(), known["first"].to_numpy()])
    lasts = np.concatenate([events["seq"].to_numpy(), known["last"].to_numpy()])
    is_event = np.arange(len(codes)) < count
    order = np.lexsort((np.arange(len(codes)), is_event, firsts, codes))  # Intervals come first.
    codes, firsts, lasts, is_event = (each[order] for each in (codes, firsts, lasts, is_event))
    # Intervals do not overlap, so the last one that began before an event is the only one to ask.
    places = np.maximum.accumulate(np.where(is_event, -1, np.arange(len(codes))))
    asked = np.maximum(places, 0)
    has_it = (places >= 0) & (codes[asked] == codes) & (lasts[asked] >= firsts)
    is_same = np.zeros(len(codes), dtype=bool)
    is_same[1:] = is_event[:-1] & (codes[1:] == codes[:-1]) & (firsts[1:] == firsts[:-1])
    answers = np.empty(len(codes), dtype=bool)
    answers[order] = ~has_it & ~is_same
    return answers[:count]


def _identities(rows: pa.Table) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "publisher": rows["publisher"].to_pandas().astype(object),
            "seq": rows["seq"].to_numpy(),
        }
    )


def _runs(events: pd.DataFrame) -> pd.DataFrame:
    """Each event as an interval, merged."""
    return merged(_frame(events["publisher"], events["seq"], events["seq"]))


def _write(path: Path, intervals: pd.DataFrame) -> None:
    buckets = {name: bucket(name) for name in intervals["publisher"].unique()}
    table = pa.Table.from_pydict(
        {
            "bucket": intervals["publisher"].map(buckets),
            **{name: intervals[name] for name in _COLUMNS},
        },
        schema=_SCHEMA,
    ).sort_by([(name, "ascending") for name in _SCHEMA.names[:3]])
    with path.open("wb") as file:
        pq.write_table(table, file, row_group_size=_GROUP_ROWS, compression="zstd")
        file.flush()
        os.fsync(file.fileno())


def _read(files: Iterable[Path], buckets: set[int] | None = None) -> pd.DataFrame:
    """The intervals of some buckets, or of all."""
    tables = [table for file in files for table in _groups(file, buckets)]
    if not tables:
        return _frame()
    frame = pa.concat_tables(tables).select(_COLUMNS).to_pandas()
    return frame.astype({"publisher": object})


def _groups(path: Path, buckets: set[int] | None) -> Iterator[pa.Table]:
    """The parts of a file that have these buckets, as far as its statistics say."""
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            known = file.metadata.row_group(number).column(0).statistics
            if buckets is None or known is None:
                yield file.read_row_group(number)
            elif any(known.min <= each <= known.max for each in buckets):
                rows = file.read_row_group(number)
                yield rows.filter(pc.is_in(rows["bucket"], pa.array(sorted(buckets), pa.int32())))
