"""PL-4: `sterna pipeline mine` on files of many kinds and on journals."""

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from sterna import MobilityModel
from sterna.cli.main import app
from sterna.core.facts import Attached, Detached
from sterna.core.names import Peer
from sterna.journal import Journal
from sterna.net.config import BrokerConfig
from sterna.net.nodes import settings_of
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.mining.inputs import file_table, fixes, stations, trips, visited
from sterna.pipeline.mining.sources import Kind, chosen

pytestmark = pytest.mark.spec("PL-4")

START = datetime(2016, 1, 4, 8, tzinfo=UTC)


def mined(*arguments: object) -> tuple[int, dict[str, Any]]:
    """What the command says to programs."""
    result = CliRunner().invoke(
        app, ["pipeline", "mine", *map(str, arguments), "--json"], catch_exceptions=False
    )
    return result.exit_code, json.loads(result.stdout)


def error_of(*arguments: object) -> str:
    code, document = mined(*arguments)
    assert code == 2
    assert "\n" not in document["error"]
    return str(document["error"])


def write_csv(path: Path, heading: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])


def ring(bike: int, trip: int) -> tuple[datetime, datetime, int, int]:
    """Bikes go round: from each station to the next one."""
    start = START + timedelta(hours=3 * trip, minutes=bike)
    return (
        start,
        start + timedelta(minutes=20),
        100 + (bike + trip) % 3,
        100 + (bike + trip + 1) % 3,
    )


OLD = ["Trip Duration", "Start Time", "Stop Time", "Start Station ID", "Start Station Latitude"]
OLD += ["Start Station Longitude", "End Station ID", "End Station Latitude"]
OLD += ["End Station Longitude", "Bike ID"]


@pytest.mark.usefixtures("spark")
def test_trips_of_a_bike_share_become_a_model(tmp_path: Path) -> None:
    """CSV in, tables and one model file out; the JSON has what was measured on held-out time."""
    data, out = tmp_path / "trips", tmp_path / "out"
    data.mkdir()
    rides = [[*ring(bike, trip), bike] for bike in range(4) for trip in range(20)]
    lines: list[list[object]] = [
        [0, f"{a:%Y-%m-%d %H:%M:%S}", f"{b:%Y-%m-%d %H:%M:%S}", o, 40.7, -74.0, d, 40.8, -74.1, n]
        for a, b, o, d, n in rides
    ]
    (data / "README.txt").write_text("Trips, hourly, daily")
    write_csv(data / "one.csv", OLD, lines[:50])
    write_csv(data / "two.csv", OLD, [*lines[50:], [0, "", "", "", "", "", "", "", "", ""]])

    code, document = mined("--trips", data, "--out", out)

    assert code == 0
    assert document["accuracy_at_1"] == document["accuracy_at_3"] == 1
    assert (document["rows"], document["rows_left_out"]) == (81, 1)
    assert (document["clients"], document["places"]) == (4, 3)
    assert document["cut"] < document["to"]
    assert document["held_out_clients"]["accuracy_at_1"] == 1
    model = MobilityModel.load(out / "mobility.sterna-model")
    assert model.next("101")[0].place == "102"
    assert document["model"]["bytes"] == (out / "mobility.sterna-model").stat().st_size
    assert document["model"]["moves"] == 3
    tables = ["dwell", "evaluation", "movement_graph", "places", "ploc", "visits"]
    assert sorted(each.name for each in out.iterdir() if each.is_dir()) == tables
    graph = pq.read_table(out / "movement_graph").to_pylist()
    assert {row["origin"]: row["probability"] for row in graph} == {"100": 1, "101": 1, "102": 1}
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    at_a_broker = settings_of(
        BrokerConfig.from_mapping(
            {"name": "b1", "mobility": {"model": str(out / "mobility.sterna-model")}}
        )
    )
    assert at_a_broker.predictor().next("101")[0].place == "102"
    assert at_a_broker.places is not None
    assert at_a_broker.places.space().ploc("101", 1) == {"101", "102"}
    assert at_a_broker.places.dwell_us == model.least_dwell_us is not None


def test_both_forms_of_public_trip_files_are_known(spark: SparkSession, tmp_path: Path) -> None:
    """Old and new column names; times as text, timestamps or numbers; vehicles with and without."""
    start, stop = START, START + timedelta(minutes=9)
    write_csv(
        tmp_path / "new.csv",
        [
            *("ride_id", "started_at", "ended_at", "start_station_id", "end_station_id"),
            *("start_lat", "start_lng", "end_lat", "end_lng"),
        ],
        [["r1", "2016-01-04 08:00:00.000", "2016-01-04 08:09:00.000", "JC1", "JC2", 40, 1, 41, 2]],
    )
    write_csv(
        tmp_path / "old.csv",
        ["starttime", "stoptime", "start station id", "end station id", "bikeid"],
        [["1/4/2016 8:00", "1/4/2016 8:09:00", " JC1", "JC2", "r1"]],
    )
    table = pa.table(
        {
            "start_time": pa.array([START.replace(tzinfo=None)], pa.timestamp("ms")),
            "stop_time": [stop.timestamp() * 1000],
            "start_station_id": ["JC1"],
            "end_station_id": ["JC2"],
            "bike_id": ["r1"],
        }
    )
    pq.write_table(table, tmp_path / "typed.parquet")

    for name in ("new.csv", "old.csv", "typed.parquet"):
        found = trips(file_table(spark, str(tmp_path / name)), {}).toArrow().to_pylist()
        assert [tuple(row.values()) for row in found] == [("r1", start, stop, "JC1", "JC2")]
    places = stations(file_table(spark, str(tmp_path / "new.csv")), {})
    assert places is not None
    assert sorted(tuple(row) for row in places.collect()) == [("JC1", 40, 1), ("JC2", 41, 2)]
    assert stations(file_table(spark, str(tmp_path / "old.csv")), {}) is None


def test_fixes_take_any_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Columns by mapping, times since 1970 in any unit; what makes no sense is null."""
    second = 1_451_894_400
    moments = [second, second * 10**3, second * 10**6, second * 10**9, "soon"]
    rows: list[list[object]] = [["a", time, 10, 20] for time in moments]
    rows += [["b", second, 95, 20], ["c", second, "NaN", 20]]
    write_csv(tmp_path / "f.csv", ["who", "when", "north", "lon"], rows)
    columns = {"client": "who", "time": "when", "lat": "north"}

    found = fixes(file_table(spark, str(tmp_path / "f.csv")), columns).toArrow().to_pylist()

    assert [row["time"] for row in found[:5]] == [START] * 4 + [None]
    assert [row["latitude"] for row in found] == [10.0] * 5 + [None] * 2


@pytest.mark.usefixtures("spark")
def test_journals_are_mined_as_they_stand(tmp_path: Path) -> None:
    """The graph that clients walked between brokers is the graph that is mined."""
    walk = ["b1", "b2", "b3", "b2"] * 5
    for broker in ("b1", "b2", "b3"):
        journal = Journal(tmp_path / "journal", broker)
        for number, place in enumerate(walk):
            if place == broker:
                came = 1_000_000 * (60 * number + 1)
                link = "car-7"
                journal.record(
                    2 * number + 1,
                    [Attached(at=broker, time=came, link=link, peer=Peer.CLIENT)],
                )
                journal.record(
                    2 * number + 2,
                    [Detached(at=broker, time=came + 50_000_000, link=link, peer=Peer.CLIENT)],
                )
        journal.close()

    code, document = mined(tmp_path, "--out", tmp_path / "out", "--holdout", 0)

    assert code == 0, document
    assert document["accuracy_at_1"] is None
    model = MobilityModel.load(tmp_path / "out" / "mobility.sterna-model")
    edges = {(a, b) for a in model.places for b in model.graph().neighbours(a)}
    assert edges == {("b1", "b2"), ("b2", "b3"), ("b3", "b2"), ("b2", "b1")}
    assert model.next("b2", previous="b1")[0].place == "b3"
    dwell = model.dwell("b1")
    assert dwell is not None
    assert dwell.p50_s == 50


def test_what_does_not_go_together_is_said_before_spark_starts(tmp_path: Path) -> None:
    """One sentence, exit 2, nothing written."""
    some = tmp_path / "some"
    assert "one of DIR (journals), --trips and --fixes" in error_of()
    assert "one of DIR" in error_of("--trips", some, "--fixes", some)
    assert "two kinds of places" in error_of("--fixes", some, "--h3", 9, "--grid", 100)
    assert "--grid is for fixes" in error_of("--trips", some, "--grid", 100)
    assert "--stay is for fixes" in error_of("--trips", some, "--stay", 60)
    assert "--gap is for fixes" in error_of(some, "--gap", "1h")
    assert "--margin is for fixes" in error_of("--trips", some, "--margin", 0)
    assert "not for journals" in error_of(some, "--h3", 9)
    assert "not for journals" in error_of("--journal", some, "--h3", 9)  # As it was spelled.
    assert "former word for DIR" in error_of(some, "--journal", some)
    assert "--where is for journals" in error_of("--fixes", some, "--where", "location")
    assert "name is one of client" in error_of("--fixes", some, "--columns", "place=x")
    (tmp_path / "visits").mkdir()
    assert "is not empty, and not from" in error_of("--fixes", some, "--out", tmp_path)
    assert (tmp_path / "visits").is_dir()
    assert chosen({Kind.FIXES: "f"}, columns=" client = a , time=b").columns == {
        "client": "a",
        "time": "b",
    }


def test_files_that_cannot_be_mined_are_said_so(spark: SparkSession, tmp_path: Path) -> None:
    """One sentence, exit 2, nothing written."""
    out = tmp_path / "out"
    assert "there is no" in error_of("--fixes", tmp_path / "none", "--out", out)
    assert "no CSV or Parquet file" in error_of("--fixes", tmp_path, "--out", out)
    write_csv(tmp_path / "f.csv", ["client", "x", "y"], [["ann", 1, 2]])
    assert "fixes need time" in error_of("--fixes", tmp_path, "--out", out)
    assert "no column 'z'" in error_of("--fixes", tmp_path, "--columns", "time=z", "--out", out)
    assert "in none all of" in error_of("--fixes", tmp_path, "--columns", "time=client")
    assert "use --grid" in error_of("--fixes", tmp_path, "--columns", "time=x", "--h3", 9)
    (tmp_path / "p.parquet").write_bytes(b"PAR1 this is none PAR1")
    assert "both CSV and Parquet" in error_of("--fixes", tmp_path, "--out", out)
    assert "cannot read" in error_of("--fixes", tmp_path / "p.parquet", "--out", out)
    assert not out.exists()
    write_csv(tmp_path / "t.csv", ["bikeid", "starttime", "stoptime", "origin", "destination"], [])
    with pytest.raises(PipelineError, match="--h3 needs to know where"):
        visited(spark, chosen({Kind.TRIPS: str(tmp_path / "t.csv")}, h3=9))
