"""Journals for tests: facts to write, and all that was written."""

import os
from pathlib import Path

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.journal import Journal, Place, facts_in, read_journal
from sterna.model.event import Event


def published(number: int, size: int = 3) -> facts.Published:
    """A batch of which each event is different."""
    made = (
        Event(publisher="p", seq=number * 100 + i + 1, time_us=number, payload=os.urandom(20))
        for i in range(size)
    )
    return facts.Published(at="p", time=number, events=tuple(made))


def contents(directory: Path) -> list[tuple[Place, Fact]]:
    """All facts of a journal with their places."""
    found: list[tuple[Place, Fact]] = []
    for batch in read_journal(directory):
        places = dict.fromkeys(
            zip(*(batch[n].to_pylist() for n in ("position", "turn")), strict=True)
        )
        found += zip((Place(*place) for place in places), facts_in(batch), strict=True)
    return found


def flushed(directory: Path, count: int, node: str = "b1") -> tuple[Path, list[Fact]]:
    """A journal of so many batches of one fact, not finished, as kill -9 leaves it."""
    journal = Journal(directory, node)
    written: list[Fact] = []
    for position in range(count):
        written.append(published(position))
        journal.record(position, written[-1:])
        journal.flush()
    (path,) = directory.glob("*.open")
    return path, written
