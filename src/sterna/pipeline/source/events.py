"""Events in full, from the facts that hold them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress
from operator import itemgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from sterna.model.event import INT_MAX, INT_MIN, CheckedScalar, Scalar
from sterna.pipeline.source.columns import column_of
from sterna.pipeline.source.query import Bad, Query

IDENTITY: dict[str, Callable[[Any], Any]] = {
    "publisher": lambda event: event.publisher,
    "seq": lambda event: event.seq,
    "time": lambda event: event.time_us,
}
"""Columns whose conditions are decided before attributes are decoded."""

Numbers = np.ndarray[Any, np.dtype[Any]]


def columns_of(batch: pa.RecordBatch, query: Query, bad: list[Bad]) -> dict[str, pa.Array]:
    """The columns of table `events` that a query asks for."""
    events, rows = decoded(batch, bad)
    events, rows = _satisfying(events, rows, query)
    parents = pa.array(rows)
    attributes = [event.attributes for event in events]
    wanted = set(query.schema.names)
    columns = {
        "publisher": pa.array([event.publisher for event in events], pa.string()),
        "seq": pa.array([event.seq for event in events], pa.int64()),
        "time": times(pa.array([event.time_us for event in events], pa.int64())),
        "at": batch["at"].take(parents),
        "at_time": times(batch["time_us"].take(parents)),
        "position": batch["position"].take(parents),
        "turn": batch["turn"].take(parents),
    }
    if "attributes" in wanted:
        columns["attributes"] = maps_of(attributes)
    if "payload" in wanted:
        columns["payload"] = pa.array([event.payload for event in events], pa.binary())
    for column in query.columns:
        if column.name in wanted:
            columns[column.name] = column_of(column, attributes)
    return columns


def times(microseconds: pa.Array) -> pa.Array:
    """Points in time, in Spark's type."""
    return microseconds.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def maps_of(attributes: Sequence[Mapping[str, Scalar]]) -> pa.Array:
    """Attributes as maps from names to values of any type."""
    counts = np.fromiter(map(len, attributes), np.int32, len(attributes))
    names = pa.array(list(chain.from_iterable(attributes)), pa.string())
    values = list(chain.from_iterable(each.values() for each in attributes))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), names, _structs_of(values))


class _Kept(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An event as the journal has it; checked by the decoder alone, which is quick."""

    publisher: str
    seq: Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
    time_us: Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
    attributes: dict[str, CheckedScalar] = {}
    payload: bytes = b""


_DECODE = msgspec.msgpack.Decoder(list[_Kept]).decode


def decoded(batch: pa.RecordBatch, bad: list[Bad]) -> tuple[list[_Kept], Numbers]:
    """The events of all facts, and for each the row of its fact."""
    found: list[list[_Kept]] = []
    for row, raw in enumerate(batch["events"].to_pylist()):
        try:
            events = _DECODE(raw)
        except (msgspec.DecodeError, TypeError) as error:
            reason = "it holds no events" if raw is None else f"its events are wrong: {error}"
            bad.append(Bad.of(batch, row, reason, raw))
            events = []
        found.append(events)
    counts = np.fromiter(map(len, found), np.int64, len(found))
    return list(chain.from_iterable(found)), np.repeat(np.arange(len(found)), counts)


_KINDS: dict[type, int] = {bool: 0, int: 1, float: 2, str: 3}
_ARROW = (
    pa.field("bool", pa.bool_()),
    pa.field("int", pa.int64()),
    pa.field("float", pa.float64()),
    pa.field("string", pa.string()),
)


def _satisfying(events: list[_Kept], rows: Numbers, query: Query) -> tuple[list[_Kept], Numbers]:
    """The events that pass all tests of their attributes and all conditions on their identity."""
    for test in query.tests:
        events, rows = _kept(events, rows, [test.passes(event.attributes) for event in events])
    for condition in query.conditions:
        value_of = IDENTITY.get(condition.column)
        if value_of is not None:
            type_ = pa.string() if condition.column == "publisher" else pa.int64()
            column = pa.array([value_of(event) for event in events], type_)
            events, rows = _kept(events, rows, condition.mask(column).to_pylist())
    return events, rows


def _kept(events: list[_Kept], rows: Numbers, mask: list[bool]) -> tuple[list[_Kept], Numbers]:
    return list(compress(events, mask)), rows[np.array(mask, dtype=bool)]


def _structs_of(values: list[Scalar]) -> pa.Array:
    """Values by type: of the four fields of each, one is set."""
    kinds = np.fromiter(map(_KINDS.__getitem__, map(type, values)), np.int8, len(values))
    fields = [_scattered(values, kinds == kind, field.type) for kind, field in enumerate(_ARROW)]
    return pa.StructArray.from_arrays(fields, fields=list(_ARROW))


def _scattered(values: list[Scalar], chosen: Numbers, type_: pa.DataType) -> pa.Array:
    """The chosen values in their places, and null in all others."""
    places = np.flatnonzero(chosen)
    if not len(places):
        return pa.nulls(len(values), type_)
    some = pa.array(_items(values, places.tolist()), type_)
    if len(places) == len(values):
        return some
    indices = np.zeros(len(values), np.int64)
    indices[places] = np.arange(len(places))
    return some.take(pa.array(indices, mask=~chosen))


def _items(values: list[Scalar], places: list[int]) -> Iterable[Scalar]:
    return itemgetter(*places)(values) if len(places) > 1 else [values[places[0]]]
