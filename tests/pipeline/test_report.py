"""PL-4: `sterna pipeline report`: one page, from whatever tables there are."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner

from sterna import HexGrid
from sterna.cli.main import app
from sterna.pipeline.report import gathering, pictures, summary
from sterna.pipeline.report.drawing import drawing
from sterna.pipeline.report.gathering import ReportTables
from sterna.pipeline.report.plan import MapPlan
from sterna.pipeline.report.timeline import Slices, stairs
from sterna.pipeline.report.ways import ways
from sterna.pipeline.tables.schemas import GROWING

pytestmark = pytest.mark.spec("PL-4")

START = datetime(2026, 1, 1, 8, tzinfo=UTC)
CELL = HexGrid(9).locate(52.5, 13.4)
OTHER = HexGrid(9).locate(52.51, 13.4)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


QUARTILES = {f"p{part}_s": float(part) for part in (10, 25, 50, 75, 90, 99)}
HOPS = ((1, "b1", "b2"), (1, "b1", "c"), (2, "b2", "b3"))
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
    "visits": [{"place": place, "client": "c", "arrived": at(5)} for place in (CELL, OTHER)],
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
    "events": [
        {
            "publisher": "p",
            "seq": 7,
            "time": at(30),
            "attributes": [("price", {"bool": None, "int": 3, "float": None, "string": None})],
            "at": "b1",
            "at_time": at(30.001),
            "journal": "b1",
        }
    ],
    "movements": [
        {"client": "<b>", "kind": kind, "time": at(time), "broker": broker, "journal": broker}
        for kind, time, broker in (
            ("attached", 0, "b9"),
            ("detached", 10, "b9"),
            ("attached", 20, "b3"),
            ("detached", 40, "b3"),
        )
    ],
    "deliveries": [
        {"client": "c", "publisher": "p", "seq": seq, "kind": kind, "time": at(seq), "journal": "c"}
        for seq, kind in KINDS
    ],
    "delivery_audit": [
        {
            "world": "",
            "fault": "lost",
            "client": "<b>",
            "publisher": "p",
            "seq": 7,
            "path": ["b1 → b2", "b1 → c", "b2 → b3"],
            "hops": [
                {"time": at(30 + 0.002 * hop), "broker": broker, "to": to}
                for hop, broker, to in HOPS
            ],
        }
    ],
    "audit_totals": [{"published": 9, "subscribed": 1, "owed": 3, "delivered": 2, "wrong": 1}],
}


def write(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).mkdir(parents=True)
        schema = to_arrow_schema(GROWING[name].schema, timezone="UTC") if name in GROWING else None
        table = pa.Table.from_pylist(ROWS[name], schema)
        pq.write_table(table, directory / name / "part.parquet")


def reported(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(
        app, ["pipeline", "report", *map(str, arguments), "--json"], catch_exceptions=False
    )
    return result.exit_code, json.loads(result.stdout)


def text_of(page: str) -> str:
    """What a reader sees, with single spaces."""
    page = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", page, flags=re.DOTALL)
    cells = re.sub(r"</(?:td|th|p|div|dd|dt)>", " ", page)
    return " ".join(unescape(re.sub(r"<[^>]*>", "", cells)).split())


class Links(HTMLParser):
    """What a page asks a browser to load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids |= {value for name, value in attrs if name == "id" and value is not None}
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

    code, document = reported(tmp_path / "tables", tmp_path / "more", "--out", out)

    assert code == 0, document
    assert document["missing"] == []
    page = out.read_text(encoding="utf-8")
    assert page.count("<svg") == 7
    assert "&lt;b&gt;" in page
    assert "<b><b>" not in page
    links = Links()
    links.feed(page)
    assert [link for link in links.found if not link.startswith("#")] == []
    assert {link[1:] for link in links.found} <= links.ids
    assert not re.search(r"url\((?!#)", page)
    _check_the_opening(page)
    _check_the_way(page)
    _check_the_schemes(page)
    assert [each.name for each in out.parent.iterdir()] == ["report.html"]


def _check_the_opening(page: str) -> None:
    """Before anything else: the time, the verdict in plain words, and totals."""
    opening = text_of(page[: page.index("<nav>")])
    assert "2026-01-01 08:00:00 to 08:00:40 UTC: 40 s" in opening
    assert "1 delivery is wrong: 1 event was lost." in opening
    assert "There are 2 deliveries. 3 were owed for sure" in opening
    tiles = re.findall(r"<dt>([a-z ]+).*?<dd>([\d,]+)</dd>", page)
    assert tiles == [
        ("events", "1"),
        ("deliveries", "2"),
        ("clients", "3"),
        ("brokers", "2"),
        ("handovers", "3"),
        ("visits", "2"),
    ]


def _check_the_way(page: str) -> None:
    """From the finding to what each broker states of the event, in order and with times."""
    assert 'href="#way-1"' in page[page.index('id="finding-1"') :].split("</tbody>", maxsplit=1)[0]
    way = page[page.index('<article id="way-1"') :].split("</article>", maxsplit=1)[0]
    words = text_of(way)
    assert "When it was published, <b> was at b3, since 08:00:20.000 until 08:00:40.000." in words
    assert "price = 3" in words
    steps = [text_of(row) for row in re.findall(r"<tr class.*?</tr>", way)]
    assert steps == [
        "08:00:30.000 p published it",
        "+1.0 ms b1 accepted it",
        "+2.0 ms b1 → b2 and c",
        "+4.0 ms b2 → b3",
        "b3 does not state that it sent the event to <b>",
    ]
    assert way.count('class="missing"') == 2  # A line of the drawing, and the last of the steps.


def _check_the_schemes(page: str) -> None:
    """Light and dark have the same colours, and pictures have no others."""
    light, dark = page.split("prefers-color-scheme: dark", 1)
    colours = re.compile(r"(--[a-z0-9-]+): #")
    named = set(colours.findall(light))
    assert named == set(colours.findall(dark[: dark.index("</style>")]))
    pictures_ = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert not re.search(r"(?:fill|stroke): #", pictures_)
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", pictures_)) <= named | {"--type"}
    sizes = re.findall(r"font(?:-size)?: [^;\"]*?([\d.]+)px", pictures_)
    assert sizes
    assert min(map(float, sizes)) >= pictures.SMALL
    assert "DejaVu" not in pictures_


@pytest.mark.usefixtures("spark")
def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """A part without its table says so; without any table there is an error and no page."""
    out = tmp_path / "report.html"
    write(tmp_path / "tables", "dwell")

    code, document = reported("--tables", tmp_path / "tables", "--out", out)  # As it was spelled.

    assert code == 0
    assert document["sections"] == ["Dwell times"]
    page = text_of(out.read_text(encoding="utf-8"))
    assert "There is no table traffic here" in page
    assert "These tables have no audit of deliveries." in page
    out.unlink()
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken" / "extra").mkdir(parents=True)
    (tmp_path / "broken" / "extra" / "a.parquet").write_bytes(b"no table")
    for place, problem in (
        ("none", "there is no directory"),
        ("empty", "has no tables"),
        ("broken", "a.parquet cannot be read as Parquet"),
    ):
        code, document = reported("--tables", tmp_path / place, "--out", out)
        assert code == 2
        assert problem in document["error"]
    code, document = reported("--out", out)
    assert (code, document["error"][:21]) == (2, "say which tables: giv")
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
    assert len(waits) == 2, "this table is of a release that did not know when the n-th event came"
    lines = gathering.traffic(tables) or []
    assert len({row["link"] for row in lines}) == gathering.LINKS_MAX + 1
    assert sum(row["events"] for row in lines) == sum(row["events"] for row in ROWS["traffic"])
    assert (gathering.audit(tables) or {})["deliveries"] is None


def test_how_long_the_nth_event_took_is_gathered(spark: SparkSession, tmp_path: Path) -> None:
    """Of subscriptions that asked for a past, and got as many events."""
    latencies = (0.5, 1.5, None)
    rows = [{"cause": "subscribed", "asked": 3, "nth_latency_s": each} for each in latencies]
    (tmp_path / "bootstrap_latency").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "bootstrap_latency" / "part.parquet")

    (waits,) = gathering.waiting(ReportTables(spark, gathering.folders_in(tmp_path)))

    assert waits["name"] == "as many events as asked for: subscribed"
    assert (waits["count"], waits["seconds"][0], waits["seconds"][-1]) == (2, 0.5, 1.5)


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

    assert "12:30" in pictures.traffic(rows)


def test_no_line_is_drawn_where_nothing_happened() -> None:
    """Slices without events are gaps, and a long pause is left out and told."""
    busy = [0, 1, 3, 600, 601]
    rows = [
        {"time": at(second), "link": "b1 → b2", "events": second + 1, "slice_s": 1}
        for second in busy
    ]
    slices = Slices(rows, "link")
    first, second = slices.spans()
    values = slices.values_of("events")["b1 → b2"]

    assert (first.seconds, second.seconds) == (4, 2)
    assert str(stairs(values, first, 1)[0]) == "[1, 2, nan, 4]"
    assert stairs(values, second, 1)[0] == [601, 602]
    assert "nothing for 10 min" in pictures.traffic(rows)


@pytest.mark.parametrize(
    ("faults", "owed", "deliveries", "level", "words"),
    [
        ({}, 7, 9, "good", "Every delivery was right"),
        ({}, None, 9, "good", "No delivery was wrong among 9 deliveries"),
        ({}, 0, 9, "open", "but nothing is known of losses"),
        ({}, None, None, "open", "Nothing is known of deliveries"),
        ({"lost": 1, "duplicated": 2}, 7, 9, "bad", "1 event was lost, 2 events came again."),
    ],
)
def test_the_verdict_is_no_better_than_what_is_known(
    faults: dict[str, int], owed: int | None, deliveries: int | None, level: str, words: str
) -> None:
    told = summary.verdict({"faults": faults, "owed": owed, "deliveries": deliveries})

    assert (told.level, words in told.sentence) == (level, True), told


@pytest.mark.parametrize(
    ("owed", "left", "level", "words"),
    [
        (7, {"unknown": 2}, "open", "No delivery that could be judged was wrong among 9"),
        (0, {"unknown": 2}, "open", "No delivery that could be judged was wrong among 9"),
        (7, {"open": 3}, "good", "Every delivery was right: nothing that was owed for sure is"),
    ],
)
def test_the_verdict_says_what_was_not_judged(
    owed: int, left: dict[str, int], level: str, words: str
) -> None:
    told = summary.verdict({"faults": {}, "owed": owed, "deliveries": 9, **left})

    assert (told.level, words in told.sentence) == (level, True), told
    assert not owed or any(f"{count} " in told.more for count in left.values())


def test_a_way_is_drawn_from_what_earlier_releases_wrote_too() -> None:
    """They had only the path; an event that comes to a client by two brokers is drawn so."""
    row = {
        **ROWS["delivery_audit"][0],
        "hops": None,
        "path": ["b1 → b2", "b2 → c", "b1 → c"],
        "client": "c",
    }
    (way,) = ways(ReportTables(None, {}), [row])  # type: ignore[arg-type]

    assert [(step.broker, step.to) for step in way.steps] == [
        ("b1", "b2"),
        ("b2", "c"),
        ("b1", "c"),
    ]
    assert drawing(way).count('class="client missing"') == 2
    late = replace(way, steps=way.steps[::-1])  # A clock of a broker is behind.
    assert drawing(late) == drawing(way)
    arrived = replace(way, arrivals=((at(1), "Delivered"), (at(2), "Delivered")))
    assert drawing(arrived).count('class="client meant"') == 2


def test_names_are_no_formulas() -> None:
    """Clients say what places are called."""
    name = r"a$\foo$b"

    with pictures.picture(1, 2.0) as (made, [axes]):
        axes.set_title(name)

    assert name in unescape(made.svg)


def test_the_same_numbers_give_the_same_picture() -> None:
    moves = [{"origin": "a", "destination": "b", "count": 2}]

    assert pictures.movement_map(moves, None, None) == pictures.movement_map(moves, None, None)
