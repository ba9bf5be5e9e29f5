"""PL-2: the files of tables that grow; each batch is there once, whatever is killed when."""

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from sterna.delta import has_log
from sterna.pipeline.declared import files, known
from sterna.pipeline.declared.files import TableFiles
from sterna.pipeline.declared.known import Known
from sterna.pipeline.tables.buckets import bucket
from tests.scale import examples

pytestmark = pytest.mark.spec("PL-2")

SCHEMA = pa.schema(
    [("number", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("day", pa.date32())]
)
START = datetime(2026, 1, 1, 23, tzinfo=UTC)


def rows(numbers: Sequence[int], *, step_s: int = 600) -> pa.RecordBatch:
    """Rows that cross midnight sooner or later, backwards in time."""
    times = [START + timedelta(seconds=step_s * (number % 97)) for number in reversed(numbers)]
    days = [time.date() for time in times]
    return pa.RecordBatch.from_arrays(
        [pa.array(reversed(numbers)), pa.array(times, SCHEMA.field("time").type), pa.array(days)],
        schema=SCHEMA,
    )


def visible(table: TableFiles) -> list[int]:
    """What a reader of the log sees."""
    if not has_log(table.path):
        return []
    return sorted(DeltaTable(table.path).to_pyarrow_table()["number"].to_pylist())


def in_files(table: TableFiles) -> list[int]:
    """What a reader sees who looks for files everywhere and knows of no log."""
    files = [file for file in table.path.rglob("*") if file.suffix in {".parquet", ".half"}]
    found = [number for file in files for number in pq.read_table(file)["number"].to_pylist()]
    return sorted(found)


def made(path: Path, *, is_daily: bool = True, schema: pa.Schema = SCHEMA) -> TableFiles:
    """A table that is empty, unless there was one."""
    table = TableFiles(path, is_daily)
    table.create(schema, comment="Numbers.")
    return table


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The process is killed before it changes a file for the so-manieth time."""
    done: list[str] = []

    def counted(of: Any, name: str) -> Any:
        real = getattr(of, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if len(done) == step:
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink", "mkdir", "open"):
            patch.setattr(Path, name, counted(Path, name))
        patch.setattr(os, "fsync", counted(os, "fsync"))
        yield done


BATCHES = [range(5), range(5, 25), range(25, 26), range(26, 40)]


def archive(table: TableFiles, over: set[int]) -> None:
    """Do as Spark does: a batch comes again until it is over, with the same rows."""
    table.recover()
    table.create(SCHEMA, comment="Numbers.")
    for batch, numbers in enumerate(BATCHES):
        if batch in over:
            continue
        half = len(numbers) // 2
        staged = [table.stage([rows(numbers[:half])]), table.stage([rows(numbers[half:])])]
        table.commit(batch, staged)
        over.add(batch)


def test_a_batch_is_there_once_wherever_the_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at any step, a reader sees whole files of batches in order; a new run ends it."""
    step, steps = 0, 1
    while step < steps:
        table = TableFiles(tmp_path / str(step), is_daily=True)
        over: set[int] = set()
        with killed_at(step, monkeypatch) as done:
            try:
                archive(table, over)
            except Killed:
                steps = max(steps, len(done) + 2)
        ends = [each.start for each in BATCHES[len(over) :]] + [40]
        assert visible(table) in [list(range(end)) for end in ends[:2]], step

        archive(table, over)

        assert visible(table) == list(range(40)), step
        assert in_files(table) == list(range(40)), step
        assert table.total_rows == 40
        step += 1
    assert steps > 30


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    """Spark repeats a batch when it was killed before it noted the commit."""
    table = made(tmp_path)
    for batch in (0, 1, 1, 0):
        table.commit(batch, [table.stage([rows(range(batch * 10, batch * 10 + 10))])])

    assert visible(table) == list(range(20))
    assert table.total_rows == 20


def test_a_task_that_failed_leaves_nothing(tmp_path: Path) -> None:
    """What is staged but not committed is in nobody's way, and is removed."""
    table = made(tmp_path)
    table.discard(0, [table.stage([rows(range(10))])])
    table.stage([rows(range(10, 20))])

    assert visible(table) == []
    assert not list(tmp_path.rglob("*.parquet"))  # Some readers look for these anywhere.
    table.recover()
    assert in_files(table) == []


def test_a_commit_that_failed_is_ended_though_spark_discards_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts a batch also if its commit failed; what was committed must survive that."""
    for step in range(20):
        table = made(tmp_path / str(step))
        table.commit(0, [table.stage([rows(range(10))])])
        staged = [table.stage([rows(range(10, 20))])]
        with killed_at(step, monkeypatch), suppress(Killed):
            table.commit(1, staged)
        table.discard(1, staged)

        table.commit(1, [table.stage([rows(range(10, 20))])])  # The flow is tried again.
        assert visible(table) == in_files(table) == list(range(20)), step


@given(
    st.lists(st.lists(st.integers(0, 96), max_size=20, unique=True), max_size=6),
    st.integers(1, 2000),
)
@examples(30)
def test_rows_stand_at_their_day_sorted_by_time(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], held_bytes_max: int
) -> None:
    """However late a row comes: its file is that of its day, and has its rows in order."""
    table = made(tmp_path_factory.mktemp("table"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "HELD_BYTES_MAX", held_bytes_max)
        for number, numbers in enumerate(batches):
            table.commit(number, [table.stage([rows(numbers[:7]), rows(numbers[7:])])])

    for part in table.parts():
        times = pq.ParquetFile(part).read()["time"].to_pylist()
        assert times == sorted(times)
        assert {time.date() for time in times} == {date.fromisoformat(part.parent.name[4:])}
    assert visible(table) == sorted(number for numbers in batches for number in numbers)
    again = [batch for part in table.parts() for batch in table.read(part, SCHEMA)]
    assert all(batch.schema == SCHEMA for batch in again)
    whole = pa.Table.from_batches(again, SCHEMA).to_pylist()
    assert all(row["day"] == row["time"].date() for row in whole)


def test_a_table_without_days(tmp_path: Path) -> None:
    """Bad records have no time."""
    table = made(tmp_path, is_daily=False, schema=pa.schema({"number": pa.int64()}))
    table.commit(0, [table.stage([pa.RecordBatch.from_pydict({"number": [2, 1]})])])

    (part,) = table.parts()
    assert pq.ParquetFile(part).read()["number"].to_pylist() == [2, 1]
    assert part.parent == tmp_path


def test_a_column_that_an_older_release_did_not_write_is_null(tmp_path: Path) -> None:
    table = made(tmp_path, is_daily=False, schema=pa.schema({"number": pa.int64()}))
    table.commit(0, [table.stage([pa.RecordBatch.from_pydict({"number": [1]})])])
    (part,) = table.parts()
    later = pa.schema({"number": pa.int64(), "later": pa.string()})

    (batch,) = table.read(part, later)
    assert batch.to_pylist() == [{"number": 1, "later": None}]

    table.create(later, comment="Numbers, and more.")
    assert DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [{"number": 1, "later": None}]


@pytest.mark.parametrize("year", [2, 9998, 10_002, 290_000, -5])
def test_a_time_that_no_calendar_has_spoils_nothing(tmp_path: Path, year: int) -> None:
    """Clocks of clients may be wrong: such rows have no day, and others can be read."""
    table = made(tmp_path)
    days = round((year - 1970) * 365.2425)
    absurd = pa.RecordBatch.from_arrays(
        [
            pa.array([7]),
            pa.array([days * 86_400 * 10**6], SCHEMA.field("time").type),
            pa.array([days], pa.int32()).cast(pa.date32()),
        ],
        schema=SCHEMA,
    )
    table.commit(0, [table.stage([rows(range(5)), absurd])])

    assert visible(table) == [0, 1, 2, 3, 4, 7]
    found = DeltaTable(tmp_path).to_pyarrow_table(columns=["number", "day"]).to_pylist()
    assert [row["day"] is None for row in found if row["number"] == 7] == [not 0 < year < 9_999]


identities = st.lists(st.tuples(st.sampled_from(["a", "b", "é"]), st.integers(-3, 14)), max_size=9)


@given(st.lists(st.lists(identities, max_size=3), max_size=6), st.integers(1, 3))
@examples(60)
def test_an_event_is_there_once_however_late_it_comes_again(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[list[tuple[str, int]]]],
    files_max: int,
) -> None:
    """In one table, in one batch, or in any later one: as a set of all events says."""
    folder = tmp_path_factory.mktemp("known")
    seen: set[tuple[str, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "FILES_MAX", files_max)
        events = Known(folder / "known")
        for number, batch in enumerate(batches):
            task = events.reader()
            for pairs in filter(None, batch):
                is_new = [
                    pair not in seen and pair not in pairs[:place]
                    for place, pair in enumerate(pairs)
                ]
                assert task.new(events_of(pairs)).to_pylist() == is_new
                seen |= set(pairs)
            staged = task.stage(folder)
            events.place(number, [folder / staged] if staged else [])
            events.settle(number)
            assert len(list((folder / "known").glob("*"))) <= files_max


def events_of(pairs: list[tuple[str, int]]) -> pa.Table:
    publishers, seqs = zip(*pairs, strict=True)
    return pa.table({"publisher": publishers, "seq": pa.array(seqs, pa.int64())})


def test_what_was_not_committed_is_not_known(tmp_path: Path) -> None:
    """Else its events would be left out when they come again, and be lost."""
    events = Known(tmp_path / "known")
    for batch, seq in enumerate((1, 2, 4)):
        task = events.reader()
        task.new(events_of([("p", seq)]))
        events.place(batch, [tmp_path / (task.stage(tmp_path) or "")])
    assert events.reader().new(events_of([("p", 1), ("p", 2)])).to_pylist() == [True, True]

    events.settle(1)  # The last one was killed before its commit.

    assert events.reader().new(events_of([("p", 1), ("p", 2), ("p", 4)])).to_pylist() == [
        *(False, False, True),
    ]


def test_the_state_of_a_publisher_is_as_small_as_its_gaps_are_few(tmp_path: Path) -> None:
    """Not a key for each event, and a task reads the part of its own publishers only."""
    numbers = events_of([(f"p{n}", seq) for seq in range(1, 60) for n in range(500)])
    pq.write_table(numbers, tmp_path / "part.parquet")
    events = Known(tmp_path / "known")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "_GROUP_ROWS", 50)
        events.rebuild([tmp_path / "part.parquet"])
    (file,) = (tmp_path / "known").iterdir()
    assert pq.read_metadata(file).num_rows == 500
    groups = [len(each) for each in known._groups(file, {bucket("p7"), bucket("p8")})]
    assert len(groups) == 2
    assert sum(groups) < 10

    task = events.reader()

    assert task.new(events_of([("p7", 60), ("p8", 1)])).to_pylist() == [True, False]


def test_what_a_failed_attempt_had_is_not_known_after_another_one(tmp_path: Path) -> None:
    """The other one may read less: journals can be removed meanwhile."""
    table = TableFiles(tmp_path, is_daily=False, is_unique=True)
    table.create(events_of([("p", 1)]).schema, comment="Events.")
    staged = [table.stage(events_of([("p", 1), ("p", 3)]).to_batches())]
    table.known.place(0, [tmp_path / files.STAGED / (staged[0].known or "")])

    table.discard(0, staged)
    table.commit(0, [table.stage(events_of([("p", 1)]).to_batches())])

    assert table.known.reader().new(events_of([("p", 1), ("p", 3)])).to_pylist() == [False, True]


def test_a_folder_that_says_nothing_is_not_believed(tmp_path: Path) -> None:
    """Killed while it was made anew: it is made once more."""
    events = Known(tmp_path)
    (tmp_path / "x.half").touch()
    assert not events.is_there

    events.settle(None)

    assert not list(tmp_path.iterdir())


def test_a_process_that_outlives_its_run_is_waited_for(tmp_path: Path) -> None:
    """It may have moved files, and be about to enter them in the log."""
    table = made(tmp_path)
    recovery = threading.Thread(target=table.recover)
    with (tmp_path / "_lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        recovery.start()
        recovery.join(0.2)
        assert recovery.is_alive()
    recovery.join(10)
    assert not recovery.is_alive()
