"""PL-2: whole runs of the pipeline, over journals that grow."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.core.facts import (
    Accepted,
    Attached,
    Delivered,
    Forwarded,
    HandoverFinished,
    HandoverStarted,
    Moved,
    Subscribed,
)
from sterna.core.names import Peer
from sterna.delta import files_of
from sterna.journal import Journal
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.archive import Archive
from sterna.pipeline.declared import engine, graph
from sterna.pipeline.declared.run import Summary, run
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.session import CONNECT_PORT, CONNECT_SECRET
from sterna.pipeline.tables import read
from sterna.pipeline.tables.definitions import DEFINITIONS
from sterna.pipeline.tables.schemas import GROWING
from sterna.pipeline.tables.traffic import traffic
from tests.pipeline.recorded import Recorded, Row, expected, in_order, plain, positions_in
from tests.pipeline.terminal import COLUMNS, terminal
from tests.scale import CAMPAIGN

pytestmark = pytest.mark.spec("PL-2")

START_US = 1_700_000_000_000_000
DAY_US = 86_400_000_000


def events(*seqs: int, days: int = 0) -> tuple[Event, ...]:
    return tuple(
        Event(
            publisher="p",
            seq=seq,
            time_us=START_US + days * DAY_US + seq,
            attributes={"n": seq, "s": "é"},
            payload=b"x" * seq,
        )
        for seq in seqs
    )


def accepted(broker: str, *seqs: int, days: int = 0) -> Accepted:
    """Written down at the same moment, however long ago the events were published."""
    return Accepted(at=broker, time=START_US, link="p", events=events(*seqs, days=days))


def sent(broker: str, link: str, *seqs: int) -> Forwarded:
    return Forwarded(at=broker, time=START_US, source="p", to={link: events(*seqs)})


def delivered(*seqs: int) -> Delivered:
    return Delivered(at="c", time=START_US + 7, events=events(*seqs))


def moved(location: str) -> Moved:
    return Moved(at="c", time=START_US, location=location)


FIRST: Recorded = {
    "B1": [
        (1, [Attached(at="B1", time=START_US, link="c", peer=Peer.CLIENT)]),
        (2, [accepted("B1", 1, 2, 3), sent("B1", "c", 1, 2, 3)]),
        (3, [accepted("B1", 4, days=-30)]),
    ],
    "B2": [
        (1, [accepted("B2", 3, 5), sent("B2", "B1", 3, 5)]),
        (2, [HandoverStarted(at="B2", time=START_US, client="c")]),
        (3, [HandoverFinished(at="B2", time=START_US, client="c", replayed=1, held=0)]),
    ],
    "c": [
        (1, [Subscribed(at="c", time=START_US, subscription="s", filter=Filter("n > 0"))]),
        (2, [moved("A"), delivered(1, 2, 3), moved("B")]),
    ],
}
MORE: Recorded = {
    "B1": [(4, [accepted("B1", 5, 6), sent("B1", "c", 6)])],
    "B2": [(4, [accepted("B2", 1, 2, 7, days=2)])],
    "B3": [(1, [accepted("B3", 8, days=-60)])],
    "c": [(3, [moved("B"), delivered(6), delivered(6), moved("A")])],
}
ALL = {node: [*FIRST.get(node, []), *MORE.get(node, [])] for node in {**FIRST, **MORE}}


def write(directory: Path, recorded: Recorded) -> None:
    for node, inputs in recorded.items():
        journal = Journal(directory / node, node)
        for position, facts in inputs:
            journal.record(position, facts)
        journal.close()


def damage(directory: Path) -> None:
    """A journal of another broker, with one whole batch and half of another."""
    journal = Journal(directory / "bad", "bad")
    for position in (1, 2):
        journal.record(position, [accepted("bad", 100 + position)])
        journal.flush()
    journal.close()
    (file,) = (directory / "bad").glob("*.arrows")
    file.write_bytes(file.read_bytes()[:-100])


def stored(tables: Path, name: str) -> list[Row]:
    """What any reader of the Delta log finds."""
    return [
        row
        for file in files_of(tables / name)
        for batch in pq.ParquetFile(file).iter_batches()
        for row in plain(batch)
    ]


def each_once(rows: Iterable[Row]) -> dict[Any, Row]:
    """Events by identity; which of the brokers that accepted one is told is open."""
    content = ("publisher", "seq", "time", "attributes", "payload")
    return {(r["publisher"], r["seq"]): {name: r[name] for name in content} for r in rows}


def check(tables: Path, recorded: Recorded, *names: str) -> None:
    """The tables hold what the journals say."""
    archived = stored(tables, "events")
    good = [row for row in archived if row["journal"] != "bad"]
    assert len(good) == len({(row["publisher"], row["seq"]) for row in good})
    # The one that came first counts, and the rest of the content is the same.
    assert {key: row["payload"] for key, row in each_once(good).items()} == {
        key: row["payload"] for key, row in each_once(expected(recorded, "events")).items()
    }
    for name in names or ("deliveries", "movements", "statistics"):
        found = [row for row in stored(tables, name) if row["journal"] != "bad"]
        assert in_order(found) == in_order(expected(recorded, name)), name
    for file in (tables / "events").rglob("*.parquet"):
        times = pq.ParquetFile(file).read()["time"].to_pylist()
        assert {str(time.date()) for time in times} == {file.parent.name.removeprefix("day=")}


def offsets(tables: Path, name: str) -> list[dict[str, int]]:
    """How far each batch of a table has read each journal."""
    folder = tables / "_checkpoints" / "spark_catalog" / "sterna" / name / name / "0" / "offsets"
    files = sorted((int(file.name), file) for file in folder.glob("[0-9]*"))
    return [positions_in(json.loads(file.read_text().splitlines()[-1])) for _, file in files]


def test_tables_grow_with_their_journals(spark: SparkSession, tmp_path: Path) -> None:
    """Two runs add what is new, once, and make the same as one run over everything."""
    journals, tables = tmp_path / "a b's journals", tmp_path / "a b's tables"
    write(journals, FIRST)
    damage(journals)

    summary = run(
        spark, journals, tables, only=["events", "handovers", "bad_records", "movement_graph"]
    )

    check(tables, FIRST, "movements")
    assert {name: (rows.total, rows.new) for name, rows in summary.tables.items()} == {
        "events": (6, 6),  # One is from what is left of the damaged journal.
        "movements": (3, 3),
        "handovers": (2, 2),
        "bad_records": (1, 1),
        "visits": (2, None),
        "movement_graph": (1, None),
    }
    (bad,) = stored(tables, "bad_records")
    assert bad["journal"] == "bad"
    assert "cut off" in bad["reason"]

    write(journals, MORE)
    answer = CliRunner().invoke(
        app,
        [
            *("pipeline", "run", str(journals), "--out", str(tables), "--json"),
            *("--only", "events", "--only", "movement_graph"),
        ],
    )

    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["out"] == str(tables)
    assert {name: rows["new"] for name, rows in told["tables"].items() if rows["new"]} == {
        "events": 3,  # 6, 7 and 8; the others were there.
        "movements": 2,
    }
    assert list(told["tables"]) == ["events", "movements", "visits", "movement_graph"]
    check(tables, ALL, "movements")
    steps = offsets(tables, "events")
    assert [{name: step.get(name) for name in ("B1", "B2", "B3", "c")} for step in steps] == [
        {"B1": 4, "B2": 4, "B3": None, "c": 3},
        {"B1": 5, "B2": 5, "B3": 2, "c": 4},
    ]
    assert not (tables / "_run").exists()
    graph = stored(tables, "movement_graph")
    assert sorted((row["origin"], row["destination"], row["count"]) for row in graph) == [
        ("A", "B", 1),
        ("B", "A", 1),
    ]
    table = read(spark, tables, "events").where("day < '2023-10-01'")
    late = datetime.fromtimestamp(START_US / 1e6, UTC).date()
    assert [(row.seq, (late - row.day).days) for row in table.collect()] == [(8, 60)]


def forwarded(position: int, *days: int) -> Recorded:
    """The journal of a broker that sends an event on some days."""
    facts = [replace(sent("B1", "B2", 1), time=START_US + day * DAY_US) for day in days]
    return {"B1": [(position, [*facts])]}


def per_day(tables: Path) -> dict[int, int]:
    """The traffic of each day."""
    found = Counter[int]()
    for row in stored(tables, "traffic"):
        found[row["minute"] // DAY_US - START_US // DAY_US] += row["events"]
    return dict(found)


def test_a_run_makes_what_has_changed_and_spark_pipelines_can_do_it_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views of the days that have changed; nothing at all if nothing has."""
    journals, tables, spec = (tmp_path / name for name in ("journals", "tables", "spec"))
    write(journals, forwarded(1, 0, 0, 1))
    command = ["pipeline", "spec", str(journals), "--tables", str(tables), "--out", str(spec)]
    assert CliRunner().invoke(app, command).exit_code == 0
    about = (spec / engine.SPEC).read_text(encoding="utf-8")
    assert f'sterna.only: "{",".join(GROWING)}"' in about
    assert 'spark.sql.session.timeZone: "UTC"' in about  # Days are those of UTC, anywhere.
    shorter = re.sub('sterna.only: ".*"', 'sterna.only: "statistics"', about)
    (spec / engine.SPEC).write_text(shorter, encoding="utf-8")

    engine.execute(spark, spec / engine.SPEC, lambda _line: None)

    assert len(stored(tables, "statistics")) == 3
    assert run(spark, journals, tables, only=["traffic"]).tables["statistics"].new == 0
    assert per_day(tables) == {0: 2, 1: 1}

    write(journals, forwarded(2, 1, 2))
    days: list[Any] = []

    def looked_at(statistics: DataFrame) -> DataFrame:
        days.extend(row.day for row in statistics.select("day").distinct().collect())
        return traffic(statistics)

    monkeypatch.setitem(DEFINITIONS, "traffic", looked_at)
    assert run(spark, journals, tables, only=["traffic"]).tables["statistics"].new == 2
    assert per_day(tables) == {0: 2, 1: 2, 2: 1}
    assert len(days) == 2  # And not the first one.

    monkeypatch.setattr(engine, "execute", None)
    monkeypatch.setitem(DEFINITIONS, "traffic", None)
    again = run(spark, journals, tables, only=["traffic"])
    assert (again.tables["statistics"].new, again.tables["traffic"].total) == (0, 3)


def test_only_those_who_have_the_secret_are_served(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not among the arguments of Java, which all users of a machine can see."""
    java: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    arguments = Path(f"/proc/{java.pid}/cmdline").read_text(encoding="utf-8")
    assert CONNECT_PORT in arguments
    assert os.environ[CONNECT_SECRET] not in arguments
    some = {"spark.sql.session.timeZone": "UTC"}
    spec = engine.Spec(definitions="", storage=tmp_path, configuration=some).write(tmp_path)

    monkeypatch.setenv(CONNECT_SECRET, "another")
    with pytest.raises(PipelineError, match=r"(?i)token|unauthenticated"):
        engine.execute(spark, spec, lambda _line: None)


def test_tables_do_not_share_a_format_by_which_they_read_journals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streams of one format that start at once damage what Spark sends to its tasks."""
    spark = MagicMock()
    spark.conf.get.side_effect = {graph.ONLY: ",".join(GROWING)}.get
    monkeypatch.setattr(graph, "archive", MagicMock())
    monkeypatch.setattr(graph, "_growing", lambda _name: lambda query: query())

    graph.declare(spark)

    formats = [call.args[0] for call in spark.readStream.format.call_args_list]
    known = {call.args[0].name() for call in spark.dataSource.register.call_args_list}
    assert len(set(formats)) == len(GROWING)
    assert set(formats) <= known


def test_a_session_without_connect_says_what_it_lacks(tmp_path: Path) -> None:
    class Conf:
        def get(self, _name: str) -> None:
            return None

    class Session:
        class sparkContext:  # noqa: N801 - its name in Spark.
            getConf = Conf  # noqa: N815

    with pytest.raises(PipelineError, match=r"spark_session\(config=with_connect\(\)\)"):
        engine.execute(Session(), tmp_path, print)  # type: ignore[arg-type]


@pytest.mark.usefixtures("spark")
def test_all_tables_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each of them has; brokers answer from them, and a page is made of them.

    Meanwhile people see, in our words, what is done and how far it is.
    """
    journals, tables = tmp_path / "journals", tmp_path / "tables"
    write(journals, ALL)

    with terminal(monkeypatch) as screen:
        command = ["pipeline", "run", str(journals), "--out", str(tables), "--json"]
        ran = CliRunner().invoke(app, command, catch_exceptions=False)

    summary = json.loads(ran.stdout)["tables"]
    assert {name: rows["total"] for name, rows in summary.items()} == TOTALS
    check_progress(screen.lines)
    check(tables, ALL)
    traffic = [(row["broker"], row["link"], row["events"]) for row in stored(tables, "traffic")]
    assert sorted(traffic) == [("B1", "c", 4), ("B2", "B1", 2)]
    found = {row["fault"]: row for row in stored(tables, "delivery_audit")}
    assert found.pop("number used twice")["seq"] in {1, 2}  # They were published on two days.
    assert found.pop("duplicated") == {
        "world": "",
        "fault": "duplicated",
        "client": "c",
        "publisher": "p",
        "seq": 6,
        "path": ["B1 → c"],
        "hops": [{"time": datetime.fromtimestamp(START_US / 1e6, UTC), "broker": "B1", "to": "c"}],
    }
    past = Archive(tables).past(Filter("n >= 3 AND s = 'é'"), events_max=3)
    assert [(event.seq, event.payload) for event in past] == [
        (seq, b"x" * seq) for seq in (5, 6, 7)
    ]
    (judged,) = stored(tables, "audit_totals")
    assert judged == {
        "published": 12,  # As often as brokers accepted them: their publisher has no journal.
        "subscribed": 1,
        "owed": 0,
        "delivered": 5,
        "wrong": 3,
        "grace_s": 5.0,
        "open": 4,  # 4, 5, 7 and 8 did not come.
        "unknown": 0,
        "apart": 0,
        "early": 0,
    }
    page = tmp_path / "report.html"
    answer = CliRunner().invoke(
        app, ["pipeline", "report", str(tables), "--out", str(page), "--json"]
    )
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["missing"] == ["Prediction"]
    told = "3 deliveries are wrong: 1 event came again, 2 numbers were used twice."
    assert told in page.read_text(encoding="utf-8")


def check_progress(lines: list[str]) -> None:
    """A step, its place among the tables, tasks, the time, and how long it will still take."""
    step = r". (?P<step>[a-z_ ]+)( \(table \d+ of 15\))?"
    tasks, time = r"\d+ of \d+ tasks", r"\d+ (s|min)"
    numbers = rf"( …|: {tasks}|: ({tasks}, )?{time}(, about {time} left)?)"
    told = [line for line in lines if "starting Spark" not in line]
    found = [re.fullmatch(step + numbers, line) for line in told]
    assert all(found), [line for line, match in zip(told, found, strict=True) if not match]
    steps = {match["step"] for match in found if match}
    assert {"archiving events", "judging deliveries"} <= steps, steps
    assert any(line.startswith(("making ", "archiving "), 2) and "(table" in line for line in told)
    assert any("tasks" in line for line in told)
    assert max(map(len, told)) <= COLUMNS


TOTALS = {
    "events": 8,
    "deliveries": 5,
    "movements": 5,
    "handovers": 2,
    "subscriptions": 1,
    "statistics": 11,
    "bad_records": 0,
    "visits": 3,
    "dwell": 0,  # All happened at once.
    "movement_graph": 2,
    "next_broker": 0,
    "traffic": 2,
    "bootstrap_latency": 2,
    "delivery_audit": 3,
    "audit_totals": 1,
}


@pytest.mark.skipif(CAMPAIGN == 1, reason="several whole runs take a minute")
def test_a_run_again_changes_nothing_and_a_full_refresh_makes_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Runs are idempotent; lost facts of journals are reported, and a refresh keeps what it can."""
    journals, tables = tmp_path / "journals", tmp_path / "tables"
    write(journals, ALL)
    first = run(spark, journals, tables)
    assert {name: rows.total for name, rows in first.tables.items()} == TOTALS
    names = list(first.tables)
    content = {name: in_order(stored(tables, name)) for name in names}

    again = run(spark, journals, tables)

    assert all(not rows.new for rows in again.tables.values())
    assert {name: in_order(stored(tables, name)) for name in names} == content

    refreshed = run(spark, journals, tables, full_refresh=True)

    assert refreshed.tables == first.tables
    check(tables, ALL)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    for file in (journals / "B2").glob("*"):
        file.unlink()
    write(journals, {"B1": [(9, [accepted("B1", 9)])]})
    told = CliRunner().invoke(app, ["pipeline", "run", str(journals), "--out", str(tables)])
    assert told.exit_code == 2
    assert "the journal of B2 is not in" in told.output
    assert "use --lossy to go on with what there is" in told.output
    assert isinstance(run(spark, journals, tables, fail_on_data_loss=False), Summary)
    assert len(stored(tables, "events")) == first.tables["events"].total + 1
