"""MOD-5: the broker's matcher, the algebra and Spark give one verdict."""

import math
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sterna import Filter
from sterna.model.event import Scalar
from sterna.model.filters import values
from sterna.pipeline.errors import SparkUnavailable
from sterna.pipeline.session import require_java
from tests.scale import CAMPAIGN, examples
from tests.strategies import (
    NAMES,
    NUMBERS,
    STRINGS,
    events,
    filter_text,
    filter_texts,
    seeded,
    several,
    some_event,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spec("MOD-5")

Event = dict[str, Scalar | None]
Row = dict[str, Any]

FILTERS_PER_JOB, EVENTS_PER_JOB = 60, 60
FILTERS_PER_STAGE = 4


def jobs(count: int) -> settings:
    """So many Spark jobs. A failure names its pair, so no time goes into shrinking 60 x 60."""
    return settings(max_examples=count * CAMPAIGN, phases=(Phase.explicit, Phase.generate))


def value_struct(value: Scalar | None) -> Row | None:
    """An attribute in the column type for values of any type."""
    if value is None:
        return None
    field = {bool: "bool", int: "int", float: "float", str: "string"}[type(value)]
    return {"bool": None, "int": None, "float": None, "string": None, field: value}


def verdicts(
    spark: "SparkSession", filters: list[Filter], rows: list[Row], schema: Any
) -> list[list[bool | None]]:
    """Spark's verdicts, a row an event, from one job."""
    frame = spark.createDataFrame(rows, schema)
    columns = [f.to_spark(schema).alias(f"f{i}") for i, f in enumerate(filters)]
    return [list(row) for row in frame.select(*columns).collect()]


def check(
    spark: "SparkSession", texts: list[str], some: list[Event], rows: list[Row], schema: Any
) -> int:
    filters = [Filter(text) for text in texts]
    found = verdicts(spark, filters, rows, schema)
    for event, row in zip(some, found, strict=True):
        for f, spark_says in zip(filters, row, strict=True):
            assert spark_says is f.verdict(event), f"{f} on {event}"
            assert (spark_says is True) is f.matches(event), f"{f} on {event}"
    return len(filters) * len(some)


# Each draws one seed: in a list of drawn filters Hypothesis repeats one filter again and again.
many_filters = seeded(several(filter_text, FILTERS_PER_JOB))
few_filters = seeded(several(filter_text, FILTERS_PER_STAGE))
many_events = seeded(several(some_event, EVENTS_PER_JOB))


@contextmanager
def configured(spark: "SparkSession", **settings: str) -> "Iterator[None]":
    """Settings of `spark.sql.codegen` for a while."""
    names = {f"spark.sql.codegen.{name}": value for name, value in settings.items()}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def check_in_a_map(spark: "SparkSession", texts: list[str], some: list[Event]) -> int:
    from pyspark.sql.types import StructField, StructType

    from sterna.model.filters.spark import ATTRIBUTES_TYPE

    rows = [{"attributes": {k: value_struct(v) for k, v in event.items()}} for event in some]
    schema = StructType([StructField("attributes", ATTRIBUTES_TYPE)])
    return check(spark, texts, some, rows, schema)


@given(many_filters, many_events)
@jobs(6)
def test_attributes_of_any_type_in_a_map(
    spark: "SparkSession", texts: list[str], some: list[Event]
) -> None:
    """Six jobs of 60 x 60 pairs: each attribute may hold any type in any event.

    So many filters are more than Java takes in one method. Spark would find that out by compiling
    them, and then do what it does here at once: compile them in parts.
    """
    with configured(spark, wholeStage="false"):
        pairs = check_in_a_map(spark, texts, some)

    assert pairs == FILTERS_PER_JOB * EVENTS_PER_JOB


@given(few_filters, many_events)
@jobs(6)
def test_a_few_filters_compiled_as_a_whole(
    spark: "SparkSession", texts: list[str], some: list[Event]
) -> None:
    """Few filters make one method of Java; there is nothing else to fall back on."""
    with configured(spark, wholeStage="true", factoryMode="CODEGEN_ONLY", fallback="false"):
        pairs = check_in_a_map(spark, texts, some)

    assert pairs == FILTERS_PER_STAGE * EVENTS_PER_JOB


KINDS = {"a": "int", "b": "float", "c": "string", "car-type": "bool"}


def of_kind(kind: str, value: Scalar | None) -> bool:
    return value is None or {"int": int, "float": float, "string": str, "bool": bool}[kind] is type(
        value
    )


TYPED: dict[str, list[Scalar]] = {
    "a": [n for n in NUMBERS if isinstance(n, int)],
    "b": [
        *(n for n in NUMBERS if isinstance(n, float)),
        *(math.nan, math.inf, -math.inf, 2.0, 3.0),
    ],
    "c": [*STRINGS],
    "car-type": [False, True],
}


def typed_event(random: Random) -> Event:
    return {
        name: None if random.randrange(3) == 0 else random.choice(known)
        for name, known in TYPED.items()
    }


typed_events = seeded(several(typed_event, EVENTS_PER_JOB))


@given(many_filters, typed_events)
@jobs(4)
def test_attributes_in_columns_of_their_own(
    spark: "SparkSession", texts: list[str], some: list[Event]
) -> None:
    """Four jobs of 60 x 60 pairs on plain typed columns."""
    from pyspark.sql.types import (
        BooleanType,
        DoubleType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    schema = StructType(
        [
            StructField("a", LongType()),
            StructField("b", DoubleType()),
            StructField("c", StringType()),
            StructField("car-type", BooleanType()),
        ]
    )
    assert set(KINDS) == set(NAMES)
    assert all(of_kind(KINDS[name], value) for event in some for name, value in event.items())

    with configured(spark, wholeStage="false"):
        pairs = check(spark, texts, some, some, schema)

    assert pairs == FILTERS_PER_JOB * EVENTS_PER_JOB


EDGES = [
    "x = y", "x <> y", "x < y", "x <= y", "x > y", "x >= y", "x = 9007199254740992.0",
    "x < 9007199254740993", "x IN (0, 9007199254740993, -1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)",
    "x IN (0.0, 1.5)", "x NOT IN (0.0, 9223372036854775807)", "x + 1 > y", "x * y = 0", "x / y > 1",
    "-x < y", "x BETWEEN y AND 9223372036854775808.0", "x >= -9223372036854775808.0", "x < -1e19",
    "x > 1.5", "x <= 1.5", "x = 1.5", "x <> 1e300",
]  # fmt: skip


@pytest.mark.parametrize("kinds", ["typed", "any"])
def test_every_pair_of_extreme_numbers(spark: "SparkSession", kinds: str) -> None:
    """Integers against floats at 2^53 and 2^63, infinities, NaN and signed zeros."""
    from pyspark.sql.types import DoubleType, LongType, StructField, StructType

    from sterna.model.filters.spark import VALUE_TYPE

    extremes = [*NUMBERS, math.nan, math.inf, -math.inf, None]
    if kinds == "typed":
        some: list[Event] = [
            {"x": x, "y": y}
            for x in extremes
            for y in extremes
            if (x is None or isinstance(x, int)) and (y is None or isinstance(y, float))
        ]
        rows: list[Row] = [dict(event) for event in some]
        schema = StructType([StructField("x", LongType()), StructField("y", DoubleType())])
    else:
        some = [{"x": x, "y": y} for x in extremes for y in extremes]
        rows = [{name: value_struct(value) for name, value in event.items()} for event in some]
        schema = StructType([StructField("x", VALUE_TYPE), StructField("y", VALUE_TYPE)])

    assert check(spark, EDGES, some, rows, schema) == len(EDGES) * len(some)


LIKES = [
    *("", "%", "_", "%_", "_%", "_%_", "%_%_%", "l%k", "%e_b%", "____", "%\n%", "%a%b%", "%b"),
    *("%''%", "%.%", "_😀%", "e_", "%\0", "\\", "%\\%", "\\_%", "[a-z]%", "(a|b)%"),
]
LIKES_ESCAPED = ["a!%", "%!_%", "!!", "!%%", "%!%", "_!_%"]
TOPICS = [
    "#",
    "+",
    "+/+",
    "a/#",
    "a/+/c",
    "/+",
    "+/b/#",
    "$SYS/#",
    "a.b",
    ".*/+",
    "(/+",
    "+/日本/#",
]
STRING_EDGES = [
    *("x < y", "x = y", "x >= y", "x BETWEEN 'a' AND y", "x IN ('', 'a%', '😀', '\uffff')"),
    *(f"x LIKE '{pattern}'" for pattern in LIKES),
    *(f"x LIKE '{pattern}' ESCAPE '!'" for pattern in LIKES_ESCAPED),
    *(f"x MATCHES '{topic}'" for topic in TOPICS),
]


def test_every_pair_of_extreme_strings(spark: "SparkSession") -> None:
    """Empty and composed strings, wildcards and quotes as data, newlines, NUL, all of Unicode."""
    from pyspark.sql.types import StringType, StructField, StructType

    extremes = [*STRINGS, "a.b", "😀😀", "é/+", None]
    some: list[Event] = [{"x": x, "y": y} for x in extremes for y in extremes]
    schema = StructType([StructField("x", StringType()), StructField("y", StringType())])

    pairs = check(spark, STRING_EDGES, some, [dict(event) for event in some], schema)

    assert pairs == len(STRING_EDGES) * len(some)


@given(filter_texts, st.lists(events, min_size=2, max_size=4))
@examples(1_500)
def test_the_algebra_agrees_with_the_matcher(text: str, some: list[Event]) -> None:
    """An event that a filter's normal form excludes does not match, and the other way round."""
    f = Filter(text)
    assert f.normal_form is not None
    for event in some:
        possible = [
            term
            for term in f.normal_form
            if all(event.get(name) in accepted for name, accepted in term.constraints.items())
        ]
        if any(not term.residuals for term in possible):
            assert f.matches(event)
        if not possible:
            assert not f.matches(event)
        point = Filter.from_condition(exactly(event))
        assert f.matches(event) <= point.overlaps(f)


def exactly(event: Event) -> Any:
    """The condition that an event has these attributes (NaN and infinities can only be present)."""
    from sterna.model.filters.tree import Attribute, IsNull, Not, conjunction
    from sterna.model.filters.wording import set_in_words

    parts: list[Any] = []
    for name in NAMES:
        value = event.get(name)
        attribute = Attribute(name)
        if value is None:
            parts.append(IsNull(attribute))
        elif isinstance(value, float) and not math.isfinite(value):
            parts.append(Not(IsNull(attribute)))
        else:
            parts.append(set_in_words(attribute, values.members([value])))
    return conjunction(parts)


# ---- Schemas


def test_narrow_types_nested_structs_and_absent_attributes(spark: "SparkSession") -> None:
    schema: Any = spark.createDataFrame(
        [], "n tinyint, f float, vehicle struct<speed: int>, `a.b` string, `odd``name` int"
    ).schema
    rows = [{"n": 3, "f": 0.1, "vehicle": {"speed": 60}, "a.b": "x", "odd`name": 1}]
    texts = [
        "n = 3",
        "f > 0.1",
        "vehicle.speed > 50",
        "a.b = 'x'",
        '"odd`name" = 1',
        "nothing IS NULL",
        "nothing = 1",
        "vehicle.colour IS NULL",
    ]

    found = verdicts(spark, [Filter(text) for text in texts], rows, schema)

    assert found == [[True, True, True, True, True, True, None, True]]


def test_a_type_that_filters_do_not_know_is_an_error(spark: "SparkSession") -> None:
    schema: Any = spark.createDataFrame([], "day date").schema

    with pytest.raises(TypeError, match="attribute 'day' has the Spark type date"):
        Filter("day = '2026-01-01'").to_spark(schema)


def test_long_and_deep_filters_are_translated_in_reasonable_time(spark: "SparkSession") -> None:
    """Every further level or member costs a little; none doubles the expression."""
    from pyspark.sql.types import StructField, StructType

    from sterna.model.filters.spark import ATTRIBUTES_TYPE

    texts = [
        "x" + " + 1" * 60 + " > 3",
        "x" + " * 2" * 60 + " > 3",
        "-" * 60 + "x > 3",
        "x IN (" + ", ".join(map(str, range(10_000))) + ")",
        "x IN (" + ", ".join(f"'{i}😀'" for i in range(10_000)) + ")",
        "x IN (-9223372036854775808, -0.0, 1e300, " + ", ".join(map(str, range(1, 99))) + ")",
    ]
    some: list[Event] = [
        {"x": value} for value in (5, -7, 2.5, -0.0, -(2**63), 1e300, math.nan, "7😀", True, None)
    ]
    rows = [{"attributes": {k: value_struct(v) for k, v in event.items()}} for event in some]

    pairs = check(
        spark, texts, some, rows, StructType([StructField("attributes", ATTRIBUTES_TYPE)])
    )

    assert pairs == len(texts) * len(some)


def test_places_at_the_edge_of_arithmetic(spark: "SparkSession") -> None:
    """A side of a polygon that is almost parallel, the antipode, a box without a height."""
    schema: Any = spark.createDataFrame([], "lat double, lon double").schema
    texts = [
        "within(lat, lon, 0, 0, 5e-324, 10, -10, 5)",
        "within(lat, lon, 0, 0, 0, 10, 0, 5)",
        "within(lat, lon, 0, 0, 0, 10)",
        "near(lat, lon, -90, 0, 20015114.342035923)",
        "near(lat, lon, 0, 180, 0)",
    ]
    corners = [-90.0, -10.0, 0.0, 5e-324, 10.0, 90.0, 180.0, -180.0, math.nan]
    some: list[Event] = [{"lat": lat, "lon": lon} for lat in corners for lon in corners]

    pairs = check(spark, texts, some, [dict(event) for event in some], schema)

    assert pairs == len(texts) * len(some)


def test_an_attribute_called_attributes(spark: "SparkSession") -> None:
    from pyspark.sql.types import StructField, StructType

    from sterna.model.filters.spark import ATTRIBUTES_TYPE

    schema = StructType([StructField("attributes", ATTRIBUTES_TYPE)])
    rows = [{"attributes": {"attributes": value_struct(1)}}]

    assert verdicts(spark, [Filter("attributes = 1")], rows, schema) == [[True]]


def test_a_collation_of_the_column_does_not_matter(spark: "SparkSession") -> None:
    frame = spark.sql("SELECT 'ABC' COLLATE UTF8_LCASE AS x")
    columns = [
        Filter(text).to_spark(frame.schema).alias(f"f{i}")
        for i, text in enumerate(["x = 'abc'", "x LIKE 'a%'", "x = 'ABC'", "x IN ('abc')"])
    ]

    assert list(frame.select(*columns).collect()[0]) == [False, False, True, False]


def test_a_like_that_would_make_a_regex_backtrack_is_quick(spark: "SparkSession") -> None:
    schema: Any = spark.createDataFrame([], "x string").schema
    evil = Filter("x LIKE '" + "%a_" * 20 + "%b'")

    assert verdicts(spark, [evil], [{"x": "a" * 20_000}], schema) == [[False]]


def test_a_missing_java_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: "Path"
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SparkUnavailable, match="Spark needs Java 17 or newer, and none was found"):
        require_java()
