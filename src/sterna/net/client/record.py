"""A client's journal from one run of its program to the next: what is in it, and what is missing.

A run without a `state` begins another life. A run with one goes on with an earlier life. The
journal has all of that life if each run with this state has kept the journal, and no other life has
come between: a file beside the state says where its runs are recorded, and a file beside the
journal says which life was the last one.

The positions of a journal never go back, whichever life or state its runs had: a run with a state
records what happened at the positions of its log and an offset, which is kept beside the journal.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from sterna.core.client import Client
from sterna.core.clock import Clock
from sterna.core.facts import Fact, RecordBegun, Restarted, Subscribed
from sterna.errors import JournalFailedError
from sterna.net.engine import Engine
from sterna.net.records import Began, encode_note
from sterna.net.storage import Log

if TYPE_CHECKING:
    from sterna.journal import Journal

PACE_S = 1.0
"""What happens is written at once, but no sooner than this after what was written before."""

LOOK_S = 5.0
"""How often a client to which nothing happens looks whether a file of its journal is old enough."""

STARTED = b"started"
"""A note in the log whose only use is its position."""


class Record:
    """The journal of a client, if it keeps one."""

    def __init__(
        self, directory: Path | None, client: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._client = client
        self._clock = clock
        self._journal: Journal | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._has_news = asyncio.Event()
        """Whether something was recorded that is not written."""
        self._is_urgent = asyncio.Event()
        """Whether it cannot wait, because an audit may look for it at once."""
        self._failed: Callable[[Exception], None]
        self._where: Path | None = None
        """The file that says where everything is recorded that led to the state."""
        self._is_complete = True
        """Whether the journal has everything that led to the state."""
        self._offset = 0
        """By how much positions in the journal are greater than those in the log."""

    def open(self, log: Log | None, failed: Callable[[Exception], None]) -> None:
        """Go on with the journal; `failed` is called if it cannot be written any more."""
        self._failed = failed
        if log is not None:
            self._where = log.directory / "recorded-in"
        if self._directory is None:
            if self._where is not None:
                self._where.unlink(missing_ok=True)
            return
        from sterna.journal import Journal  # noqa: PLC0415 - it needs an extra.

        self._journal = Journal(self._directory, self._client, clock=self._clock)

    def start(self) -> None:
        """Write what happens soon after it does: others read it, and the process may be killed."""
        if self._journal is not None:
            self._flushing = asyncio.create_task(self._flush_in_time(self._journal))

    def begin_alone(self, clock: Clock) -> int:
        """Go on behind what is recorded, with facts that no engine states; the last position."""
        if self._journal is None:
            return 0
        clock.not_before(self._journal.last_time + 1)
        return max(0, self._journal.last_position.position)

    def begin(self, engine: Engine[Client]) -> None:
        """Record that a life begins without a memory; positions go on after those before it."""
        if self._journal is None:
            return
        engine.clock.not_before(self._journal.last_time + 1)
        engine.inputs = max(0, self._journal.last_position.position) + 1
        begun = RecordBegun(at=self._client, time=engine.clock.now())
        self._begin(self._journal, engine.inputs, [begun], engine.began)

    def expect(self, began: Began) -> None:
        """Find out what the journal lacks, before it is known what led to the state."""
        if self._journal is not None and self._where is not None:
            is_here = _content(self._where) == str(self._journal.directory.resolve())
            life, offset = self._last_life()
            self._is_complete = is_here and life == _life(began)
            self._offset = offset if self._is_complete else 0

    def resume(self, engine: Engine[Client], log: Log) -> None:
        """Record that a program goes on with its state, and what the journal lacks of it."""
        if self._journal is None or self._where is None:
            return
        engine.clock.not_before(self._journal.last_time + 1)
        now = engine.clock.now()
        facts: list[Fact] = [Restarted(at=self._client, time=now)]
        if not self._is_complete:
            facts = [RecordBegun(at=self._client, time=now), *engine.node.in_force(now)]
            self._is_complete = True
        position = log.append(encode_note(STARTED))
        # Others have used the positions since, or the log has lost its end.
        self._offset = max(self._offset, self._journal.last_position.position + 1 - position)
        self._begin(self._journal, position, facts, engine.began)

    def _begin(
        self, journal: "Journal", position: int, facts: Sequence[Fact], began: Began
    ) -> None:
        """What follows means something else without these facts: they are on disk first."""
        try:
            journal.record(position + self._offset, facts)
            journal.flush(sync=True)
            _write(self._life_file, f"{_life(began)} {self._offset}")
            if self._where is not None:
                _write(self._where, str(journal.directory.resolve()))
        except (JournalFailedError, OSError) as error:
            self._failed(error)

    @property
    def _life_file(self) -> Path:
        return (self._directory or Path()) / f"{quote(self._client, safe='')}.life"

    def _last_life(self) -> tuple[str, int]:
        """The life that wrote last, and its offset."""
        life, _, offset = (_content(self._life_file) or "").rpartition(" ")
        return life, int(offset) if offset.isdecimal() else 0

    def add(self, position: int, facts: Sequence[Fact], size_bytes: int) -> None:
        """Record the facts that an input caused."""
        if self._journal is not None and self._is_complete:
            try:
                self._journal.record(position + self._offset, facts, size_bytes)
            except JournalFailedError as error:
                self._failed(error)
            self._has_news.set()
            if any(isinstance(fact, Subscribed) for fact in facts):
                self._is_urgent.set()

    def sync(self) -> None:
        """Make durable what was recorded: the inputs that led to it may be forgotten then."""
        if self._journal is not None:
            self._journal.flush(sync=True)

    def flush_if_due(self) -> None:
        """Write what has waited long enough, and finish a file that is old enough."""
        if self._journal is not None:
            self._journal.flush_if_due()

    async def stop(self) -> None:
        """Write the rest, and record nothing any more."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])
        self.close()
        self._journal = None

    def close(self) -> None:
        """Write the rest."""
        if self._journal is not None:
            self._journal.close()

    async def _flush_in_time(self, journal: "Journal") -> None:
        def write() -> None:
            journal.flush()
            self.flush_if_due()

        while True:
            await _happens(self._has_news, LOOK_S)
            has_news = self._has_news.is_set()
            self._has_news.clear()
            self._is_urgent.clear()
            try:
                await asyncio.to_thread(write)
            except JournalFailedError as error:
                self._failed(error)
                return
            if has_news:
                await _happens(self._is_urgent, PACE_S)


async def _happens(event: asyncio.Event, limit_s: float) -> None:
    """Wait until something happens, but no longer than this.

    `asyncio.wait_for` would overlook that the task is cancelled if both came together.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()


def _life(began: Began) -> str:
    return f"{began.incarnation} {began.seq}"


def _write(path: Path, content: str) -> None:
    """Write a file; it is on disk afterwards."""
    with path.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _content(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(encoding="utf-8")
    return None
