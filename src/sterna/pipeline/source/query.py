"""What a query asks of facts, in a form that is sent to the workers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.pipeline.source.columns import AttributeColumn
from sterna.pipeline.source.options import BadRecords, SourceTable


class Condition(NamedTuple):
    """A predicate of Spark on a column of a table, with the same verdict on every row."""

    column: str
    test: str
    """A comparison; `in`, `starts`, `ends`, `contains`; `null` or `not null`."""
    value: Any = None
    """The operand: a list for `in`. Points in time are in microseconds."""
    negated: bool = False

    def mask(self, column: pa.Array) -> pa.Array:
        """Which rows satisfy it."""
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        if self.test == "null":
            return pc.invert(column.is_null()) if self.negated else column.is_null()
        if self.test == "in":
            found = pc.is_in(column, pa.array(self.value, column.type))
            return pc.and_(pc.invert(found), column.is_valid()) if self.negated else found
        found = _TESTS[self.test](column, self.value)
        return (pc.invert(found) if self.negated else found).fill_null(fill_value=False)


_TESTS = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "starts": lambda column, value: pc.starts_with(column, pattern=value),
    "ends": lambda column, value: pc.ends_with(column, pattern=value),
    "contains": lambda column, value: pc.match_substring(column, pattern=value),
}


class AttributeTest(NamedTuple):
    """A Sterna filter that events must match, or else hold NaN in an attribute."""

    filter: Filter
    unless_nan: str | None = None
    """To Spark NaN is larger than every number; to a filter it compares with nothing."""

    def passes(self, attributes: Mapping[str, Scalar]) -> bool:
        if self.filter.matches(attributes):
            return True
        if self.unless_nan is None:
            return False
        value = attributes.get(self.unless_nan)
        return value != value  # noqa: PLR0124 - only NaN differs from itself.


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which rows of which table, with which columns."""

    table: SourceTable
    schema: pa.Schema
    publications: bool = False
    columns: tuple[AttributeColumn, ...] = ()
    tests: tuple[AttributeTest, ...] = ()
    conditions: tuple[Condition, ...] = ()
    bad_records: BadRecords = BadRecords.FAIL
    fail_on_data_loss: bool = True


class Bad(NamedTuple):
    """Something in a journal that cannot be read."""

    reason: str
    position: int | None = None
    turn: int | None = None
    kind: str | None = None
    raw: bytes | None = None
    file: str | None = None
    is_gone: bool = False
    """Whether it existed once, or should: this is a loss, and no bad record."""

    @classmethod
    def of(cls, batch: pa.RecordBatch, row: int, reason: str, raw: bytes | None = None) -> Self:
        """A fact that cannot be read."""
        place = {name: batch[name][row].as_py() for name in ("position", "turn", "kind")}
        return cls(reason, **place, raw=raw)
