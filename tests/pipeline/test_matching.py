"""Bulk matching on Spark: the same answers as asking every filter, however the work is divided."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession

from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.model.filters.spark import ATTRIBUTES_TYPE
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.matching import Layout, Matching, Versions, match_events
from sterna.pipeline.matching import subscriptions as subscriptions_module
from sterna.pipeline.matching import versions as versions_module
from sterna.pipeline.matching.figures import listener
from sterna.pipeline.matching.subscriptions import Parsed, SubscriptionTable
from tests.scale import examples
from tests.strategies import events as any_event
from tests.strategies import filter_texts

Attributes = dict[str, Scalar | None]
SUBSCRIPTIONS = "id string, filter string"


def value(scalar: Scalar | None) -> Any:
    """A value as the column `attributes` has it."""
    if scalar is None:
        return None
    kinds = (bool, int, float, str)
    return tuple(scalar if type(scalar) is kind else None for kind in kinds)


def table(spark: SparkSession, events: Sequence[Attributes]) -> DataFrame:
    rows = [
        (place, {name: value(scalar) for name, scalar in event.items()})
        for place, event in enumerate(events)
    ]
    return spark.createDataFrame(rows, f"event long, attributes {ATTRIBUTES_TYPE.simpleString()}")


def found(pairs: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in pairs.collect())


def some_of_everything(examples_count: int) -> tuple[list[str], list[Attributes]]:
    """Filters and events of all sorts, so many of each; one Spark job for all is enough."""
    filters: list[str] = []
    events: list[Attributes] = []

    @examples(examples_count)
    @given(filter_texts, any_event)
    def collect(text: str, event: Attributes) -> None:
        filters.append(text)
        events.append(event)

    collect()
    return filters, events


@pytest.mark.spec("PL-3")
def test_pairs_are_those_of_asking_every_filter(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever filters and events say: NULL, type clashes, OR, NOT, LIKE, arithmetic, circles."""
    filters, events = some_of_everything(120)
    asked = {text: Filter(text) for text in filters}
    expected = sorted(
        (place, f"s{number}")
        for place, event in enumerate(events)
        for number, text in enumerate(filters)
        if asked[text].matches(event)
    )
    subscriptions = spark.createDataFrame(
        [(f"s{number}", text) for number, text in enumerate(filters)], SUBSCRIPTIONS
    )
    happened = table(spark, events)

    by_events = Matching.plan(happened, subscriptions, layout=Layout.EVENTS)
    monkeypatch.setattr(subscriptions_module, "ALONE_S", 0)  # Workers parse all of them.
    small = Matching.plan(happened, subscriptions, worker_memory_bytes=30_000)

    assert found(by_events.pairs()) == expected
    assert found(small.pairs()) == expected
    assert (by_events.layout, by_events.shares) == (Layout.EVENTS, 1)
    assert small.layout is Layout.SUBSCRIPTIONS
    assert small.shares > subscriptions_module.ALONE_SHARES_MAX, "workers compile them"
    counts = small.counts().cache()
    per_event = Counter(place for place, _ in expected)
    assert found(small.per_event(counts)) == [
        (place, per_event[place]) for place in range(len(events))
    ]
    per_subscription = Counter(id_ for _, id_ in expected)
    assert found(small.per_subscription(counts)) == sorted(per_subscription.items())
    counts.unpersist()


COLUMNS = (
    "id int, `car-type` string, price float, seats tinyint, free boolean, at struct<x: bigint>"
)
ROWS = [
    (1, "van", 2.5, 7, True, (2**53 + 1,)),
    (2, None, None, None, None, None),
    (3, "taxi", float("nan"), 4, False, (None,)),
    (4, "", -0.0, 0, None, (5,)),
]


@pytest.mark.spec("PL-3")
def test_attributes_are_columns_of_any_type(spark: SparkSession) -> None:
    """Columns, also inside structs; what no column has is missing; ids keep their type."""
    filters = [
        (10, "\"car-type\" = 'van' AND price > 2"),
        (20, "free"),
        (30, "at.x = 9007199254740993"),
        (40, "price = 0 OR seats IN (4, 5)"),
        (50, '"car-type" IS NULL'),
        (60, "nowhere = 1"),
        (70, "nowhere IS NULL AND id > 2"),
        (80, "seats = '4'"),
    ]
    events = spark.createDataFrame(ROWS, COLUMNS).repartition(1)
    subscriptions = spark.createDataFrame(filters, "id bigint, filter string")

    matched = match_events(events, subscriptions, layout=Layout.SUBSCRIPTIONS)

    assert matched.schema.simpleString() == "struct<id:int,subscription:bigint>"
    assert found(matched) == [
        (1, 10),
        (1, 20),
        (1, 30),
        (2, 50),
        (3, 40),
        (3, 70),
        (4, 40),
        (4, 70),
    ]


def test_in_a_table_of_events_only_the_map_has_attributes(spark: SparkSession) -> None:
    """`seq` is a column of the table, but the filter asks for the event's attribute."""
    events = spark.createDataFrame(
        [("car", 1, {"seq": value(7)}), ("car", 7, {"x": value(1)})],
        f"publisher string, seq long, attributes {ATTRIBUTES_TYPE.simpleString()}",
    )
    subscriptions = spark.createDataFrame([("a", "seq = 7"), ("b", "seq IS NULL")], SUBSCRIPTIONS)

    assert found(match_events(events, subscriptions)) == [("car", 1, "a"), ("car", 7, "b")]


@pytest.mark.spec("PL-3")
def test_a_worker_loads_the_subscriptions_once(spark: SparkSession) -> None:
    """However many tasks and jobs it works on; and it tells what that took."""
    told = listener(spark.sparkContext)
    events = spark.range(40).selectExpr("id", "id % 5 AS price").repartition(6)
    subscriptions = spark.createDataFrame([("once", "price < 2")], SUBSCRIPTIONS)
    matching = Matching.plan(events, subscriptions, listener=told)

    assert matching.pairs().count() == 16
    assert matching.counts().where("matches > 0").count() > 16

    assert {work["loaded"] for work in told.value.values()} == {1}
    assert sum(work["events"] for work in told.value.values()) == 16 + 40
    assert sum(work["pairs"] for work in told.value.values()) == 2 * 16
    assert all(work["memory_bytes"] > work["index_bytes"] > 0 for work in told.value.values())


@pytest.mark.spec("PL-3")
@pytest.mark.parametrize("layout", [Layout.EVENTS, Layout.SUBSCRIPTIONS])
def test_a_stream_picks_up_new_subscriptions(
    spark: SparkSession, tmp_path: Path, layout: Layout
) -> None:
    """From the next micro-batch on, also if they name other attributes and have other shares."""
    versions = Versions(tmp_path / "subscriptions")
    versions.publish(
        spark.createDataFrame([("a", "price < 3"), ("b", "price > 100")], SUBSCRIPTIONS)
    )
    (tmp_path / "events").mkdir()
    schema = "id long, price double, kind string"
    events = spark.readStream.schema(schema).json(str(tmp_path / "events"))
    query = (
        match_events(events, versions, layout=layout)
        .writeStream.format("memory")
        .queryName(f"matched_{layout}")
        .start()
    )

    def happen(id_: int) -> None:
        line = f'{{"id": {id_}, "price": 2.0, "kind": "x"}}\n'
        (tmp_path / f"{id_}.json").write_text(line, encoding="utf-8")
        (tmp_path / f"{id_}.json").rename(tmp_path / "events" / f"{id_}.json")
        query.processAllAvailable()

    try:
        happen(1)
        versions.publish(
            spark.createDataFrame([("c", "kind = 'x'"), ("d", "kind = 'y'")], SUBSCRIPTIONS),
            shares=2,
        )
        happen(2)
        with pytest.raises(PipelineError, match="subscription 'e'"):
            versions.publish(spark.createDataFrame([("e", "kind = ")], SUBSCRIPTIONS))
        happen(3)
    finally:
        query.stop()

    assert found(spark.table(f"matched_{layout}")) == [(1, "a"), (2, "c"), (3, "c")]


def test_versions_are_whole_and_few(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current version and those just before it stay; a damaged one is not used."""
    monkeypatch.setattr(versions_module, "KEPT", 2)
    versions = Versions(tmp_path)
    with pytest.raises(PipelineError, match="publish"):
        versions.about()
    published = [
        versions.publish(spark.createDataFrame([("s", f"price < {price}")], SUBSCRIPTIONS))
        for price in range(3)
    ]
    about = published[-1]

    assert versions.about() == about
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2
    assert not list(tmp_path.glob(".*"))

    share = tmp_path / about.version / "0"
    share.write_bytes(share.read_bytes()[:-1] + b"x")
    with pytest.raises(PipelineError, match="damaged"):
        versions.shelf().take(about.version, 0)
    with pytest.raises(PipelineError, match="not there any more"):
        versions.shelf().take(about.version, 1)
    with pytest.raises(PipelineError, match="cast"):
        versions.publish(spark.createDataFrame([(1, "TRUE")], "id int, filter string"))


@pytest.mark.spec("PL-3")
@pytest.mark.parametrize(
    ("rows", "schema", "says"),
    [
        ([("x1", "price < 3"), ("x7", "price <")], SUBSCRIPTIONS, "subscription 'x7'.*column 8"),
        ([("x1", "price < 3"), ("x1", "price < 4")], SUBSCRIPTIONS, "'x1' occurs 2 times"),
        ([("x1", "price < 3")], "name string, filter string", "id is missing"),
        ([("x1", 3)], "id string, filter int", "filters as text"),
        ([("x1", "time > 3")], SUBSCRIPTIONS, "'time' has the Spark type timestamp"),
    ],
)
def test_a_bad_subscription_is_named(
    spark: SparkSession, rows: list[tuple[Any, ...]], schema: str, says: str
) -> None:
    """One sentence: which one, what is wrong with it."""
    events = spark.sql("SELECT 1 AS id, 2.0D AS price, TIMESTAMP'2020-01-01' AS time")

    with pytest.raises(PipelineError, match=says) as raised:
        match_events(events, spark.createDataFrame(rows, schema))
    assert "\n" not in str(raised.value)


def test_a_bad_subscription_is_named_by_workers(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them has parsed it, after others that cannot be used."""
    monkeypatch.setattr(subscriptions_module, "ALONE_S", 0)
    rows = [(number, "price <" if number in (3, 15, 27) else "price < 3") for number in range(30)]
    subscriptions = spark.createDataFrame(rows, "id int, filter string").coalesce(1)

    with pytest.raises(PipelineError, match=r"subscription 15 .*column 8.* \(2 more are bad\)"):
        match_events(spark.range(3), subscriptions)


@pytest.mark.spec("PL-3")
def test_subscriptions_that_were_compiled_before_are_only_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are compiled: with another filter, id or type of ids, or for other events."""
    rows = [(1, "price < 3"), (2, "kind = 'x'")]
    subscriptions = spark.createDataFrame(rows, "id int, filter string")
    events = spark.createDataFrame(
        [(7, 2.0, "x"), (8, 4.0, "x")], "id int, price double, kind string"
    )
    compiled: list[int] = []
    parse = SubscriptionTable.parsed

    def parsed(table: SubscriptionTable, spark: SparkSession) -> Parsed:
        compiled.append(len(table.ids))
        return parse(table, spark)

    monkeypatch.setattr(SubscriptionTable, "parsed", parsed)
    first = found(match_events(events, subscriptions, cache=tmp_path))
    again = found(match_events(events, subscriptions, cache=tmp_path))

    assert first == again == [(7, 1), (7, 2), (8, 2)]
    assert compiled == [2]

    for others, schema in (
        ([(1, "price < 5"), (2, "kind = 'x'")], "id int, filter string"),
        ([(1, "price < 3"), (3, "kind = 'x'")], "id int, filter string"),
        ([(1, "price < 3"), (2, "kind = 'x'")], "id long, filter string"),
    ):
        Matching.plan(events, spark.createDataFrame(others, schema), cache=tmp_path)
    assert compiled == [2] * 4
    assert found(match_events(events.drop("kind"), subscriptions, cache=tmp_path)) == [(7, 1)]
    assert compiled == [2] * 5

    versions = Versions(tmp_path / "versions", cache=tmp_path)
    published = [versions.publish(subscriptions).version for _ in range(2)]
    assert published[0] == published[1]
    assert compiled == [2] * 6
    versions.publish(subscriptions, shares=2)
    assert compiled == [2] * 7


def test_events_need_an_identity(spark: SparkSession) -> None:
    subscriptions = spark.createDataFrame([("a", "TRUE")], SUBSCRIPTIONS)
    events = spark.sql("SELECT 'x' AS who, 2 AS price")

    with pytest.raises(PipelineError, match="name the columns that identify"):
        match_events(events, subscriptions)
    with pytest.raises(PipelineError, match="no columns whom"):
        match_events(events, subscriptions, identity=["whom"])
    matched = match_events(events, subscriptions, identity=["who", "price"])
    assert matched.columns == ["who", "price", "subscription"]


def test_nothing_matches_nothing(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], SUBSCRIPTIONS)
    nowhere = spark.createDataFrame([], "id long, price double")
    some = spark.createDataFrame([("a", "price < 3")], SUBSCRIPTIONS)

    assert found(match_events(spark.range(3), nothing)) == []
    assert found(match_events(nowhere, some)) == []
