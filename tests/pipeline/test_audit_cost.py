"""What an audit costs grows as its journals do, and not with the square: counted in rows."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.core.facts import (
    Adapted,
    Attached,
    Delivered,
    Detached,
    Fact,
    Published,
    RecordBegun,
    Subscribed,
)
from sterna.core.names import Peer
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.pipeline.audit import Verdict, audit, in_table
from sterna.pipeline.audit.conduct import conducts, controls, signs_of_life
from sterna.pipeline.audit.publications import recorded
from sterna.pipeline.audit.wanted import ASKS_MIN, slices, wanted
from tests.pipeline.plans import rows_of_plans
from tests.pipeline.test_audit_agrees import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
GRACE_US = SECOND
RUN_S = 20
ASKED = Filter("x > 0")


def many_runs(runs: int) -> list[Fact]:
    """A client whose program starts again and again, and each time subscribes to the same."""
    link: dict[str, Any] = {"link": "B1", "peer": Peer.BROKER}
    stated: list[Fact] = []
    for name in ("reader", "writer"):
        stated.append(RecordBegun(at=name, time=0))
        stated.append(Attached(at=name, time=0, **link))
    for run in range(runs):
        start = (run * RUN_S + 1) * SECOND
        stated += [
            RecordBegun(at="reader", time=start),
            Attached(at="reader", time=start + 1, **link),
            Subscribed(at="reader", time=start + 2, subscription="s", filter=ASKED),
        ]
        for number in range(3):
            time = start + (5 + number) * SECOND
            event = Event(
                publisher="writer", seq=run * 3 + number + 1, time_us=time, attributes={"x": 1}
            )
            stated.append(Published(at="writer", time=time, events=(event,)))
            stated.append(Delivered(at="reader", time=time + 1, events=(event,)))
        stated.append(Detached(at="reader", time=start + 15 * SECOND, **link))
    return [*stated, Detached(at="writer", time=(runs + 1) * RUN_S * SECOND, **link)]


def rows_for(spark: "SparkSession", stated: list[Fact]) -> tuple[int, Verdict]:
    verdicts: list[Verdict] = []
    facts = in_table(frame(spark, stated))
    rows = rows_of_plans(spark, lambda: verdicts.append(audit(facts, grace_us=GRACE_US)))
    return rows, verdicts[0]


@pytest.mark.spec("PL-5")
def test_twice_as_many_runs_of_a_client_are_twice_the_work(spark: "SparkSession") -> None:
    """Each of its facts belongs to one run, which is found without a look at the others."""
    some, verdict = rows_for(spark, many_runs(200))
    more, _ = rows_for(spark, many_runs(400))

    assert (verdict.owed, verdict.delivered, verdict.findings) == (600, 600, [])
    assert more < 2.5 * some


# ---- Clients that move

CARS = 12
PLACES = 4
STAY_S = 30
"""How long a car is in one place."""


def moving(minutes: int) -> list[Fact]:
    """Cars that go from place to place, and want what is published where they are.

    What half of them want is the same at each visit of a place. The others say it by `near`, and so
    have another filter each time.
    """
    link: dict[str, Any] = {"link": "B1", "peer": Peer.BROKER}
    cars = [f"car-{number}" for number in range(CARS)]
    follows = (Filter("place IN myloc"), Filter("near(lat, lon, $lat, $lon, 900)"))
    stated: list[Fact] = []
    for name in (*cars, "city"):
        stated.append(RecordBegun(at=name, time=0))
        stated.append(Attached(at=name, time=0, **link))
    for number, car in enumerate(cars):
        stated.append(Subscribed(at=car, time=1, subscription="s", filter=follows[number % 2]))
    seq = 0
    for lap in range(laps_in(minutes)):
        start = (1 + lap * STAY_S) * SECOND
        for number, car in enumerate(cars):
            place = (number // 2 + lap) % PLACES
            near = f"near(lat, lon, {50 + place + lap / 1_000_000}, 13.4, 900)"
            wish = Filter(near if number % 2 else f"place IN ('{place}')")
            stated.append(Adapted(at=car, time=start, subscription="s", filter=wish))
        for place in range(PLACES):
            seq, time = seq + 1, start + (10 + place) * SECOND
            where: dict[str, Any] = {"place": str(place), "lat": 50.0 + place, "lon": 13.4}
            event = Event(publisher="city", seq=seq, time_us=time, attributes=where)
            stated.append(Published(at="city", time=time, events=(event,)))
            stated += [
                Delivered(at=car, time=time + 1, events=(event,))
                for number, car in enumerate(cars)
                if (number // 2 + lap) % PLACES == place
            ]
    return stated


def laps_in(minutes: int) -> int:
    return minutes * 60 // STAY_S


@pytest.mark.spec("PL-5")
def test_twice_the_time_that_clients_move_about_is_twice_the_work(spark: "SparkSession") -> None:
    """An event meets the clients that are there, and not all that have ever been."""
    some, verdict = rows_for(spark, moving(20))
    more, _ = rows_for(spark, moving(40))

    deliveries = laps_in(20) * CARS
    assert (verdict.delivered, verdict.findings) == (deliveries, [])
    assert verdict.owed > deliveries * 0.9
    assert more < 2.5 * some


@pytest.mark.spec("PL-5")
def test_the_pairs_looked_at_are_at_most_three_times_the_deliveries(spark: "SparkSession") -> None:
    """In 15 minutes and in an hour: a slice of time has what was asked for meanwhile."""
    for minutes in (15, 60):
        stated = in_table(frame(spark, moving(minutes)))
        options: dict[str, Any] = {"grace_us": GRACE_US, "partitions": 2}
        known = conducts(controls(stated), signs_of_life(stated), None, **options)
        known = known.join(recorded(stated), ["world", "client"], "left")
        rows = wanted(stated, known, advertisements=None, **options)
        sums = F.sum("pairs").alias("pairs"), F.count("client").alias("found")
        (counted,) = rows.agg(*sums).collect()

        deliveries = laps_in(minutes) * CARS
        assert counted.found == deliveries
        assert counted.pairs <= 3 * deliveries


@pytest.mark.spec("PL-5")
def test_slices_of_time_follow_how_much_is_asked_for(spark: "SparkSession") -> None:
    """Twice as long, as many wishes at a time: twice as many slices, and none has more."""
    each_s, counts = 10, (20 * ASKS_MIN, 40 * ASKS_MIN)
    found = []
    for count in counts:
        asked = (F.col("id") * each_s).alias("asked")
        asks = spark.range(count).select(F.lit("w").alias("world"), asked)
        found += slices(asks.withColumn("ended", F.col("asked") + each_s), 1).collect()

    assert [row["slices"] for row in found] == [20, 40]
