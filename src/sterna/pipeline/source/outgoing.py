"""Rows of a DataFrame as events that are to be published.

- A column `payload` is the payload: binary; null is an empty one.
- A column `attributes`, a map from names to values, has attributes. The table is one of events
    then, as `format("sterna")` reads them, and its other columns of that kind (publisher, time, …)
    describe its first publication, which do not apply when it is published again: they are left
    out.
- Every other column is the attribute of its name, and wins over an entry in `attributes`.

Null is a missing attribute. Values are booleans, integers, floats and strings, or a value struct.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    VarcharType,
)

from sterna.model.event import Scalar
from sterna.model.filters.spark import VALUE_TYPE
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.schemas import EVENTS
from sterna.pipeline.source.staged import Row

_SCALARS = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType),
    *(StringType, CharType, VarcharType, NullType),
)

_Values = list[Scalar | None]


def attributes_of(schema: StructType) -> list[str]:
    """The columns of a table that are attributes, each by itself; an error if some cannot be."""
    kinds = {field.name: field.dataType for field in schema.fields}
    if len(kinds) < len(schema.fields):
        raise PipelineError("two columns have the same name; rename one, or leave it out")
    payload, entries = kinds.pop("payload", None), kinds.get("attributes")
    if payload is not None and not isinstance(payload, BinaryType):
        raise PipelineError(
            f"the column payload is {payload.simpleString()}, and payloads are binary; "
            "cast it, or rename it to make it an attribute"
        )
    if isinstance(entries, MapType):
        if not isinstance(entries.keyType, StringType) or not _is_value(entries.valueType):
            raise PipelineError(
                f"the column attributes is {entries.simpleString()}; make it a map from strings to "
                "booleans, integers, floats, strings or value structs"
            )
        kinds = {name: kind for name, kind in kinds.items() if name not in EVENTS.names}
    for name, kind in kinds.items():
        if not _is_value(kind):
            raise PipelineError(
                f"the column {name} is {kind.simpleString()}, which no attribute can be; cast it "
                "to boolean, bigint, double or string, or leave it out"
            )
        if not name:
            raise PipelineError("a column has no name, and attributes need one; rename it")
    if payload is None and not kinds and not isinstance(entries, MapType):
        raise PipelineError("there is no column to publish; select at least one")
    return [*kinds]


def rows(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[Row]:
    """The events of Arrow batches."""
    names = attributes_of(schema)
    has_entries = isinstance(_kind(schema, "attributes"), MapType)
    has_payload = _kind(schema, "payload") is not None
    for batch in batches:
        columns = [_values(batch.column(name)) for name in names]
        count = batch.num_rows
        told: Iterable[tuple[Scalar | None, ...]] = (
            zip(*columns, strict=True) if columns else [()] * count
        )
        entries = _entries(batch.column("attributes")) if has_entries else [{}] * count
        payloads = batch.column("payload").to_pylist() if has_payload else [None] * count
        for before, values, payload in zip(entries, told, payloads, strict=True):
            pairs = zip(names, values, strict=True)
            own = {name: value for name, value in pairs if value is not None}
            yield before | own, payload or b""


def _kind(schema: StructType, name: str) -> DataType | None:
    return schema[name].dataType if name in schema.names else None


def _is_value(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return [(f.name, f.dataType) for f in kind.fields] == [
            (f.name, f.dataType) for f in VALUE_TYPE.fields
        ]
    return isinstance(kind, _SCALARS)


def _values(column: pa.Array) -> _Values:
    """One value a row: a value struct has at most one field that is set."""
    if not pa.types.is_struct(column.type):
        values: _Values = column.to_pylist()
        return values
    fields = zip(*(field.to_pylist() for field in column.flatten()), strict=True)
    return [next((value for value in each if value is not None), None) for each in fields]


def _entries(column: Any) -> Iterator[dict[str, Scalar]]:
    """The map of each row, without what is null."""
    names, values = column.keys.to_pylist(), _values(column.items)
    if "" in names:
        raise PipelineError("an attribute has an empty name; leave it out of the column attributes")
    offsets, present = column.offsets.to_pylist(), column.is_valid().to_pylist()
    for begin, end, is_there in zip(offsets, offsets[1:], present, strict=False):
        pairs = zip(names[begin:end], values[begin:end], strict=True) if is_there else ()
        yield {name: value for name, value in pairs if value is not None}
