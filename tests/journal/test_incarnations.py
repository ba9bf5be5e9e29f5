"""Each file of a journal says of which incarnation it is: another one begins if positions do."""

import shutil
from pathlib import Path

import pytest

from sterna.core.facts import Fact, HandoverStarted
from sterna.journal import Journal, read_journal
from sterna.journal.pages import beginning
from sterna.journal.rows import incarnation_of, rows_of, schema_of
from sterna.journal.segments import (
    END,
    batch_message,
    file_name,
    finished_path,
    read_messages,
    read_schema,
    schema_message,
    segments_in,
)

pytestmark = pytest.mark.spec("PL-1", "PL-2")


def fact(number: int) -> Fact:
    return HandoverStarted(at="b1", time=number, client=f"c{number}")


def write(journal: Journal, *positions: int) -> None:
    for position in positions:
        journal.record(position, [fact(position)])
    journal.flush()


def said(directory: Path) -> list[int | None]:
    """What the files say, in order."""
    return [
        incarnation_of(read_schema(next(read_messages(each.path)).data))
        for each in segments_in(directory)
    ]


def test_a_journal_stays_the_same_one(tmp_path: Path) -> None:
    """Over files, restarts and crashes, and when its first files are removed."""
    journal = Journal(tmp_path, "b1")
    write(journal, 1)
    incarnation = journal.incarnation
    assert incarnation is not None
    journal.roll()
    write(journal, 2)  # The file stays open, as after a crash.
    again = Journal(tmp_path, "b1", bytes_max=1)
    assert again.incarnation == incarnation
    write(again, 3)
    again.close()

    assert len(said(tmp_path)) == 1  # All others were removed.
    assert said(tmp_path) == [incarnation]
    assert Journal(tmp_path, "b1").incarnation == incarnation


def test_a_journal_that_is_removed_is_another_one_afterwards(tmp_path: Path) -> None:
    """Whatever position it begins with; the broker may have kept its log."""
    found = []
    for _ in range(2):
        journal = Journal(tmp_path / "journal", "b1")
        write(journal, 7)
        journal.close()
        found += said(tmp_path / "journal")
        shutil.rmtree(tmp_path / "journal")

    assert None not in found
    assert len(set(found)) == 2


def test_positions_that_are_used_again_are_of_another_one(tmp_path: Path) -> None:
    """After damage to its log a broker counts from an earlier position on."""
    journal = Journal(tmp_path, "b1")
    write(journal, 1, 2, 3)
    journal.close()
    first = journal.incarnation

    journal = Journal(tmp_path, "b1", log_end=1)
    write(journal, 2)
    journal.close()

    assert said(tmp_path) == [first, journal.incarnation]
    assert first != journal.incarnation
    assert beginning(tmp_path, "b1", journal.incarnation) == 2
    assert beginning(tmp_path, "b1", first) == 0


def test_it_is_told_when_it_is_on_disk(tmp_path: Path) -> None:
    """What readers remember must be there after the next start."""
    journal = Journal(tmp_path, "b1")
    journal.record(1, [fact(1)])
    told = [journal.incarnation]

    journal.flush()

    told += [journal.incarnation, Journal(tmp_path, "b1").incarnation]
    assert told == [None, *said(tmp_path) * 2]


def test_files_that_do_not_say_it_are_gone_on_with(tmp_path: Path) -> None:
    """An earlier release wrote them; from now on it is said, and stays the same."""
    path = tmp_path / file_name("b1", 1, 5)
    batch = batch_message(rows_of([(1, 0, fact(1))]), 1)
    path.write_bytes(schema_message(schema_of("b1", 0)) + batch + END)
    path.rename(finished_path(path))

    journal = Journal(tmp_path, "b1")
    write(journal, 2)
    journal.close()

    incarnation = Journal(tmp_path, "b1").incarnation
    assert incarnation is not None
    assert said(tmp_path) == [None, incarnation]
    positions = [row for batch in read_journal(tmp_path) for row in batch["position"].to_pylist()]
    assert positions == [1, 2]
