"""Predicates of Spark that are decided where the facts are read: on columns, or as Sterna filters.

Spark checks again whatever is returned to it. So a predicate may be used to leave out events even
if the filter keeps a few too many, as long as it never leaves out one that Spark would keep.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import datasource as spark

from sterna.model.filters import Filter, tree
from sterna.pipeline.source.columns import AttributeColumn
from sterna.pipeline.source.options import BadRecords, SourceTable
from sterna.pipeline.source.origins import Span, Spans
from sterna.pipeline.source.query import AttributeTest, Condition, Query


class Pushed(NamedTuple):
    """The predicates of a query, divided into those decided here and the rest."""

    conditions: tuple[Condition, ...] = ()
    tests: tuple[AttributeTest, ...] = ()
    rest: tuple[spark.Filter, ...] = ()
    """The predicates that Spark has to check."""

    @classmethod
    def of(cls, filters: Sequence[spark.Filter], query: Query) -> "Pushed":
        """Take the predicates that can be decided here."""
        if query.bad_records is BadRecords.ONLY:
            return cls(rest=tuple(filters))
        attributes = {column.name: column for column in query.columns}
        conditions: list[Condition] = []
        tests: list[AttributeTest] = []
        rest: list[spark.Filter] = []
        for predicate in filters:
            plain, negated = _taken_apart(predicate)
            column = attributes.get(_column(plain) or "")
            if column is not None:
                test = _as_filter(plain, column, negated=negated)
                if test is not None:
                    tests.append(test)
                if test is None or not _is_exact(column):
                    rest.append(predicate)
                continue
            condition = _as_condition(plain, query, negated=negated)
            if condition is not None:
                conditions.append(condition)
            else:
                rest.append(predicate)
        return cls(tuple(conditions), tuple(tests), tuple(rest))

    def narrowed(self, spans: Spans) -> dict[str, Span]:
        """The stretches of journals that can hold what is asked for."""
        names = pa.array(list(spans), pa.string())
        start, end = 0, 2**63 - 1
        for condition in self.conditions:
            if condition.column == "journal":
                names = names.filter(condition.mask(names))
            elif condition.column == "position" and not condition.negated:
                low, high = _bounds(condition)
                start, end = max(start, low), min(end, high)
        return {
            name: Span(max(start, spans[name].start), min(end, spans[name].end))
            for name in names.to_pylist()
        }


_COMPARISONS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
}
_TEXTS: dict[type[spark.Filter], str] = {
    spark.StringStartsWith: "starts",
    spark.StringEndsWith: "ends",
    spark.StringContains: "contains",
}


def _taken_apart(predicate: spark.Filter) -> tuple[spark.Filter, bool]:
    if isinstance(predicate, spark.Not):
        # NOT of `<=>` is true for null, unlike that of all others.
        is_null_safe = isinstance(predicate.child, spark.EqualNullSafe)
        return (predicate, False) if is_null_safe else (predicate.child, True)
    return predicate, False


def _values(plain: spark.Filter) -> tuple[Any, ...]:
    return tuple(plain.value) if isinstance(plain, spark.In) else (getattr(plain, "value", None),)


def _column(plain: spark.Filter) -> str | None:
    """The column that a predicate is about, if it is one of the table and not a part of one."""
    path: tuple[str, ...] = getattr(plain, "attribute", ())
    return path[0] if len(path) == 1 else None


# ---- Columns of the table.

_OF_EVENTS = {"publisher", "seq", "time", "at", "at_time", "position", "turn", "journal"}
"""The columns of table `events` that are known before attributes are looked at."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _as_condition(plain: spark.Filter, query: Query, *, negated: bool) -> Condition | None:
    column = _column(plain)
    if column is None or column not in query.schema.names:
        return None
    if query.table is SourceTable.EVENTS and column not in _OF_EVENTS:
        return None
    if isinstance(plain, spark.IsNull | spark.IsNotNull):
        return Condition(column, "null", negated=negated != isinstance(plain, spark.IsNotNull))
    type_ = query.schema.field(column).type
    values = [_constant(value, type_) for value in _values(plain)]
    if None in values:
        return None
    if isinstance(plain, spark.In):
        return Condition(column, "in", values, negated)
    test = _COMPARISONS.get(type(plain)) or _TEXTS.get(type(plain))
    if test is None or (pa.types.is_boolean(type_) and test != "="):
        return None
    return Condition(column, test, values[0], negated)


def _constant(value: Any, type_: pa.DataType) -> Any:
    """A constant as columns of a type are compared with it; None if that is not certain."""
    if pa.types.is_timestamp(type_):
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        return (value - _EPOCH) // timedelta(microseconds=1)
    fits = (
        (pa.types.is_string(type_) and type(value) is str)
        or (pa.types.is_integer(type_) and type(value) is int)
        or (pa.types.is_boolean(type_) and type(value) is bool)
    )
    return value if fits else None


def _bounds(condition: Condition) -> tuple[int, int]:
    """The bounds of the positions that satisfy a condition."""
    value = condition.value
    match condition.test:
        case "=":
            return value, value + 1
        case "in":
            return min(value), max(value) + 1
        case "<":
            return 0, value
        case "<=":
            return 0, value + 1
        case ">":
            return value + 1, 2**63 - 1
        case ">=":
            return value, 2**63 - 1
    return 0, 2**63 - 1


# ---- Attributes that are columns.

_KINDS = {"boolean": bool, "bigint": int, "double": float, "string": str}


def _as_filter(
    plain: spark.Filter, column: AttributeColumn, *, negated: bool
) -> AttributeTest | None:
    """A filter that matches whenever the predicate is true."""
    condition = _as_tree(plain, column)
    if condition is None or (negated and isinstance(plain, spark.IsNotNull)):
        return None  # A null is more than a missing attribute.
    if negated:
        condition = tree.negation(condition)
    may_be_nan = column.kind == "double" and (negated or isinstance(plain, _UPWARDS))
    return AttributeTest(Filter.from_condition(condition), column.name if may_be_nan else None)


_UPWARDS = spark.GreaterThan | spark.GreaterThanOrEqual


def _as_tree(plain: spark.Filter, column: AttributeColumn) -> tree.Condition | None:
    attribute = tree.Attribute(column.name)
    if isinstance(plain, spark.IsNotNull):
        match column.kind:
            case "string":  # Every string, and nothing else.
                return tree.Compare(">=", attribute, tree.Literal(""))
            case "boolean":
                return tree.In(attribute, (tree.Literal(value=False), tree.Literal(value=True)))
        return tree.Not(tree.IsNull(attribute))
    values = _values(plain)
    if not all(type(value) is _KINDS[column.kind] for value in values):
        return None
    if column.kind == "double" and not all(map(math.isfinite, values)):
        return None  # Filters have no such constants.
    if isinstance(plain, spark.In):
        return tree.In(attribute, tuple(map(tree.Literal, values))) if values else None
    if type(plain) in _TEXTS:
        return tree.Like(attribute, _pattern(plain), "!")
    sign = _COMPARISONS.get(type(plain))
    if sign is None or (column.kind == "boolean" and sign != "="):
        return None
    return tree.Compare(sign, attribute, tree.Literal(values[0]))


def _pattern(plain: spark.Filter) -> str:
    text = plain.value.replace("!", "!!").replace("%", "!%").replace("_", "!_")  # type: ignore[attr-defined]
    return {"starts": f"{text}%", "ends": f"%{text}", "contains": f"%{text}%"}[_TEXTS[type(plain)]]


def _is_exact(column: AttributeColumn) -> bool:
    """Whether the filter matches only if the predicate is true: columns of numbers leave some out.

    A bigint is null where the attribute is a float, a double where it cannot hold an integer.
    """
    return column.kind in {"string", "boolean"}
