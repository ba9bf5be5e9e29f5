"""Writing the journal: facts are collected, written a batch at a time, and survive a crash."""

import errno
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import NamedTuple, NoReturn

import msgspec

from sterna.core.facts import Fact
from sterna.core.names import Time
from sterna.errors import JournalFailedError, SegmentDamagedError
from sterna.journal.rows import events_in, incarnation_of, rows_of, schema_of
from sterna.journal.segments import (
    END,
    SegmentName,
    batch_message,
    file_name,
    finished_path,
    log,
    read_batch,
    read_messages,
    read_schema,
    schema_message,
    segments_in,
)

PENDING_EVENTS_MAX = 16_384
PENDING_FACTS_MAX = 8_192
PENDING_BYTES_MAX = 8 * 2**20
"""With more than this in memory, facts are written at once. It bounds memory, and how long a
write keeps others waiting."""

BEHIND_MAX = 4
"""With so many times as much in memory, `record` waits for the disk: then no other bound has
helped."""


class Place(NamedTuple):
    """The position of a fact: the input that caused it, and its index among that input's facts."""

    position: int
    turn: int


Recorded = tuple[int, int, Fact]
"""A fact behind its position and its index there."""

BEGINNING = Place(-1, -1)
"""Before the first fact."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of an earlier run that crashed."""

    segments: int = 0
    """How many unfinished files were found."""
    batches: int = 0
    """How many intact batches of unfinished files are kept."""
    bytes_cut: int = 0
    """How many bytes after the intact batches were cut off."""

    def __str__(self) -> str:
        if not self.segments:
            return "the journal is complete"
        cut = f"; {self.bytes_cut} torn bytes were cut off" if self.bytes_cut else ""
        return f"finished {self.segments} files of the journal with {self.batches} batches{cut}"


class Journal:
    """The journal of one node.

    `record` is cheap and only collects; what is collected is written by `flush`, by
    `flush_if_due`, which the driver calls every now and then, or when it gets too much. Each of
    these may run in another thread than `record`.

    After a crash the driver replays its inputs and records the facts again; those that are there
    already are left out. For that, the facts of an input are recorded only when the input is
    durable, and `flush(sync=True)` goes before a snapshot that lets inputs be forgotten. A driver
    without a durable log counts on from `last_position.position + 1`.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        *,
        segment_bytes: int = 64 * 2**20,
        segment_s: float = 60.0,
        flush_s: float = 1.0,
        bytes_max: int | None = None,
        log_end: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        thread: Executor | None = None,
    ) -> None:
        """Finish what an earlier run left, and go on after it.

        `log_end` is the last position of the driver's log. A journal can only be ahead of it when
        the log was damaged; then the positions after it are used anew, and their facts recorded.
        What `record` finds to be much is written by `thread`, if there is one.
        """
        self.directory = directory
        self._node = node
        self._segment_bytes = segment_bytes
        self._segment_s = segment_s
        self._flush_s = flush_s
        self._bytes_max = bytes_max
        self._clock = clock
        self._thread = thread
        self._flushing: Future[None] | None = None
        self._is_taken = True
        """Whether the thread has taken what it was last asked to write."""
        self._collecting = Lock()
        self._writing = Lock()
        self._pending: list[Recorded] = []
        self._pending_events = 0
        self._pending_bytes = 0
        self._pending_since = 0.0
        self._file: int | None = None
        self._path = directory
        self._file_bytes = 0
        self._file_since = 0.0
        self._messages = 0
        self._written = BEGINNING.position
        """The position of the last fact in a file."""
        self._failure: JournalFailedError | None = None
        self.recovery = Recovery()
        self.last_position = BEGINNING
        """The last fact that is in the journal or collected; `record` leaves out all up to it."""
        self.last_time: Time = 0
        """The time of the last fact of earlier runs; 0 if there is none."""
        self._last_file_us = 0
        """When the newest file was begun, by its name."""
        self.incarnation: int | None = None
        """Tells this journal from others of the same node: when it was begun, in microseconds.

        Each file says it. It stays as long as positions ascend: where there are no files any more,
        and where positions are used again, another one begins. None until it is on disk.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.recovery = _finish_all(directory, node)
            self.last_position, self.last_time = _last_fact(directory, node)
            self._last_file_us, self.incarnation = _newest(segments_in(directory, node))
            self._written = self.last_position.position
        except OSError as error:
            self._fail(error)
        batch_message(
            rows_of([]), 0
        )  # Arrow loads much at its first use, which no event waits for.
        if self.recovery.segments:
            log.warning("%s", self.recovery, extra={"directory": str(directory)})
        if log_end is not None and self.last_position.position > log_end:
            log.warning(
                "the journal reaches position %d and the log only %d: the positions between are "
                "used again, for other inputs",
                *(self.last_position.position, log_end),
            )
            self.last_position = Place(log_end, 2**31 - 1)
            self.incarnation = None

    def record(self, position: int, facts: Sequence[Fact], size_bytes: int = 0) -> None:
        """Take the facts that an input caused, in order; positions never go back.

        `size_bytes` is about how much memory the facts keep alive, such as the size of the input.
        """
        self._check()
        if position < self.last_position.position or not facts:
            return
        after = self.last_position.turn if position == self.last_position.position else -1
        with self._collecting:
            if not self._pending:
                self._pending_since = self._clock()
            for turn, fact in enumerate(facts):
                if turn > after:
                    self._pending.append((position, turn, fact))
                    self._pending_events += _events_in(fact)
            self._pending_bytes += size_bytes
            self.last_position = max(self.last_position, Place(position, len(facts) - 1))
        if self._has_pending(1):
            self.flush_if_much()

    def flush(self, *, sync: bool = False) -> None:
        """Write what is collected as one batch; with `sync` it is on disk afterwards."""
        with self._writing:
            self._check()
            with self._collecting:
                pending, self._pending = self._pending, []
                self._pending_events = self._pending_bytes = 0
                self._is_taken = True
            try:
                if pending:
                    self._write(pending)
                if sync and self._file is not None:
                    os.fsync(self._file)
            except Exception as error:  # noqa: BLE001 - whatever it is, facts are missing.
                self._fail(error)

    def flush_if_much(self) -> None:
        """Write what is collected, if it is much: in the thread, if that has nothing else to write.

        If it has, the journal is behind.
        """
        self._check()
        if not self._has_pending(1):
            return
        if self._thread is None:
            self.flush()
            return
        if self._flushing is not None and not self._flushing.done():
            if not self._has_pending(BEHIND_MAX):
                return
            self._flushing.result()
        self._is_taken = False
        self._flushing = self._thread.submit(self.flush)

    def _has_pending(self, times: int) -> bool:
        """Whether so many times as much as one write should have is collected."""
        return (
            self._pending_events >= times * PENDING_EVENTS_MAX
            or len(self._pending) >= times * PENDING_FACTS_MAX
            or self._pending_bytes >= times * PENDING_BYTES_MAX
        )

    @property
    def behind(self) -> "Future[None] | None":
        """The write that has to end before much more is recorded; None if nothing has to wait."""
        if not self._has_pending(1 if self._is_taken else 2):
            return None
        flushing = self._flushing
        return None if flushing is None or flushing.done() else flushing

    def flush_if_due(self) -> None:
        """Write what has waited long enough, and finish a file that is old enough."""
        now = self._clock()
        if self._pending and now - self._pending_since >= self._flush_s:
            self.flush()
        if self._file is not None and now - self._file_since >= self._segment_s:
            self.roll()

    def roll(self) -> None:
        """Finish the current file, if there is one; it is on disk afterwards."""
        with self._writing:
            self._check()
            try:
                self._finish()
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        """Write what is collected and finish the file."""
        self.flush()
        self.roll()

    @property
    def bytes_on_disk(self) -> int:
        """How many bytes the journal of this node takes."""
        return sum(_size(segment.path) for segment in segments_in(self.directory, self._node))

    def _write(self, pending: list[Recorded]) -> None:
        try:
            batch = rows_of(pending)
        except Exception:  # noqa: BLE001 - protocols of other packages state facts, too.
            pending = _writable(pending)
            if not pending:
                return
            batch = rows_of(pending)
        if self._file is None:
            self._start(pending[0][0])
        self._append(batch_message(batch, self._messages))
        self._written = pending[-1][0]
        self._messages += 1
        if self.incarnation is None and self._file is not None:
            os.fsync(self._file)  # Readers remember it, so a power cut must not take it away.
            self.incarnation = self._last_file_us
        if self._file_bytes >= self._segment_bytes:
            self._finish()

    def _start(self, position: int) -> None:
        # Whatever the clock shows: files with the same first position sort as they were begun.
        self._last_file_us = max(time.time_ns() // 1000, self._last_file_us + 1)
        self._path = self.directory / file_name(self._node, position, self._last_file_us)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._file_bytes = 0
        self._file_since = self._clock()
        incarnation = self._last_file_us if self.incarnation is None else self.incarnation
        start = min(self._written + 1, position)
        self._append(schema_message(schema_of(self._node, start, incarnation)))
        self._messages = 1
        sync_directory(self.directory)

    def _append(self, data: bytes) -> None:
        assert self._file is not None  # noqa: S101 - for the type checker.
        rest = memoryview(data)
        while rest:  # A write may take only a part.
            rest = rest[os.write(self._file, rest) :]
        self._file_bytes += len(data)

    def _finish(self) -> None:
        if self._file is None:
            return
        self._append(END)
        os.fsync(self._file)
        os.close(self._file)
        self._file = None
        self._path.rename(finished_path(self._path))
        sync_directory(self.directory)
        if self._bytes_max is not None:
            self._prune(self._bytes_max)

    def _prune(self, bytes_max: int) -> None:
        """Remove the oldest files, but never the last one: it knows how far the journal reaches.

        That is the file that was just finished, whatever its name.
        """
        last = finished_path(self._path)
        segments = segments_in(self.directory, self._node)
        sizes = [_size(segment.path) for segment in segments]
        total = sum(sizes)
        for segment, size in zip(segments, sizes, strict=True):
            if total <= bytes_max:
                break
            if segment.path == last:
                continue
            segment.path.unlink(missing_ok=True)
            total -= size
            log.info("removed %s to make room", segment.path.name)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: Exception) -> NoReturn:
        """Stop after an error: the next start cuts off what was half written."""
        full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
        problem = (isinstance(error, OSError) and error.strerror) or str(error) or repr(error)
        self._failure = JournalFailedError(
            f"the journal in {self.directory} cannot be written: {problem}. "
            + ("Make room on the disk or lower journal.bytes_max" if full else "Look at the disk")
            + ", then start the broker again"
        )
        raise self._failure from error


def _events_in(fact: Fact) -> int:
    """How many events a fact is about; if that cannot be said, it is found out at the write."""
    try:
        return events_in(fact)
    except Exception:  # noqa: BLE001 - see `_write`.
        return 0


def _writable(pending: list[Recorded]) -> list[Recorded]:
    """The facts that have a form in the journal; the others are reported, and lost."""
    written, lost = [], []
    for each in pending:
        try:
            rows_of([each])
        except Exception as error:  # noqa: BLE001 - see `_write`.
            lost.append((each, error))
        else:
            written.append(each)
    if lost:
        (position, _, fact), reason = lost[0]
        log.error(
            "facts that the journal cannot hold are lost: %d, the first at position %d (%s): %s",
            *(len(lost), position, type(fact).__name__, reason),
        )
    return written


def _finish_all(directory: Path, node: str) -> Recovery:
    """Finish the files that an earlier run has left: cut off what is torn, keep the rest."""
    count = batches = bytes_cut = 0
    for segment in segments_in(directory, node):
        if not segment.is_open:
            continue
        intact, end = _intact(segment.path)
        bytes_cut += max(0, _size(segment.path) - end)
        count += 1
        batches += intact
        if not intact:
            segment.path.unlink()
            continue
        with segment.path.open("r+b") as file:
            file.truncate(end)
            file.seek(end)
            file.write(END)
            file.flush()
            os.fsync(file.fileno())
        segment.path.rename(finished_path(segment.path))
    if count:
        sync_directory(directory)
    return Recovery(segments=count, batches=batches, bytes_cut=bytes_cut)


def _intact(path: Path) -> tuple[int, int]:
    """How many batches at the beginning of a file are intact, and where they end."""
    count, end = -1, 0  # The first message is the schema.
    try:
        for message in read_messages(path):
            count, end = count + 1, message.ends_at
    except SegmentDamagedError:
        pass
    return max(0, count), end


def _last_fact(directory: Path, node: str) -> tuple[Place, Time]:
    """The greatest place of all facts that can be read, and the time then.

    Names do not tell which file has it: a clock may have been set back between two files, and
    where positions were used again, an earlier file may reach further. Of most files only the
    headers are read.
    """
    last, time_us = BEGINNING, 0
    for segment in reversed(segments_in(directory, node)):
        found = _last_fact_in(segment, max(0, last.position))
        if found is not None:
            last, time_us = max(last, found[0]), max(time_us, found[1])
    return last, time_us


def _last_fact_in(segment: SegmentName, start: int) -> tuple[Place, Time] | None:
    """The last fact of a file, unless it is before a position."""
    schema: bytes | None = None
    last: bytes | None = None
    try:
        for message in read_messages(segment.path, start):
            if schema is None:
                schema = message.data
            else:
                last = message.data
    except SegmentDamagedError as error:
        log.warning("%s", error, extra={"segment": segment.path.name})
    if schema is None or last is None:
        return None
    batch = read_batch(last, read_schema(schema))
    place = Place(batch["position"][-1].as_py(), batch["turn"][-1].as_py())
    return place, max(batch["time_us"].to_pylist())


def _newest(segments: Sequence[SegmentName]) -> tuple[int, int | None]:
    """When the newest file of a journal was begun, and the incarnation that the newest ones say."""
    newest_first = sorted(segments, key=attrgetter("started_us"), reverse=True)
    started_us = newest_first[0].started_us if newest_first else 0
    for segment in newest_first:
        with suppress(SegmentDamagedError):
            for message in read_messages(segment.path, end=0):
                found = incarnation_of(read_schema(message.data))
                if found is not None:
                    return started_us, found
    return started_us, None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def sync_directory(directory: Path) -> None:
    """Make sure that the names of its files are on disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
