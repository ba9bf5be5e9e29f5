"""What lies before a broker's own memory comes from the archive: all of it, once, in order."""

import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna import ArchiveError
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net import blocking
from sterna.net.archive import Archive
from sterna.net.local import LocalNetwork
from tests.scale import examples
from tests.strategies import scalars

DAY_US = 86_400_000_000
NOW_US = 1_790_000_000_000_000

VALUE = pa.struct(
    [("bool", pa.bool_()), ("int", pa.int64()), ("float", pa.float64()), ("string", pa.string())]
)
SCHEMA = pa.schema(
    [
        ("publisher", pa.string()),
        ("seq", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("attributes", pa.map_(pa.string(), VALUE)),
        ("payload", pa.binary()),
    ]
)
FIELDS = {bool: "bool", int: "int", float: "float", str: "string"}


def write(tables: Path, files: Sequence[Sequence[Event]], *, rows: int = 3, first: int = 0) -> None:
    """Tables as the pipeline writes them: a folder a day, in which every file counts."""
    for number, events in enumerate(files, start=first):
        for day in sorted({_day(event.time_us) for event in events}):
            path = tables / "events" / f"day={day}" / f"part-{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, [event for event in events if _day(event.time_us) == day], rows)


def _write(path: Path, events: Sequence[Event], rows: int) -> None:
    columns = {
        "publisher": [event.publisher for event in events],
        "seq": [event.seq for event in events],
        "time": [event.time_us for event in events],
        "attributes": [
            [(name, {FIELDS[type(value)]: value}) for name, value in event.attributes.items()]
            for event in events
        ],
        "payload": [event.payload for event in events],
    }
    pq.write_table(pa.table(columns, schema=SCHEMA), path, row_group_size=rows)


def _day(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d")


def event(seq: int, time_us: int, **attributes: object) -> Event:
    return Event(publisher="p", seq=seq, time_us=time_us, attributes=attributes)  # type: ignore[arg-type]


events = st.builds(
    Event,
    publisher=st.sampled_from(["p", "q"]),
    seq=st.integers(1, 1000),
    time_us=st.integers(NOW_US - 3 * DAY_US, NOW_US),
    attributes=st.dictionaries(st.sampled_from(["a", "b"]), scalars, max_size=2),
    payload=st.binary(max_size=3),
)


@pytest.mark.spec("PA-6")
@given(
    st.lists(st.lists(events, min_size=1, max_size=8), max_size=4),
    st.sampled_from(["a > 0", "b IS NULL", "a = 'x' OR b = TRUE", "TRUE"]),
    st.none() | st.integers(0, 12),
    st.integers(NOW_US - 4 * DAY_US, NOW_US),
    st.integers(NOW_US - 4 * DAY_US, NOW_US),
)
@examples(60, long=600)
def test_the_last_events_that_match(
    files: list[list[Event]], text: str, events_max: int | None, since_us: int, until_us: int
) -> None:
    """Whatever the files: the answer is that of looking at every event."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), files)
        found = Archive(Path(folder)).past(
            Filter(text), events_max=events_max, since_us=since_us, until_us=until_us
        )

    matching = [
        each
        for each in (event for file in files for event in file)
        if since_us <= each.time_us <= until_us and Filter(text).matches(each.attributes)
    ]
    times = sorted(each.time_us for each in matching)
    if events_max is not None:
        times = times[len(times) - min(events_max, len(times)) :]
    assert [each.time_us for each in found] == times
    assert all(any(each == other for other in matching) for each in found)


@pytest.mark.spec("PA-6")
def test_files_whose_times_overlap_are_all_read(tmp_path: Path) -> None:
    """That enough was found in the newest file does not mean that it has the last events."""
    write(tmp_path, [[event(1, NOW_US + 1), event(10, NOW_US + 10)]], rows=9)
    write(tmp_path, [[event(2, NOW_US + 2), event(9, NOW_US + 9)]], rows=9, first=1)
    assert [each.seq for each in Archive(tmp_path).past(Filter("TRUE"), events_max=2)] == [9, 10]


@pytest.mark.spec("PA-6")
def test_limits_and_damage(tmp_path: Path) -> None:
    """No more than may be sent; no folder is an empty archive; a torn file is an error."""
    write(tmp_path, [[event(n, NOW_US + n, text="x" * 1000) for n in range(1, 21)]])
    assert Archive(tmp_path / "nowhere").past(Filter("TRUE")) == []
    by_count = Archive(tmp_path, events_max=5).past(Filter("TRUE"), events_max=10)
    assert [each.seq for each in by_count] == [16, 17, 18, 19, 20]
    by_size = Archive(tmp_path, bytes_max=3_500).past(Filter("TRUE"))
    assert [each.seq for each in by_size] == [18, 19, 20]
    (path,) = tmp_path.glob("events/day=*/*.parquet")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArchiveError, match=r"cannot be read .*; look at \[history\] archive"):
        Archive(tmp_path).past(Filter("TRUE"))


@pytest.mark.spec("PA-6")
def test_tables_that_were_made_anew(tmp_path: Path) -> None:
    """A refresh gives other files the same names; what was known of the old ones is forgotten."""
    archive = Archive(tmp_path)
    write(tmp_path, [[event(n, NOW_US + n) for n in range(1, 21)]])
    assert len(archive.past(Filter("TRUE"))) == 20
    write(tmp_path, [[event(n, NOW_US + n) for n in (31, 32)]])
    assert [each.seq for each in archive.past(Filter("TRUE"), since_us=NOW_US + 30)] == [31, 32]


@pytest.mark.spec("PA-6")
def test_clocks_that_are_wrong_by_thousands_of_years(tmp_path: Path) -> None:
    """Their events are nobody's history, and in nobody's way."""
    write(tmp_path, [[event(1, NOW_US)]])
    (table,) = (tmp_path / "events").iterdir()
    for day in ("12019-01-01", "-1199-01-01", "__HIVE_DEFAULT_PARTITION__"):
        (table.parent / f"day={day}").mkdir()
        (table.parent / f"day={day}" / "part.parquet").write_bytes(b"")
    assert [each.seq for each in Archive(tmp_path).past(Filter("TRUE"))] == [1]


@pytest.mark.spec("PA-6")
def test_a_search_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some time, or when the broker stops, with the last events and no gap in them."""
    write(tmp_path, [[event(n, NOW_US + n) for n in seqs] for seqs in ((11, 20), (12, 19))])
    archive = Archive(tmp_path)
    now = iter(range(1000))
    monkeypatch.setattr("sterna.net.archive.time.monotonic", lambda: next(now))
    monkeypatch.setattr("sterna.net.archive.LOOK_S", 1.5)
    assert [each.seq for each in archive.past(Filter("TRUE"))] == [20]
    archive.is_stopped = True
    assert archive.past(Filter("TRUE")) == []


@pytest.mark.spec("PA-6")
def test_a_subscription_begins_with_the_archive(tmp_path: Path) -> None:
    """First what the archive has, then what the broker has, then what comes; each event once.

    Also after the broker was killed; and with a broken archive, what the broker has itself.
    """
    tables = tmp_path / "tables"
    old = [event(seq, NOW_US + seq, kind="news", number=-seq) for seq in range(1, 6)]
    write(tables, [old, [event(9, NOW_US, kind="other", number=0)]])
    config = {"history": {"archive": str(tables)}}
    with LocalNetwork(1, directory=tmp_path / "data", config=config) as network:
        url = network.urls["B1"]
        with blocking.connect(url, client="p") as publisher:
            for number in range(3):
                publisher.publish(kind="news", number=number)
            publisher.drain()
            assert _taken(url, 8) == [-1, -2, -3, -4, -5, 0, 1, 2]
            assert _taken(url, 6, past=6) == [-3, -4, -5, 0, 1, 2]
            assert _taken(url, 2, past=2) == [1, 2], "the broker has enough"
            network.kill("B1")
            network.restart("B1")
            assert _taken(url, 8) == [-1, -2, -3, -4, -5, 0, 1, 2]
            for path in tables.glob("events/day=*/*"):
                path.write_bytes(b"PAR1")
            assert _taken(url, 3) == [0, 1, 2]
            assert "look at [history] archive" in network.messages("B1").read_text()


@pytest.mark.spec("PA-6", "LV-1")
def test_a_broker_that_dies_while_it_looks_asks_again(tmp_path: Path) -> None:
    """The lookup is part of the broker's state: the client that asked gets the answer."""
    tables = tmp_path / "tables"
    write(tables, [[event(1, NOW_US, kind="news", number=-1)]])
    (path,) = tables.glob("events/day=*/*.parquet")
    whole = path.rename(tmp_path / "whole")
    os.mkfifo(path)  # Whoever reads it waits until somebody writes.
    config = {"history": {"archive": str(tables)}}
    with (
        LocalNetwork(1, directory=tmp_path / "data", config=config) as network,
        blocking.connect(network.urls["B1"]) as client,
    ):
        failures = 0
        while True:
            subscription = client.subscribe("kind = 'news'", past=5, name=f"try {failures}")
            client.publish(kind="nothing").wait(60)  # What was sent before it is in the log now.
            with path.open("wb"):  # Now the broker has opened it.
                network.kill("B1")
            if network.messages("B1").read_text().count("cannot be read") == failures:
                break
            failures += 1  # It was fast enough to see that this is no file, and to say so.
            network.restart("B1")
        path.unlink()
        whole.rename(path)
        network.restart("B1")
        assert subscription.get(timeout=60).attributes["number"] == -1


def _taken(url: str, count: int, past: int = 100) -> list[object]:
    """The first events of a subscription that begins with the past, and one that comes then."""
    with blocking.connect(url) as client:
        subscription = client.subscribe("kind = 'news'", past=past)
        return [subscription.get(timeout=30).attributes["number"] for _ in range(count)]
