"""Files that are torn, changed or wrong: intact facts are read, and the rest is told."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sterna.core.facts import Stray
from sterna.journal import SCHEMA, Journal, rows_of
from sterna.journal.index import index_of
from sterna.journal.rows import schema_of
from sterna.journal.segments import (
    END,
    SegmentName,
    batch_message,
    file_name,
    finished_path,
    schema_message,
)
from sterna.pipeline.errors import PipelineError
from tests.pipeline import recorded as r
from tests.pipeline.recorded import accepted, in_order, read
from tests.scale import CAMPAIGN

STEP = 1 if CAMPAIGN > 1 else 131
"""Of how many bytes of a file each is cut off or changed."""


def written(directory: Path, *, close: bool) -> Path:
    """A journal with positions 1, 3, 5 and 7 in a batch each, in one file."""
    journal = Journal(directory, "B1")
    for position in (1, 3, 5, 7):
        journal.record(position, [accepted("B1", position, count=1)])
        journal.flush()
    if close:
        journal.close()
    (path,) = directory.glob("*.arrows*")
    return path


def places_of_lengths(path: Path) -> set[int]:
    """The bytes of a file that say how long messages are: their metadata and their bodies."""
    whole = path.read_bytes()
    entries = index_of(SegmentName.of(path)).entries  # type: ignore[arg-type]
    places: set[int] = set()
    for place in (0, *(entry.place for entry in entries)):
        body = place + 8 + int.from_bytes(whole[place + 4 :][:4], "little")
        places |= {*range(place + 4, place + 8), *range(body - 32, body - 24)}
    return places


def positions(rows: list[Any]) -> list[int]:
    return [row["position"] for row in rows]


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize("close", [True, False], ids=["finished", "open"])
def test_a_file_that_is_cut_off(tmp_path: Path, *, close: bool) -> None:
    """Whole batches are read; a finished file says that it is torn, an open one will have more."""
    path = written(tmp_path, close=close)
    whole = path.read_bytes()
    for size in range(0, len(whole), STEP):
        path.write_bytes(whole[:size])
        found = positions(read(tmp_path, badRecords="skip"))
        assert found == [1, 3, 5, 7][: len(found)]
        assert found == positions(read(tmp_path, failOnDataLoss=False, minPartitions=4))
        if close:
            (bad,) = read(tmp_path, badRecords="only")
            assert str(path) in bad["reason"]
            with pytest.raises(PipelineError, match="set failOnDataLoss=false"):
                read(tmp_path)
        else:
            assert positions(read(tmp_path)) == found
            assert read(tmp_path, badRecords="only") == []


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize("close", [True, False], ids=["finished", "open"])
def test_a_byte_that_was_changed(tmp_path: Path, *, close: bool) -> None:
    """Facts are never wrong: what cannot be trusted is left out and told, however it is split.

    In a file that is still written to, a batch with another length may look as if the rest of it
    were on its way: its broker finds out at its next start.
    """
    path = written(tmp_path, close=close)
    whole = path.read_bytes()
    intact = in_order(read(tmp_path))
    lengths = set() if close else places_of_lengths(path)
    for place in sorted({*range(0, len(whole), STEP)} - lengths):
        changed = bytearray(whole)
        changed[place] ^= 0x41
        path.write_bytes(changed)
        found = in_order(read(tmp_path, badRecords="skip"))
        assert set(found) < set(intact)
        assert found == in_order(read(tmp_path, badRecords="skip", minPartitions=3))
        told = read(tmp_path, badRecords="only", minPartitions=2)
        assert {bad["file"] for bad in told} == {str(path)}
        with pytest.raises(PipelineError, match="badRecords=only"):
            read(tmp_path)


@pytest.mark.spec("PL-1")
def test_streams_tell_damage_once(tmp_path: Path) -> None:
    """However many positions a trigger takes, each damaged place is one row, and is passed."""
    journal = Journal(tmp_path, "B1")
    for position in range(1, 13):
        journal.record(position, [accepted("B1", position, count=1)])
        if position % 3 == 0:
            journal.flush()
    journal.close()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    (_, second, _, last) = index_of(SegmentName.of(path)).entries  # type: ignore[arg-type]
    data[second.place + second.size_bytes - 9] ^= 1
    path.write_bytes(data[: last.place + 100])
    for limit in (1, 2, 3, 100):
        told = _streamed(tmp_path, limit, badRecords="only")
        found = _streamed(tmp_path, limit, badRecords="skip")
        assert positions(told) == [4, 10]
        assert positions(found) == [1, 2, 3, 7, 8, 9]


def _streamed(directory: Path, limit: int, **options: Any) -> list[Any]:
    stream = r.stream_reader(directory, startingOffsets="earliest", **options)
    offset, found = stream.initialOffset(), []
    while (end := stream.latestOffset(offset, ReadMaxRows(limit))) != offset:
        found += r.rows_in(stream, stream.partitions(offset, end))
        offset = end
    return found


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_what_a_crash_has_left_is_read_when_it_is_written_again(
    tmp_path: Path, share: float
) -> None:
    """A stream never passes a torn end: its broker writes those positions again at its start."""
    path = written(tmp_path, close=False)
    whole = path.read_bytes()
    stream = r.stream_reader(tmp_path, startingOffsets="earliest")
    (*_, last) = index_of(SegmentName.of(path)).entries  # type: ignore[arg-type]
    gone = int(last.size_bytes * share)  # As after a power cut: the length, but not the bytes.
    path.write_bytes(whole[:-gone] + b"\0" * gone)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert r.positions_in(end) == {"B1": 6}
    assert positions(r.rows_in(stream, stream.partitions(start, end))) == [1, 3, 5]

    journal = Journal(tmp_path, "B1")
    journal.record(7, [accepted("B1", 7, count=1)])
    journal.close()

    again = stream.latestOffset(end, ReadAllAvailable())
    assert positions(r.rows_in(stream, stream.partitions(end, again))) == [7]


def forged(directory: Path, batch: pa.RecordBatch, schema: pa.Schema | None = None) -> Path:
    """A file whose checksums are right, whatever it says."""
    path = directory / file_name("B1", 1, 0)
    first = schema_of("B1", 0) if schema is None else schema
    path.write_bytes(schema_message(first) + batch_message(batch, 1) + END)
    return path.rename(finished_path(path))


def changed(batch: pa.RecordBatch, column: str, values: list[Any]) -> pa.RecordBatch:
    number = batch.schema.get_field_index(column)
    return batch.set_column(
        number, SCHEMA.field(number), pa.array(values, SCHEMA.field(number).type)
    )


@pytest.mark.spec("PL-1")
def test_facts_that_cannot_be_decoded_are_kept_aside(tmp_path: Path) -> None:
    """Bytes that are no events fail the query, or are left out, or are told with the reason."""
    batch = rows_of([(n, 0, accepted("B1", n, count=1)) for n in (1, 2, 3, 4)])
    events = batch["events"].to_pylist()
    huge = b"\x91\x95\xa1p\x01\x02\x81\xa1a\xcf" + b"\xff" * 8 + b"\xc4\x00"  # 2**64 - 1.
    forged(tmp_path, changed(batch, "events", [b"\xc1", None, huge, events[3]]))

    with pytest.raises(PipelineError) as error:
        read(tmp_path)
    assert str(error.value).startswith("fact 1.0 (Accepted) of B1: its events are wrong: ")
    assert positions(read(tmp_path, badRecords="skip")) == [4]
    told = read(tmp_path, badRecords="only")
    assert [(bad["position"], bad["kind"], bad["raw"]) for bad in told] == [
        (1, "Accepted", b"\xc1"),
        (2, "Accepted", None),
        (3, "Accepted", huge),
    ]
    assert len(read(tmp_path, table="facts")) == 4  # They say nothing about the bytes.


@pytest.mark.spec("PL-1")
def test_events_without_publishers_are_kept_aside(tmp_path: Path) -> None:
    """Two publishers for three events: nobody knows whose they are."""
    facts = [(n, 0, Stray(at="c", time=n, events=accepted("B1", n).events)) for n in (1, 2)]
    batch = rows_of(facts)
    forged(tmp_path, changed(batch, "publishers", [["p", "q"], ["p"]]))

    with pytest.raises(PipelineError, match=r"fact 1.0 \(Stray\) of B1: it has 2 publishers for 3"):
        read(tmp_path, table="deliveries")
    assert positions(read(tmp_path, table="deliveries", badRecords="skip")) == [2, 2, 2]
    (bad,) = read(tmp_path, badRecords="only")
    assert (bad["position"], bad["turn"], bad["kind"]) == (1, 0, "Stray")


@pytest.mark.spec("PL-1")
def test_files_of_another_version_or_shape(tmp_path: Path) -> None:
    """A file that this program does not understand is not guessed at."""
    batch = rows_of([(1, 0, accepted("B1", 1))])
    old = SCHEMA.with_metadata({b"sterna.journal": b"99"})
    forged(tmp_path, batch, old)
    with pytest.raises(PipelineError, match="has version 99 of the journal, this program reads"):
        read(tmp_path)
    (bad,) = read(tmp_path, badRecords="only")
    assert "version 99" in bad["reason"]

    other = schema_of("B1", 0).remove(5)
    forged(tmp_path, batch.drop_columns(["link"]), other)
    with pytest.raises(PipelineError, match="has other columns than a journal"):
        read(tmp_path)


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize("bad_records", ["fail", "skip"])
def test_a_file_that_is_removed_while_it_is_read(tmp_path: Path, bad_records: str) -> None:
    """Between planning and reading, a broker may have made room; that is no bad record."""
    path = written(tmp_path, close=True)
    reader = r.reader(tmp_path, badRecords=bad_records)
    lossy = r.reader(tmp_path, badRecords=bad_records, failOnDataLoss=False)
    parts = reader.partitions()
    path.unlink()

    with pytest.raises(PipelineError, match="was removed before it was read: let the broker keep"):
        r.rows_in(reader, parts)
    assert r.rows_in(lossy, parts) == []


@pytest.mark.spec("PL-1")
def test_a_file_that_is_finished_while_it_is_read(tmp_path: Path) -> None:
    """Its other name is no trouble."""
    written(tmp_path, close=False)
    reader = r.reader(tmp_path)
    parts = reader.partitions()
    Journal(tmp_path, "B1")  # Finishes what another process left.

    assert positions(r.rows_in(reader, parts)) == [1, 3, 5, 7]
