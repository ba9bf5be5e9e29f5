"""PL-2: the files of tables that grow; each batch is there once, whatever is killed when."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.pipeline.declared import files
from sterna.pipeline.declared.files import TableFiles
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
    """What a reader sees who knows nothing of commits."""
    if not table.path.exists():
        return []
    found = pyarrow.dataset.dataset(table.path, format="parquet", partitioning="hive")
    return sorted(found.to_table()["number"].to_pylist()) if found.files else []


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The process is killed before it changes a file for the so-manieth time."""
    done: list[str] = []

    def counted(name: str) -> Any:
        real = getattr(Path, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if len(done) == step:
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink", "mkdir", "open"):
            patch.setattr(Path, name, counted(name))
        yield done


BATCHES = [range(5), range(5, 25), range(25, 26), range(26, 40)]


def archive(table: TableFiles, over: set[int]) -> None:
    """Do as Spark does: a batch comes again until it is over, with the same rows."""
    table.recover()
    for batch, numbers in enumerate(BATCHES):
        if batch in over:
            continue
        half = len(numbers) // 2
        staged = table.stage([rows(numbers[:half])]) + table.stage([rows(numbers[half:])])
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
        seen = visible(table)
        begun = BATCHES[len(over)] if len(over) < len(BATCHES) else range(0)
        before = [number for numbers in BATCHES[: len(over)] for number in numbers]
        assert set(before) <= set(seen) <= {*before, *begun}, step
        assert len(seen) == len(set(seen)), step

        archive(table, over)

        assert visible(table) == list(range(40)), step
        assert table.total_rows == 40
        assert not list((table.path / "_staged").iterdir())
        assert len(list((table.path / "_commits").glob("*.json"))) == 1
        step += 1
    assert steps > 30


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    """Spark repeats a batch when it was killed before it noted the commit."""
    table = TableFiles(tmp_path, is_daily=True)
    for batch in (0, 1, 1, 0):
        table.commit(batch, table.stage([rows(range(batch * 10, batch * 10 + 10))]))

    assert visible(table) == list(range(20))
    assert table.total_rows == 20


def test_a_task_that_failed_leaves_nothing(tmp_path: Path) -> None:
    """What is staged but not committed is in nobody's way, and is removed."""
    table = TableFiles(tmp_path, is_daily=True)
    table.discard(table.stage([rows(range(10))]))
    table.stage([rows(range(10, 20))])

    assert visible(table) == []
    table.recover()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_commit_that_failed_is_ended_though_spark_discards_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts a batch also if its commit failed; what was committed must survive that."""
    for step in range(20):
        table = TableFiles(tmp_path / str(step), is_daily=True)
        table.commit(0, table.stage([rows(range(10))]))
        staged = table.stage([rows(range(10, 20))])
        with killed_at(step, monkeypatch), suppress(Killed):
            table.commit(1, staged)
        table.discard(staged)

        table.commit(1, table.stage([rows(range(10, 20))]))  # The flow is tried again.
        assert visible(table) == list(range(20)), step


@given(
    st.lists(st.lists(st.integers(0, 96), max_size=20, unique=True), max_size=6),
    st.integers(1, 2000),
)
@examples(30)
def test_rows_stand_at_their_day_sorted_by_time(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], held_bytes_max: int
) -> None:
    """However late a row comes: its file is that of its day, and has its rows in order."""
    table = TableFiles(tmp_path_factory.mktemp("table"), is_daily=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "HELD_BYTES_MAX", held_bytes_max)
        for number, numbers in enumerate(batches):
            table.commit(number, table.stage([rows(numbers[:7]), rows(numbers[7:])]))

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
    table = TableFiles(tmp_path, is_daily=False)
    table.commit(0, table.stage([pa.RecordBatch.from_pydict({"number": [2, 1]})]))

    (part,) = table.parts()
    assert pq.ParquetFile(part).read()["number"].to_pylist() == [2, 1]
    assert part.parent == tmp_path


def test_a_column_that_an_older_release_did_not_write_is_null(tmp_path: Path) -> None:
    table = TableFiles(tmp_path, is_daily=False)
    table.commit(0, table.stage([pa.RecordBatch.from_pydict({"number": [1]})]))
    (part,) = table.parts()

    (batch,) = table.read(part, pa.schema({"number": pa.int64(), "later": pa.string()}))

    assert batch.to_pylist() == [{"number": 1, "later": None}]
