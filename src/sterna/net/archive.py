"""Reads events from the tables that the data pipeline has written, without Spark."""

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter

COLUMNS = ["publisher", "seq", "time", "attributes", "payload"]

_VALUES = ("bool", "int", "float", "string")
_LEAST_US, _GREATEST_US = -(2**63), 2**63 - 1


class ArchiveError(Exception):
    """The archive cannot be read; says why and what to do."""


class Group(NamedTuple):
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
        self._groups: dict[Path, list[Group]] = {}
        """What is in each file; files never change."""

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
        except (OSError, pa.ArrowException, ValueError) as error:
            raise ArchiveError(
                f"the archive {self._table} cannot be read ({error}); look at [history] archive"
            ) from error

    def _newest(
        self, filter_: Filter, days: list[list[Path]], wanted: int, since_us: int, until_us: int
    ) -> list[Event]:
        found: list[tuple[int, str, int, Event]] = []
        for files in days:
            groups = sorted(
                (group for path in files for group in self._groups_of(path)), reverse=True
            )
            for group in groups:
                if group.oldest_us > until_us or group.newest_us < since_us:
                    continue
                if len(found) == wanted and group.newest_us < found[0][0]:
                    break
                for event in _events(group, since_us, until_us):
                    if filter_.matches(event.attributes):
                        entry = (event.time_us, event.publisher, event.seq, event)
                        (heapq.heappush if len(found) < wanted else heapq.heappushpop)(found, entry)
            if len(found) == wanted:
                break
        return self._cut([event for *_, event in sorted(found, key=lambda entry: entry[:3])])

    def _cut(self, events: list[Event]) -> list[Event]:
        """As many of the last ones as may be sent."""
        size_bytes = 0
        for place, event in enumerate(reversed(events)):
            size_bytes += 64 + len(event.payload) + 32 * len(event.attributes)
            size_bytes += sum(len(v) for v in event.attributes.values() if isinstance(v, str))
            if size_bytes > self._bytes_max:
                return events[len(events) - place :]
        return events

    # ---- Files

    def _days(self, since_us: int, until_us: int) -> list[list[Path]]:
        """The files of each day between two times, the last day first."""
        if not self._table.is_dir():
            return []
        days: dict[str, list[Path]] = {}
        for path in sorted(self._table.glob("day=*/*.parquet")):
            days.setdefault(path.parent.name.removeprefix("day="), []).append(path)
        first, last = _day(since_us), _day(until_us)
        return [days[day] for day in sorted(days, reverse=True) if first <= day <= last]

    def _groups_of(self, path: Path) -> list[Group]:
        known = self._groups.get(path)
        if known is None:
            known = self._groups[path] = list(_groups(path))
        return known


def _groups(path: Path) -> Iterator[Group]:
    metadata = pq.read_metadata(path)
    names = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    place = names.index("time")
    for number in range(metadata.num_row_groups):
        known = metadata.row_group(number).column(place).statistics
        if known is None or not known.has_min_max:
            yield Group(_GREATEST_US, _LEAST_US, path, number)
        else:
            yield Group(_us(known.max), _us(known.min), path, number)


def _events(group: Group, since_us: int, until_us: int) -> Iterator[Event]:
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


def _us(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round((aware - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
