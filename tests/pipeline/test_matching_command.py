"""`sterna pipeline match`: from files to files, or one line that says what is wrong."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.core.facts import Accepted
from sterna.journal import Journal
from sterna.model.event import Event
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.matching.reading import read_events, read_subscriptions

EVENTS = [
    {"id": 1, "price": 2.5, "kind": "x"},
    {"id": 2, "price": 7.0, "kind": "y"},
    {"id": 3, "price": None, "kind": "x"},
]
FILTERS = [("cheap", "price < 3"), ("both", "kind IN ('x', 'y')"), ("none", "kind = 'z'")]
PAIRS = {(1, "cheap"), (1, "both"), (2, "both"), (3, "both")}


def run(*arguments: object) -> tuple[int, Any]:
    ended = CliRunner().invoke(app, ["pipeline", "match", *map(str, arguments), "--json"])
    assert ended.exception is None or isinstance(ended.exception, SystemExit)
    return ended.exit_code, json.loads(ended.stdout)


@pytest.fixture
def given_files(tmp_path: Path) -> tuple[Path, Path]:
    events, filters = tmp_path / "events.parquet", tmp_path / "filters.jsonl"
    pq.write_table(pa.Table.from_pylist(EVENTS), events)
    lines = [json.dumps({"id": id_, "filter": text}) for id_, text in FILTERS]
    filters.write_text("\n".join(lines), encoding="utf-8")
    return events, filters


@pytest.mark.spec("PL-3")
@pytest.mark.usefixtures("spark")
def test_pairs_and_counts_are_written_as_parquet(
    given_files: tuple[Path, Path], tmp_path: Path
) -> None:
    """And the document says how the work was divided, and why."""
    events, filters = given_files
    inputs = ("--events", events, "--subscriptions", filters)

    status, told = run(*inputs, "--out", tmp_path / "out")

    assert status == 0
    written = pq.read_table(tmp_path / "out" / "pairs").to_pylist()
    assert {(row["id"], row["subscription"]) for row in written} == PAIRS
    assert len(written) == told["pairs"] == 4
    assert told["layout"] == "events"
    assert "fit" in told["why"]
    assert told["subscriptions"] == 3
    assert told["most"] == [
        {"subscription": "both", "matches": 3},
        {"subscription": "cheap", "matches": 1},
    ]
    assert told["worker_memory_bytes"] > 1_000_000

    status, told = run(
        *inputs, "--out", tmp_path / "counted", "--count", "--layout", "subscriptions"
    )

    assert status == 0
    assert (told["events"], told["events_matched"], told["pairs"]) == (3, 3, 4)
    assert sorted(path.name for path in (tmp_path / "counted").iterdir()) == [
        *("events", "subscriptions")
    ]
    per_event = pq.read_table(tmp_path / "counted" / "events").to_pylist()
    assert {row["id"]: row["matches"] for row in per_event} == {1: 2, 2: 1, 3: 1}


@pytest.mark.spec("PL-3")
@pytest.mark.usefixtures("spark")
def test_what_is_wrong_is_said_and_nothing_is_written(
    given_files: tuple[Path, Path], tmp_path: Path
) -> None:
    """A bad filter is named by its line; a folder that is there is not touched."""
    events, filters = given_files
    bad = tmp_path / "bad.txt"
    bad.write_text("price < 3\n\nprice < < 3\n", encoding="utf-8")
    out = tmp_path / "out"
    before = sorted(tmp_path.iterdir())

    status, told = run("--events", events, "--subscriptions", bad, "--out", out)
    assert status == 2
    assert told["error"].startswith("subscription 3 cannot be used: ")
    status, told = run("--events", events, "--subscriptions", filters, "--out", tmp_path)
    assert status == 2
    assert "is there already" in told["error"]
    status, told = run("--events", tmp_path / "none", "--subscriptions", filters, "--out", out)
    assert status == 2
    assert "there is no file or folder" in told["error"]

    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.spec("PL-3")
def test_events_and_subscriptions_come_from_files_of_many_kinds(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Journals, CSV with types, text with a filter a line; others are refused by name."""
    journal = Journal(tmp_path / "journal", "b1")
    event = Event(publisher="car", seq=4, time_us=1, attributes={"price": 3})
    journal.record(1, [Accepted(at="b1", time=1, link="car", events=(event,))])
    journal.close()
    (tmp_path / "events.csv").write_text("id,price\n1,2.5\n2,\n", encoding="utf-8")
    (tmp_path / "subs.csv").write_text(
        'id,filter\na,price < 3\nb,"kind = \'x\' AND ""car-type"" = \'v\'"\n', encoding="utf-8"
    )
    (tmp_path / "events.xml").touch()
    (tmp_path / "empty").mkdir()

    (tmp_path / "journal" / "broker.log").touch()  # As `sterna up` leaves it.
    facts = read_events(spark, tmp_path / "journal")
    assert {"publisher", "seq", "attributes"} <= set(facts.columns)
    assert (
        read_events(spark, tmp_path / "events.csv").schema["price"].dataType.typeName() == "double"
    )
    rows = read_subscriptions(spark, tmp_path / "subs.csv").collect()
    assert [tuple(row) for row in rows] == [
        ("a", "price < 3"),
        ("b", "kind = 'x' AND \"car-type\" = 'v'"),
    ]
    with pytest.raises(PipelineError, match=r"\.xml"):
        read_events(spark, tmp_path / "events.xml")
    with pytest.raises(PipelineError, match="has no file"):
        read_subscriptions(spark, tmp_path / "empty")


def test_help_needs_no_spark() -> None:
    ended = CliRunner().invoke(app, ["pipeline", "match", "--help"], env={"COLUMNS": "100"})

    assert ended.exit_code == 0
    assert "--worker-memory" in ended.stdout
