"""PL-2: each table and view against its plain definition."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import StructType

from sterna.pipeline import schemas
from sterna.pipeline.tables import archive, bootstrap, movement, traffic
from sterna.pipeline.tables.buckets import bucket
from sterna.pipeline.tables.schemas import SUBSCRIPTIONS

pytestmark = pytest.mark.spec("PL-2")

Row = tuple[Any, ...]
START = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
SEED = 7


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def frame(spark: SparkSession, schema: StructType, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """A table; what a row does not say is null."""
    loose = StructType()
    for field in schema.fields:
        loose.add(field.name, field.dataType)
    values = [tuple(row.get(name) for name in schema.names) for row in rows]
    return spark.createDataFrame(values, loose)


def rows(table: DataFrame) -> list[Row]:
    columns = table.toArrow().to_pydict().values()
    return list(zip(*columns, strict=True))


PUBLISHERS = [f"p{n}é" for n in range(20_000) if bucket(f"p{n}é") in {1, 2, 3}][:30]
"""Many of them share a bucket."""


def test_events_of_a_publisher_are_in_one_task_at_the_day_they_were_published(
    spark: SparkSession,
) -> None:
    """So the task knows which of them are there; their day is their own, not that of brokers."""
    accepted: list[dict[str, Any]] = [
        {
            "publisher": publisher, "seq": seq, "time": at(seq * 40), "at": broker,
            "at_time": at(10**6), "payload": b"", "attributes": {}, "journal": broker,
            "position": seq, "turn": 0,
        }
        for publisher in PUBLISHERS
        for seq in range(1, 3)
        for broker in ("B1", "B2")[: 1 + seq % 2]
    ]  # fmt: skip
    events = archive.events(frame(spark, schemas.EVENTS, accepted).repartition(3))

    spark.conf.set("spark.sql.adaptive.enabled", "false")  # As in streams: no tasks are joined.
    try:
        found = rows(events.select("publisher", "seq", "day", F.spark_partition_id()))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")

    assert len({task for *_, task in found}) > 1
    assert len(found) == len(PUBLISHERS) * 3
    assert all(day == at(seq * 40).date() for _, seq, day, _ in found)
    tasks: dict[int, set[int]] = {}
    for publisher, _, _, task in found:
        tasks.setdefault(bucket(publisher), set()).add(task)
    assert {len(each) for each in tasks.values()} == {1}


def test_handovers_and_subscriptions_are_their_facts(spark: SparkSession) -> None:
    """Other facts are left out, and the kinds have plain names."""
    place = {"journal": "B1", "position": 3, "turn": 1, "time": at(0)}
    statistics = frame(
        spark,
        schemas.STATISTICS,
        [
            {"broker": "B1", "kind": "HandoverStarted", "client": "c", "events": 0, **place},
            {"broker": "B1", "kind": "JunctionFound", "client": "c", "events": 0, **place},
            {
                "broker": "B1", "kind": "HandoverFinished", "client": "c", "events": 0,
                "replayed": 4, "held": 2, **place,
            },
            {"broker": "B1", "kind": "Forwarded", "link": "c", "events": 5, **place},
        ],
    )  # fmt: skip
    facts = frame(
        spark,
        schemas.FACTS,
        [
            {
                "at": "c", "kind": "Subscribed", "name": "s", "filter": "a > 1",
                "details": '{"past_events_max": 9}', **place,
            },
            {
                "at": "c", "kind": "Subscribed", "name": "t", "filter": "a > 1",
                "details": '{"past_events_max": null}', **place,
            },
            {"at": "c", "kind": "Adapted", "name": "s", "filter": "a > 2", **place},
            {"at": "c", "kind": "Unsubscribed", "name": "s", **place},
            {"at": "c", "kind": "Advertised", "name": "s", "filter": "a > 1", **place},
        ],
    )  # fmt: skip

    handed = rows(archive.handovers(statistics).select("client", "broker", "kind", "replayed"))
    columns = ("client", "subscription", "kind", "filter", "past_events_max")
    asked = rows(archive.subscriptions(facts).select(*columns))

    assert handed == [
        ("c", "B1", "started", None), ("c", "B1", "junction", None), ("c", "B1", "finished", 4)
    ]  # fmt: skip
    assert asked == [
        ("c", "s", "subscribed", "a > 1", 9),
        ("c", "t", "subscribed", "a > 1", None),
        ("c", "s", "adapted", "a > 2", None),
        ("c", "s", "unsubscribed", None, None),
    ]


def test_traffic_is_counted_per_link_and_minute(spark: SparkSession) -> None:
    """Only what was forwarded, and only what went somewhere."""
    rng = random.Random(SEED)  # noqa: S311
    sent: list[dict[str, Any]] = [
        {
            "broker": rng.choice(["B1", "B2"]),
            "kind": rng.choice(["Forwarded", "Forwarded", "Accepted"]),
            "link": rng.choice(["B1", "c", None]),
            "time": at(rng.uniform(-90, 90)),
            "events": rng.randrange(9),
        }
        for _ in range(300)
    ]
    expected: dict[Row, list[int]] = defaultdict(list)
    for row in sent:
        if row["kind"] == "Forwarded" and row["link"]:
            minute = row["time"].replace(second=0, microsecond=0)
            expected[row["broker"], row["link"], minute].append(row["events"])

    found = rows(traffic.traffic(frame(spark, schemas.STATISTICS, sent)))

    assert sorted(found) == sorted(
        (*key, sum(events), len(events)) for key, events in expected.items()
    )


def test_visits_follow_the_journal(spark: SparkSession) -> None:
    """Moves count in the order of the journal, also where the clock went back or stood still."""
    rng = random.Random(SEED)  # noqa: S311
    moves: list[dict[str, Any]] = [
        {
            "client": f"c{client}", "kind": "moved", "time": at(rng.choice([5, 5, step])),
            "location": rng.choice("ABC"), "journal": f"c{client}", "position": step // 2,
            "turn": step % 2,
        }
        for client in range(20)
        for step in range(12)
    ]  # fmt: skip
    noise = [{"client": "c1", "kind": "attached", "time": at(3), "broker": "B1", "journal": "B1"}]
    expected: Counter[Row] = Counter()
    for client, steps in groupby(moves, lambda row: row["client"]):
        stays = [next(same) for _, same in groupby(steps, lambda row: row["location"])]
        for stay, after in pairwise([*stays, None]):
            assert stay is not None
            left = after["time"] if after else None
            dwell_s = (left - stay["time"]).total_seconds() if left else None
            expected[client, stay["location"], stay["time"], left, dwell_s] += 1

    shuffled = rng.sample([*moves, *noise], len(moves) + 1)
    found = rows(movement.visits(frame(spark, schemas.MOVEMENTS, shuffled)))

    assert Counter(found) == expected


def test_the_next_broker_is_ranked(spark: SparkSession) -> None:
    """From each broker the most frequent one comes first, ties by name."""
    walks = ["B1 B2 B1 B2 B3", "B1 B3 B1", "B1 B2", "B2 B1 B4"]
    attached = [
        {
            "client": f"c{client}", "kind": "attached", "broker": broker, "journal": broker,
            "time": at(step), "position": step, "turn": 0,
        }
        for client, walk in enumerate(walks)
        for step, broker in enumerate(walk.split())
    ]  # fmt: skip
    counts = Counter(pair for walk in walks for pair in pairwise(walk.split()))
    expected = []
    for origin in ("B1", "B2", "B3"):
        nexts = sorted((-n, to) for (start, to), n in counts.items() if start == origin)
        total = -sum(n for n, _ in nexts)
        expected += [
            (origin, to, -n, -n / total, rank) for rank, (n, to) in enumerate(nexts, start=1)
        ]

    found = rows(movement.next_broker(frame(spark, schemas.MOVEMENTS, attached)))

    assert sorted(found) == sorted(expected)


def test_bootstrap_latency_is_the_time_to_the_first_delivery(spark: SparkSession) -> None:
    """As long as the subscription or the connection lasts; strays and repetitions do not count."""
    rng = random.Random(SEED)  # noqa: S311
    asks: list[dict[str, Any]] = []
    moves: list[dict[str, Any]] = []
    delivered: list[dict[str, Any]] = []
    for number in range(40):
        client = f"c{number}"
        times = iter(sorted(rng.sample(range(200), 30)))
        place = {"client": client, "journal": client, "position": 0, "turn": 0}
        for time in times:
            match rng.randrange(6):
                case 0 | 1:
                    kind = rng.choice(["subscribed", "unsubscribed"])
                    name = rng.choice("st")
                    asks.append({**place, "subscription": name, "kind": kind, "time": at(time)})
                case 2 | 3:
                    kind = rng.choice(["attached", "attached", "detached"])
                    broker = rng.choice(["B1", "B2"])
                    moves.append({**place, "broker": broker, "kind": kind, "time": at(time)})
                case _:
                    kind = rng.choice(["Delivered", "Stray", "Repeated"])
                    delivered.append({**place, "kind": kind, "time": at(time)})
    # An event that comes at the moment of a beginning counts for it.
    asks.append(
        {"client": "x", "subscription": "s", "kind": "subscribed", "time": at(1), "position": 0}
    )
    delivered += [{"client": "x", "kind": "Delivered", "time": at(1)}] * 2

    found = rows(
        bootstrap.bootstrap_latency(
            frame(spark, SUBSCRIPTIONS, asks),
            frame(spark, schemas.MOVEMENTS, moves),
            frame(spark, schemas.DELIVERIES, delivered),
        ).drop("asked", "nth_delivered", "nth_latency_s", "nth_past")
    )

    def first(client: str, start: datetime, ends: list[datetime]) -> tuple[datetime | None, Any]:
        until = min((end for end in ends if end > start), default=at(10**6))
        times = [
            row["time"]
            for row in delivered
            if row["client"] == client and row["kind"] == "Delivered"
        ]
        time = min((time for time in times if start <= time < until), default=None)
        return time, None if time is None else (time - start).total_seconds()

    expected = Counter(
        (
            row["client"], "subscribed", row["subscription"], None, row["time"],
            *first(
                row["client"],
                row["time"],
                [
                    end["time"]
                    for end in asks
                    if (end["client"], end["subscription"]) == (row["client"], row["subscription"])
                ],
            ),
        )
        for row in asks
        if row["kind"] == "subscribed"
    ) + Counter(
        (
            row["client"], "attached", None, row["broker"], row["time"],
            *first(
                row["client"],
                row["time"],
                [
                    end["time"]
                    for end in moves
                    if end["client"] == row["client"]
                    and (end["kind"] == "attached" or end["broker"] == row["broker"])
                ],
            ),
        )
        for row in moves
        if row["kind"] == "attached"
    )  # fmt: skip
    assert Counter(found) == expected
    assert len({latency for *_, latency in found}) > 5


@pytest.mark.spec("PA-5")
def test_bootstrap_latency_is_the_time_to_the_nth_event(spark: SparkSession) -> None:
    """Past events of the same subscription count, and all that came as usual."""
    rng = random.Random(SEED)  # noqa: S311
    asks: list[dict[str, Any]] = []
    given: list[dict[str, Any]] = []
    for number in range(60):
        client = f"c{number}"
        for position, time in enumerate(sorted(rng.choices(range(60), k=30))):
            place = {"client": client, "journal": client, "position": position, "turn": 0}
            place["time"] = at(time)
            name = rng.choice("st")
            match rng.randrange(8):
                case 0 | 1:
                    kind = rng.choice(["subscribed", "subscribed", "unsubscribed"])
                    asked = rng.choice([None, 0, 1, 2, 3, 5, 2**62])
                    n = asked if kind == "subscribed" else None
                    asks.append({**place, "subscription": name, "kind": kind, "past_events_max": n})
                case 2 | 3:
                    past = {**place, "kind": "Recalled", "subscription": name}
                    given += [{**past, "place": part} for part in range(rng.randint(1, 3))]
                case 4:
                    given.append({**place, "kind": rng.choice(["Stray", "Repeated", "Missed"])})
                case _:
                    live = {**place, "kind": "Delivered"}
                    given += [{**live, "place": part} for part in range(rng.randint(1, 2))]

    found = rows(
        bootstrap.bootstrap_latency(
            frame(spark, SUBSCRIPTIONS, asks),
            frame(spark, schemas.MOVEMENTS, []),
            frame(spark, schemas.DELIVERIES, given),
        ).select("client", "subscription", "started", "asked", "nth_delivered", "nth_latency_s",
                 "nth_past")
    )  # fmt: skip

    def nth(row: dict[str, Any]) -> Row:
        own = [row["client"], row["subscription"]]
        same = [ask for ask in asks if [ask["client"], ask["subscription"]] == own]
        later = [ask for ask in same if ask["position"] > row["position"]]
        until = min((ask["time"] for ask in later), default=at(10**6))
        counting = [
            each
            for each in given
            if each["client"] == row["client"]
            and row["time"] <= each["time"] < until
            and (each["kind"] == "Delivered" or each.get("subscription") == row["subscription"])
        ]
        n = row["past_events_max"]
        if not n or len(counting) < n:
            return None, None, None
        first = sorted(counting, key=lambda each: (each["time"], each["position"], each["place"]))
        came = first[n - 1]["time"]
        past = sum(each["kind"] == "Recalled" for each in first[:n])
        return came, (came - row["time"]).total_seconds(), past

    expected = Counter(
        (row["client"], row["subscription"], row["time"], row["past_events_max"], *nth(row))
        for row in asks
        if row["kind"] == "subscribed"
    )
    assert Counter(found) == expected
    assert len({(latency, past) for *_, latency, past in found}) > 10
