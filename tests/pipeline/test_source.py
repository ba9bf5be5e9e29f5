"""Journals as tables: every row once, however they are cut, split and read."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sterna.core.facts import Fact
from sterna.journal import Journal
from sterna.pipeline.errors import PipelineError
from tests.pipeline import recorded as r
from tests.pipeline.recorded import NODES, Recorded, accepted, expected, in_order, read
from tests.scale import examples


@pytest.mark.spec("PL-1")
@examples(25, long=10)
@given(recorded=r.recordings(), data=st.data())
def test_every_table_has_every_row_once(recorded: Recorded, data: st.DataObject) -> None:
    """Tables say what the facts say, wherever batches, files and partitions are cut."""

    def either() -> bool:
        return data.draw(st.booleans())

    with tempfile.TemporaryDirectory() as name:
        opened = r.write(Path(name), recorded, flush=either, roll=either, close=either)
        parts = data.draw(st.integers(1, 5))
        for table in r.TABLES:
            found = read(Path(name), table=table, minPartitions=parts)
            assert in_order(found) == in_order(expected(recorded, table)), table
        for journal in opened:
            journal.close()


@pytest.mark.spec("PL-1")
@examples(8)
@given(recorded=r.recordings())
def test_publications_are_events_of_clients(recorded: Recorded) -> None:
    """With `publications` events come from those who published them, and from no broker."""
    with tempfile.TemporaryDirectory() as name:
        r.write(Path(name), recorded)
        found = read(Path(name), publications=True)

    assert in_order(found) == in_order(expected(recorded, "publications"))


@pytest.mark.spec("PL-1")
@examples(20, long=10)
@given(recorded=r.recordings(), data=st.data())
def test_every_stream_has_every_row_once(recorded: Recorded, data: st.DataObject) -> None:
    """Whatever was written before each trigger, however much it may read, and if it starts anew."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        journals: dict[str, Journal] = {}
        to_come = [(node, *each) for node, inputs in recorded.items() for each in inputs]
        to_come.sort(key=lambda each: each[1])
        first = to_come.pop(0)
        _record(directory, journals, *first)
        stream = r.stream_reader(directory, table="facts", startingOffsets="earliest")
        offset = stream.initialOffset()
        found: list[Any] = []
        while True:
            limit = data.draw(st.none() | st.integers(1, 8))
            end = stream.latestOffset(
                offset, ReadAllAvailable() if limit is None else ReadMaxRows(limit)
            )
            assert stream.partitions(end, end) == []
            found += r.rows_in(stream, stream.partitions(offset, end))
            if end == offset and not to_come:
                break
            offset = json.loads(json.dumps(end))
            for _ in range(data.draw(st.integers(0, 3))):
                if to_come:
                    _record(directory, journals, *to_come.pop(0))
            if data.draw(st.booleans()):
                journals[data.draw(st.sampled_from(sorted(journals)))].roll()
            if data.draw(st.booleans()):
                stream = r.stream_reader(directory, table="facts", startingOffsets="latest")

        assert in_order(found) == in_order(expected(recorded, "facts"))
        for journal in journals.values():
            journal.close()


def _record(
    directory: Path, journals: dict[str, Journal], node: str, position: int, stated: list[Fact]
) -> None:
    if node not in journals:
        journals[node] = Journal(directory / str(NODES.index(node)), node)
    journals[node].record(position, stated)
    journals[node].flush()


# ---- Offsets.


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """B1 with positions 10, 20, … 90 in several files, B2 with 5 and 6."""
    recorded: Recorded = {
        "B1": [(position, [accepted("B1", position)]) for position in range(10, 100, 10)],
        "B2": [(position, [accepted("B2", position)]) for position in (5, 6)],
    }
    rolls = iter([False, False, True] * 4)
    r.write(tmp_path, recorded, roll=lambda: next(rolls))
    return tmp_path


def positions(rows: list[Any]) -> list[tuple[str, int]]:
    return sorted({(row["journal"], row["position"]) for row in rows})


B1 = [("B1", position) for position in range(10, 100, 10)]
B2 = [("B2", 5), ("B2", 6)]


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, B1 + B2),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, B1 + B2),
        ({"startingOffsets": "latest"}, []),
        ({"startingOffsets": '{"B1": 50}'}, B1[4:] + B2),
        ({"startingOffsets": '{"B1": 51, "B2": -1}'}, B1[5:]),
        ({"startingOffsets": '{"B1": -1, "B2": -2}'}, B2),
        ({"endingOffsets": '{"B1": 50}'}, B1[:4] + B2),
        ({"endingOffsets": '{"B1": 51, "B2": -1}'}, B1[:5] + B2),
        ({"startingOffsets": '{"B1": 30}', "endingOffsets": '{"B1": 30, "B2": 6}'}, B2[:1]),
        ({"startingTimestamp": 5_000}, B1 + B2),
        ({"startingTimestamp": 6_000}, B1 + B2[1:]),
        (
            {"startingTimestamp": 40_000, "startingOffsetsByTimestampStrategy": "latest"},
            B1[3:],
        ),
        (
            {"startingTimestamp": 40_001, "startingOffsetsByTimestampStrategy": "latest"},
            B1[4:],
        ),
        ({"endingTimestamp": 40_000}, B1[:3] + B2),
        ({"endingTimestamp": 40_001}, B1[:4] + B2),
        ({"endingTimestamp": 1}, []),
    ],
)
def test_batches_begin_and_end_where_the_options_say(
    two: Path, options: dict[str, str], wanted: list[tuple[str, int]]
) -> None:
    """As in Kafka: a start is read, an end is not, -2 and -1 are the two ends of a journal."""
    assert positions(read(two, **options)) == wanted


def test_small_batches_are_joined(tmp_path: Path) -> None:
    """Nodes write a few facts at a time; Spark is given those of a file together."""
    recorded: Recorded = {"B1": [(number, [accepted("B1", number)]) for number in range(1, 41)]}
    r.write(tmp_path, recorded)
    reading = r.reader(tmp_path, table="facts")

    (task,) = reading.partitions()
    batches: list[Any] = list(reading.read(task))

    assert len(batches) == 1
    assert batches[0]["position"].to_pylist() == list(range(1, 41))


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"startingOffsets": '{"B1": 3}', "endingOffsets": '{"B1": 200}'},
            (
                "positions 91 to 199 of B1 are not in DIR, whose journal ends before; "
                "set failOnDataLoss=false to go on with what there is"
            ),
        ),
        (
            {"startingOffsets": '{"B3": 3}'},
            "startingOffsets names 'B3', and there is no such journal; there are B1, B2",
        ),
        (
            {"startingTimestamp": 7_000},
            (
                "the journal of B2 has nothing from startingTimestamp=7000 on: give an earlier one "
                "or set startingOffsetsByTimestampStrategy=latest"
            ),
        ),
    ],
)
def test_offsets_that_cannot_be(two: Path, options: dict[str, str], sentence: str) -> None:
    """What a query asks for and is missing is reported in one sentence."""
    with pytest.raises(PipelineError) as error:
        read(two, **options)

    assert str(error.value).replace(str(two), "DIR") == sentence


@pytest.mark.spec("PL-1")
def test_a_trigger_takes_a_share_of_each_journal(two: Path) -> None:
    """MaxOffsetsPerTrigger counts positions and is shared out by how far behind each journal is."""
    stream = r.stream_reader(two, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    limit = stream.getDefaultReadLimit()

    assert limit == ReadMaxRows(10)
    start = stream.initialOffset()
    assert r.positions_in(start) == {"B1": 0, "B2": 0}
    end = stream.latestOffset(start, limit)
    assert r.positions_in(end) == {"B1": 9, "B2": 1}  # Of 91 and 7.
    end = stream.latestOffset(start, ReadAllAvailable())
    assert r.positions_in(end) == {"B1": 91, "B2": 7}
    assert stream.reportLatestOffset() == end


@pytest.mark.spec("PL-1")
def test_a_query_for_what_is_there_stops_at_it(two: Path) -> None:
    """With the trigger availableNow, what is written after its start waits for the next query."""
    stream = r.stream_reader(two, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    journal = Journal(two / "node1" / "journal", "B2")
    journal.record(8, [accepted("B2", 8)])
    Journal(two / "new", "B3").record(1, [accepted("B3", 1)])
    journal.close()

    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert r.positions_in(end) == {"B1": 91, "B2": 7}


# ---- What is gone.


@pytest.mark.spec("PL-1")
def test_positions_that_were_removed_are_missed(two: Path) -> None:
    """A stream whose checkpoint is before the first file that is left reports it, or goes on."""
    next((two / "node0" / "journal").glob("*-00000000000000000010-*")).unlink()
    end = {"B1": 91, "B2": 7}

    with pytest.raises(PipelineError) as error:
        r.stream_reader(two).partitions({"B1": 12, "B2": 7}, end)
    assert "positions 12 to 30 of B1 are not in" in str(error.value)
    assert "failOnDataLoss=false" in str(error.value)

    stream = r.stream_reader(two, failOnDataLoss=False)
    found = r.rows_in(stream, stream.partitions({"B1": 12, "B2": 7}, end))
    assert positions(found) == B1[3:]
    r.stream_reader(two).partitions({"B1": 31, "B2": 7}, end)  # All before 31 was read: no loss.


@pytest.mark.spec("PL-1")
def test_a_file_missing_in_the_middle_is_missed(two: Path) -> None:
    """Files know where the one before them ended, so a hole is no silence."""
    next((two / "node0" / "journal").glob("*-00000000000000000040-*")).unlink()

    for bad_records in ("fail", "skip"):  # It is no bad record: it is a loss.
        with pytest.raises(PipelineError, match="positions 31 to 60 of B1 are missing"):
            read(two, badRecords=bad_records)
    assert positions(read(two, failOnDataLoss=False)) == B1[:3] + B1[6:] + B2
    (bad,) = read(two, badRecords="only")
    assert (bad["journal"], bad["position"]) == ("B1", 31)


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize(
    ("start", "wanted"),
    [({"B1": 92, "B2": 7}, B1), ({"B1": 10, "B2": 7, "B3": 4}, B1)],
    ids=["ends before", "gone"],
)
def test_a_journal_that_is_another_is_noticed(
    two: Path, start: dict[str, int], wanted: list[tuple[str, int]]
) -> None:
    """A journal that ends before what was read of it, or is gone, is an error as in Kafka.

    Without the check one that ends before is another one, so it is read from its beginning.
    """
    with pytest.raises(PipelineError, match="failOnDataLoss=false"):
        r.stream_reader(two).latestOffset(start, ReadAllAvailable())

    lenient = r.stream_reader(two, failOnDataLoss=False)
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert r.positions_in(end) == {**start, "B1": 91, "B2": 7}
    assert positions(r.rows_in(lenient, lenient.partitions(start, end))) == wanted
