"""PL-2: where tables may be written, and the errors elsewhere; no run gets as far as Spark."""

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.pipeline.declared import place, views
from sterna.pipeline.declared.folder import TableFolder
from sterna.pipeline.declared.run import run
from sterna.pipeline.declared.views import View
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.tables.schemas import AUDITED, with_inputs
from tests.pipeline.test_run import FIRST, write

pytestmark = pytest.mark.spec("PL-2")


def unusable(tmp_path: Path, kind: str) -> Path:
    """A folder that cannot be written to, for one reason or the other."""
    tables = tmp_path / "tables"
    match kind:
        case "file":
            tables.write_text("")
        case "foreign":
            tables.mkdir()
            (tables / "thesis.txt").write_text("")
        case "version":
            tables.mkdir()
            (tables / place.MARK).write_text('{"tables": 99}')
        case "nonsense":
            tables.mkdir()
            (tables / place.MARK).write_text("[")
        case "checkpoint":
            (tables / "events" / "_commits").mkdir(parents=True)
            (tables / place.MARK).write_text('{"tables": 1}')
            (tables / "events" / "_commits" / f"{3:020d}.json").write_text(
                '{"batch": 3, "rows": 0, "total_rows": 5, "files": []}'
            )
    return tables


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("file", "is a file: give a folder for the tables with --out"),
        ("foreign", "is not empty and holds no tables of Sterna: give another folder with --out"),
        ("version", "has version 99 of the tables and this program writes 2: make them anew with"),
        ("nonsense", "has version unknown of the tables"),
        ("checkpoint", "has lost the checkpoint of events, which says what is archived: make"),
    ],
)
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path, kind: str, sentence: str) -> None:
    """One sentence says what to do, before Spark has any work, and nothing has changed."""
    journals = tmp_path / "journals"
    write(journals, {"c": FIRST["c"]})
    tables = unusable(tmp_path, kind)
    before = sorted(path.name for path in tables.rglob("*") if path.is_file())

    with pytest.raises(PipelineError, match=sentence):
        run(None, journals, tables)  # type: ignore[arg-type]

    after = sorted(path.name for path in tables.rglob("*") if path.is_file())
    assert [name for name in after if name != place.LOCK] == before


def test_two_runs_do_not_write_to_the_same_tables(tmp_path: Path) -> None:
    """The second one says so, and the first one goes on."""
    write(tmp_path / "journals", {"c": FIRST["c"]})
    with (
        place.held(tmp_path / "tables"),
        pytest.raises(
            PipelineError, match=r"another run writes to .*tables: wait until it is done"
        ),
    ):
        run(None, tmp_path / "journals", tmp_path / "tables")  # type: ignore[arg-type]


@pytest.mark.parametrize(("made", "sentence"), [(False, "is not there"), (True, "has no journal")])
def test_a_directory_without_journals_is_told(tmp_path: Path, made: bool, sentence: str) -> None:
    """Before Spark starts, and without making any tables."""
    if made:
        (tmp_path / "journals").mkdir()

    answer = CliRunner().invoke(
        app, ["pipeline", "run", str(tmp_path / "journals"), "--json"], catch_exceptions=False
    )

    assert answer.exit_code == 2
    assert sentence in json.loads(answer.stdout)["error"]
    assert not (tmp_path / "journals" / "tables").exists()


def made(folder: Path, *numbers: int) -> Path:
    """What Spark would have written of a view."""
    folder.mkdir(parents=True)
    for number in numbers:
        rows = pa.table({"n": pa.array([number], pa.int64())})
        pq.write_table(rows, folder / f"part-{uuid.uuid4()}.parquet")
    return folder


def test_a_view_is_replaced_at_once_and_says_what_it_was_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads the old one can do so for some time; then its files are gone."""
    view = View(tmp_path / "view", StructType([StructField("n", LongType())]))
    made(tmp_path / "view", 7)  # Release 0.1 had no log.
    assert view.made_of() is None

    view.replace(made(tmp_path / "a", 1, 2), {"t": 3})

    assert view.made_of() == {"t": 3}
    assert (view.total_rows, len(list((tmp_path / "view").glob("*.parquet")))) == (2, 2)
    reader = DeltaTable(tmp_path / "view")
    for file in (tmp_path / "view").glob("*.parquet"):
        os.utime(file, (0, 0))  # It was made long ago.
    view.replace(made(tmp_path / "b", 5), {"t": 4})
    assert sorted(reader.to_pyarrow_table()["n"].to_pylist()) == [1, 2]
    assert DeltaTable(tmp_path / "view").to_pyarrow_table()["n"].to_pylist() == [5]

    monkeypatch.setattr(views, "OUTDATED_S", 0)
    view.replace(made(tmp_path / "c"), {"t": 5})

    assert view.total_rows == 0
    assert not list((tmp_path / "view").glob("*.parquet"))
    other = View(tmp_path / "view", StructType([StructField("m", StringType())]))
    other.replace(made(tmp_path / "d"), {"t": 6})
    assert DeltaTable(tmp_path / "view").to_pyarrow_table().column_names == ["m"]


def test_spark_may_forget_old_batches_and_nothing_else(tmp_path: Path) -> None:
    """A table may not grow for a hundred batches; but Spark must not begin it anew."""
    tables = TableFolder(tmp_path)
    logs = tables.checkpoint("events") / "offsets"
    logs.mkdir(parents=True)
    with pytest.raises(PipelineError, match="has lost the checkpoint of events"):
        tables.check_checkpoint("events", 3)
    for number in range(150, 251):
        (logs / str(number)).touch()

    tables.check_checkpoint("events", 3)
    tables.check_checkpoint("deliveries", None)

    with pytest.raises(PipelineError, match="has lost the checkpoint of events"):
        tables.check_checkpoint("events", 251)
    (logs.parent.parent / "1").mkdir()
    with pytest.raises(PipelineError, match="begun anew by spark-pipelines run --full-refresh"):
        tables.check_checkpoint("events", 3)


def test_views_that_a_killed_run_of_release_0_1_set_aside_come_back(tmp_path: Path) -> None:
    (tmp_path / place.RUN / "old visits").mkdir(parents=True)
    (tmp_path / place.RUN / "rest").mkdir()
    with place.run_folder(tmp_path) as folder:
        assert not list(folder.iterdir())
    assert [path.name for path in tmp_path.rglob("*")] == ["visits"]


def test_a_full_refresh_that_fails_leaves_the_tables(tmp_path: Path) -> None:
    """What is new takes the place of what was there when it is whole, and leaves nothing else."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "old").touch()
    with suppress(PipelineError), place.replacing(tables) as fresh:
        fresh.mkdir()
        raise PipelineError("no")
    assert [path.name for path in tmp_path.rglob("*")] == ["tables", "old"]

    with suppress(OSError), place.replacing(tables):
        pass  # There is nothing that could take its place.
    assert [path.name for path in tmp_path.rglob("*")] == ["tables", "old"]

    with place.replacing(tables) as fresh:
        fresh.mkdir()
        (fresh / "new").touch()

    assert [path.name for path in tmp_path.rglob("*")] == ["tables", "new"]


def test_tables_that_a_killed_refresh_had_set_aside_come_back(tmp_path: Path) -> None:
    """Between two renames there are no tables at their place; the next run finds them."""
    aside = tmp_path / ".tables.old"
    aside.mkdir()
    (aside / place.MARK).write_text('{"tables": 1}')
    (aside / "old").touch()

    with place.held(tmp_path / "tables"):
        assert (tmp_path / "tables" / "old").exists()
    assert not aside.exists()


@pytest.mark.parametrize(
    ("only", "full_refresh", "sentence"),
    [
        (["evnts"], False, "there is no table 'evnts'; there are events, deliveries"),
        (["events"], True, "a full refresh makes all tables anew: leave out --only"),
    ],
)
def test_a_wrong_choice_of_tables_is_told(
    tmp_path: Path, only: list[str], full_refresh: bool, sentence: str
) -> None:
    """Before anything is read or written."""
    with pytest.raises(PipelineError, match=sentence):
        run(None, tmp_path, tmp_path / "tables", only=only, full_refresh=full_refresh)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(AUDITED))
def test_an_audit_is_never_without_its_totals(name: str) -> None:
    """Without them, no findings could also mean that nothing was judged."""
    assert with_inputs([name]) == AUDITED
