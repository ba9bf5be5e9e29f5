"""Journals of a made-up network, with all that an audit has to read, and a few planted faults."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from sterna.journal.rows import SCHEMA, schema_of
from sterna.journal.segments import END, batch_message, file_name, finished_path, schema_message
from sterna.model.delivery import Fault

BROKERS = ("B1", "B2", "B3")
FOLLOWERS = 5
"""How many clients get each event."""
START_US = 1_700_000_000_000_000
EVENT_EVERY_US = 50
CALM_US = 60_000_000
"""How long all clients are connected before the first event and after the last one."""
BATCH_EVENTS = 16_384
"""About how many events a batch of the journal has."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Planted = tuple[Fault, str, str, int]
"""The fault, the client, and the publisher and number of the event."""


@dataclass
class WrittenJournals:
    """The content of the journals."""

    facts: int = 0
    """How many rows the journals have together."""
    identities: int = 0
    """How many events the rows name. An event counts in each row that names it."""
    deliveries: int = 0
    planted: list[Planted] = field(default_factory=list)


def write_journals(
    directory: Path, events: int, *, batch: int = 1_000, clients: int = 200, publishers: int = 50
) -> WrittenJournals:
    """Write what brokers and clients would: each event published once, and delivered five times.

    It is accepted by one broker and forwarded by three. A fact has up to `batch` events. One event
    is lost, one comes twice, and two of a publisher change places, each for another client.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = WrittenJournals()
    city = _City(events, clients, publishers)
    for publisher in range(publishers):
        mine = np.arange(publisher, events, publishers)
        sheet = Sheet(directory, f"publisher-{publisher}", city, batch, written)
        sheet.begin()
        sheet.events("Published", mine, content=True)
        sheet.end()
    order = np.argsort(city.topic, kind="stable")
    bounds = np.searchsorted(city.topic[order], np.arange(clients + 1))
    for client in range(clients):
        topics = [(client + step) % clients for step in range(FOLLOWERS)]
        mine = np.concatenate([order[bounds[topic] : bounds[topic + 1]] for topic in topics])
        mine = _spoilt(client, np.sort(mine), city, written.planted)
        sheet = Sheet(directory, f"client-{client}", city, batch, written)
        sheet.begin([f"topic = {topic} AND price < 100" for topic in topics])
        sheet.events("Delivered", mine)
        sheet.end()
    for here, there in zip(BROKERS, (*BROKERS[1:], "client-0"), strict=True):
        sheet = Sheet(directory, here, city, batch, written)
        if here == BROKERS[0]:
            sheet.events("Accepted", np.arange(events), content=True, link="publisher-0")
        sheet.events("Forwarded", np.arange(events), link=there, source="publisher-0")
        sheet.finish()
    return written


class City(Protocol):
    """All events: their publishers, numbers and times, and when all is over."""

    names: list[str]
    publisher: Numbers
    seq: Numbers
    time_us: Numbers
    end_us: int

    def content(self, numbers: Numbers) -> bytes:
        """Some of the events, as journals have them."""
        ...


class _City:
    """Events of many topics, in a row."""

    def __init__(self, events: int, clients: int, publishers: int) -> None:
        number = np.arange(events)
        self.names = [f"publisher-{each}" for each in range(publishers)]
        self.publisher = number % publishers
        self.seq = number // publishers + 1
        self.time_us = START_US + number * EVENT_EVERY_US
        self.topic = np.random.default_rng(7).integers(clients, size=events)
        self.end_us = START_US + events * EVENT_EVERY_US + CALM_US

    def identity(self, number: int) -> tuple[str, int]:
        return self.names[self.publisher[number]], int(self.seq[number])

    def content(self, numbers: Numbers) -> bytes:
        rows = zip(
            self.publisher[numbers].tolist(),
            self.seq[numbers].tolist(),
            self.time_us[numbers].tolist(),
            self.topic[numbers].tolist(),
            strict=True,
        )
        return msgspec.msgpack.encode(
            [
                (self.names[publisher], seq, time_us, {"topic": topic, "price": seq % 100}, b"")
                for publisher, seq, time_us, topic in rows
            ]
        )


def _spoilt(client: int, mine: Numbers, city: _City, planted: list[Planted]) -> Numbers:
    """The events that a client gets, with a fault for three of the clients."""
    middle = len(mine) // 2
    name = f"client-{client}"
    match client:
        case 1:
            planted.append((Fault.LOST, name, *city.identity(mine[middle])))
            return np.delete(mine, middle)
        case 2:
            planted.append((Fault.DUPLICATED, name, *city.identity(mine[middle])))
            return np.insert(mine, middle + len(mine) // 4, mine[middle])
        case 3:
            same = np.flatnonzero(city.publisher[mine] == city.publisher[mine[middle]])
            one, other = same[len(same) // 2 : len(same) // 2 + 2]
            planted.append((Fault.REORDERED, name, *city.identity(mine[one])))
            mine = mine.copy()
            mine[[one, other]] = mine[[other, one]]
    return mine


class Sheet:
    """The journal of one node."""

    def __init__(
        self, directory: Path, node: str, city: City, batch: int, written: WrittenJournals
    ) -> None:
        self._node, self._city, self._batch, self._written = node, city, batch, written
        self._path = directory / file_name(node, 0, START_US)
        self._file = self._path.open("wb")
        self._file.write(schema_message(schema_of(node, 0)))
        self._messages = 1
        self._position = 0
        self.delivered = 0

    def begin(self, filters: Sequence[str] = ()) -> None:
        """Connect, and subscribe."""
        names = [f"{number}" for number in range(len(filters))]
        kinds = ["Attached"] + ["Subscribed"] * len(filters)
        self.rows(
            kinds,
            np.full(len(kinds), START_US - CALM_US),
            link=["B1", *[None] * len(filters)],
            peer=["broker", *[None] * len(filters)],
            name=[None, *names],
            filter=[None, *filters],
        )

    def end(self) -> None:
        """Disconnect."""
        self.rows(["Detached"], np.array([self._city.end_us]), link=["B1"])
        self.finish()

    def finish(self) -> None:
        self._file.write(END)
        self._file.close()
        self._path.rename(finished_path(self._path))

    def events(
        self, kind: str, numbers: Numbers, *, content: bool = False, **same: str | None
    ) -> None:
        """Facts about events, in order."""
        city, step = self._city, max(1, BATCH_EVENTS // self._batch) * self._batch
        for start in range(0, len(numbers), step):
            part = numbers[start : start + step]
            starts = np.append(np.arange(0, len(part), self._batch), len(part))
            times = np.maximum.accumulate(city.time_us[part])[starts[1:] - 1]
            count = len(starts) - 1
            columns: dict[str, Any] = {name: [value] * count for name, value in same.items()}
            if content:
                columns["events"] = [city.content(part[a:b]) for a, b in pairwise(starts)]
            columns["seqs"] = _lists(starts, pa.array(city.seq[part]))
            columns["publishers"] = self._publishers(part, starts)
            self.rows([kind] * count, times, **columns)
            self._written.identities += len(part)

    def _publishers(self, part: Numbers, starts: Numbers) -> pa.Array:
        who = self._city.publisher[part]
        if np.all(who == who[0]):  # One publisher is written for all.
            count = len(starts) - 1
            return _lists(np.arange(count + 1), pa.array([self._city.names[who[0]]] * count))
        return _lists(starts, pa.array(self._city.names).take(pa.array(who)))

    def rows(self, kinds: list[str], times_us: Numbers, **columns: Any) -> None:
        """Facts, each of a kind and a time, with these columns."""
        count = len(kinds)
        columns |= {
            "position": np.arange(self._position, self._position + count),
            "turn": np.zeros(count, np.int32),
            "kind": kinds,
            "at": [self._node] * count,
            "time_us": times_us,
        }
        empty: dict[str, Any] = {"publishers": [[]] * count, "seqs": [[]] * count}
        arrays: list[pa.Array] = []
        for each in SCHEMA:
            value = columns.get(each.name, empty.get(each.name))
            if value is None:
                arrays.append(pa.nulls(count, each.type))
            else:
                arrays.append(
                    value.cast(each.type)
                    if isinstance(value, pa.Array)
                    else pa.array(value, each.type)
                )
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        self._file.write(batch_message(batch, self._messages))
        self._messages += 1
        self._position += count
        self._written.facts += count


def _lists(starts: Numbers, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)
