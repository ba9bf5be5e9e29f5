"""PL-4: visits, graphs, counts and models, against the plain definitions."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.location import HexGrid, MovementGraph
from sterna.model.mobility import buckets
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.mining import graph, visits
from sterna.pipeline.mining.cells import in_hexagons, in_squares
from sterna.pipeline.mining.contexts import with_features
from sterna.pipeline.mining.evaluation import BLENDED, TIME
from sterna.pipeline.mining.learning import known
from sterna.pipeline.mining.mine import Mined, mine
from sterna.pipeline.mining.splits import span, with_cuts
from sterna.pipeline.mining.stays import stays
from sterna.pipeline.mining.tables import FIXES, LOCAL_FIXES, MOVES, TRIPS, VISITS
from sterna.pipeline.schemas import MOVEMENTS
from tests.scale import examples

pytestmark = pytest.mark.spec("PL-4")

Row = tuple[Any, ...]
seeds = st.integers(0, 2**32)
CLIENTS = [f"c{number}" for number in range(30)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def _rng(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same again for the same seed.


def rows(table: DataFrame) -> list[Row]:
    """All rows with times in UTC, in some order."""
    columns = table.toArrow().to_pydict().values()
    return list(zip(*columns, strict=True))


def by_client(found: Iterable[Row]) -> dict[str, list[Row]]:
    split: dict[str, list[Row]] = defaultdict(list)
    for client, *rest in found:
        split[client].append(tuple(rest))
    return split


def in_order(found: Iterable[Row]) -> list[Row]:
    """As visits follow each other: seen last as they ended comes first."""
    far = at(10**9)
    return sorted(found, key=lambda row: (row[-2], row[-1] or far, row[0]))


@given(seeds)
@examples(1, long=2)
def test_vehicles_stand_where_they_were_left(spark: SparkSession, seed: int) -> None:
    """Between two trips a vehicle stands at the end of the first, unless somebody moved it."""
    rng = _rng(seed)
    trips, expected = [], {}
    for client in CLIENTS:
        now, place = rng.randrange(100), rng.choice("abc")
        own: list[Row] = []
        for number in range(rng.randrange(1, 9)):
            moved = rng.random() < 0.3
            origin = rng.choice("abc") if moved else place
            started, stopped = now, now + rng.randrange(1, 50)
            if number and origin == place:
                own[-1] = (*own[-1][:2], at(started))
            else:
                own.append((origin, at(started), at(started)))
            place, now = rng.choice("abc"), stopped + rng.randrange(1, 50)
            own.append((place, at(stopped), None))
            trips.append((client, at(started), at(stopped), origin, place))
        expected[client] = in_order(own)
    rng.shuffle(trips)

    found = by_client(rows(visits.docked(spark.createDataFrame(trips, TRIPS))))

    assert {client: in_order(own) for client, own in found.items()} == expected


def attached_plainly(movements: list[Row]) -> list[Row]:
    """One movement after the other: who is at which broker."""
    found: list[list[Any]] = []
    for kind, time, broker in movements:
        if kind == "attached":
            if not found or found[-1][0] != broker:
                if found and found[-1][2] is None:
                    found[-1][2] = time
                found.append([broker, time, None])
            else:
                found[-1][2] = None
        elif kind == "detached" and found and found[-1][0] == broker:
            found[-1][2] = time
    return [tuple(each) for each in found]


@given(seeds)
@examples(1, long=2)
def test_clients_are_at_brokers_until_they_are_elsewhere(spark: SparkSession, seed: int) -> None:
    """Coming back to the same broker is no move; a loss that is noticed late changes nothing."""
    rng = _rng(seed)
    movements, expected = [], {}
    for client in CLIENTS:
        own = []
        for number in range(rng.randrange(1, 12)):
            kind, broker = rng.choice(["attached", "detached", "moved"]), rng.choice("ab")
            time = at(number * 10 + rng.randrange(10))
            movements.append((client, kind, time, broker, "somewhere", "j", number, 0))
            own.append((kind, time, broker))
        if plain := attached_plainly(own):
            expected[client] = plain
    rng.shuffle(movements)

    found = by_client(rows(visits.attached(spark.createDataFrame(movements, MOVEMENTS))))

    assert {client: in_order(own) for client, own in found.items()} == expected


def near(fixes: list[tuple[float, float, float]], begin: int, radius_m: float) -> int:
    """The first fix after one that is not near it."""
    x, y = fixes[begin][1:]
    for end in range(begin, len(fixes)):
        if np.hypot(fixes[end][1] - x, fixes[end][2] - y) > radius_m:
            return end
    return len(fixes)


def stays_plainly(fixes: list[tuple[float, float, float]], radius_m: float, least_s: float) -> Any:
    begin = 0
    while begin < len(fixes):
        end = near(fixes, begin, radius_m)
        if fixes[end - 1][0] - fixes[begin][0] >= least_s:
            xs, ys = ([fix[axis] for fix in fixes[begin:end]] for axis in (1, 2))
            left = at(fixes[end - 1][0]) if end < len(fixes) else None
            yield sum(xs) / len(xs), sum(ys) / len(ys), at(fixes[begin][0]), left
            begin = end
        else:
            begin += 1


@given(seeds)
@examples(1, long=2)
def test_fixes_become_visits(spark: SparkSession, seed: int) -> None:
    """A visit is a run of fixes in one square; a stay is one near a point, and long enough."""
    rng = _rng(seed)
    fixes: dict[str, list[tuple[float, float, float]]] = {}
    for client in CLIENTS:
        x, y, time = 0.0, 0.0, 0.0
        fixes[client] = []
        for _ in range(rng.randrange(1, 25)):
            fixes[client].append((time, x, y))
            far = rng.choice([10, 10, 200])
            x, y = x + rng.uniform(-far, far), y + rng.uniform(-far, far)
            time += rng.randrange(10, 60)
    table = spark.createDataFrame(
        [(client, at(time), *xy) for client, own in fixes.items() for time, *xy in own], LOCAL_FIXES
    ).orderBy("y")

    runs = by_client(rows(visits.passed(in_squares(table, 100))))
    found = by_client(rows(stays(table, 50, 60)))
    together = by_client(rows(visits.joined(in_squares(stays(table, 50, 60), 100))))

    for client, own in fixes.items():
        squares = [(f"{int(x // 100)},{int(y // 100)}", at(time)) for time, x, y in own]
        firsts = [next(run) for _, run in groupby(squares, key=lambda each: each[0])]
        ends = [time for _, time in firsts[1:]] + [None]
        assert in_order(runs[client]) == [
            (*one, end) for one, end in zip(firsts, ends, strict=True)
        ]

        expected = list(stays_plainly(own, 50, 60))
        assert [each[2:] for each in in_order(found[client])] == [each[2:] for each in expected]
        for one, other in zip(in_order(found[client]), expected, strict=True):
            assert one[:2] == pytest.approx(other[:2])
        cells = [(f"{int(x // 100)},{int(y // 100)}", *rest) for x, y, *rest in expected]
        merged = [list(run) for _, run in groupby(cells, key=lambda each: each[0])]
        assert in_order(together[client]) == [(*run[0][:2], run[-1][2]) for run in merged]


def test_positions_on_the_globe_are_in_hexagons(spark: SparkSession) -> None:
    """The cells are those of `HexGrid`; on the globe, a stay is near in metres, not in degrees."""
    metre = 1 / 111_195  # Degrees of latitude.
    fixes = [("ann", at(t), 52.5 + metre * m, 179.9999) for t, m in ((0, 0), (60, 40), (99, 900))]
    table = spark.createDataFrame(fixes, FIXES)

    found = in_hexagons(table, 9).select("place")
    (stayed,) = rows(stays(table, 50, 60))

    assert [place for (place,) in rows(found)] == [HexGrid(9).locate(*fix[2:]) for fix in fixes]
    assert stayed[3:] == (at(0), at(60))


def walks(rng: random.Random) -> dict[str, list[Row]]:
    """Visits one after the other, some of which nobody saw end."""
    found: dict[str, list[Row]] = {}
    for client in CLIENTS:
        now = float(rng.randrange(100))
        found[client] = []
        for _ in range(rng.randrange(1, 8)):
            left = now + rng.choice([0, 5, 7.5, 1000])
            seen = at(left) if rng.random() < 0.8 else None
            found[client].append((rng.choice("abcd"), at(now), seen))
            now = left + rng.randrange(1, 30)
    return found


@given(seeds)
@examples(1, long=2)
def test_what_follows_what(spark: SparkSession, seed: int) -> None:
    """Transitions, moves, dwell times and reach are what visits one after the other say."""
    walked = walks(_rng(seed))
    table = spark.createDataFrame(
        [(client, *visit) for client, own in walked.items() for visit in own], VISITS
    ).orderBy("place")
    pairs = Counter((a[0], b[0]) for own in walked.values() for a, b in pairwise(own))
    leaving = Counter[str]()
    for (origin, _), count in pairs.items():
        leaving[origin] += count

    steps = graph.transitions(table)
    assert sorted(rows(steps)) == [
        (*pair, count, pytest.approx(count / leaving[pair[0]]))
        for pair, count in sorted(pairs.items())
    ]
    moved = [
        (client, before and before[0], a[0], b[0], a[2], b[1])
        for client, own in walked.items()
        for before, a, b in zip([None, *own], own, own[1:], strict=False)
    ]
    assert sorted(rows(graph.moves(table)), key=str) == sorted(moved, key=str)

    reached = MovementGraph(sorted(pairs), directed=True)
    within = graph.ploc(steps, 2).withColumn("task", F.spark_partition_id()).cache()
    assert len({row[-1] for row in rows(within)}) > 1  # All tasks share the work.
    assert {row[:2]: set(row[2]) for row in rows(within)} == {
        (place, count): set(reached.ploc(place, count))
        for place in reached.locations
        for count in range(3)
    }
    stayed: dict[str, list[float]] = defaultdict(list)
    for place, arrived, left in (visit for own in walked.values() for visit in own):
        if left is not None and left > arrived:
            stayed[place].append((left - arrived).total_seconds())
    quantiles = (10, 25, 50, 75, 90, 99)
    assert {row[0]: row[1:] for row in rows(graph.dwell(table))} == {
        place: pytest.approx(
            (len(own), np.mean(own), min(own), *np.percentile(own, quantiles), max(own))
        )
        for place, own in stayed.items()
    }


def test_hours_mean_the_same_in_spark_and_in_the_model(spark: SparkSession) -> None:
    """What is counted under an hour is looked up under it, before 1970, too."""
    rng = _rng(7)
    times = [rng.randrange(-(10**15), 10**16) for _ in range(300)]
    moves = [("c", None, "a", "b", EPOCH + timedelta(microseconds=us), None) for us in times]

    found = with_features(spark.createDataFrame(moves, MOVES)).select("part", "hour", "quarter")

    assert Counter(rows(found)) == Counter(buckets(us) for us in times)


DAY = 86_400


def commutes(days: int, *, strange: bool = False) -> list[Row]:
    """Workers go home -> work -> home, and on weekends to the park; in the end, maybe elsewhere."""
    found: list[Row] = []
    for number, client in enumerate(CLIENTS[:8]):
        home, now = f"home-{number % 3}", 4.0 * DAY  # A Monday.
        for day in range(days):
            weekend = day % 7 >= 5
            place = "park" if weekend else "work"
            if strange and day == days - 3:
                place = "moon"
            leave = now + 8 * 3600 + 60 * number
            found.append((client, home, at(now), at(leave)))
            found.append((client, place, at(leave + 900), at(leave + 8 * 3600)))
            now += DAY
        found.append((client, home, at(now), None))
    return found


@pytest.fixture(scope="module")
def commuters(spark: SparkSession) -> Mined:
    return mine(spark.createDataFrame(commutes(35), VISITS))


def test_what_is_regular_is_foreseen(commuters: Mined) -> None:
    """Workers' next places are known from the hour and the day; so are those of new workers."""
    assert commuters.score is not None
    assert commuters.score.accuracy_at_1 == 1
    assert commuters.score_of_new_clients is not None
    assert commuters.score_of_new_clients.accuracy_at_3 == 1
    monday, saturday = 4 * DAY * 10**6, 9 * DAY * 10**6
    eight = 8 * 3600 * 10**6
    model = commuters.model
    assert model.next("home-1", time_us=monday + eight)[0].place == "work"
    assert model.next("home-1", time_us=saturday + eight)[0].place == "park"
    assert model.next("work", previous="home-1", time_us=monday + 2 * eight)[0].place == "home-1"
    assert model.ploc("work", 1) == {"work", "home-0", "home-1", "home-2"}
    dwell = model.dwell("work")
    assert dwell is not None
    assert dwell.p50_s == dwell.min_s == 8 * 3600 - 900
    shortest = min(each.min_s or 0 for each in model.document.dwell.values())
    assert model.least_dwell_us == shortest * 1e6 > 0


def test_no_table_is_made_by_one_task(commuters: Mined) -> None:
    """Quantiles of stays, moves and reach are computed place by place, by all tasks."""
    tables = commuters.tables()
    plans = {name: tables[name]._jdf.queryExecution().toString() for name in tables}

    for name in ("dwell", "movement_graph", "ploc"):
        assert "SinglePartition" not in plans[name], name
        assert "Coalesce 1" not in plans[name], name
        assert "Repartition 1," not in plans[name], name


def test_the_driver_holds_no_more_than_the_model(spark: SparkSession) -> None:
    """Whoever does the same for three times as long makes more visits, but no larger tables."""
    held = []
    for days in (35, 105):
        table = spark.createDataFrame(commutes(days), VISITS)
        whole = span(table)
        moved = with_cuts(graph.moves(table), table, whole, 0.3)
        visited = with_cuts(table, table, whole, 0.3)
        found = known(visited, moved, with_features(moved), grid="", until_us=0, clients=True)
        held.append(
            [each.num_rows for each in (found.counted, found.validation, found.moves, found.dwell)]
        )

    assert held[0] == held[1]


def test_the_scores_are_those_of_the_model(commuters: Mined) -> None:
    """What is reported is what `next` says about the moves after the cut, and no other."""
    span = commuters.span
    cut = at((span.begin_us + (span.end_us - span.begin_us) * 0.7) / 1e6)
    tested = hits = 0
    confidence = 0.0
    for client, own in by_client(commutes(35)).items():
        for before, a, b in zip([None, *own], own, own[1:], strict=False):
            if a[2] >= cut:
                time_us = (a[2] - EPOCH) // timedelta(microseconds=1)
                previous = None if before is None else before[0]
                first = commuters.model.next(a[0], client, previous, time_us)[0]
                tested += 1
                hits += first.place == b[0]
                confidence += first.probability
    bins = [
        row
        for row in commuters.evaluation.to_pylist()
        if (row["held_out"], row["predictor"]) == (TIME, BLENDED)
    ]

    assert sum(row["steps"] for row in bins) == tested > 0
    assert sum(row["hits_at_1"] for row in bins) == hits
    assert sum(row["steps"] * row["probability"] for row in bins) == pytest.approx(confidence)


def test_nothing_after_the_cut_is_in_the_model(spark: SparkSession, commuters: Mined) -> None:
    """Whatever happened in the last part of the time, the model is the same, byte for byte."""
    changed = mine(spark.createDataFrame(commutes(35, strange=True), VISITS))

    assert changed.score is not None
    assert changed.score.accuracy_at_1 != 1
    assert changed.model.to_bytes() == commuters.model.to_bytes()
    everything = mine(spark.createDataFrame(commutes(35, strange=True), VISITS), holdout=0)
    assert "moon" in everything.model.places
    assert everything.score is None


def test_each_client_has_its_own_time(spark: SparkSession) -> None:
    """With own clocks the last part of each client's time is tested, whenever it was recorded."""
    walked = [
        (client, "ab"[number % 2], at(begin + 100 * number), at(begin + 100 * number + 90))
        for client, begin in (("ann", 0), ("bob", 10**6), ("cem", 10**8))
        for number in range(21)
    ]

    found = mine(spark.createDataFrame(walked, VISITS), own_clocks=True)

    assert found.score is not None
    assert found.score.steps == 3 * 6  # Of 2,090 seconds, those after 1,463.
    assert found.model.document.clients in ([], ["ann", "bob", "cem"])
    assert found.model.document.moves == [(0, 1, 21), (1, 0, 21)]
    assert found.model.document.until_us == (10**8 + 1463) * 10**6


def test_nobody_who_moves_is_said_so(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], VISITS)
    with pytest.raises(PipelineError, match="the input has no visits"):
        mine(empty)
    still = spark.createDataFrame([("ann", "home", at(0), None)], VISITS)
    with pytest.raises(PipelineError, match="the training time has no moves"):
        mine(still)
