"""Attributes of events as columns with a type of their own."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, StringType

from sterna.model.event import Scalar

_TYPES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "bigint": LongType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}


class AttributeColumn(NamedTuple):
    """A column with the values of an attribute, null where it is missing or of another type."""

    name: str
    kind: str
    """`boolean`, `bigint`, `double` or `string`."""

    @property
    def type(self) -> DataType:
        return _TYPES[self.kind]


def attribute_columns(text: str) -> tuple[AttributeColumn, ...]:
    """Parse `price double, service string`; a name with other characters is in backquotes."""
    columns: list[AttributeColumn] = []
    rest = text.strip()
    while rest:
        found = _COLUMN.match(rest)
        if found is None or found["type"].lower() not in _TYPES:
            raise ValueError(
                "give names and types such as price double, `car-type` string; "
                f"types are {', '.join(_TYPES)}"
            )
        name = found["name"] or found["quoted"].replace("``", "`")
        columns.append(AttributeColumn(name, _TYPES[found["type"].lower()].simpleString()))
        rest = rest[found.end() :]
    if len({column.name.lower() for column in columns}) < len(columns):
        raise ValueError("a column is listed twice")
    return tuple(columns)


def column_of(column: AttributeColumn, attributes: Sequence[Mapping[str, Scalar]]) -> pa.Array:
    """An attribute of many events.

    A double also holds integers that doubles can hold exactly; nothing else becomes another type.
    """
    name = column.name
    values: list[Any] = [each.get(name) for each in attributes]
    match column.kind:
        case "boolean":
            return pa.array([v if type(v) is bool else None for v in values], pa.bool_())
        case "bigint":
            return pa.array([v if type(v) is int else None for v in values], pa.int64())
        case "string":
            return pa.array([v if type(v) is str else None for v in values], pa.string())
        case _:
            return pa.array(
                [v if type(v) is float else _exact(v) for v in values],
                pa.float64(),
                from_pandas=False,
            )


def _exact(value: Scalar | None) -> float | None:
    return float(value) if type(value) is int and int(float(value)) == value else None


_COLUMN = re.compile(
    r"""\s*(?:(?P<name>[^\W\d]\w*)|`(?P<quoted>(?:[^`]|``)+)`)\s+(?P<type>[A-Za-z]+)\s*(?:,\s*(?=\S)|$)"""
)
