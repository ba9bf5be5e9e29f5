"""Journals for tests: facts that nodes recorded, and what each table should hold of them."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
from hypothesis import strategies as st
from msgspec.structs import fields, replace
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.names import Peer
from sterna.journal import Journal, rows_of
from sterna.model.event import Event, EventId, Scalar
from sterna.model.filters import Filter
from sterna.pipeline.source import SternaSource
from tests.journal.test_journal import ALL_FACTS, any_fact

Row = dict[str, Any]
Recorded = dict[str, list[tuple[int, list[Fact]]]]
"""By node, positions with the facts of each."""

NODES = ("B1", "B2", "car-7", "a/ä-1")


def _storable(fact: Fact) -> Fact:
    """With times that Arrow's readers in Python can show."""
    return replace(fact, time=fact.time % 10**15)


some_facts = st.lists(any_fact.map(_storable), min_size=1, max_size=4)


@st.composite
def recordings(draw: st.DrawFn, nodes: tuple[str, ...] = NODES) -> Recorded:
    """What some nodes have recorded: positions ascend, with gaps."""
    found: Recorded = {}
    for node in draw(st.lists(st.sampled_from(nodes), unique=True, min_size=1, max_size=3)):
        steps = draw(st.lists(st.tuples(st.integers(1, 5), some_facts), min_size=1, max_size=6))
        position = draw(st.integers(0, 3))
        found[node] = []
        for step, stated in steps:
            position += step
            found[node].append((position, stated))
    return found


def one_of_each(node: str) -> list[Fact]:
    """A fact of every kind."""
    events = accepted(node, 1, text="é", flag=True, real=math.nan).events
    ids = tuple(event.id for event in events)
    values: dict[Any, Any] = {
        str: node,
        int: 7,
        bool: True,
        str | None: node,
        int | None: 7,
        Filter: Filter("a > 1"),
        Scalar: 0.5,
        Peer: Peer.CLIENT,
        Peer | None: Peer.CLIENT,
        tuple[Event, ...]: events,
        tuple[EventId, ...]: ids,
        Mapping[str, tuple[Event, ...]]: {"x": events, "y": events[:1]},
    }
    return [
        kind(**{field.name: values[get_type_hints(kind)[field.name]] for field in fields(kind)})
        for kind in ALL_FACTS
    ]


def write(
    directory: Path,
    recorded: Recorded,
    *,
    flush: Callable[[], bool] = lambda: True,
    roll: Callable[[], bool] = lambda: False,
    close: Callable[[], bool] = lambda: True,
) -> list[Journal]:
    """Write journals as nodes do; the functions decide where batches and files end.

    Those are returned whose last file is still open.
    """
    opened = []
    for number, (node, inputs) in enumerate(recorded.items()):
        journal = Journal(directory / f"node{number}" / "journal", node)
        for position, stated in inputs:
            journal.record(position, stated)
            if flush():
                journal.flush()
            if roll():
                journal.roll()
        journal.flush()
        if close():
            journal.close()
        else:
            opened.append(journal)
    return opened


def source(directory: Path, **options: Any) -> SternaSource:
    """The source as Spark makes it."""
    texts = {name: str(value) for name, value in options.items()}
    return SternaSource(CaseInsensitiveDict({"path": str(directory), **texts}))


def reader(directory: Path, **options: Any) -> DataSourceReader:
    made = source(directory, **options)
    return made.reader(made.schema())


def stream_reader(directory: Path, **options: Any) -> DataSourceStreamReader:
    made = source(directory, **options)
    return made.streamReader(made.schema())


def rows_in(reading: DataSourceReader | DataSourceStreamReader, parts: Iterable[Any]) -> list[Row]:
    """The rows of some partitions; points in time are microseconds."""
    batches: list[Any] = [batch for part in parts for batch in reading.read(part)]
    return [row for batch in batches for row in plain(batch)]


def positions_in(offset: Mapping[str, Any]) -> dict[str, int]:
    """The positions of an offset, whatever it says of incarnations."""
    return {
        node: place["position"] if isinstance(place, dict) else place
        for node, place in offset.items()
    }


def read(directory: Path, **options: Any) -> list[Row]:
    """The rows of a batch query, whose batches must be as Spark wants them."""
    made = source(directory, **options)
    reading = made.reader(made.schema())
    wanted = to_arrow_schema(made.schema(), timezone="UTC")
    batches: list[Any] = [b for part in reading.partitions() for b in reading.read(part)]
    assert all(batch.schema.equals(wanted) for batch in batches)
    return [row for batch in batches for row in plain(batch)]


def plain(batch: pa.RecordBatch) -> list[Row]:
    fields = [
        field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field
        for field in batch.schema
    ]
    rows: list[Row] = batch.cast(pa.schema(fields)).to_pylist()
    return rows


def in_order(rows: Iterable[Row]) -> list[str]:
    """Rows that can be compared: NaN is in attributes, and the order of journals is open."""
    return sorted(repr(sorted(row.items())) for row in rows)


# ---- What each table should hold.


def expected(recorded: Recorded, table: str) -> list[Row]:
    """The rows of a table, one fact after the other."""
    rows_of_fact = {**TABLES, "publications": _events(facts.Published)}[table]
    return [
        {**row, "journal": node, "position": position, "turn": turn}
        for node, inputs in recorded.items()
        for position, stated in inputs
        for turn, fact in enumerate(stated)
        for row in rows_of_fact(fact)
    ]


def _facts(fact: Fact) -> list[Row]:
    rows: list[Row] = rows_of([(0, 0, fact)]).to_pylist()
    for row in rows:
        row["time"] = row.pop("time_us")
    return rows


def _events(kind: type[facts.Accepted | facts.Published]) -> Callable[[Fact], list[Row]]:
    def rows_of_fact(fact: Fact) -> list[Row]:
        if not isinstance(fact, kind):
            return []
        return [
            {
                "publisher": event.publisher,
                "seq": event.seq,
                "time": event.time_us,
                "attributes": attribute_map(event.attributes),
                "payload": event.payload,
                "at": fact.at,
                "at_time": fact.time,
            }
            for event in fact.events
        ]

    return rows_of_fact


def attribute_map(attributes: Mapping[str, Scalar]) -> list[tuple[str, Row]]:
    """As Arrow shows a map."""
    names = {bool: "bool", int: "int", float: "float", str: "string"}
    empty = dict.fromkeys(names.values())
    return [(name, {**empty, names[type(value)]: value}) for name, value in attributes.items()]


_AT_CLIENTS = (facts.Delivered, facts.Stray, facts.Recalled, facts.Repeated, facts.Missed)


def _deliveries(fact: Fact) -> list[Row]:
    if not isinstance(fact, _AT_CLIENTS):
        return []
    events: tuple[Event | EventId, ...] = fact.events
    return [
        {
            "client": fact.at,
            "publisher": event.publisher,
            "seq": event.seq,
            "time": fact.time,
            "kind": type(fact).__name__,
            "place": place,
            "anywhere": isinstance(fact, facts.Delivered) and fact.anywhere,
            "subscription": fact.subscription if isinstance(fact, facts.Recalled) else None,
        }
        for place, event in enumerate(events)
    ]


def _movements(fact: Fact) -> list[Row]:
    match fact:
        case facts.Attached(peer=Peer.CLIENT) | facts.Detached(peer=Peer.CLIENT | None):
            kind = type(fact).__name__.lower()
            row = {"client": fact.link, "kind": kind, "broker": fact.at, "location": None}
        case facts.Moved():
            row = {"client": fact.at, "kind": "moved", "broker": None, "location": fact.location}
        case _:
            return []
    return [{**row, "time": fact.time}]


def _statistics(fact: Fact) -> list[Row]:
    names = ("link", "source", "client", "replayed", "held", "given_up")
    row = {name: getattr(fact, name, None) for name in names}
    row |= {"broker": fact.at, "kind": type(fact).__name__, "time": fact.time, "events": 0}
    match fact:
        case facts.Forwarded(to=to):
            parts = to.items() or [(None, ())]
            return [{**row, "link": link, "events": len(events)} for link, events in parts]
        case facts.Accepted() | facts.Discarded():
            return [{**row, "events": len(fact.events)}]
        case (
            facts.RingFound()
            | facts.LinkReset()
            | facts.HandoverStarted()
            | facts.JunctionFound()
            | facts.HandoverFinished()
            | facts.ClientForgotten()
        ):
            return [row]
    return []


TABLES: dict[str, Callable[[Fact], list[Row]]] = {
    "facts": _facts,
    "events": _events(facts.Accepted),
    "deliveries": _deliveries,
    "movements": _movements,
    "statistics": _statistics,
}


def accepted(node: str, position: int, count: int = 3, **attributes: Scalar) -> facts.Accepted:
    """Events that a broker took, each of them different."""
    events = (
        Event(
            publisher="p",
            seq=position * 100 + number + 1,
            time_us=position * 1_000_000 + number,
            attributes={"number": number, **attributes},
        )
        for number in range(count)
    )
    return facts.Accepted(at=node, time=position * 1_000_000, link="p", events=tuple(events))
