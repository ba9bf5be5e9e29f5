"""A journal that is read in pages is the same journal, and what is missing is reported."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.facts import Fact, HandoverStarted
from sterna.journal import Journal, read_journal, read_segment
from sterna.journal.pages import Page, page, start
from sterna.journal.segments import between, read_batch, read_schema, segments_in
from tests.scale import examples


def fact(number: int) -> Fact:
    return HandoverStarted(at="b1", time=number, client=f"c{number}")


def write(directory: Path, batches: list[list[int]], segment_bytes: int) -> list[int]:
    """A journal with these positions in its batches; gives them all."""
    journal = Journal(directory, "b1", segment_bytes=segment_bytes)
    for batch in batches:
        for position in batch:
            journal.record(position, [fact(position)])
        journal.flush()
    journal.close()
    return [position for batch in batches for position in batch]


def positions(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch["position"].to_pylist()
    return found


def in_page(found: Page, begin: int, end: int) -> list[int]:
    if not found.batches:
        return []
    schema = read_schema(found.schema)
    return [
        position
        for data in found.batches
        for position in positions(between(read_batch(data, schema), begin, end))
    ]


@st.composite
def journals(draw: st.DrawFn) -> list[list[int]]:
    steps = draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), max_size=6))
    position = -1
    return [[position := position + step for step in batch] for batch in steps]


@pytest.mark.spec("PL-1")
@given(journals(), st.integers(1, 20_000), st.integers(0, 30), st.integers(0, 40))
@examples(40, long=400)
def test_pages_give_each_fact_once(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[int]],
    segment_bytes: int,
    begin: int,
    length: int,
) -> None:
    """From any position to any other, whatever the files and the pages, nothing is left out."""
    directory = tmp_path_factory.mktemp("journal")
    written = write(directory, batches, segment_bytes)
    end = begin + length
    found: list[int] = []
    at = begin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sterna.journal.pages.PAGE_BYTES", 2_000)
        while at < end:
            some = page(directory, "b1", at, end)
            assert some.damage is None
            assert at < some.next <= end
            found += in_page(some, at, end)
            at = some.next

    wanted = [position for position in written if begin <= position < end]
    assert found == wanted
    by_file = [
        position
        for segment in segments_in(directory)
        for batch in read_segment(segment.path, begin, end)
        for position in positions(batch)
    ]
    assert by_file == wanted


@pytest.mark.spec("PL-1")
def test_what_was_removed_is_said(tmp_path: Path) -> None:
    """A reader that comes too late learns which positions are gone, and where it can go on."""
    write(tmp_path, [[0, 1], [3, 5], [8, 9]], 1)
    first, second, third = segments_in(tmp_path)

    assert start(tmp_path, "b1") == 0
    first.path.unlink()
    assert start(tmp_path, "b1") == 2, "the second file answers for the gap before its first fact"
    early = page(tmp_path, "b1", 0, 10)
    assert early.damage == "positions 0 to 1 of b1 are not there (any more)"
    assert (early.batches, early.next) == ([], 2)
    assert in_page(page(tmp_path, "b1", 2, 10), 2, 10) == [3, 5]
    second.path.unlink()
    assert page(tmp_path, "b1", 2, 10).next == 6
    assert page(tmp_path, "b1", 6, 10).damage is None
    third.path.unlink()
    assert start(tmp_path, "b1") is None
    assert page(tmp_path, "b1", 0, 10) == Page(b"", [], 10)


@pytest.mark.spec("PL-1")
def test_a_damaged_file_gives_what_is_intact_and_says_the_rest(tmp_path: Path) -> None:
    write(tmp_path, [[0], [1], [2]], 2**20)
    write(tmp_path, [[3], [4]], 2**20)
    damaged = segments_in(tmp_path)[0].path
    data = bytearray(damaged.read_bytes())
    data[-100] ^= 1  # In the batch of position 2.
    damaged.write_bytes(data)

    found = page(tmp_path, "b1", 0, 5)

    assert in_page(found, 0, 5) == [0, 1]
    assert found.damage is not None
    assert "has been changed" in found.damage
    assert found.next == 3
    assert in_page(page(tmp_path, "b1", 3, 5), 3, 5) == [3, 4]


@pytest.mark.spec("LV-1")
def test_what_nobody_asked_for_is_not_read(tmp_path: Path) -> None:
    """Batches before the wanted positions are skipped: even a damaged one costs nothing."""
    write(tmp_path, [[0], [1], [2]], 2**20)
    path = segments_in(tmp_path)[0].path
    whole = path.read_bytes()
    (batch,) = read_segment(path, 2)
    assert positions(batch) == [2]
    body = whole.index(b"c0")
    path.write_bytes(whole[:body] + b"X" + whole[body + 1 :])

    (batch,) = read_segment(path, 2)

    assert positions(batch) == [2]
    assert [positions(batch) for batch in read_journal(tmp_path)] == []
