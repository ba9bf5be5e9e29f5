"""PL-4: visits of fixes break at gaps of the recording and do not flap at borders of cells."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import h3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.mining import graph, visits
from sterna.pipeline.mining.cells import Cells, hexagons_of, in_squares, squares_of
from sterna.pipeline.mining.inputs import visited
from sterna.pipeline.mining.sources import MARGIN_ON_GLOBE, Kind, chosen
from sterna.pipeline.mining.stays import stays
from sterna.pipeline.mining.tables import LOCAL_FIXES
from tests.scale import examples

pytestmark = pytest.mark.spec("PL-4")

EPOCH = datetime(2026, 3, 2, tzinfo=UTC)
BEIJING = (39.9, 116.3)
DEGREES_PER_METRE = 1 / 111_195
EVERY_S = 20
RESOLUTION = 9

Visit = tuple[str, float, float | None]
Point = tuple[float, float]


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def shifted(point: Point, north_m: float, east_m: float) -> Point:
    scale = math.cos(math.radians(point[0]))
    return (
        point[0] + north_m * DEGREES_PER_METRE,
        point[1] + east_m * DEGREES_PER_METRE / scale,
    )


def border(cell: str, other: str) -> Point:
    """The middle of the border of two neighbours."""
    (a, b), (c, d) = h3.cell_to_latlng(cell), h3.cell_to_latlng(other)
    return (a + c) / 2, (b + d) / 2


def recorded_life(rng: random.Random) -> tuple[list[list[Visit]], list[tuple[float, ...]]]:
    """The visits of a client, recording by recording, and its fixes: time, latitude, longitude.

    It comes to the middle of a cell, and then stays at a border, where its receiver is wrong by
    some metres. Between two recordings are hours, after which it is anywhere.
    """
    city = sorted(h3.grid_disk(h3.latlng_to_cell(*BEIJING, RESOLUTION), 3))
    truth: list[list[Visit]] = []
    fixes: list[tuple[float, ...]] = []
    now = 0.0
    for _ in range(5):
        cell = rng.choice(city)
        own: list[Visit] = []
        for _ in range(rng.randrange(2, 14)):
            around = sorted(set(h3.grid_disk(cell, 1)) - {cell})
            spot, arrived = border(cell, rng.choice(around)), now
            fixes.append((now, *h3.cell_to_latlng(cell)))
            now += EVERY_S
            for _ in range(rng.randrange(5, 80)):
                fixes.append((now, *shifted(spot, rng.gauss(0, 10), rng.gauss(0, 10))))
                now += EVERY_S
            own.append((cell, arrived, now))
            cell = rng.choice(around)
        own[-1] = (*own[-1][:2], now - EVERY_S)  # The last fix before the gap.
        truth.append(own)
        now += rng.uniform(1, 20) * 3600
    truth[-1][-1] = (*truth[-1][-1][:2], None)  # Nobody knows how the last one ends.
    return truth, fixes


def test_dwell_and_edges_are_those_of_the_truth(spark: SparkSession, tmp_path: Path) -> None:
    """Traces with gaps of hours and receivers that are wrong at borders: 5 % off at most."""
    rng = random.Random(29)  # noqa: S311 - the same again each time.
    lives = {f"c{number}": recorded_life(rng) for number in range(12)}
    rows = [
        (client, at(time), *where) for client, (_, own) in lives.items() for time, *where in own
    ]
    columns = dict(zip(("client", "time", "lat", "lon"), zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "fixes.parquet")
    edges: Counter[tuple[str, str]] = Counter()
    stayed: dict[str, list[float]] = defaultdict(list)
    for recordings, _ in lives.values():
        for own in recordings:
            edges.update((a[0], b[0]) for a, b in pairwise(own))
            for cell, arrived, left in own:
                if left is not None:
                    stayed[cell].append(left - arrived)

    source = chosen({Kind.FIXES: str(tmp_path / "fixes.parquet")}, h3=RESOLUTION)
    found = visited(spark, source).visits.cache()
    mined = {row[:2]: row[2] for row in graph.transitions(found, recorded=True).collect()}
    dwell = {row[0]: (row[1], row[1] * row[2]) for row in graph.dwell(found).collect()}
    found.unpersist()

    assert off(edges, mined) < 0.05
    times = {cell: len(own) for cell, own in stayed.items()}
    assert off(times, {cell: count for cell, (count, _) in dwell.items()}) < 0.05
    seconds = {cell: sum(own) for cell, own in stayed.items()}
    assert off(seconds, {cell: sum_s for cell, (_, sum_s) in dwell.items()}) < 0.05
    assert len(mined.keys() ^ edges.keys()) < 0.05 * len(edges)
    mean = sum(sum_s for _, sum_s in dwell.values()) / sum(count for count, _ in dwell.values())
    assert mean == pytest.approx(sum(seconds.values()) / sum(times.values()), rel=0.05)


def off(truth: Mapping[Any, float], found: Mapping[Any, float]) -> float:
    """What part of the truth was missed or made up."""
    keys = truth.keys() | found.keys()
    wrong = sum(abs(truth.get(key, 0) - found.get(key, 0)) for key in keys)
    return wrong / sum(truth.values())


def walk(rng: random.Random, receiver_m: float) -> tuple[list[Point], list[Point]]:
    """Where a client really is, every five seconds, and where its receiver takes it to be.

    What a receiver is wrong by changes slowly, as it does among houses.
    """
    true: list[Point] = []
    seen: list[Point] = []
    here = (0.0, 0.0)
    wrong, keeps = (0.0, 0.0), 0.9
    while len(true) < 6000:
        goal = here[0] + rng.uniform(-1500, 1500), here[1] + rng.uniform(-1500, 1500)
        stands = int(rng.expovariate(1 / 180)) if rng.random() < 0.5 else 0
        goes = max(1, int(math.dist(here, goal) / 7))
        for number in range(stands + goes):
            part = max(0, number - stands) / goes
            way = [a + (b - a) * part for a, b in zip(here, goal, strict=True)]
            spread = receiver_m * math.sqrt(1 - keeps**2)
            wrong = wrong[0] * keeps + rng.gauss(0, spread), wrong[1] * keeps + rng.gauss(0, spread)
            true.append(shifted(BEIJING, *way))
            seen.append(shifted(BEIJING, way[0] + wrong[0], way[1] + wrong[1]))
        here = goal
    return true, seen


@pytest.mark.parametrize("receiver_m", [5, 10, 20])
def test_cells_on_a_way_are_passed_and_not_flapped_between(receiver_m: float) -> None:
    """Whatever the receiver, as many moves are found as were made, and few lead back at once."""
    rng = random.Random(8)  # noqa: S311
    shape = hexagons_of(RESOLUTION)
    moves, found, back = 0, 0, 0
    for _ in range(8):
        true, seen = walk(rng, receiver_m)
        cells = [shape.locate(*point) for point in true]
        settled = Cells("latitude", "longitude", shape, MARGIN_ON_GLOBE).settled(seen)
        moves += sum(a != b for a, b in pairwise(cells))
        places = [settled[0], *(b for a, b in pairwise(settled) if a != b)]
        found += len(places) - 1
        back += sum(a == b for a, b in zip(places, places[2:], strict=False))

    assert found == pytest.approx(moves, rel=0.05)
    assert back < 0.06 * found


def settled_plainly(points: list[tuple[float, float]], metres: float, margin: float) -> list[str]:
    """Leave the first cell after the last point in it before the first one beyond the margin.

    Points after that last one are still of the first cell if the way had come back from theirs.
    """
    if not points:
        return []
    cells = [tuple(math.floor(each / metres) for each in point) for point in points]
    here = cells[0]
    reach = (0.5 + margin) * metres
    distances = [
        max(abs(a - (b + 0.5) * metres) for a, b in zip(point, here, strict=True))
        for point in points
    ]
    beyond = next((n for n, distance in enumerate(distances) if distance > reach), None)
    stays = len(points)
    if beyond is not None:
        last = max(n for n in range(beyond) if cells[n] == here)
        flapped = set(cells[:last]) - {cells[beyond]}
        stays = next(n for n in range(last + 1, beyond + 1) if cells[n] not in flapped)
    return ["{},{}".format(*here)] * stays + settled_plainly(points[stays:], metres, margin)


coordinates = st.sampled_from([-103, -60, -20, -3, 3, 12, 20, 60, 97, 103, 112, 160])  # By borders.


@given(st.lists(st.tuples(coordinates, coordinates)), st.sampled_from([0.05, 0.15, 0.4]))
@example([(60, 60), (103, 60), (60, 60), (103, 60), (60, 160)], 0.15)
@examples(100)
def test_a_cell_is_left_beyond_its_margin(points: list[tuple[float, float]], margin: float) -> None:
    """Whoever comes back from another cell before that has not left."""
    cells = Cells("x", "y", squares_of(100), margin)

    assert cells.settled(points) == settled_plainly(points, 100, margin)


def test_hexagons_have_margins_across_the_date_line() -> None:
    cells = Cells("latitude", "longitude", hexagons_of(5), 0.15)
    here = h3.latlng_to_cell(10, 180, 5)
    latitude, longitude = h3.cell_to_latlng(here)
    way = [(latitude, longitude), (latitude, -179.999), (latitude, 179.999), (latitude, longitude)]

    assert set(cells.settled(way)) == {here}


def test_a_recording_ends_at_a_gap(spark: SparkSession) -> None:
    """No visit and no move lasts over it, with stays and without; a longer gap may be allowed."""
    times = [0, 60, 120, 180, 4000, 4060, 4120, 4180, 4240]
    xs = [10, 12, 11, 10, 11, 10, 12, 950, 960]
    fixes = spark.createDataFrame(
        [("ann", at(time), float(x), 5.0) for time, x in zip(times, xs, strict=True)], LOCAL_FIXES
    )
    found: dict[int, dict[str, list[Any]]] = {}
    for gap_s in (600, 3820):
        recorded = visits.recorded(fixes, gap_s)
        stayed = visits.joined(in_squares(stays(recorded, 50, 60), 100))
        both = visits.passed(in_squares(recorded, 100)).withColumn("client", F.lit("passed"))
        both = both.union(stayed).cache()
        found[gap_s] = defaultdict(list)
        for client, place, arrived, left, recording in in_time(both):
            found[gap_s][client].append((place, arrived, left, recording))
        if gap_s == 600:
            assert {row[1:4] for row in graph.moves(both, recorded=True).collect()} == {
                (None, "0,0", "9,0")
            }
        both.unpersist()

    whole = [("0,0", 0, 4180, 0), ("9,0", 4180, None, 0)]
    assert found[3820] == {"passed": whole, "ann": [("0,0", 0, 4120, 0), whole[1]]}
    first = ("0,0", 0, 180, 0)  # It ends with the last fix before the gap.
    again = [("0,0", 4000, 4180, 1), ("9,0", 4180, None, 1)]
    assert found[600] == {
        "passed": [first, *again],
        "ann": [first, ("0,0", 4000, 4120, 1), again[1]],
    }


def in_time(table: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of visits with seconds instead of times, in order."""
    rows = table.toArrow().to_pylist()
    for row in rows:
        for name in ("arrived", "left"):
            row[name] = row[name] and (row[name] - EPOCH).total_seconds()
    return sorted((tuple(row.values()) for row in rows), key=lambda row: row[2])
