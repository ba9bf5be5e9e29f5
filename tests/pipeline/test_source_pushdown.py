"""Predicates that are decided where facts are read: the same rows as if Spark decided them."""

import math
from datetime import UTC, datetime, timedelta
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from sterna.core import facts
from sterna.core.names import Peer
from sterna.journal import Journal
from sterna.model.event import INT_MAX, Event
from tests.pipeline import recorded as r
from tests.pipeline.recorded import in_order
from tests.strategies import NUMBERS, STRINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "d double, i bigint, s string, b boolean"
NO_CODEGEN = "spark.sql.codegen.factoryMode"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Predicate(NamedTuple):
    """The same as Spark hands it to a source, and as a function of SQL's arguments."""

    filter: Filter
    sql: str


def literal(value: Any) -> str:
    match value:
        case bool() | None:
            return str(value).upper().replace("NONE", "NULL")
        case str():
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
        case float() if not math.isfinite(value):
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case datetime():
            return f"TIMESTAMP_MICROS({(value - EPOCH) // timedelta(microseconds=1)}L)"
        case _:
            return f"CAST('{value}' AS BIGINT)"


SIGNS: dict[type, str] = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
TEXTS: dict[type, str] = {
    StringStartsWith: "startswith",
    StringEndsWith: "endswith",
    StringContains: "contains",
}


def predicates_on(column: str, values: list[Any], *, ordered: bool = True) -> list[Predicate]:
    """All predicates that Spark can push on a column, with these constants."""
    path = (column,)
    found = [
        Predicate(IsNull(path), f"{column} IS NULL"),
        Predicate(IsNotNull(path), f"{column} IS NOT NULL"),
    ]
    for value in values:
        text = literal(value)
        for kind, sign in SIGNS.items():
            if ordered or sign in ("=", "<=>"):
                found.append(Predicate(kind(path, value), f"{column} {sign} {text}"))
        if isinstance(value, str):
            for kind, function in TEXTS.items():
                found.append(Predicate(kind(path, value), f"{function}({column}, {text})"))
    some = values[::3]
    members = ", ".join(map(literal, some))
    found.append(Predicate(In(path, tuple(some)), f"{column} IN ({members})"))
    return found + [Predicate(Not(p.filter), f"NOT ({p.sql})") for p in found]


TIMES = [0, 1, 10**6, 2 * 10**6]
INSTANTS = [EPOCH + timedelta(microseconds=time) for time in TIMES]
WHOLE = [3, INT_MAX]
REAL = [-0.0, 2.0**53, math.nan]
TEXT = ["a", "a%", "\uffff"]

PREDICATES = {
    "events": [
        *predicates_on("d", REAL),
        *predicates_on("i", WHOLE),
        *predicates_on("s", TEXT),
        *predicates_on("b", [True, False], ordered=False),
        *predicates_on("publisher", ["p"]),
        *predicates_on("seq", [5]),
        *predicates_on("time", INSTANTS[1:2]),
        *predicates_on("at_time", INSTANTS[1:2]),
        *predicates_on("position", [4, 2**63 - 1]),
        *predicates_on("turn", [0]),
        *predicates_on("journal", ["B2"]),
        *predicates_on("at", ["B1"]),
    ],
    "facts": [
        *predicates_on("location", ["here"]),
        *predicates_on("anywhere", [True], ordered=False),
        *predicates_on("time", INSTANTS[1:2]),
        *predicates_on("held", [7]),
        *predicates_on("position", [-5]),
    ],
    "deliveries": [
        *predicates_on("client", ["c"]),
        *predicates_on("kind", ["Stray"]),
        *predicates_on("place", [0]),
        *predicates_on("anywhere", [True], ordered=False),
        *predicates_on("subscription", ["s"]),
    ],
    "movements": [
        *predicates_on("kind", ["moved"]),
        *predicates_on("broker", ["B1"]),
    ],
    "statistics": [
        *predicates_on("events", [0]),
        *predicates_on("link", ["c"]),
    ],
}


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events with every value in every attribute, and some facts of other kinds."""
    directory = tmp_path_factory.mktemp("journals")
    values = [*NUMBERS, math.nan, math.inf, -math.inf, *STRINGS, True, False]
    for node, count in (("B1", 12), ("B2", 3)):
        journal = Journal(directory / node, node)
        for position in range(count):
            events = tuple(
                Event(
                    publisher=("p", "q", "Q")[number % 3],
                    seq=number + 1,
                    time_us=TIMES[number % 4],
                    attributes={"d": value, "i": value, "s": value, "b": value},
                )
                for number, value in enumerate(values[position::12])
            )
            time = TIMES[position % 4]
            journal.record(
                position,
                [
                    facts.Accepted(at=node, time=time, link="c", events=events),
                    facts.Delivered(at="c", time=time, events=events[:2], anywhere=position == 3),
                    facts.Stray(at="d", time=time, events=events[:1]),
                    facts.Recalled(
                        at="d", time=time, events=events[:1], subscription="st"[position % 2]
                    ),
                    facts.Moved(at="c", time=time, location="here" if position % 2 else ""),
                    facts.Attached(at=node, time=time, link="d", peer=Peer.CLIENT),
                    facts.HandoverFinished(at=node, time=time, client="c", replayed=1, held=7),
                ],
            )
            if position % 4 == 0:
                journal.flush()
        journal.close()
    return directory


@pytest.mark.spec("PL-1")
def test_predicates_mean_what_they_mean_to_spark(spark: "SparkSession", journals: Path) -> None:
    """No row is lost that Spark would keep; and none is left over if Spark is not to look again."""
    for table, predicates in PREDICATES.items():
        options = {"table": table} | ({"columns": COLUMNS} if table == "events" else {})
        rows = r.read(journals, **options)
        wanted = verdicts(spark, rows, predicates, r.source(journals, **options).schema())
        texts = [text for row in rows for text in in_order([row])]
        for predicate, verdict in zip(predicates, wanted, strict=True):
            keeps = sorted(compress(texts, verdict))
            reader = r.reader(journals, pushDown=True, **options)
            rest = list(reader.pushFilters([predicate.filter]))
            found = in_order(r.rows_in(reader, reader.partitions()))
            if rest:
                assert rest == [predicate.filter]
                assert set(found) >= set(keeps), predicate
            else:
                assert found == keeps, predicate


def verdicts(
    spark: "SparkSession", rows: list[Any], predicates: list[Predicate], schema: Any
) -> list[list[bool]]:
    """For each predicate and row, whether Spark finds it true: all in one job."""
    names = sorted({_column(predicate.filter) for predicate in predicates})
    data = [
        (number, *(_as_spark(row[name], schema[name]) for name in names))
        for number, row in enumerate(rows)
    ]
    types = ", ".join(["n bigint", *(f"{n} {schema[n].dataType.simpleString()}" for n in names)])
    spark.conf.set(NO_CODEGEN, "NO_CODEGEN")  # To compile hundreds of columns takes long.
    table = spark.createDataFrame(data, types)
    columns = [
        f"COALESCE({predicate.sql}, FALSE) AS p{n}" for n, predicate in enumerate(predicates)
    ]
    found = sorted(tuple(row) for row in table.selectExpr("n", *columns).collect())
    spark.conf.unset(NO_CODEGEN)
    return [list(verdict) for verdict in list(zip(*found, strict=True))[1:]]


def _column(predicate: Any) -> str:
    plain: Any = getattr(predicate, "child", predicate)
    return str(plain.attribute[0])


def _as_spark(value: Any, field: Any) -> Any:
    is_time = field.dataType.simpleString() == "timestamp"
    return EPOCH + timedelta(microseconds=value) if is_time else value


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        (EqualTo(("s",), "a"), False),
        (Not(EqualTo(("b",), True)), False),
        (EqualTo(("publisher",), "p"), False),
        (GreaterThan(("time",), INSTANTS[1]), False),
        (LessThan(("d",), 1.0), True),
        (In(("i",), (1, 2)), True),
        (IsNull(("s",)), True),
        (In(("publisher",), ("p", None)), True),
        (EqualTo(("attributes", "x"), 1), True),
        (GreaterThan(("time",), datetime(2020, 1, 1)), True),  # noqa: DTZ001 - as Spark may.
    ],
)
def test_what_is_not_exact_is_left_to_spark(
    journals: Path, predicate: Filter, *, left: bool
) -> None:
    """Numbers may be left out too few, NULL is not what a filter says, and so on."""
    reader = r.reader(journals, columns=COLUMNS, pushDown=True)

    assert list(reader.pushFilters([predicate])) == [predicate] * left


@pytest.mark.spec("PL-1")
def test_predicates_on_bad_records_are_left_to_spark(journals: Path) -> None:
    """They are few, and nothing is left out of them."""
    predicate = EqualTo(("journal",), "B1")
    reader = r.reader(journals, badRecords="only", pushDown=True)

    assert list(reader.pushFilters([predicate])) == [predicate]
    assert len(reader.partitions()) > 0


@pytest.mark.spec("PL-1")
def test_partitions_that_cannot_have_rows_are_not_read(journals: Path) -> None:
    """The journal and the position choose what is read at all."""

    def read(*predicates: Filter) -> int:
        reader = r.reader(journals, minPartitions=100, pushDown=True)
        reader.pushFilters(list(predicates))
        return len(reader.partitions())

    assert read() == 6
    assert read(EqualTo(("journal",), "B1")) == 4
    assert read(EqualTo(("journal",), "B1"), GreaterThan(("position",), 9)) == 1
    assert read(In(("position",), (0,))) == 2
    assert read(LessThan(("position",), 0)) == 0


@pytest.mark.spec("PL-1")
def test_the_filter_of_a_query_is_one_of_events(journals: Path) -> None:
    """`filter` takes a Sterna filter, which decides as a broker would."""
    found = r.read(journals, filter="d > 2 AND i <= 10")

    values = [value for row in found for value in dict(row["attributes"])["d"].values() if value]
    assert sorted(set(values)) == sorted({n for n in NUMBERS if 2 < n <= 10})
