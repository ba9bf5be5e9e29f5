"""A log of records on disk that loses nothing it has called durable."""

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from sterna.net.storage.disk import REAL, Disk, write_fully
from sterna.net.storage.errors import (
    LogFailedError,
    LogFullError,
    SnapshotFailedError,
)
from sterna.net.storage.format import (
    RECORD_BYTES_MAX,
    encode_groups,
    encode_mark,
    encode_segment,
    encode_snapshot,
    seed_of,
)
from sterna.net.storage.locking import lock_directory
from sterna.net.storage.options import LogOptions
from sterna.net.storage.recovery import (
    FoundLog,
    Load,
    LogFile,
    Recovery,
    Segment,
    Snapshot,
    recover,
    segment_path,
)
from sterna.net.storage.snapshots import (
    snapshot_path,
    unfinished_path,
    write_snapshot,
)

WRITE_PARTS = 512
"""A write is done once it has so many parts; the system accepts at most 1,024 (IOV_MAX)."""


class Seal(NamedTuple):
    """A position of a log at which a snapshot is to be made elsewhere."""

    position: int
    path: Path
    """Where the snapshot is to be written, as `write_snapshot` does."""
    bytes_written: int
    """How many bytes the log had written by then."""


def _as_it_is(_kind: str, state: bytes) -> bytes:
    return state


class Log:
    """Records in order, and now and then a snapshot of what they led to.

    One thread appends; one may commit and one may make a snapshot meanwhile. Positions count
    records since the log was first opened: the record at position 0 is the first, and a state at
    position 7 is what the first seven led to.

    A log that failed is dead: each call raises the same error. It is never tried again, for after
    a failed sync nobody knows what is on disk until it is read anew. The file of a new snapshot is
    no part of the log yet: if it cannot be written, it is dropped, and the log continues.
    """

    def __init__(
        self, directory: Path, disk: Disk, options: LogOptions, kind: str, found: FoundLog
    ) -> None:
        self.directory = directory
        self.options = options
        self.kind = kind
        self.appended = found.position
        """How many records were ever appended."""
        self.written = found.position
        """How many records the operating system has: they survive the end of this process."""
        self.synced = found.position
        """How many records are durable: they survive a power cut."""
        files: list[LogFile] = [*found.segments, *found.snapshots]
        self.bytes_on_disk = sum(file.size for file in files)
        """The size of segments and snapshots, with the zeros ahead; `*.damaged` does not count."""
        self._disk = disk
        self._log_id = found.log_id
        self._seed = seed_of(found.log_id)
        self._segment_bytes = options.within(options.segment_bytes)
        self._pending: list[bytes] = []
        self._segments = found.segments
        self._snapshots = found.snapshots
        self._snapshot_position = found.recovery.position
        self._bytes_written = found.recovery.report.bytes
        self._bytes_at_snapshot = 0
        self._failure: LogFailedError | None = None
        self._writing = threading.Lock()
        self._snapshotting = threading.Lock()
        self._closed = False
        self._release: Callable[[], None] = _nothing
        if found.end is None:
            self._begin_segment()
        else:
            self._file = disk.open(self._segments[-1].path)
            self._offset = found.end
            self._write_mark(closed=False)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        kind: str = "",
        older: Sequence[str] = (),
        load: Load = _as_it_is,
        disk: Disk = REAL,
        options: LogOptions | None = None,
    ) -> tuple["Log", Recovery]:
        """Open the log in a directory, new or not, and return it with what is in it.

        `kind` is the kind of state in snapshots; those of another kind are refused, unless it
        is one of the `older` kinds that can be read. `load` reads a state, before anything on disk
        is changed.
        """
        options = options or LogOptions()
        try:
            release = lock_directory(directory, disk)
        except OSError as error:
            raise _not_opened(directory, error) from error
        try:
            found = recover(disk, directory, (kind, *older), load, salvage=options.salvage)
            log = cls(directory, disk, options, kind, found)
            log._release = release
            log._remove_unneeded()
        except OSError as error:
            release()
            raise _failed(f"recovering {directory}", error) from error
        except BaseException:
            release()
            raise
        return log, found.recovery

    def append(self, record: bytes) -> int:
        """Take a record, in memory only; return the position after it. See `synced`."""
        if self._failure is not None:
            raise self._again()
        if len(record) > RECORD_BYTES_MAX:
            raise ValueError(
                f"a record has at most {RECORD_BYTES_MAX:,} bytes, not {len(record):,}"
            )
        # Nobody replaces the list, and calls of its methods are atomic: this needs no lock.
        self._pending.append(record)
        self.appended += 1
        return self.appended

    def commit(self, *, sync: bool = True) -> int:
        """Write all that was appended before, and sync it; return how many records are durable.

        Without `sync` the records survive the end of this process, but not a power cut.
        """
        with self._writing, self._fail_stop("writing the log"):
            self._write_pending()
            if sync and self.synced < self.written:
                self._file.sync_data()
                self.synced = self.written
        return self.synced

    def snapshot(self, state: bytes, position: int) -> None:
        """Keep the state that the first `position` records led to, and drop what it replaces.

        The snapshot before it and the records since then are kept as well, in case this one is
        damaged one day. SnapshotFailedError if it cannot be written: then the log continues.
        """
        if not self._snapshot_position <= position <= self.appended:
            raise ValueError(
                f"a snapshot at {position:,} is not between the last one at"
                f" {self._snapshot_position:,} and the end at {self.appended:,}"
            )
        bytes_written = self._bytes_written
        if self.synced < position:
            self.commit()
        sealed = Seal(position, unfinished_path(self.directory, position), bytes_written)
        with self._snapshotting:
            self._check()
            header = encode_snapshot(state, position, self.kind)
            size = self._take_room(len(header) + len(state))
            with self._may_fail("writing a snapshot", sealed, size):
                write_snapshot(self._disk, sealed.path, header, state)
            self._take_in(sealed, size)

    def seal(self) -> Seal:
        """Have a snapshot made elsewhere of what is durable now; then `adopt` it or `discard` it.

        Until then there must be no other snapshot: the files that this one is made from stay.
        """
        position = self.synced
        return Seal(position, unfinished_path(self.directory, position), self._bytes_written)

    def adopt(self, sealed: Seal) -> None:
        """Take in a snapshot that was made elsewhere, and drop what it replaces.

        SnapshotFailedError if there is no room for it, or if it is not there: then it is
        discarded, and the log continues.
        """
        self._check()
        with self._may_fail("taking in a snapshot", sealed, 0):
            size = self._take_room(self._disk.size(sealed.path))
        with self._snapshotting:
            self._take_in(sealed, size)

    def discard(self, sealed: Seal) -> None:
        """Remove what was written of a snapshot that failed, or leave it to the next `open`."""
        with suppress(OSError):
            if sealed.path.name in self._disk.names(self.directory):
                self._disk.remove(sealed.path)

    @property
    def records_since_snapshot(self) -> int:
        return self.appended - self._snapshot_position

    @property
    def bytes_since_snapshot(self) -> int:
        """How many bytes were written, not only appended, since the last snapshot."""
        return self._bytes_written - self._bytes_at_snapshot

    @property
    def horizon(self) -> int:
        """No recovery begins with an earlier state than the one at this position."""
        snapshots = self._snapshots
        return snapshots[0].position if len(snapshots) == 2 else 0

    @property
    def snapshot_due(self) -> bool:
        options = self.options
        return (
            self.records_since_snapshot > options.snapshot_records
            or self.bytes_since_snapshot > options.within(options.snapshot_bytes)
        )

    def close(self) -> None:
        """Commit what was appended, mark the end as durable, and let others open the log."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._failure is None:
                self.commit()
                with self._snapshotting, self._writing, self._fail_stop("closing the log"):
                    self._write_mark(closed=True)
        finally:
            self._failure = self._failure or LogFailedError(
                f"The log in {self.directory} is closed."
            )
            self._file.close()
            self._release()

    # Failing

    @contextmanager
    def _fail_stop(self, doing: str) -> Iterator[None]:
        """End the log if anything goes wrong in here."""
        self._check()
        try:
            yield
        except OSError as error:
            self._failure = _failed(f"{doing} in {self.directory}", error)
            raise self._again() from error
        except BaseException as error:  # Half done: nobody knows what is on disk.
            if isinstance(error, LogFailedError):
                self._failure = error
            else:
                self._failure = LogFailedError(
                    f"{doing} in {self.directory} was broken off by {error!r}. Start again: what"
                    " was acknowledged is recovered."
                )
            raise

    @contextmanager
    def _may_fail(self, doing: str, sealed: Seal, size: int) -> Iterator[None]:
        """Drop a snapshot of a size that is accounted for if anything goes wrong in here."""
        try:
            yield
        except Exception as error:
            with self._writing:
                self.bytes_on_disk -= size
            self.discard(sealed)
            if isinstance(error, SnapshotFailedError):
                raise
            reason = (error.strerror if isinstance(error, OSError) else None) or repr(error)
            raise SnapshotFailedError(f"{doing} in {self.directory} failed: {reason}") from error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._again()

    def _again(self) -> LogFailedError:
        """The error that ended the log, as a new one: each has a traceback of its own."""
        failure = self._failure
        return type(failure)(*failure.args) if failure else LogFailedError("the log has not failed")

    # Segments

    def _write_pending(self) -> None:
        count = len(self._pending)
        if not count:
            return
        records = self._pending[:count]
        parts: list[bytes] = []
        size = number = 0
        for group_records, group in encode_groups(records, self.written, self.synced, self._seed):
            parts += group
            size += sum(map(len, group))
            number += group_records
            if len(parts) >= WRITE_PARTS or self._offset + size >= self._segment_bytes:
                self._write(parts)
                self.written += number
                parts, size, number = [], 0, 0
        if parts:
            self._write(parts)
            self.written += number
        del self._pending[:count]

    def _write_mark(self, *, closed: bool) -> None:
        """Mark on disk that everything before is durable, so that damage to it is recognized."""
        self._write(encode_mark(self.synced, self._seed, closed=closed))
        self._file.sync_data()

    def _write(self, parts: list[bytes]) -> None:
        """Write behind the last group, in one call, with zeros ahead where the file grows."""
        # A segment is named after its first record: one with none yet goes on.
        if self._offset >= self._segment_bytes and self._segments[-1].first < self.written:
            self._end_segment()
            self._begin_segment()
        size = sum(map(len, parts))
        end = self._offset + size
        zeros = self._grow(end)
        write_fully(self._file, [*parts, zeros] if zeros else parts, self._offset)
        self._offset = end
        self._bytes_written += size

    def _grow(self, end: int) -> memoryview | None:
        """Account for room up to here; return the zeros to write after it."""
        segment = self._segments[-1]
        grown = end - segment.size
        if grown <= 0:
            return None
        self._check_room(grown)
        ahead = self.options.within(self.options.fill_bytes)
        if end - self._offset >= ahead:
            ahead = 0  # Much data at once: one change of the size for all of it costs little.
        if self.options.bytes_max is not None:
            ahead = min(ahead, self.options.bytes_max - self.bytes_on_disk - grown)
        segment.size += grown + ahead
        self.bytes_on_disk += grown + ahead
        return memoryview(bytes(ahead)) if ahead else None

    def _end_segment(self) -> None:
        """Sync the segment: each one is durable before the next one begins."""
        if self.synced < self.written:
            self._file.sync_data()
            self.synced = self.written
        self._file.close()

    def _begin_segment(self) -> None:
        """Begin a segment at the end of what is written, durably."""
        path = segment_path(self.directory, self.written)
        self._file = self._disk.create(path)
        header = encode_segment(self._log_id, self.written)
        self._segments.append(Segment(path=path, first=self.written, size=0))
        self._offset = 0
        self._write([header])
        self._file.sync()
        self._disk.sync_directory(self.directory)

    def _check_room(self, more: int) -> None:
        limit = self.options.bytes_max
        if limit is not None and self.bytes_on_disk + more > limit:
            raise LogFullError(
                f"The log in {self.directory} would take more than bytes_max = {limit:,} bytes."
                " Raise the limit, then start again: what was acknowledged is recovered."
            )

    # Snapshots

    def _take_room(self, size: int) -> int:
        """Account for a snapshot of this size; SnapshotFailedError if there is no room for it."""
        with self._writing:
            try:
                self._check_room(size)
            except LogFullError as error:
                raise SnapshotFailedError(str(error)) from error
            self.bytes_on_disk += size
        return size

    def _take_in(self, sealed: Seal, size: int) -> None:
        """Make a snapshot part of the log once it is durable, and remove what is unneeded then."""
        position = sealed.position
        path = snapshot_path(self.directory, position)
        with self._may_fail("taking in a snapshot", sealed, size):
            self._disk.rename(sealed.path, path)
        # A failed sync of the directory may concern the name of a new segment, too: it is fatal.
        with self._fail_stop("taking in a snapshot"):
            self._disk.sync_directory(self.directory)
            with self._writing:
                replaced = [s for s in self._snapshots if s.position == position]
                self.bytes_on_disk -= sum(s.size for s in replaced)
                kept = [s for s in self._snapshots if s.position < position]
                self._snapshots = [*kept, Snapshot(path=path, position=position, size=size)]
            self._snapshot_position = position
            self._bytes_at_snapshot = sealed.bytes_written
            self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        """Remove what the last two snapshots do not need."""
        with self._writing:
            removed: list[LogFile] = [*self._snapshots[:-2]]
            del self._snapshots[:-2]
            horizon = self.horizon
            unneeded = sum(1 for segment in self._segments[1:] if segment.first <= horizon)
            removed += self._segments[:unneeded]
            del self._segments[:unneeded]
            self.bytes_on_disk -= sum(file.size for file in removed)
        for file in removed:
            self._disk.remove(file.path)
        if removed:
            self._disk.sync_directory(self.directory)


def _nothing() -> None:
    pass


_WRONG_PLACE = frozenset(
    {errno.ENOTDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}
)
"""Why a directory cannot be used, however good the disk is."""


def _not_opened(directory: Path, error: OSError) -> LogFailedError:
    if error.errno in _WRONG_PLACE:
        return LogFailedError(
            f"opening {directory} failed: {error.strerror}. Choose a directory that can be written,"
            " or make it so."
        )
    return _failed(f"opening {directory}", error)


def _failed(doing: str, error: OSError) -> LogFailedError:
    reason = error.strerror or str(error)
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return LogFullError(
            f"{doing} failed: {reason}. Make room on the disk, then start again: what was"
            " acknowledged is recovered."
        )
    return LogFailedError(
        f"{doing} failed: {reason}. Nothing is tried again, as nobody knows what is on disk. Check"
        " the disk, then start again: what was acknowledged is recovered."
    )
