"""Writes a broker's facts into its journal, if it keeps one."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sterna.core.facts import Fact
from sterna.journal import Journal, JournalFailedError
from sterna.net.config import BrokerConfig


class Journalist:
    """Keeps the journal. If it cannot be written, the broker has to stop: `fail` is called.

    While the disk is slower than what arrives, `wait` is called with True, and then with False.
    """

    def __init__(self, fail: Callable[[Exception], None], wait: Callable[[bool], None]) -> None:
        self.journal: Journal | None = None
        self._fail = fail
        self._wait = wait
        self._is_behind = False
        self._thread = ThreadPoolExecutor(1, "journal")

    @property
    def bytes_on_disk(self) -> int:
        """The size of the journal's files."""
        return 0 if self.journal is None else self.journal.bytes_on_disk

    def open(self, config: BrokerConfig, *, log_end: int | None) -> None:
        """Open the journal, if the configuration wants one; `log_end` is where the log ends."""
        journal = config.journal
        if journal.enabled:
            self.journal = Journal(
                Path(config.data) / "journal",
                config.name,
                segment_bytes=journal.segment_bytes,
                segment_s=journal.segment_s,
                flush_s=journal.flush_s,
                bytes_max=journal.bytes_max or None,
                log_end=log_end,
                thread=self._thread,
            )

    def reopen(self, config: BrokerConfig) -> None:
        """Finish the current file, and continue with other sizes."""
        if self.journal is not None:
            try:
                self.journal.close()
                self.open(config, log_end=None)
            except JournalFailedError as error:
                self._fail(error)

    def record(self, position: int, facts: Sequence[Fact], size_bytes: int) -> None:
        """Take the facts that an input of so many bytes caused."""
        if self.journal is not None:
            try:
                self.journal.record(position, facts, size_bytes)
            except JournalFailedError as error:
                self._fail(error)
                return
            behind = self.journal.behind
            if behind is not None and not self._is_behind:
                self._is_behind = True
                self._wait(True)  # noqa: FBT003 - it is all that is said.
                loop = asyncio.get_running_loop()
                behind.add_done_callback(lambda _: loop.call_soon_threadsafe(self._caught_up))

    def _caught_up(self) -> None:
        """What was being written is written: what was collected meanwhile is next."""
        self._is_behind = False
        self._wait(False)  # noqa: FBT003
        if self.journal is not None:
            try:
                self.journal.flush_if_much()
            except JournalFailedError as error:
                self._fail(error)

    def making_safe(self) -> Callable[[], None]:
        """A function that brings all facts so far to disk; it may be called in any thread."""
        journal = self.journal
        return lambda: None if journal is None else journal.flush(sync=True)

    async def flush_if_due(self) -> None:
        """Write what has waited long enough."""
        if self.journal is not None:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._thread, self.journal.flush_if_due)
            except JournalFailedError as error:
                self._fail(error)

    def close(self, *, finish: bool) -> None:
        """Write nothing more; `finish` the file, unless the journal has failed."""
        if self.journal is not None and finish:
            self.journal.close()

    def end(self) -> None:
        """End the thread."""
        self._thread.shutdown()
