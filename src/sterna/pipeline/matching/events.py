"""Events in bulk: which columns go to the workers, and how attributes come out of them there."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import DataType, MapType, StringType, StructField, StructType

from sterna.model.filters.spark import attribute_column, to_column
from sterna.model.filters.tree import Attribute, IsNull
from sterna.pipeline.errors import PipelineError

MAP = "attributes"
"""The column with attributes by their names."""

IDENTITIES = (("publisher", "seq"), ("event",), ("id",))
"""The columns that identify events by default: the first of these that is there."""


@dataclass(frozen=True)
class Shipment:
    """The columns of the batches that workers get: identity, attributes, the map, then the rest."""

    identity: tuple[StructField, ...]
    attributes: tuple[str, ...]
    has_map: bool
    refused: Mapping[str, str] = field(default_factory=dict)
    """Columns that are no attributes, and why."""

    def identities(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(place) for place in range(len(self.identity))]

    def columns(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """The attributes of a batch, each as an array or a list."""
        first = len(self.identity)
        found: dict[str, Any] = {"": np.zeros(batch.num_rows)}  # No attribute has this name.
        if self.has_map:
            found.update(_from_map(batch.column(first + len(self.attributes))))
        for place, name in enumerate(self.attributes, first):
            found[name] = _one_type(batch.column(place))
        return found


def shipped(
    events: DataFrame, identity: Sequence[str] | None, wanted: Collection[str] | None
) -> tuple[list[Column], Shipment]:
    """The columns to select; those in `wanted` are attributes (None: all)."""
    schema = events.schema
    named = _identity(schema, identity)
    flat, has_map = without_map(attribute_schema(schema))
    refused: dict[str, str] = {}
    attributes: list[str] = []
    for name in _leaves(flat) if wanted is None else sorted(wanted):
        if attribute_column(flat, name) is None:
            continue
        try:
            to_column(IsNull(Attribute(name)), flat)
        except TypeError as error:
            if wanted is not None:
                raise PipelineError(str(error)) from None
            refused[name] = str(error)
        else:
            attributes.append(name)
    from_map = has_map and (wanted is None or set(wanted) - set(attributes))
    selected = [F.col(_quoted(name)).alias(f"i{place}") for place, name in enumerate(named)]
    for place, name in enumerate(attributes):
        found = attribute_column(flat, name)
        if found is not None:
            selected.append(F.expr(found[0]).alias(f"a{place}"))
    if from_map:
        entries = F.col(MAP)
        if wanted is not None:
            names = sorted(set(wanted) - set(attributes))
            entries = F.map_filter(entries, lambda name, _: name.isin(names))
        selected.append(entries.alias("m"))
    fields = tuple(StructField(name, schema[name].dataType) for name in named)
    return selected, Shipment(fields, tuple(attributes), bool(from_map), refused)


def attribute_schema(schema: StructType) -> StructType:
    """The columns that may hold attributes.

    In a table of events as journals and archives have it, only the map does: an attribute may be
    named like one of the other columns. Everywhere else a column hides an entry of the map.
    """
    if {"publisher", "seq", MAP} <= set(schema.names):
        kind = schema[MAP].dataType
        if isinstance(kind, MapType):
            return StructType([schema[MAP]])
    return schema


def without_map(schema: StructType) -> tuple[StructType, bool]:
    """The columns without the map of attributes, and whether there is one."""
    if MAP not in schema.names:
        return schema, False
    kind = schema[MAP].dataType
    if not isinstance(kind, MapType) or not isinstance(kind.keyType, StringType):
        return schema, False
    one = StructType([StructField("value", kind.valueType)])
    try:
        to_column(IsNull(Attribute("value")), one)
    except TypeError:
        raise PipelineError(
            f"the column {MAP} is a {kind.simpleString()}; its values have to be booleans, "
            "numbers, strings or structs of them: see docs/how-to/spark.md"
        ) from None
    return StructType([each for each in schema.fields if each.name != MAP]), True


def _identity(schema: StructType, identity: Sequence[str] | None) -> tuple[str, ...]:
    choices = IDENTITIES if identity is None else (tuple(identity),)
    for names in choices:
        if names and set(names) <= set(schema.names):
            if "subscription" in names or "matches" in names:
                raise PipelineError(
                    "columns that identify events cannot be called subscription or matches: "
                    "rename them"
                )
            return names
    there = ", ".join(schema.names) or "none"
    if identity is None:
        raise PipelineError(
            "events have neither publisher and seq, nor event, nor id: name the columns that "
            f"identify an event (there are: {there})"
        )
    raise PipelineError(f"events have no columns {', '.join(identity)} (there are: {there})")


def _leaves(schema: StructType, prefix: str = "") -> Iterator[str]:
    """The names of all columns; those inside structs with dots, beside the struct itself."""
    for each in schema.fields:
        yield prefix + each.name
        if isinstance(each.dataType, StructType) and not _is_value(each.dataType):
            yield from _leaves(each.dataType, f"{prefix}{each.name}.")


def _is_value(kind: DataType) -> bool:
    try:
        to_column(IsNull(Attribute("value")), StructType([StructField("value", kind)]))
    except TypeError:
        return False
    return True


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# ---- In the workers


def _from_map(entries: pa.MapArray) -> dict[str, Any]:
    """A column for each name that occurs in a map."""
    offsets = entries.offsets.to_numpy()
    first, end = int(offsets[0]), int(offsets[-1])
    names = entries.keys.slice(first, end - first).dictionary_encode()
    codes = names.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(1, len(names.dictionary) + 1))
    rows = np.repeat(np.arange(len(entries)), np.diff(offsets))
    values = entries.items.slice(first, end - first)
    found = {}
    for name, places in zip(names.dictionary.to_pylist(), np.split(order, ends), strict=False):
        taken = np.full(len(entries), -1, np.int64)
        taken[rows[places]] = places
        found[name] = _one_type(values.take(pa.array(taken, mask=taken < 0)))
    return found


def _one_type(values: pa.Array) -> Any:
    """An array of one type, or a list if the values have several."""
    if not pa.types.is_struct(values.type):
        return values
    parts = [part for part in values.flatten() if part.null_count < len(part)]
    if not parts:
        return pa.nulls(len(values))
    if len(parts) == 1:
        return parts[0]
    rows = zip(*(part.to_pylist() for part in parts), strict=True)
    return [next((value for value in row if value is not None), None) for row in rows]
