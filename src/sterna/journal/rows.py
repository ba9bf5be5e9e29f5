"""Facts as rows of one table, and back."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from sterna.core import catalogue as _catalogue  # noqa: F401 - registers Sterna's own protocols.
from sterna.core.facts import Fact
from sterna.core.names import LinkId
from sterna.core.protocol import fact_types
from sterna.journal.columns import (
    ABSENT,
    DETAILS,
    MEANINGS,
    PLACE,
    Form,
    Row,
    details_in,
    form_of,
    stored_type,
)
from sterna.model.event import Event, EventId

VERSION = "3"
"""The version of the schema. A reader skips files of versions that are not in `SCHEMAS`."""

_VERSION_KEY = b"sterna.journal"
_NODE_KEY = b"sterna.node"
_START_KEY = b"sterna.start"
_INCARNATION_KEY = b"sterna.incarnation"

SCHEMA = pa.schema(
    [pa.field(name, stored_type(name), nullable=name not in PLACE) for name in MEANINGS],
    metadata={_VERSION_KEY: VERSION},
)
"""A row is a fact; a Forwarded has a row for each link that the events went to."""

SCHEMAS = {"2": SCHEMA.remove(SCHEMA.get_field_index(DETAILS)), VERSION: SCHEMA}
"""The schemas that can be read, by version."""


class OtherFact(Fact, frozen=True, kw_only=True):
    """A fact of a journal whose class is not known here, or has changed since.

    The package of its protocol is missing, or has not been imported. Each row is one.
    """

    kind: str
    details: dict[str, Any]
    """The content of the row, under the names of columns and fields."""


def schema_of(node: str, start: int, incarnation: int | None = None) -> pa.Schema:
    """The schema with the name of the node that writes, where a file starts, and of which journal.

    Files of earlier releases do not say of which incarnation of the journal they are.
    """
    about = {_VERSION_KEY: VERSION, _NODE_KEY: node, _START_KEY: str(start)}
    if incarnation is not None:
        about[_INCARNATION_KEY] = str(incarnation)
    return SCHEMA.with_metadata(about)


def version_of(schema: pa.Schema) -> str | None:
    """The version of the schema that a file has; None if it is no journal."""
    version = (schema.metadata or {}).get(_VERSION_KEY)
    return None if version is None else version.decode(errors="replace")


def problem_with(schema: pa.Schema) -> str | None:
    """Why facts with this schema cannot be read, as the rest of a sentence; None: they can."""
    version = version_of(schema)
    if version not in SCHEMAS:
        return (
            f"has version {version} of the journal, this program reads {' and '.join(SCHEMAS)}: "
            "read it with the program that wrote it"
        )
    return None if schema.equals(SCHEMAS[version]) else "has other columns than a journal"


def up_to_date(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of any version with the columns of this one."""
    if DETAILS in batch.schema.names:
        return batch
    field = SCHEMA.field(DETAILS)
    return batch.append_column(field, pa.nulls(len(batch), field.type))


def start_of(schema: pa.Schema) -> int:
    """The first position that a file covers: the file before it has all facts before that."""
    return int(schema.metadata[_START_KEY])


def incarnation_of(schema: pa.Schema) -> int | None:
    """The incarnation of the journal that a file belongs to; None if it does not say that."""
    incarnation = (schema.metadata or {}).get(_INCARNATION_KEY, b"")
    return int(incarnation) if incarnation.isdigit() else None


def is_about_events(kind: type[Fact]) -> bool:
    """Whether facts of a class name events."""
    form = form_of(kind)
    return form.events is not None or form.by_link is not None


def events_in(fact: Fact) -> int:
    """How many events a fact is about, counted for each link."""
    form = form_of(type(fact))
    if form.by_link is not None:
        return sum(map(len, form.by_link(fact).values()))
    return 0 if form.events is None else len(form.events(fact))


def rows_of(recorded: Iterable[tuple[int, int, Fact]]) -> pa.RecordBatch:
    """A batch with the rows of facts, each with its position and its turn there."""
    rows: list[list[Any]] = []
    used = set(range(len(PLACE)))
    for position, turn, fact in recorded:
        kind = type(fact)
        form = form_of(kind)
        row: list[Any] = [position, turn, kind.__name__, fact.at, fact.time, *_NOTHING]
        for name, value_of in form.columns.items():
            column = _COLUMN[name]
            used.add(column)
            row[column] = value_of(fact)
        if form.events is not None:
            row[_SEQS] = form.events(fact)
        if form.by_link is not None:
            used.add(_LINK)
            rows += _row_for_each_link(row, form.by_link(fact))
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
    """The facts of a batch, in order; one of a kind that is not known here is an `OtherFact`.

    An event that the row does not hold in full comes from `known`; if it is not there either, all
    that is left of it is its identity: no attributes, no payload, time 0.
    """
    known = known or {}
    kinds = {kind.__name__: kind for kind in fact_types()}
    rows = up_to_date(batch).to_pylist()
    for _, same in groupby(rows, key=itemgetter("position", "turn")):
        of_fact = list(same)
        kind = kinds.get(of_fact[0]["kind"])
        fact = None if kind is None else _fact(kind, of_fact, known)
        yield from map(_other, of_fact) if fact is None else [fact]


# ---- Facts to rows.

_COLUMN = {name: number for number, name in enumerate(SCHEMA.names)}
_LINK, _PUBLISHERS, _SEQS = _COLUMN["link"], _COLUMN["publishers"], _COLUMN["seqs"]
_NOTHING = [() if name == "seqs" else None for name in SCHEMA.names[len(PLACE) :]]
"""The initial values of the other columns; a row's events are where their numbers will be."""


def _row_for_each_link(row: list[Any], to: Mapping[LinkId, Any]) -> list[list[Any]]:
    if not to:
        return [row]
    rows = [row.copy() for _ in to]
    for copy, (link, events) in zip(rows, to.items(), strict=True):
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
    """The publishers of each row's events; one is written for all, as is usual for a batch."""
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


def _fact(kind: type[Fact], rows: list[Row], known: Mapping[EventId, Event]) -> Fact | None:
    """The fact of some rows; None if its class has changed since it was written."""
    form: Form = form_of(kind)
    values: dict[str, Any] = {"at": rows[0]["at"], "time": rows[0]["time_us"]}
    try:
        for name, value_of in form.fields.items():
            value = value_of(rows, known)
            if value is not ABSENT:
                values[name] = value
        return kind(**values)
    except (msgspec.ValidationError, TypeError):
        return None


def _other(row: Row) -> OtherFact:
    said = {name: row[name] for name in SCHEMA.names if name not in {*PLACE, DETAILS}}
    given = {name: value for name, value in said.items() if value not in (None, [])}
    return OtherFact(
        at=row["at"],
        time=row["time_us"],
        kind=row["kind"],
        details={**given, **details_in(row)},
    )
