"""PL-4: `sterna pipeline report`: one page, from whatever tables there are."""

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from sterna import HexGrid
from sterna.cli.main import app
from sterna.pipeline.report import gathering, pictures
from sterna.pipeline.report.gathering import ReportTables
from sterna.pipeline.report.plan import MapPlan

pytestmark = pytest.mark.spec("PL-4")

START = datetime(2026, 1, 1, 8, tzinfo=UTC)
CELL = HexGrid(9).locate(52.5, 13.4)
OTHER = HexGrid(9).locate(52.51, 13.4)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


QUARTILES = {f"p{part}_s": float(part) for part in (10, 25, 50, 75, 90, 99)}
KINDS = ((1, "Delivered"), (2, "Delivered"), (2, "Stray"))

ROWS: dict[str, list[dict[str, Any]]] = {
    "traffic": [
        {"broker": f"b{link}", "link": "b0", "minute": at(60 * n), "events": 10 - link, "facts": 1}
        for link in range(10)
        for n in range(3)
    ],
    "handovers": [
        {"client": "c", "broker": "b", "kind": kind, "time": at(time), "position": n, "turn": 0}
        for n, (kind, time) in enumerate(
            [
                *(("started", 0), ("junction", 0.1), ("finished", 0.5), ("started", 9)),
                *(("started", 20), ("finished", 22)),
            ]
        )
    ],
    "bootstrap_latency": [{"cause": "attached", "latency_s": 0.25}, {"cause": "attached"}],
    "movement_graph": [
        {"origin": CELL, "destination": OTHER, "count": 3, "probability": 1.0},
        {"origin": OTHER, "destination": OTHER, "count": 9, "probability": 1.0},
    ],
    "visits": [{"place": CELL, "client": "c"}, {"place": OTHER, "client": "c"}],
    "dwell": [{"place": CELL, "count": 3, **QUARTILES}],
    "evaluation": [
        {
            "held_out": "time",
            "predictor": predictor,
            "bin": 5,
            "steps": 4,
            "hits_at_1": 2,
            "hits_at_3": 3,
            "probability": 0.55,
        }
        for predictor in ("blended", "order 1")
    ],
    "deliveries": [{"client": "c", "seq": seq, "kind": kind} for seq, kind in KINDS],
    "delivery_audit": [
        {"fault": "lost", "client": "<b>", "publisher": "p", "seq": 7, "path": ["b1", "b2"]}
    ],
}


def write(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(ROWS[name]), directory / name / "part.parquet")


def reported(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(
        app, ["pipeline", "report", *map(str, arguments), "--json"], catch_exceptions=False
    )
    return result.exit_code, json.loads(result.stdout)


class Links(HTMLParser):
    """What a page asks a browser to load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        loads = {"src", "href", "xlink:href", "data"}
        self.found += [value for name, value in attrs if name in loads and value is not None]
        self.found += [tag] if tag in {"script", "link", "iframe", "img"} else []


@pytest.mark.usefixtures("spark")
def test_a_page_has_all_that_the_tables_have(tmp_path: Path) -> None:
    """Every section is there, the page loads nothing, and what clients are called stays text."""
    write(tmp_path / "tables", *ROWS)
    out = tmp_path / "page" / "report.html"

    write(tmp_path / "more", "evaluation", "dwell")
    shutil.rmtree(tmp_path / "tables" / "evaluation")

    code, document = reported(
        *("--tables", tmp_path / "tables", "--tables", tmp_path / "more", "--out", out)
    )

    assert code == 0
    assert document["missing"] == []
    page = out.read_text(encoding="utf-8")
    assert page.count("<svg") == 5
    assert "1 lost. There are 2 deliveries." in page
    assert "b1 → b2" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    links = Links()
    links.feed(page)
    assert [link for link in links.found if not link.startswith("#")] == []
    assert not re.search(r"url\((?!#)", page)
    assert [each.name for each in out.parent.iterdir()] == ["report.html"]


@pytest.mark.usefixtures("spark")
def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """A part without its table says so; without any table there is an error and no page."""
    out = tmp_path / "report.html"
    write(tmp_path / "tables", "dwell")

    code, document = reported("--tables", tmp_path / "tables", "--out", out)

    assert code == 0
    assert document["sections"] == ["Dwell times"]
    assert "There is no table traffic here." in out.read_text(encoding="utf-8")
    out.unlink()
    (tmp_path / "empty").mkdir()
    for place, problem in (("none", "there is no directory"), ("empty", "has no tables")):
        code, document = reported("--tables", tmp_path / place, "--out", out)
        assert code == 2
        assert problem in document["error"]
    assert not out.exists()


def test_numbers_are_gathered_from_tables(spark: SparkSession, tmp_path: Path) -> None:
    """A handover lasts from its start to its end at the same broker; small links are one line."""
    write(tmp_path, "handovers", "bootstrap_latency", "traffic", "delivery_audit")
    tables = ReportTables(spark, gathering.folders_in(tmp_path))

    waits = {row["name"]: row for row in gathering.waiting(tables)}
    assert waits["handover"]["count"] == 2
    assert waits["handover"]["seconds"][0] == pytest.approx(0.5)
    assert waits["handover"]["seconds"][-1] == pytest.approx(2)
    assert waits["first event: attached"]["count"] == 1
    lines = gathering.traffic(tables) or []
    assert len({row["link"] for row in lines}) == gathering.LINKS_MAX + 1
    assert sum(row["events"] for row in lines) == sum(row["events"] for row in ROWS["traffic"])
    assert (gathering.audit(tables) or {})["deliveries"] is None


def test_places_are_drawn_where_they_are() -> None:
    """Hexagons and squares as such, stations by their position, anything else in a circle."""
    hexagons = MapPlan.of([CELL, OTHER], [])
    assert len(hexagons.outlines[CELL]) == 6
    assert hexagons.points[CELL] == pytest.approx((13.4, 52.5), abs=0.01)
    squares = MapPlan.of(["0,0", "-1,2"], [])
    assert squares.points["-1,2"] == (-0.5, 2.5)
    where = [{"place": "a", "latitude": 1.0, "longitude": 2.0}]
    assert MapPlan.of(["a"], where).points == {"a": (2.0, 1.0)}
    named = MapPlan.of(["a", "b"], where)
    assert named.points["b"] == pytest.approx((0, -1))
    assert named.are_named
    assert not named.outlines


def test_a_single_minute_is_not_shown_among_years() -> None:
    minute = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    rows = [{"time": minute, "link": "b1 → b2", "events": 60, "slice_s": 60}]

    assert "12:30" in re.sub(r"<!--\s*(.*?)\s*-->", r"\1", pictures.traffic(rows))


def test_the_same_numbers_give_the_same_picture() -> None:
    moves = [{"origin": "a", "destination": "b", "count": 2}]

    assert pictures.movement_map(moves, None, None) == pictures.movement_map(moves, None, None)
