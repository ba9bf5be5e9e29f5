"""The columns of the journal, derived from the facts that nodes state, and nothing else.

A field of a fact is in the column of its name, if there is one of its type. All other fields, such
as those of protocols from other packages, are together in `details`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from types import NoneType
from typing import Any, Final, NamedTuple, get_args

import msgspec
import pyarrow as pa
from msgspec.structs import FieldInfo, fields

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.names import LinkId
from sterna.core.protocol import fact_types
from sterna.model.event import Event, EventId, Scalar
from sterna.model.filters import Filter

PLACE: Final = ("position", "turn", "kind", "at", "time_us")
"""The columns that every fact fills."""

DETAILS: Final = "details"

MEANINGS: Final = {
    "position": "The input that caused the fact: its number in the broker's log. Never goes back "
    "within a node.",
    "turn": "The number of the fact among those of that input, from 0. `position` and `turn` name "
    "a fact of a node.",
    "kind": "The name of the fact's class; see below.",
    "at": "The node.",
    "time_us": "When, by the node's clock, in microseconds.",
    "link": "The link: of a client that handed over events (`Accepted`), that events went to "
    "(`Forwarded`), that came or went.",
    "source": "The link that forwarded events came from.",
    "peer": "What is at the other end of a link that came or went: `broker` or `client`.",
    "client": "The client of a handover, or for which events were kept.",
    "name": "The name of a subscription, an advertisement or a variable.",
    "filter": "The filter of a subscription or an advertisement, in the "
    "[filter language](filter-language.md).",
    "location": "The location of a client.",
    "value": "A variable's value as JSON (with `NaN`, `Infinity` and `-Infinity`).",
    "replayed": "How many events a handover fetched.",
    "held": "How many events waited for those that a handover fetched, or for those of the past.",
    "given_up": "How many messages a link gave up.",
    "published": "The number of the last event of a client that has left.",
    "anywhere": "Whether delivered events were kept for a place where the client was then.",
    "publishers": "The publishers of the row's events, in order. A single one means all of them.",
    "seqs": "The sequence numbers of the row's events, in order.",
    "events": "The events in full, as a MessagePack array of "
    "`[publisher, seq, time_us, attributes, payload]`; only where events enter the network: "
    "`Accepted` at brokers, `Published` at clients.",
    DETAILS: "The fields without a column of their own, as a JSON object (with `NaN`, `Infinity` "
    "and `-Infinity`).",
}
"""The columns in their order, with their meanings.

This is a file format: later versions only add columns behind these.
"""

NAMES: Final = {"subscription": "name", "advertisement": "name"}
"""Fields whose column has another name."""

WITH_CONTENT: Final = frozenset({facts.Published.__name__, facts.Accepted.__name__})
"""The facts whose events are written in full: each event once, where it enters the network."""

Row = Mapping[str, Any]
Known = Mapping[EventId, Event]


class Form(NamedTuple):
    """How the facts of a class are written as rows."""

    columns: dict[str, Callable[[Any], Any]]
    """The value of each column, given the fact."""
    fields: dict[str, Callable[[Sequence[Row], Known], Any]]
    """The value of each field, given the rows of a fact and events in full; `ABSENT` if it is
    missing, as in a journal of an older release."""
    events: Callable[[Any], Sequence[Event | EventId]] | None = None
    """The events that a fact is about."""
    by_link: Callable[[Any], Mapping[LinkId, Sequence[Event]]] | None = None
    """The events that went to each link: a fact with this has a row for each of them."""

    @property
    def filled(self) -> list[str]:
        """The columns that such facts fill, besides `PLACE`, in their order."""
        about = ("publishers", "seqs") if self.events or self.by_link else ()
        links = ("link",) if self.by_link else ()
        return [name for name in MEANINGS if name in {*self.columns, *about, *links}]


ABSENT: Final = object()


def form_of(kind: type[Fact]) -> Form:
    """How the facts of a class are written as rows."""
    form = _forms.get(kind)
    if form is None:
        form = _forms[kind] = _form(kind)
    return form


def stored_type(column: str) -> pa.DataType:
    """The type of a column: that of the first fact's field in it."""
    if column in _FIXED:
        return _FIXED[column]
    return next(
        type_
        for kind in fact_types()
        for field in fields(kind)
        if NAMES.get(field.name, field.name) == column
        and (type_ := _scalar_type(field.type)) is not None
    )


def identities_in(row: Row) -> list[EventId]:
    """The identities of the events that a row is about."""
    seqs, publishers = row["seqs"] or [], row["publishers"] or []
    if len(publishers) == 1:
        publishers = publishers * len(seqs)
    return [EventId(publisher, seq) for publisher, seq in zip(publishers, seqs, strict=True)]


def details_in(row: Row) -> dict[str, Any]:
    """The fields in `details`, as JSON has them."""
    return json.loads(row[DETAILS]) if row[DETAILS] is not None else {}


_FIXED: Final[dict[str, pa.DataType]] = {
    "position": pa.int64(),
    "turn": pa.int32(),
    "kind": pa.string(),
    "at": pa.string(),
    "time_us": pa.int64(),
    "publishers": pa.list_(pa.field("item", pa.string(), nullable=False)),
    "seqs": pa.list_(pa.field("item", pa.int64(), nullable=False)),
    "events": pa.binary(),
    DETAILS: pa.string(),
}
"""The columns that are not single fields of facts."""

_SCALARS: Final[dict[object, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    Filter: pa.string(),
    Scalar: pa.string(),
}

_EVENTS: Final = (tuple[Event, ...], tuple[EventId, ...])
_EVENTS_BY_LINK: Final = Mapping[LinkId, tuple[Event, ...]]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Event, ...])
_forms: dict[type[Fact], Form] = {}


def _form(kind: type[Fact]) -> Form:
    """Assign columns: the first field for a column gets it; the others go to the details."""
    form = Form({}, {})
    details: list[FieldInfo] = []
    taken: set[str] = set()
    for field in fields(kind):
        name = field.name
        if name in {"at", "time"}:
            continue
        wanted = _columns_for(field)
        if not wanted or not taken.isdisjoint(wanted):
            details.append(field)
            form.fields[name] = _detail(field)
            continue
        taken |= wanted
        if field.type in _EVENTS:
            form = form._replace(events=attrgetter(name))
            form.fields[name] = _identities if field.type == tuple[EventId, ...] else _events
            if kind.__name__ in WITH_CONTENT:
                form.columns["events"] = lambda fact: _encoder.encode(fact.events)
        elif field.type == _EVENTS_BY_LINK:
            form = form._replace(by_link=attrgetter(name))
            form.fields[name] = _events_by_link
        else:
            (column,) = wanted
            form.columns[column] = _writer(name, field.type)
            form.fields[name] = _reader(column, field.type)
    if details:
        form.columns[DETAILS] = _details([field.name for field in details])
    return form


def _columns_for(field: FieldInfo) -> set[str]:
    """The columns for a field; empty if there are none for its name and type."""
    if field.name == "events" and field.type in _EVENTS:
        return {"publishers", "seqs"}
    if field.name == "to" and field.type == _EVENTS_BY_LINK:
        return {"link", "publishers", "seqs"}
    column = NAMES.get(field.name, field.name)
    if column not in MEANINGS or column in _FIXED:
        return set()
    return {column} if _scalar_type(field.type) == stored_type(column) else set()


def _scalar_type(type_: Any) -> pa.DataType | None:
    """The type of a column for values of a type; None if there is none."""
    type_ = _without_none(type_)
    if isinstance(type_, type) and issubclass(type_, StrEnum):
        return pa.string()
    return _SCALARS.get(type_)


def _without_none(type_: Any) -> Any:
    parts = [part for part in get_args(type_) if part is not NoneType]
    return parts[0] if len(parts) == 1 and NoneType in get_args(type_) else type_


# ---- Values with a column of their own


def _writer(name: str, type_: Any) -> Callable[[Any], Any]:
    match _without_none(type_):
        case kind if kind is Filter:
            return lambda fact: _text(getattr(fact, name))
        case kind if kind == Scalar:
            return lambda fact: _json(getattr(fact, name))
        case _:
            return attrgetter(name)


def _reader(column: str, type_: Any) -> Callable[[Sequence[Row], Known], Any]:
    is_json = _without_none(type_) == Scalar
    may_be_none = NoneType in get_args(type_)

    def read(rows: Sequence[Row], _known: Known) -> Any:
        value = rows[0][column]
        if value is None:
            return None if may_be_none else ABSENT
        return _converted(json.loads(value) if is_json else value, type_)

    return read


def _text(filter_: Filter | None) -> str | None:
    return None if filter_ is None else str(filter_)


def _json(value: object) -> str:
    # Not msgspec's JSON, which has no NaN and no infinities.
    return json.dumps(value)


def _converted(value: object, type_: Any) -> Any:
    return msgspec.convert(value, type_, dec_hook=_decode)


def _decode(kind: type, value: Any) -> object:
    if kind is Filter:
        return Filter(value)
    raise TypeError(f"a journal cannot hold a {kind.__name__}: use plain data, events and filters")


def _encode(value: object) -> object:
    if isinstance(value, Filter):
        return str(value)
    raise TypeError(
        f"a journal cannot hold a {type(value).__name__}: use plain data, events and filters"
    )


# ---- Events


def _identities(rows: Sequence[Row], _known: Known) -> tuple[EventId, ...]:
    return tuple(identities_in(rows[0]))


def _events(rows: Sequence[Row], known: Known) -> tuple[Event, ...]:
    return _events_of(rows[0], known)


def _events_by_link(rows: Sequence[Row], known: Known) -> dict[LinkId, tuple[Event, ...]]:
    return {row["link"]: _events_of(row, known) for row in rows if row["link"] is not None}


def _events_of(row: Row, known: Known) -> tuple[Event, ...]:
    if row["events"] is not None:
        return _decoder.decode(row["events"])
    return tuple(
        known.get(id_) or Event(publisher=id_.publisher, seq=id_.seq, time_us=0)
        for id_ in identities_in(row)
    )


# ---- Fields without a column of their own


def _details(names: Sequence[str]) -> Callable[[Any], str]:
    def write(fact: Any) -> str:
        values = {name: getattr(fact, name) for name in names}
        return _json(msgspec.to_builtins(values, str_keys=True, enc_hook=_encode))

    return write


def _detail(field: FieldInfo) -> Callable[[Sequence[Row], Known], Any]:
    def read(rows: Sequence[Row], _known: Known) -> Any:
        found = details_in(rows[0])
        if field.name not in found:
            return ABSENT
        return msgspec.convert(found[field.name], field.type, str_keys=True, dec_hook=_decode)

    return read
