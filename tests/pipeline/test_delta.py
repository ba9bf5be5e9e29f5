"""PL-2: the archive as Delta tables, for DuckDB, Polars, brokers, and after release 0.1."""

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta  # type: ignore[import-untyped]
import msgspec
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.delta import files_of
from sterna.model.filters import Filter
from sterna.net.archive import Archive
from sterna.pipeline.declared import compacting, place
from sterna.pipeline.declared.adopting import adopt, last_commit
from sterna.pipeline.declared.compacting import compact
from sterna.pipeline.declared.files import TableFiles
from sterna.pipeline.declared.graph import table_files
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.tables.schemas import GROWING
from tests.data.kept import MANIFEST, TablesManifest, unpack
from tests.pipeline.test_tables_files import Killed, killed_at

pytestmark = pytest.mark.spec("PL-2")

SCHEMA = to_arrow_schema(GROWING["events"].schema, timezone="UTC")
TODAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
OLD = Path(__file__).parents[1] / "data" / "release-0.1" / "tables"


def rows(seqs: Sequence[int], *, days_ago: int = 0) -> pa.RecordBatch:
    time = TODAY - timedelta(days=days_ago)
    rows = [
        {
            "publisher": "car-7",
            "seq": seq,
            "time": time + timedelta(milliseconds=seq),
            "attributes": [("n", {"int": seq}), ("s", {"string": "é"})],
            "payload": bytes([seq % 256]),
            "at": "B1",
            "at_time": time,
            "journal": "B1",
            "position": seq,
            "turn": 0,
            "day": time.date(),
        }
        for seq in seqs
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def archive(root: Path) -> TableFiles:
    """Twelve batches of events, which are some days old; one is staged and not committed."""
    root.mkdir()
    place.mark(root)
    events = table_files(root, "events")
    events.create(SCHEMA, comment="Events.")
    for batch in range(12):
        seqs = range(batch * 10 + 1, batch * 10 + 13)  # Two of them come again.
        events.commit(batch, [events.stage([rows(seqs, days_ago=batch % 3)])])
    events.stage([rows([500])])
    return events


@pytest.fixture(scope="module")
def duck() -> Iterator[Any]:
    """DuckDB, as its users have it; it checks that the extension is its own."""
    (extension,) = Path(duckdb_extension_delta.__path__[0]).rglob("*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        yield connection


def seen(duck: Any, path: Path) -> list[tuple[int, int, str, str]]:
    """What DuckDB, Polars, brokers and pyarrow find; it is the same."""
    by_duck = duck.execute(
        "SELECT seq, attributes['n'].int, attributes['s'].string, day::VARCHAR "  # noqa: S608
        f"FROM delta_scan('{path}') ORDER BY seq"
    ).fetchall()
    by_polars = [
        (row["seq"], named["n"]["int"], named["s"]["string"], str(row["day"]))
        for row in pl.read_delta(str(path)).sort("seq").rows(named=True)
        for named in [dict(row["attributes"])]
    ]
    assert by_polars == by_duck
    past = Archive(path.parent).past(Filter("n >= 0"))
    assert sorted(event.seq for event in past) == [row[0] for row in by_duck]
    files = [pa.parquet.ParquetFile(file).read(columns=["seq"]) for file in files_of(path)]
    assert sorted(pa.concat_tables(files)["seq"].to_pylist()) == [row[0] for row in by_duck]
    return by_duck  # type: ignore[no-any-return]


def test_others_read_the_tables_before_and_after_a_compaction(duck: Any, tmp_path: Path) -> None:
    """Each event once, with its content; what is staged is nobody's business."""
    events = archive(tmp_path / "tables")
    wanted = [(seq, seq, "é", str(published(seq).date())) for seq in range(1, 123)]
    assert seen(duck, events.path) == wanted
    assert not list(events.path.glob("_staged/*.parquet"))
    reader = DeltaTable(events.path)

    found = compact(tmp_path / "tables")["events"]

    assert (found.files_before, found.files, found.rows) == (12, 3, 122)
    assert seen(duck, events.path) == wanted
    assert reader.to_pyarrow_table().num_rows == 122  # It goes on with what it has begun with.
    assert events.last_batch() == 11
    for file in files_of(events.path):
        times = pa.parquet.ParquetFile(file).read(columns=["time"])["time"].to_pylist()
        assert times == sorted(times)
    events.recover()
    events.commit(12, [events.stage([rows([3, 200])])])
    assert len(seen(duck, events.path)) == 123
    again = compact(tmp_path / "tables", history=timedelta(0))["events"]
    assert (again.files, again.rows) == (3, 123)
    assert len(list(events.path.glob("day=*/*.parquet"))) == 3  # The others are gone now.
    assert len(seen(duck, events.path)) == 123


def published(seq: int) -> datetime:
    """The time of an event in the first batch that has it: batches have two of the one before."""
    return TODAY - timedelta(days=max(0, (seq - 3) // 10) % 3)


def test_old_days_are_dropped_and_their_events_stay_known(duck: Any, tmp_path: Path) -> None:
    events = archive(tmp_path / "tables")
    before = seen(duck, events.path)

    answer = CliRunner().invoke(
        app, ["pipeline", "compact", str(tmp_path / "tables"), "--keep-days", "2", "--json"]
    )

    assert answer.exit_code == 0, answer.output
    told = msgspec.json.decode(answer.stdout)["tables"]["events"]
    kept = [row for row in before if row[3] >= str((TODAY - timedelta(days=1)).date())]
    assert seen(duck, events.path) == kept
    assert (told["rows"], told["rows_dropped"]) == (len(kept), len(before) - len(kept))
    events.recover()
    events.commit(12, [events.stage([rows([row[0] for row in before])])])
    assert seen(duck, events.path) == kept


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "has no tables: give the --out of sterna pipeline run"),
        (["--keep-days", "0"], "--keep-days 0 keeps nothing: give 1 or more"),
        (["--history", "30d"], "--history 30d is longer than the log remembers: give 7d or less"),
    ],
)
def test_what_cannot_be_compacted_is_told(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    if arguments:
        place.mark(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    answer = CliRunner().invoke(app, ["pipeline", "compact", str(tmp_path), *arguments])
    assert answer.exit_code == 2
    assert sentence in " ".join(answer.output.split())
    assert sorted(tmp_path.rglob("*")) == before


def test_tables_of_release_0_1_are_not_compacted_before_they_are_delta_tables(
    tmp_path: Path,
) -> None:
    unpack(OLD, tmp_path)
    with pytest.raises(PipelineError, match="run sterna pipeline run first"):
        compact(tmp_path / "tables")


@pytest.mark.spec("LV-9")
def test_tables_of_release_0_1_become_delta_tables_wherever_that_is_killed(
    duck: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All their rows, the number of their last batch, and which events they have."""
    unpack(OLD, tmp_path / "old")
    manifest = msgspec.json.decode((OLD / MANIFEST).read_bytes(), type=TablesManifest)
    last = {name: last_commit(tmp_path / "old" / "tables" / name) for name in GROWING}
    assert any(last.values())
    step, steps, root = 0, 1, tmp_path
    while step < steps:
        root = tmp_path / str(step)
        shutil.copytree(tmp_path / "old" / "tables", root)
        with killed_at(step, monkeypatch) as done:
            try:
                adopted(root)
            except Killed:
                steps = max(steps, len(done) + 2)
        adopted(root)
        for name in GROWING:
            table = table_files(root, name)
            assert table.total_rows == manifest.rows[name], (step, name)
            commit = last[name]
            assert table.last_batch() == (commit.batch if commit else None)
        step += 1
    events = table_files(root, "events")
    there = pl.read_delta(str(events.path)).select("publisher", "seq").to_arrow()
    assert len(there) == manifest.rows["events"]
    assert not any(events.known.reader().new(there.combine_chunks()).to_pylist())
    found = duck.execute(f"SELECT count(*) FROM delta_scan('{events.path}')").fetchone()  # noqa: S608
    assert found == (manifest.rows["events"],)


def adopted(root: Path) -> None:
    for name, table in GROWING.items():
        schema = to_arrow_schema(table.schema, timezone="UTC")
        adopt(table_files(root, name), schema, comment=table.comment)


def test_a_history_is_a_week_unless_told(tmp_path: Path) -> None:
    """Spark's and others' queries may take hours."""
    assert timedelta(days=7) == compacting.HISTORY
    events = archive(tmp_path / "tables")
    assert compact(tmp_path / "tables")["events"].removed == 0
    assert len(list(events.path.glob("day=*/*.parquet"))) == 12 + 3
    for options in ({"history": timedelta(minutes=20)}, {"keep_days": 10**6}):
        found = compact(tmp_path / "tables", **options)["events"]
        assert (found.removed, found.rows_dropped) == (0, 0)
