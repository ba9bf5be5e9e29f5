"""Reads events from the tables that the data pipeline has written, without Spark."""

import heapq
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sterna.core.sizes import weight
from sterna.delta import DAY, files_of, is_day
from sterna.errors import ArchiveError, MissingExtraError
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter

log = logging.getLogger("sterna.broker")

LOOK_S = 60.0
"""After so many seconds a lookup is answered with what was found so far."""

COLUMNS = ["publisher", "seq", "time", "attributes", "payload"]

_VALUES = ("bool", "int", "float", "string")
_LEAST_US, _GREATEST_US = -(2**63), 2**63 - 1


class RowGroup(NamedTuple):
    """A part of a file whose events were published between two times."""

    newest_us: int
    oldest_us: int
    path: Path
    number: int


class Archive:
    """The table of events in a folder of tables."""

    def __init__(
        self, tables: Path, *, events_max: int = 100_000, bytes_max: int = 16 * 2**20
    ) -> None:
        self._table = tables / "events"
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._groups: dict[Path, tuple[tuple[int, int], list[RowGroup]]] = {}
        """The groups of each file, and the version of the file: a refresh replaces files."""
        self.is_stopped = False
        """Set by another thread that waits for this one."""

    def past(
        self,
        filter_: Filter,
        *,
        events_max: int | None = None,
        since_us: int = _LEAST_US,
        until_us: int = _GREATEST_US,
    ) -> list[Event]:
        """The last events that match and were published between two times, oldest first.

        The newest parts are read first, and no more of them than needed.
        """
        wanted = self._events_max if events_max is None else min(events_max, self._events_max)
        try:
            days = self._days(since_us, until_us)
            return self._newest(filter_, days, wanted, since_us, until_us) if wanted else []
        except MissingExtraError as error:
            raise ArchiveError(str(error)) from error
        except (OSError, pa.ArrowException, ValueError) as error:
            raise ArchiveError(
                f"the archive {self._table} cannot be read ({error}); look at [history] archive"
            ) from error

    def _newest(
        self, filter_: Filter, days: list[list[Path]], wanted: int, since_us: int, until_us: int
    ) -> list[Event]:
        newest = _Newest(wanted, self._bytes_max)
        until = time.monotonic() + LOOK_S
        for files in days:
            groups = sorted(
                (group for path in files for group in self._groups_of(path)), reverse=True
            )
            for group in groups:
                if group.oldest_us > until_us or group.newest_us < since_us:
                    continue
                if group.newest_us < newest.bound_us:
                    break
                if self.is_stopped or time.monotonic() > until:
                    log.warning("looking into %s took too long: the rest is left out", self._table)
                    return newest.since(group.newest_us + 1)
                for event in _events(group, since_us, until_us):
                    if event.time_us >= newest.bound_us and filter_.matches(event.attributes):
                        newest.add(event)
            if newest.bound_us > _LEAST_US:
                break  # Other days are older.
        return newest.since(_LEAST_US)

    # ---- Files

    def _days(self, since_us: int, until_us: int) -> list[list[Path]]:
        """The files of each day between two times, the last day first."""
        if not self._table.is_dir():
            return []
        days: dict[str, list[Path]] = {}
        for path in files_of(self._table):
            day = path.parent.name.removeprefix(f"{DAY}=")
            if is_day(day):
                days.setdefault(day, []).append(path)
        listed = {path for files in days.values() for path in files}
        self._groups = {path: known for path, known in self._groups.items() if path in listed}
        first, last = _day(since_us), _day(until_us)
        return [days[day] for day in sorted(days, reverse=True) if first <= day <= last]

    def _groups_of(self, path: Path) -> list[RowGroup]:
        about = path.stat()
        version = (about.st_mtime_ns, about.st_size)
        known = self._groups.get(path)
        if known is None or known[0] != version:
            known = self._groups[path] = (version, list(_groups(path)))
        return known[1]


class _Newest:
    """The newest of the events that are added, up to a limit."""

    def __init__(self, events_max: int, bytes_max: int) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._found: list[tuple[int, str, int, int, int, Event]] = []
        """A heap, oldest first, of events with their sizes and a unique number each."""
        self._numbers = count()
        self._gone_us = _LEAST_US

    @property
    def bound_us(self) -> int:
        """Events older than this need not be added."""
        is_full = len(self._found) == self._events_max
        return max(self._gone_us, self._found[0][0] if is_full else _LEAST_US)

    def add(self, event: Event) -> None:
        size = weight(event)
        self._bytes += size
        heapq.heappush(
            self._found,
            (event.time_us, event.publisher, event.seq, next(self._numbers), size, event),
        )
        while self._found and (
            len(self._found) > self._events_max or self._bytes > self._bytes_max
        ):
            self._gone_us, *_, size, _event = heapq.heappop(self._found)
            self._bytes -= size

    def since(self, time_us: int) -> list[Event]:
        """The events that were published at a time or later, oldest first."""
        found = sorted(self._found)
        return [event for *_, event in found if event.time_us >= time_us]


def _groups(path: Path) -> Iterator[RowGroup]:
    metadata = pq.read_metadata(path)
    names = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    place = names.index("time")
    for number in range(metadata.num_row_groups):
        known = metadata.row_group(number).column(place).statistics
        if known is None or not known.has_min_max:
            yield RowGroup(_GREATEST_US, _LEAST_US, path, number)
        else:
            yield RowGroup(_us(known.max), _us(known.min), path, number)


def _events(group: RowGroup, since_us: int, until_us: int) -> Iterator[Event]:
    """The events of a part of a file that were published between two times."""
    with pq.ParquetFile(group.path) as file:
        table = file.read_row_group(group.number, columns=COLUMNS)
    times = table["time"].cast(pa.timestamp("us", table["time"].type.tz)).cast(pa.int64())
    table = table.set_column(table.column_names.index("time"), "time", times)
    wanted = pc.and_(
        pc.greater_equal(times, pa.scalar(since_us)), pc.less_equal(times, pa.scalar(until_us))
    )
    for batch in table.filter(wanted).to_batches():
        rows = zip(*(batch[name].to_pylist() for name in COLUMNS[:3]), strict=True)
        payloads = batch["payload"].to_pylist()
        for (publisher, seq, time_us), attributes, payload in zip(
            rows, _attributes(batch["attributes"]), payloads, strict=True
        ):
            yield Event(
                publisher=publisher,
                seq=seq,
                time_us=time_us,
                attributes=attributes,
                payload=payload or b"",
            )


def _attributes(maps: pa.MapArray) -> Iterator[dict[str, Scalar]]:
    """The attributes of each event; of the fields of a value, one is set."""
    starts = maps.offsets.to_pylist()
    first = starts[0]
    items = maps.items.slice(first, starts[-1] - first)
    keys = maps.keys.slice(first, starts[-1] - first).to_pylist()
    fields: list[list[Any]] = [items.field(name).to_pylist() for name in _VALUES]
    pairs = [
        (key, value)
        for key, found in zip(keys, zip(*fields, strict=True), strict=True)
        for value in [next((each for each in found if each is not None), None)]
    ]
    for begin, end in pairwise(starts):
        yield {key: value for key, value in pairs[begin - first : end - first] if value is not None}


def _day(time_us: int) -> str:
    if time_us <= 0:
        return ""
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d")
    except (OverflowError, OSError, ValueError):
        return "9999-99-99"


def _us(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round((aware - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
