"""From batches of facts to batches of tables."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sterna.journal.rows import SCHEMA
from sterna.pipeline.source import events
from sterna.pipeline.source.events import times
from sterna.pipeline.source.query import Bad, Query

Columns = Mapping[str, pa.Array]
Numbers = np.ndarray[Any, np.dtype[Any]]


def converted(batch: pa.RecordBatch, journal: str, query: Query, bad: list[Bad]) -> pa.RecordBatch:
    """The rows of a table from some facts; facts that make none by mistake go to `bad`."""
    form = _FORMS[query.table]
    batch = _chosen(batch, form, query)
    columns = _satisfying(form.columns_of(batch, query, bad), form, query)
    count = len(next(iter(columns.values())))
    columns = {**columns, "journal": pa.repeat(pa.scalar(journal), count)}
    return pa.RecordBatch.from_arrays(
        [_cast(columns[field.name], field.type) for field in query.schema], schema=query.schema
    )


def fitting(batch: pa.RecordBatch, bad: list[Bad]) -> pa.RecordBatch:
    """The facts whose events have a publisher each, or one for all; the others go to `bad`."""
    counts, named = _lengths(batch, "seqs"), _lengths(batch, "publishers")
    fits = (named == counts) | ((named == 1) & (counts > 0))
    if fits.all():
        return batch
    bad += (
        Bad.of(batch, int(row), f"it has {named[row]} publishers for {counts[row]} events")
        for row in np.flatnonzero(~fits)
    )
    return batch.filter(pa.array(fits))


def raw_columns(query: Query) -> list[str]:
    """The columns of the journal that a query needs."""
    form = _FORMS[query.table]
    if form.raw is not None:
        return form.raw
    tables = form.origins
    wanted = {*query.schema.names, *(condition.column for condition in query.conditions)}
    return sorted({"position", "kind"} | {tables[name] for name in wanted if name in tables})


class _Form(NamedTuple):
    """How a table is made from facts."""

    kinds: frozenset[str] | None
    """The kinds of facts that it is made of; None: all."""
    raw: list[str] | None
    """The columns of the journal that it needs; None: those that are asked for."""
    origins: dict[str, str]
    """Columns of the journal itself, with their names there."""
    columns_of: Callable[[pa.RecordBatch, Query, list[Bad]], Columns]
    decided: frozenset[str] = frozenset({"journal"})
    """Columns that need not be checked again: the journal was chosen with the files."""


def _chosen(batch: pa.RecordBatch, form: _Form, query: Query) -> pa.RecordBatch:
    """The facts that can make rows of the table."""
    kinds = form.kinds
    if query.table == "events":
        kinds = frozenset({"Published" if query.publications else "Accepted"})
    masks = [pc.is_in(batch["kind"], pa.array(sorted(kinds)))] if kinds is not None else []
    masks += [
        condition.mask(batch[form.origins[condition.column]])
        for condition in query.conditions
        if condition.column in form.origins
    ]
    return _filtered(batch, masks)


def _satisfying(columns: Columns, form: _Form, query: Query) -> Columns:
    """The rows that satisfy what could not be asked of the facts themselves."""
    masks = [
        condition.mask(columns[condition.column])
        for condition in query.conditions
        if condition.column not in form.origins and condition.column not in form.decided
    ]
    if not masks:
        return columns
    mask = _all(masks)
    return {name: column.filter(mask) for name, column in columns.items()}


def _filtered(batch: pa.RecordBatch, masks: list[pa.Array]) -> pa.RecordBatch:
    return batch.filter(_all(masks)) if masks else batch


def _all(masks: list[pa.Array]) -> pa.Array:
    whole = masks[0]
    for mask in masks[1:]:
        whole = pc.and_(whole, mask)
    return whole


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)


# ---- One function a table.


def _facts(batch: pa.RecordBatch, _query: Query, _bad: list[Bad]) -> Columns:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "time_us" in columns:
        columns["time"] = times(columns.pop("time_us"))
    return columns


def _deliveries(batch: pa.RecordBatch, _query: Query, bad: list[Bad]) -> Columns:
    batch = fitting(batch, bad)
    counts, named = _lengths(batch, "seqs"), _lengths(batch, "publishers")
    rows = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    # One publisher may be written for all events of a fact.
    publisher = np.repeat(np.cumsum(named) - named, counts) + np.where(named[rows] == 1, 0, place)
    parents = pa.array(rows)
    return {
        "client": batch["at"].take(parents),
        "publisher": batch["publishers"].flatten().take(pa.array(publisher)),
        "seq": batch["seqs"].flatten(),
        "time": times(batch["time_us"].take(parents)),
        "kind": batch["kind"].take(parents),
        "anywhere": batch["anywhere"].fill_null(fill_value=False).take(parents),
        "place": pa.array(place.astype(np.int32)),
        "position": batch["position"].take(parents),
        "turn": batch["turn"].take(parents),
        "subscription": batch["name"].take(parents),
    }


def _movements(batch: pa.RecordBatch, _query: Query, _bad: list[Bad]) -> Columns:
    """Movements: from brokers, which clients come and go; from clients, where they are."""
    kind, peer = batch["kind"], batch["peer"]
    moved = pc.equal(kind, "Moved")
    of_client = pc.or_(moved, pc.equal(peer.fill_null("client"), "client"))
    batch = batch.filter(of_client)
    moved, kind = moved.filter(of_client), kind.filter(of_client)
    return {
        "client": pc.if_else(moved, batch["at"], batch["link"]),
        "kind": pc.utf8_lower(kind),
        "time": times(batch["time_us"]),
        "broker": pc.if_else(moved, pa.scalar(None, pa.string()), batch["at"]),
        "location": batch["location"],
        "position": batch["position"],
        "turn": batch["turn"],
    }


def _statistics(batch: pa.RecordBatch, _query: Query, _bad: list[Bad]) -> Columns:
    return {
        "broker": batch["at"],
        "time": times(batch["time_us"]),
        "events": pc.list_value_length(batch["seqs"]).fill_null(0),
        **{name: batch[name] for name in ("kind", "link", "source", "client")},
        **{name: batch[name] for name in ("replayed", "held", "given_up", "position", "turn")},
    }


def _lengths(batch: pa.RecordBatch, column: str) -> Numbers:
    return pc.list_value_length(batch[column]).fill_null(0).to_numpy()  # type: ignore[no-any-return]


_PLACE = ["position", "turn", "kind", "at", "time_us"]

_FORMS = {
    "facts": _Form(
        None,
        None,
        {name: name for name in SCHEMA.names} | {"time": "time_us"},
        _facts,
    ),
    "events": _Form(
        None,  # It depends on `publications`.
        [*_PLACE, "events"],
        {"at": "at", "at_time": "time_us", "position": "position", "turn": "turn"},
        events.columns_of,
        frozenset({"journal", *events.IDENTITY}),
    ),
    "deliveries": _Form(
        frozenset({"Delivered", "Stray", "Recalled", "Repeated", "Missed"}),
        [*_PLACE, "name", "anywhere", "publishers", "seqs"],
        {
            "client": "at",
            "time": "time_us",
            "subscription": "name",
            **{name: name for name in ("kind", "position", "turn")},
        },
        _deliveries,
    ),
    "movements": _Form(
        frozenset({"Attached", "Detached", "Moved"}),
        [*_PLACE, "link", "peer", "location"],
        {"time": "time_us", "position": "position", "turn": "turn"},
        _movements,
    ),
    "statistics": _Form(
        frozenset(
            {
                *("Accepted", "Forwarded", "Discarded", "RingFound", "LinkReset"),
                *("HandoverStarted", "JunctionFound", "HandoverFinished", "ClientForgotten"),
            }
        ),
        [*_PLACE, *("link", "source", "client", "replayed", "held", "given_up", "seqs")],
        {
            "broker": "at",
            "time": "time_us",
            **{name: name for name in ("kind", "link", "source", "client", "position", "turn")},
        },
        _statistics,
    ),
}
