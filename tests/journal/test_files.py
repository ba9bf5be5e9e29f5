"""The files of a journal: whose they are, how many there are, and how they are written."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from sterna.core import facts
from sterna.journal import Journal, JournalFailedError, read_journal
from sterna.journal import writing as journal_writing
from tests.journal.made import contents, flushed, published

pytestmark = pytest.mark.spec("LV-6")


def test_nodes_share_a_directory(tmp_path: Path) -> None:
    """Each journal recovers its own files only; a node may have any name."""
    flushed(tmp_path, 1, node="b")
    flushed(tmp_path / "other", 2, node="b/1-5 é")
    (other,) = (tmp_path / "other").glob("*")
    other.rename(tmp_path / other.name)

    journal = Journal(tmp_path, "b/1-5 é")

    assert journal.recovery.batches == 2
    assert len(list(read_journal(tmp_path, "b/1-5 é"))) == 2
    assert len(list(read_journal(tmp_path, "b"))) == 1


def test_files_are_finished_by_size_and_by_age(tmp_path: Path) -> None:
    """A file is finished when it is large or old enough, and waiting facts are written in time."""
    now = 0.0
    journal = Journal(
        tmp_path, "b1", segment_bytes=10_000, segment_s=60, flush_s=1, clock=lambda: now
    )
    journal.record(0, [published(0, size=2)])
    journal.flush_if_due()
    assert not list(tmp_path.iterdir()), "the facts may still wait"
    now = 1.0
    journal.flush_if_due()
    assert [path.suffix for path in tmp_path.iterdir()] == [".open"]
    now = 60.5
    journal.flush_if_due()
    assert [path.suffix for path in tmp_path.iterdir()] == [".open"], "60 s from its beginning"
    now = 61.0
    journal.flush_if_due()
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrows"]

    for position in range(1, 60):
        journal.record(position, [published(position, size=20)])
        journal.flush()
    sizes = [path.stat().st_size for path in tmp_path.glob("*.arrows")]
    assert len(sizes) > 3
    assert max(sizes) < 12_000


def test_the_oldest_files_go_when_the_disk_is_to_be_spared(tmp_path: Path) -> None:
    """Beyond `bytes_max` the oldest facts are removed; the newest file stays in any case."""
    journal = Journal(tmp_path, "b1", segment_bytes=5_000, bytes_max=20_000)
    for position in range(100):
        journal.record(position, [published(position, size=20)])
        journal.flush()
        assert journal.bytes_on_disk <= 27_000
    journal.close()

    positions = [place.position for place, _ in contents(tmp_path)]
    assert positions[0] > 0
    assert positions == list(range(positions[0], 100))

    tiny = Journal(tmp_path, "b1", segment_bytes=1, bytes_max=1)
    tiny.record(100, [published(100)])
    tiny.flush()
    assert Journal(tmp_path, "b1").last_position == (100, 0)


@pytest.mark.parametrize(
    ("size", "size_bytes"),
    [(journal_writing.PENDING_EVENTS_MAX // 10, 0), (1, journal_writing.PENDING_BYTES_MAX // 10)],
    ids=["events", "bytes"],
)
def test_what_waits_is_bounded(tmp_path: Path, size: int, size_bytes: int) -> None:
    """Without any flush, many events or many bytes are written by themselves."""
    journal = Journal(tmp_path, "b1")
    some = [published(1, size=size)]
    for position in range(11):
        journal.record(position, some, size_bytes)

    assert [len(batch) for batch in read_journal(tmp_path)] == [11]


def test_what_the_thread_has_not_taken_is_not_behind(tmp_path: Path) -> None:
    """Only what is collected beyond a write that is under way, or waits to be, has to wait."""
    most = journal_writing.PENDING_BYTES_MAX
    is_free = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(is_free.wait)
        journal = Journal(tmp_path, "b1", thread=pool)
        waits = []
        for position in (0, 1):
            journal.record(position, [published(position)], most)
            waits.append(journal.behind)
        is_free.set()
        assert waits[0] is None
        assert waits[1] is not None
        waits[1].result()
        assert journal.behind is None
    assert [len(batch) for batch in read_journal(tmp_path)] == [2]


def test_no_error_in_the_thread_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it should have written is missing, so nothing more is written."""
    with ThreadPoolExecutor(1) as pool:
        journal = Journal(tmp_path, "b1", thread=pool)
        with monkeypatch.context() as patch:
            patch.setattr(journal, "_write", Mock(side_effect=MemoryError))
            journal.record(0, [published(0)], journal_writing.PENDING_BYTES_MAX)
            pool.submit(bool).result()
        with pytest.raises(JournalFailedError, match=r"cannot be written: MemoryError"):
            journal.record(1, [published(1)])


def test_another_thread_may_flush(tmp_path: Path) -> None:
    """Facts are recorded while earlier ones are written, and each is there once, in order."""
    journal = Journal(tmp_path, "b1", segment_bytes=50_000)
    is_done = threading.Event()

    def flush() -> None:
        while not is_done.is_set():
            journal.flush()

    with ThreadPoolExecutor(1) as pool:
        flushing = pool.submit(flush)
        for position in range(20_000):
            journal.record(position, [facts.Detached(at="b", time=position, link="c")])
        is_done.set()
        flushing.result()
    journal.close()

    positions = [p for batch in read_journal(tmp_path) for p in batch["position"].to_pylist()]
    assert positions == list(range(20_000))


def test_a_journal_that_cannot_write_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed write nothing more is written, since it would follow half a batch."""
    journal = Journal(tmp_path, "b1")
    journal.record(0, [published(0)])
    journal.flush()

    def full(_file: int, data: memoryview) -> int:
        if len(data) > 10:
            return real(_file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    real = os.write
    monkeypatch.setattr(os, "write", full)
    journal.record(1, [published(1)])
    with pytest.raises(JournalFailedError, match=r"No space left on device\. Make room"):
        journal.flush()
    monkeypatch.undo()
    for attempt in (journal.flush, journal.close, lambda: journal.record(2, [published(2)])):
        with pytest.raises(JournalFailedError):
            attempt()

    assert Journal(tmp_path, "b1").last_position == (0, 0)


def test_the_last_fact_is_found_whatever_the_clock_did(tmp_path: Path) -> None:
    """It was set back between two files, which earlier releases named by it."""
    for position in (3, 5, 6):
        journal = Journal(tmp_path, "b1")
        journal.record(position, [published(position)])
        journal.close()
    newer, newest = sorted(tmp_path.glob("*.arrows"))[1:]
    newest.rename(newest.with_name(f"{newest.name.rpartition('-')[0]}-1.arrows"))
    again = Journal(tmp_path, "b1")
    assert again.last_position == (6, 0)
    again.record(6, [published(6), published(7)])  # The input was replayed, and there was more.
    again.close()
    assert [place for place, _ in contents(tmp_path)] == [(3, 0), (5, 0), (6, 0), (6, 1)]

    first, _, last = newer.name.split("-")
    newer.rename(newer.with_name(f"{first}-{7:020}-{last}"))  # A file that used positions again.
    assert Journal(tmp_path, "b1").last_position == (6, 1)


def test_the_last_file_stays_whatever_its_name(tmp_path: Path) -> None:
    """After damage to the log, positions are used again: the last file is not the last by name."""
    journal = Journal(tmp_path, "b1")
    journal.record(100, [published(100)])
    journal.close()

    again = Journal(tmp_path, "b1", log_end=2, bytes_max=1)
    again.record(3, [published(3)])
    again.close()

    assert [place.position for place, _ in contents(tmp_path)] == [3]
