"""The facts journal keeps whole batches, knows when a byte is wrong, and has each fact once."""

import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.names import Peer
from sterna.journal import (
    SCHEMA,
    Journal,
    Place,
    SegmentDamagedError,
    facts_in,
    read_journal,
    read_segment,
    rows_of,
)
from sterna.journal.columns import WITH_CONTENT
from sterna.journal.reference import written as written_page
from sterna.model.event import Event, EventId, Scalar
from sterna.model.filters import Filter
from tests.journal.made import contents, flushed, published
from tests.scale import CAMPAIGN, examples
from tests.strategies import scalars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL_FACTS = [kind for kind in vars(facts).values() if isinstance(kind, type) and kind is not Fact]
ALL_FACTS = [kind for kind in ALL_FACTS if issubclass(kind, Fact)]

STEP = 1 if CAMPAIGN > 1 else 3
"""Of how many bytes of a file each is cut off or changed."""

ids = st.sampled_from(["b1", "car-7", "Straße 5", "a/b", "😀"])
numbers = st.integers(0, 2**63 - 1)
event_ids = st.builds(EventId, ids, st.integers(1, 2**63 - 1))
content = st.dictionaries(st.sampled_from(["a", "b", "é"]), scalars, max_size=3)
some_events = st.builds(
    Event,
    publisher=ids,
    seq=st.integers(1, 2**63 - 1),
    time_us=st.integers(-(2**63), 2**63 - 1),
    attributes=content,
    payload=st.binary(max_size=20),
)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: ids,
    int: numbers,
    bool: st.booleans(),
    str | None: st.none() | ids,
    int | None: st.none() | numbers,
    Filter: st.sampled_from([Filter("a > 1"), Filter("b LIKE 'é%' OR c IS NULL"), Filter("TRUE")]),
    Peer: st.sampled_from(Peer),
    Peer | None: st.none() | st.sampled_from(Peer),
    Scalar: scalars,
    tuple[Event, ...]: st.lists(some_events, max_size=4).map(tuple),
    tuple[EventId, ...]: st.lists(event_ids, max_size=4).map(tuple),
    Mapping[str, tuple[Event, ...]]: st.dictionaries(
        ids, st.lists(some_events, max_size=3).map(tuple), max_size=3
    ),
}


def facts_of(kind: type[Fact]) -> st.SearchStrategy[Fact]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: BY_TYPE[hints[field.name]] for field in fields(kind)})


any_fact = st.sampled_from(ALL_FACTS).flatmap(facts_of)
some_facts = st.lists(any_fact, max_size=5)


def identity(event: Event) -> Event:
    return Event(publisher=event.publisher, seq=event.seq, time_us=0)


def as_kept(fact: Fact) -> Fact:
    """What the journal keeps of a fact: events in full only where they enter the network."""
    if isinstance(fact, facts.Forwarded):
        kept = {link: tuple(map(identity, events)) for link, events in fact.to.items()}
        return replace(fact, to=kept)
    about_ids = facts.Missed | facts.Overtook | facts.Displayed | facts.Withheld
    if type(fact).__name__ in WITH_CONTENT or isinstance(fact, about_ids):
        return fact
    if "events" in fact.__struct_fields__:
        events = fact.events  # type: ignore[attr-defined]
        return replace(fact, events=tuple(map(identity, events)))
    return fact


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("kind", ALL_FACTS, ids=lambda kind: str(kind.__name__))
@examples(15)
@given(data=st.data())
def test_every_fact_comes_back(kind: type[Fact], data: st.DataObject) -> None:
    """What is read is what was recorded, with events in full where they enter the network."""
    fact = data.draw(facts_of(kind))

    (back,) = facts_in(rows_of([(7, 2, fact)]))

    assert repr(back) == repr(as_kept(fact))  # Not ==, since NaN is in attributes.


@pytest.mark.spec("LV-6")
@examples(50, long=5)
@given(inputs=st.lists(some_facts, max_size=6), flush_after=st.sets(st.integers(0, 5)))
def test_a_journal_holds_what_was_recorded(inputs: list[list[Fact]], flush_after: set[int]) -> None:
    """All facts of all inputs are there, in order, however they were cut into batches."""
    with tempfile.TemporaryDirectory() as name:
        journal = Journal(Path(name), "b1")
        for position, caused in enumerate(inputs):
            journal.record(position, caused)
            if position in flush_after:
                journal.flush()
        journal.close()

        expected = [
            (Place(position, turn), as_kept(fact))
            for position, caused in enumerate(inputs)
            for turn, fact in enumerate(caused)
        ]
        assert repr(contents(Path(name))) == repr(expected)


@pytest.mark.spec("LV-6")
def test_known_events_are_put_in() -> None:
    """Facts that hold only identities get their events back from where they are in full."""
    first = published(1)
    delivered = facts.Delivered(at="c", time=2, events=first.events)
    known = {event.id: event for event in first.events}

    (back,) = facts_in(rows_of([(0, 0, delivered)]), known)

    assert back == delivered


@pytest.mark.spec("LV-6")
def test_any_arrow_library_reads_a_finished_file(tmp_path: Path) -> None:
    """The checksums are padding to others: the files are plain Arrow streams."""
    path, written = flushed(tmp_path, 3)
    Journal(tmp_path, "b1").close()

    with pa.ipc.open_stream(path.with_suffix("").read_bytes()) as stream:
        table = stream.read_all()

    assert table.schema.equals(SCHEMA)
    began_us = path.name.rsplit("-", 1)[1].split(".")[0]
    assert table.schema.metadata == {
        b"sterna.incarnation": began_us.encode(),
        b"sterna.journal": b"3",
        b"sterna.node": b"b1",
        b"sterna.start": b"0",
    }
    assert table["position"].to_pylist() == [0, 1, 2]
    assert table["publishers"].to_pylist() == [["p"]] * 3
    seqs = [[event.seq for event in fact.events] for fact in written]  # type: ignore[attr-defined]
    assert table["seqs"].to_pylist() == seqs


@pytest.mark.spec("LV-1", "LV-6")
def test_a_file_that_is_cut_off_gives_whole_batches(tmp_path: Path) -> None:
    """Killed at any byte: a prefix of the flushes is read, and a finished file says it is torn."""
    path, written = flushed(tmp_path / "whole", 2)
    data = path.read_bytes()
    finished = tmp_path / path.with_suffix("").name
    cut_off = tmp_path / path.name
    read: list[Fact] = []
    seen = set()
    for end in [*range(0, len(data), STEP), len(data)]:
        cut_off.write_bytes(data[:end])
        read = [fact for batch in read_segment(cut_off) for fact in facts_in(batch)]
        assert read == written[: len(read)]
        seen.add(len(read))
        cut_off.rename(finished)
        with pytest.raises(SegmentDamagedError, match="is cut off"):
            list(read_segment(finished))
    assert seen == {0, 1, 2}
    assert len(read) == 2, "nothing is left out of a file that is whole"


@pytest.mark.spec("LV-1", "LV-6")
def test_a_changed_byte_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whichever byte of a finished file is another: what is read is a prefix, with a warning."""
    path, written = flushed(tmp_path, 2)
    Journal(tmp_path, "b1").close()
    path = path.with_suffix("")
    data = bytearray(path.read_bytes())
    for place in range(0, len(data), STEP):
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            read = [fact for batch in read_journal(tmp_path) for fact in facts_in(batch)]
        data[place] ^= 1 << place % 8
        assert read == written[: len(read)]
        assert "the rest is left out" in caplog.text, place


@pytest.mark.spec("LV-6")
def test_batches_that_changed_places_are_noticed(tmp_path: Path) -> None:
    """A batch that is intact but not where it was written is not taken."""
    journal = Journal(tmp_path, "b1")
    ends = []
    for position in range(3):
        journal.record(position, [facts.Settled(at="b", time=position)])
        journal.flush()
        ends.append(next(tmp_path.glob("*.open")).stat().st_size)
    path = next(tmp_path.glob("*.open"))
    data = path.read_bytes()
    path.write_bytes(data[: ends[0]] + data[ends[1] : ends[2]])

    with pytest.raises(SegmentDamagedError, match="has been changed"):
        list(read_segment(path))


@pytest.mark.spec("LV-1", "LV-6")
@examples(60, long=10)
@given(
    inputs=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    flush_after=st.sets(st.integers(0, 7)),
    kept=st.floats(0, 1),
    again_from=st.integers(0, 7),
)
def test_after_a_crash_each_fact_is_there_once(
    inputs: list[int], flush_after: set[int], kept: float, again_from: int
) -> None:
    """The file is cut off anywhere, the log replayed from any snapshot: no fact twice, none lost.

    Facts of inputs before the snapshot were flushed and synced before it was taken.
    """
    caused = [
        [published(10 * position + turn) for turn in range(count)]
        for position, count in enumerate(inputs)
    ]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        snapshot = min(again_from, len(caused))
        synced_bytes = 0
        journal = Journal(directory, "b1")
        for position, some in enumerate(caused):
            if position == snapshot:
                journal.flush(sync=True)
                synced_bytes = journal.bytes_on_disk
            journal.record(position, some)
            if position in flush_after:
                journal.flush()
        if snapshot == len(caused):
            journal.flush(sync=True)
            synced_bytes = journal.bytes_on_disk
        for path in directory.glob("*.open"):
            size = path.stat().st_size
            os.truncate(path, synced_bytes + int((size - synced_bytes) * kept))

        recovered = Journal(directory, "b1")
        for position in range(snapshot, len(caused)):
            recovered.record(position, caused[position])
        recovered.close()

        expected = [
            (Place(position, turn), fact)
            for position, some in enumerate(caused)
            for turn, fact in enumerate(some)
        ]
        assert contents(directory) == expected
        assert not list(directory.glob("*.open"))


@pytest.mark.spec("LV-1")
def test_recovery_says_what_it_did(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A start after a crash tells how much was kept and how much was torn."""
    path, _ = flushed(tmp_path, 3)
    os.truncate(path, path.stat().st_size - 5)

    journal = Journal(tmp_path, "b1")

    assert (journal.recovery.segments, journal.recovery.batches) == (1, 2)
    assert journal.recovery.bytes_cut > 0
    assert journal.last_position == Place(1, 0)
    assert "torn bytes were cut off" in caplog.text
    assert len(list(read_segment(path.with_suffix("")))) == 2, "the file is whole again"


@pytest.mark.spec("LV-1")
def test_the_last_place_outlives_a_clean_end(tmp_path: Path) -> None:
    """What a journal that was closed well holds is not recorded again either."""
    with_two = [published(1), published(2)]
    journal = Journal(tmp_path, "b1")
    journal.record(5, with_two)
    journal.close()

    again = Journal(tmp_path, "b1")
    again.record(4, [published(3)])
    again.record(5, [*with_two, published(4)])
    again.close()

    assert [place for place, _ in contents(tmp_path)] == [(5, 0), (5, 1), (5, 2)]


@pytest.mark.spec("LV-1")
def test_a_damaged_log_does_not_silence_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Positions that a salvaged log has lost are used again, and their facts are recorded."""
    flushed(tmp_path, 5)

    journal = Journal(tmp_path, "b1", log_end=2)
    journal.record(2, [published(2)])
    journal.record(3, [published(33)])
    journal.close()

    assert [place.position for place, _ in contents(tmp_path)] == [0, 1, 2, 3, 4, 3]
    assert "used again" in caplog.text


@pytest.mark.spec("LV-6")
def test_another_version_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of another version of the schema is left alone, not misread."""
    monkeypatch.setattr("sterna.journal.rows.VERSION", "99")
    flushed(tmp_path, 1)

    assert list(read_journal(tmp_path)) == []
    assert "has version 99" in caplog.text


def test_no_directory_is_an_empty_journal(tmp_path: Path) -> None:
    assert list(read_journal(tmp_path / "nowhere")) == []


def test_the_manual_is_up_to_date() -> None:
    """The page lists the columns, their types and meanings, and the kinds of facts."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "journal.md").read_text("utf-8")

    assert written_page(page) == page, "run make docs"
    for name in (*SCHEMA.names, *(kind.__name__ for kind in ALL_FACTS)):
        assert f"| `{name}` |" in page


def test_spark_reads_the_identities(spark: "SparkSession") -> None:
    """The query of the manual gives each event of each fact, whatever its publisher."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "journal.md"
    queries = re.findall(r"^```sql\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    others = tuple(Event(publisher=name, seq=9, time_us=0) for name in ("q", "r"))
    batch = rows_of(
        [
            (1, 0, published(0)),
            (1, 1, facts.Accepted(at="b", time=0, link="c", events=others)),
            (2, 0, facts.Detached(at="b", time=0, link="c")),
        ]
    )

    spark.createDataFrame(pa.Table.from_batches([batch])).createOrReplaceTempView("journal")

    assert sorted(map(tuple, spark.sql(queries[-1]).collect())) == [
        *((1, 0, "p", seq) for seq in (1, 2, 3)),
        *((1, 1, name, 9) for name in ("q", "r")),
    ]
