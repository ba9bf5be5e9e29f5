"""Facts as rows of one table, and back."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import fields

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.names import Peer
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter

VERSION = "2"
"""Of the schema. A reader leaves alone what has another one."""

_VERSION_KEY = b"sterna.journal"
_NODE_KEY = b"sterna.node"
_START_KEY = b"sterna.start"

SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("turn", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("at", pa.string(), nullable=False),
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("link", pa.string()),
        pa.field("source", pa.string()),
        pa.field("peer", pa.string()),
        pa.field("client", pa.string()),
        pa.field("name", pa.string()),
        pa.field("filter", pa.string()),
        pa.field("location", pa.string()),
        pa.field("value", pa.string()),
        pa.field("replayed", pa.int64()),
        pa.field("held", pa.int64()),
        pa.field("given_up", pa.int64()),
        pa.field("published", pa.int64()),
        pa.field("anywhere", pa.bool_()),
        pa.field("publishers", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("seqs", pa.list_(pa.field("item", pa.int64(), nullable=False))),
        pa.field("events", pa.binary()),
    ],
    metadata={_VERSION_KEY: VERSION},
)
"""A row is a fact; a Forwarded has a row for each link that the events went to."""

WITH_CONTENT = frozenset({"Published", "Accepted"})
"""The facts whose events are written in full: each event once, where it enters the network."""


def schema_of(node: str, start: int) -> pa.Schema:
    """The schema with the name of the node that writes, and where a file of it starts."""
    return SCHEMA.with_metadata({_VERSION_KEY: VERSION, _NODE_KEY: node, _START_KEY: str(start)})


def version_of(schema: pa.Schema) -> str | None:
    """Which version of the schema a file has; None: it is no journal."""
    version = (schema.metadata or {}).get(_VERSION_KEY)
    return None if version is None else version.decode(errors="replace")


def start_of(schema: pa.Schema) -> int:
    """The first position that a file answers for: the file before it had all facts before that."""
    return int(schema.metadata[_START_KEY])


def events_in(fact: Fact) -> int:
    """How many events a fact is about, counted for each link."""
    if isinstance(fact, facts.Forwarded):
        return sum(map(len, fact.to.values()))
    return len(fact.events) if "events" in fact.__struct_fields__ else 0  # type: ignore[attr-defined]


def rows_of(recorded: Iterable[tuple[int, int, Fact]]) -> pa.RecordBatch:
    """A batch with the rows of facts, each with its position and its turn there."""
    rows: list[list[Any]] = []
    used = set(range(_FIXED))
    for position, turn, fact in recorded:
        kind = type(fact)
        form = _FORMS.get(kind) or _form(kind)
        used.update(form.columns)
        row: list[Any] = [position, turn, kind.__name__, fact.at, fact.time, *_NOTHING]
        for column, value_of in form.values:
            row[column] = value_of(fact)
        if kind is facts.Forwarded:
            rows += _row_for_each_link(row, fact)  # type: ignore[arg-type]
        else:
            rows.append(row)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    about = columns[_SEQS]
    arrays = {_PUBLISHERS: _publishers(about), _SEQS: _seqs(about)}
    return pa.RecordBatch.from_arrays(
        [
            arrays[number]
            if number in arrays
            else pa.array(columns[number], field.type)
            if number in used
            else pa.nulls(len(rows), field.type)
            for number, field in enumerate(SCHEMA)
        ],
        schema=SCHEMA,
    )


def facts_in(batch: pa.RecordBatch, known: Mapping[EventId, Event] | None = None) -> Iterator[Fact]:
    """The facts of a batch, in order.

    An event that the row does not hold in full comes from `known`; if it is not there either, all
    that is left of it is its identity: no attributes, no payload, time 0.
    """
    known = known or {}
    rows = batch.to_pylist()
    for _, same in groupby(rows, key=itemgetter("position", "turn")):
        yield _fact(list(same), known)


def identities_in(row: Mapping[str, Any]) -> list[EventId]:
    """Which events a row is about."""
    seqs, publishers = row["seqs"] or [], row["publishers"] or []
    if len(publishers) == 1:
        publishers = publishers * len(seqs)
    return [EventId(publisher, seq) for publisher, seq in zip(publishers, seqs, strict=True)]


# ---- Facts to rows.

_COLUMN = {name: number for number, name in enumerate(SCHEMA.names)}
_FIXED = 5
"""Columns that every fact fills."""
_LINK, _EVENTS = _COLUMN["link"], _COLUMN["events"]
_PUBLISHERS, _SEQS = _COLUMN["publishers"], _COLUMN["seqs"]
_NOTHING = [() if name == "seqs" else None for name in SCHEMA.names[_FIXED:]]
"""What the other columns hold at first; the events of a row stand where their numbers will."""

_NAMES = {"subscription": "name", "advertisement": "name"}
"""Fields that stand in a column with another name."""


class _Form(NamedTuple):
    """How a class of facts fills its row."""

    values: list[tuple[int, Callable[[Any], Any]]]
    """By column, what stands there."""
    columns: frozenset[int]


_FORMS: dict[type[Fact], _Form] = {}

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Event, ...])


def _form(kind: type[Fact]) -> _Form:
    values: list[tuple[int, Callable[[Any], Any]]] = []
    for field in fields(kind):
        name = field.name
        match name:
            case "at" | "time" | "to":
                continue
            case "events":
                values.append((_SEQS, attrgetter("events")))
                if kind.__name__ in WITH_CONTENT:
                    values.append((_EVENTS, lambda fact: _encoder.encode(fact.events)))
            case "filter":
                values.append((_COLUMN[name], lambda fact: str(fact.filter)))
            case "value":
                # Not msgspec's JSON, which has no NaN and no infinities.
                values.append((_COLUMN[name], lambda fact: json.dumps(fact.value)))
            case _:
                values.append((_COLUMN[_NAMES.get(name, name)], attrgetter(name)))
    columns = {column for column, _ in values} | ({_LINK} if kind is facts.Forwarded else set())
    form = _FORMS[kind] = _Form(values, frozenset(columns))
    return form


def _row_for_each_link(row: list[Any], fact: facts.Forwarded) -> list[list[Any]]:
    if not fact.to:
        return [row]
    rows = [row.copy() for _ in fact.to]
    for copy, (link, events) in zip(rows, fact.to.items(), strict=True):
        copy[_LINK], copy[_SEQS] = link, events
    return rows


_publisher, _seq = attrgetter("publisher"), attrgetter("seq")


def _seqs(about: tuple[tuple[Event | EventId, ...], ...]) -> pa.Array:
    known: dict[int, np.ndarray[Any, np.dtype[np.int64]]] = {}
    parts = [np.empty(0, np.int64)]
    for events in about:
        numbers = known.get(id(events))  # The same events often went out over several links.
        if numbers is None:
            numbers = known[id(events)] = np.fromiter(map(_seq, events), np.int64, len(events))
        parts.append(numbers)
    return pa.ListArray.from_arrays(
        _starts(about), np.concatenate(parts), type=SCHEMA.field(_SEQS).type
    )


def _publishers(about: tuple[tuple[Event | EventId, ...], ...]) -> pa.Array:
    """The publishers of each row's events; one stands for all, as is usual for a batch."""
    known: dict[int, list[str]] = {}
    for events in about:
        if id(events) not in known:
            names = list(map(_publisher, events))
            is_one = len(names) > 1 and names.count(names[0]) == len(names)
            known[id(events)] = names[:1] if is_one else names
    lists = [known[id(events)] for events in about]
    flat = pa.array(list(chain.from_iterable(lists)), pa.string())
    return pa.ListArray.from_arrays(_starts(lists), flat, type=SCHEMA.field(_PUBLISHERS).type)


def _starts(lists: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.cumsum([0, *map(len, lists)], dtype=np.int32)


# ---- Rows to facts.


def _fact(rows: list[dict[str, Any]], known: Mapping[EventId, Event]) -> Fact:
    row = rows[0]
    kind: type[Fact] = getattr(facts, row["kind"])
    values: dict[str, Any] = {"at": row["at"], "time": row["time_us"]}
    for field in fields(kind):
        match field.name:
            case "at" | "time":
                pass
            case "events" if kind is facts.Missed:
                values["events"] = tuple(identities_in(row))
            case "events":
                values["events"] = _events(row, known)
            case "to":
                values["to"] = {r["link"]: _events(r, known) for r in rows if r["link"] is not None}
            case "filter":
                values["filter"] = Filter(row["filter"])
            case "value":
                values["value"] = json.loads(row["value"])
            case "peer":
                values["peer"] = None if row["peer"] is None else Peer(row["peer"])
            case name:
                values[name] = row[_NAMES.get(name, name)]
    return kind(**values)


def _events(row: Mapping[str, Any], known: Mapping[EventId, Event]) -> tuple[Event, ...]:
    if row["events"] is not None:
        return _decoder.decode(row["events"])
    return tuple(
        known.get(id_) or Event(publisher=id_.publisher, seq=id_.seq, time_us=0)
        for id_ in identities_in(row)
    )
