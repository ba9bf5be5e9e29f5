"""Finding what is on disk after whatever happened, and making it fit to continue from.

The newest intact snapshot counts, and the records from its position on. After them there may be
what a power cut left of writes that were never synced: it is cut off. Anything else that is not as
it was written is damage, and the log is not used unless the options ask to salvage it.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sterna.net.storage.disk import Disk, write_fully
from sterna.net.storage.errors import LogDamagedError, LogFormatError
from sterna.net.storage.format import (
    FORMAT,
    LOG_ID_BYTES,
    SEGMENT_BYTES,
    Damage,
    OtherFormat,
    RecordGroup,
    decode_group,
    decode_segment,
    decode_snapshot,
    format_of,
    group_at,
    groups_after,
    is_closed,
    seed_of,
)
from sterna.net.storage.snapshots import SNAPSHOT_ENDING, UNFINISHED_ENDING

SEGMENT_ENDING = ".log"
DAMAGED_ENDING = ".damaged"


Load = Callable[[str, bytes], Any]
"""Reads a state of a kind; LogFormatError if it cannot."""


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on disk, and what was done about it."""

    directory: Path
    snapshot: int | None
    """The position of the snapshot that is used, if there is one."""
    records: int
    """How many records follow the snapshot."""
    bytes: int
    """How many bytes those records take on disk."""
    closed: bool = True
    """Whether the log was closed when it was last in use, or is new."""
    torn_bytes: int = 0
    """How many bytes were cut off at the end: written, but never synced."""
    set_aside: tuple[str, ...] = ()
    """Files that are damaged; they are no longer used, and nothing removes them."""
    notes: tuple[str, ...] = ()
    """What else was out of order."""

    def __str__(self) -> str:
        records = f"{self.records:,} records ({self.bytes:,} bytes)"
        if self.snapshot is not None:
            records = f"the snapshot at record {self.snapshot:,} and {records} after it"
        sentences = [f"Recovered {records} from {self.directory}."]
        if not self.closed:
            sentences.append("The log had not been closed.")
        if self.torn_bytes:
            sentences.append(
                f"Cut off {self.torn_bytes:,} bytes at its end, of writes that were not finished."
            )
        sentences += self.notes
        if self.set_aside:
            sentences.append(f"Damaged and set aside: {', '.join(self.set_aside)}.")
        return " ".join(sentences)


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The state to begin with, and the records to bring it up to date."""

    state: Any
    """What the newest intact snapshot holds, as it was loaded; none if there is no snapshot."""
    position: int
    """How many records led to that state."""
    records: Iterator[bytes]
    """All records after that state, read from disk as they are asked for. They have to be used up
    before the next snapshot, which may remove the files."""
    report: RecoveryReport


class LogFile(msgspec.Struct, kw_only=True):
    """A file that is a part of the log."""

    path: Path
    size: int
    """The size of the file on disk, with the zeros ahead."""


class Segment(LogFile, kw_only=True):
    """A file with records."""

    first: int
    """The position of its first record."""


class Snapshot(LogFile, kw_only=True):
    """A file with a state."""

    position: int


class FoundLog(NamedTuple):
    """Everything that a log continues from."""

    recovery: Recovery
    log_id: bytes
    position: int
    """How many records there are in all; every one of them is durable now."""
    segments: list[Segment]
    end: int | None
    """Where the last segment continues; none if a new one must be begun."""
    snapshots: list[Snapshot]
    """The snapshots, from old to new."""


def segment_path(directory: Path, first: int) -> Path:
    return directory / f"{first:020d}{SEGMENT_ENDING}"


def recover(
    disk: Disk, directory: Path, kinds: Sequence[str], load: Load, *, salvage: bool
) -> FoundLog:
    """Read what is there; cut off what is torn, set aside what is damaged, make the rest last."""
    search = _Search(disk, directory, kinds, salvage=salvage)
    search.load_snapshot(load)
    search.read_segments()
    return search.mend()


def read(disk: Disk, directory: Path, kinds: Sequence[str], load: Load, up_to: int) -> Recovery:
    """Read the first so many records of a log that is in use; LogDamagedError if some are missing.

    They have to be durable. Nothing is changed, and what the log takes in meanwhile does no harm.
    """
    search = _Search(disk, directory, kinds, salvage=False, up_to=up_to)
    search.load_snapshot(load)
    search.read_segments()
    return search.recovery()


class _Span(NamedTuple):
    """A part of a segment with nothing but intact groups."""

    path: Path
    begin: int
    end: int


class _Search:
    """First reads everything and changes nothing, then mends."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        kinds: Sequence[str],
        *,
        salvage: bool,
        up_to: int = sys.maxsize,
    ) -> None:
        self.disk = disk
        self.up_to = up_to
        """Records after this position are ignored."""
        self.directory = directory
        self.kinds = kinds
        self.salvage = salvage
        names = sorted(disk.names(directory))
        self.dropped = [directory / name for name in names if name.endswith(UNFINISHED_ENDING)]
        """Files that never became part of the log."""
        self.segments = [
            Segment(path=directory / name, first=first, size=disk.size(directory / name))
            for name, first in _numbered(names, SEGMENT_ENDING)
        ]
        self.snapshots = [
            Snapshot(path=directory / name, position=position, size=disk.size(directory / name))
            for name, position in _numbered(names, SNAPSHOT_ENDING)
            if position <= up_to
        ]
        self.log_id: bytes | None = None
        self.last_format = FORMAT
        """The format of the segment that was read last."""
        self.state: Any = None
        self.base = 0
        """The position of the state."""
        self.position = 0
        """How many records are there, as far as has been read."""
        self.spans: list[_Span] = []
        self.end: int | None = None
        """Where the last segment ends, if it can be continued."""
        self.doubtful = b""
        """The last bytes before that end, which may not be durable."""
        self.closed = not self.segments
        self.torn_bytes = 0
        self.damaged: list[Path] = []
        """Files to set aside."""
        self.copied: Path | None = None
        """A file to set aside a copy of, as its beginning is intact."""
        self.notes: list[str] = []

    def load_snapshot(self, load: Load) -> None:
        """Load the newest intact snapshot. The log reaches back to the one before it."""
        for snapshot in reversed(self.snapshots):
            try:
                position, kind, state = decode_snapshot(self.disk.read(snapshot.path))
                if position != snapshot.position:
                    raise Damage(f"it was made at {position:,}")
            except OtherFormat as other:
                raise _other_format(snapshot.path, other) from None
            except Damage as damage:
                self.damaged.append(snapshot.path)
                self.notes.append(f"{snapshot.path.name} is damaged: {damage}.")
                continue
            if kind not in self.kinds:
                raise LogFormatError(
                    f"{snapshot.path} holds a state of kind {kind!r}, but {self.kinds[0]!r} is"
                    " wanted. Start with the release that wrote it, or a later one, or with an"
                    " empty directory. Nothing was changed."
                )
            try:
                self.state, self.base = load(kind, state), position
            except LogFormatError as error:
                raise LogFormatError(f"{snapshot.path}: {error}. Nothing was changed.") from None
            break
        self.snapshots = [s for s in self.snapshots if s.path not in self.damaged]

    def read_segments(self) -> None:
        """Read all records from the snapshot on, until the end or a damage."""
        self._drop_unborn_segment()
        begin = max((i for i, s in enumerate(self.segments) if s.first <= self.base), default=0)
        if begin == len(self.segments):
            if self.base or self.damaged:
                self._damage(begin, "there is no segment")
            return
        self.position = self.segments[begin].first
        if self.position > self.base:
            self._damage(begin, f"there is nothing before record {self.position:,}")
            return
        for index in range(begin, len(self.segments)):
            if self.position >= self.up_to or not self._read_segment(index):
                break

    def mend(self) -> FoundLog:
        """Repair what was found. Doing it twice does no harm."""
        set_aside = [self._copy_aside(self.copied)] if self.copied is not None else []
        # The last ones first: while one is left, the damage before it is still recognised.
        set_aside += [self._set_aside(path) for path in reversed(self.damaged)]
        for path in self.dropped:
            self.disk.remove(path)
        if self.end is not None:
            self._mend_end(self.segments[-1].path, self.end)
            self.segments[-1].size = self.end
        self.disk.sync_directory(self.directory)
        self.log_id = self.log_id or os.urandom(LOG_ID_BYTES)
        position = max(self.position, self.base)
        recovery = self.recovery(set_aside)
        end = self.end if self.position == position else None
        if end is not None and self.last_format < FORMAT:
            self._leave_old_segment()
            end = None
        return FoundLog(recovery, self.log_id, position, self.segments, end, self.snapshots)

    def recovery(self, set_aside: Sequence[str] = ()) -> Recovery:
        """What was found, as the beginning of a log."""
        position = min(max(self.position, self.base), self.up_to)
        if self.up_to < sys.maxsize and position < self.up_to:
            self._damage(len(self.segments), f"record {position:,} is not intact")
        report = RecoveryReport(
            directory=self.directory,
            snapshot=None if self.state is None else self.base,
            records=position - self.base,
            bytes=sum(span.end - span.begin for span in self.spans),
            closed=self.closed,
            torn_bytes=self.torn_bytes,
            set_aside=tuple(sorted(set_aside)),
            notes=tuple(self.notes),
        )
        seed = seed_of(self.log_id or b"")
        records = _records(self.disk, self.spans, seed, self.base)
        return Recovery(
            state=self.state,
            position=self.base,
            records=islice(records, report.records),
            report=report,
        )

    def _leave_old_segment(self) -> None:
        """Have the next records go into a new segment, so that an older release refuses the log."""
        last = self.segments[-1]
        if last.first == self.position:  # The new one has the name of one without records.
            self.disk.remove(last.path)
            self.segments.pop()

    def _drop_unborn_segment(self) -> None:
        """A segment's header is synced before the first group: before that, it holds nothing."""
        if not self.segments:
            return
        path = self.segments[-1].path
        data = self.disk.read(path)
        try:
            decode_segment(data)
        except OtherFormat as other:
            raise _other_format(path, other) from None
        except Damage:
            if not data[SEGMENT_BYTES:].strip(b"\0"):
                self.segments.pop()
                self.dropped.append(path)
                self.torn_bytes += len(data.rstrip(b"\0"))

    def _read_segment(self, index: int) -> bool:
        """Read a segment; return whether to continue with the next one."""
        segment = self.segments[index]
        data = self.disk.read(segment.path)
        try:
            log_id, first = decode_segment(data)
        except OtherFormat as other:
            raise _other_format(segment.path, other) from None
        except Damage as damage:
            self._damage(index, f"{segment.path.name}: {damage}")
            return False
        if first != segment.first or (self.log_id is not None and log_id != self.log_id):
            self._damage(index, f"{segment.path.name} is not a part of this log")
            return False
        self.log_id = log_id
        self.last_format = format_of(data)
        if first != self.position:
            self._damage(index, f"records {self.position:,} to {first - 1:,} are not there")
            return False
        return self._read_groups(index, data, seed_of(log_id))

    def _read_groups(self, index: int, data: bytes, seed: int) -> bool:
        segment = self.segments[index]
        base = self.base
        position = synced = segment.first  # A segment is synced before the next one is begun.
        doubtful: deque[RecordGroup] = deque()
        """The groups that may not be durable."""
        begin = offset = SEGMENT_BYTES
        later: list[RecordGroup] = []
        while position < self.up_to:
            group = group_at(data, offset, seed)
            if group is None or group.first != position:
                later = list(groups_after(data, offset, seed))
                if not later or later[0].first > max(position, base):
                    break
                # What is not intact here was no record, or the snapshot replaces it.
                self.notes.append(f"{segment.path.name} is damaged at byte {offset:,}, harmlessly.")
                self._add_span(segment.path, begin, offset)
                group = later[0]
                begin = group.offset
            if group.synced > synced:
                synced = group.synced
                while doubtful and doubtful[0].first + doubtful[0].records <= synced:
                    doubtful.popleft()
            doubtful.append(group)
            position = group.first + group.records
            offset = group.end
            if position <= base:
                begin = offset
        self.position = position
        self._add_span(segment.path, begin, offset)
        if position >= self.up_to:
            return False
        junk_bytes = len(data[offset:].rstrip(b"\0"))
        if index < len(self.segments) - 1:
            if self.segments[index + 1].first != position:
                self._damage(index, f"record {position:,} is not intact", cut=offset)
                return False
            if junk_bytes:
                self.notes.append(f"{segment.path.name} is damaged at byte {offset:,}, harmlessly.")
            return True
        if position < base or any(group.synced > position for group in later):
            self._damage(index, f"record {position:,} is not intact", cut=offset)
            return False
        self.torn_bytes += junk_bytes
        self.closed = not junk_bytes and bool(doubtful) and is_closed(data, doubtful[-1])
        self.end = offset
        first_doubtful = doubtful[0].offset if doubtful else offset
        # With no group that is durable for sure, the header is in doubt as well.
        self.doubtful = data[0 if first_doubtful == SEGMENT_BYTES else first_doubtful : offset]
        return False

    def _add_span(self, path: Path, begin: int, end: int) -> None:
        if begin < end:
            self.spans.append(_Span(path, begin, end))

    def _damage(self, index: int, problem: str, cut: int | None = None) -> None:
        """Records are lost from here on: an error, unless the user wants what is before it."""
        sentence = f"the log is damaged in {self.directory}: {problem}."
        if not self.salvage:
            raise LogDamagedError(
                f"{' '.join([sentence, *self.notes])} Restore the directory from a copy; or start"
                " once with salvage = true to go on with what lies before the damage (the rest is"
                f" set aside as *{DAMAGED_ENDING})."
            )
        self.notes.append(f"Salvaged: {sentence}")
        kept = index if cut is None else index + 1
        self.damaged += [segment.path for segment in self.segments[kept:]]
        del self.segments[kept:]
        if cut is not None:
            self.copied = self.segments[-1].path
            self.segments[-1].size = cut
            self.end = cut

    def _mend_end(self, path: Path, end: int) -> None:
        """Make the end of the log durable, and nothing but it.

        The last bytes are written again: a system that failed to sync them may hold them in memory
        and believe that they are on disk. What was torn must be gone before new groups take its
        place, or its remains could pass for groups that follow them.
        """
        file = self.disk.open(path)
        try:
            file.truncate(end)
            write_fully(file, [self.doubtful], end - len(self.doubtful))
            file.sync()
        finally:
            file.close()

    def _set_aside(self, path: Path) -> str:
        to = self._free_name(path)
        self.disk.rename(path, to)
        return to.name

    def _copy_aside(self, path: Path) -> str:
        to = self._free_name(path)
        file = self.disk.create(to)
        try:
            write_fully(file, [self.disk.read(path)], 0)
            file.sync()
        finally:
            file.close()
        self.disk.sync_directory(self.directory)
        return to.name

    def _free_name(self, path: Path) -> Path:
        taken = set(self.disk.names(self.directory))
        name = path.name + DAMAGED_ENDING
        for number in count(2):
            if name not in taken:
                break
            name = f"{path.name}.{number}{DAMAGED_ENDING}"
        return self.directory / name


def _numbered(names: Iterable[str], ending: str) -> Iterator[tuple[str, int]]:
    for name in names:
        number = name.removesuffix(ending)
        if name.endswith(ending) and len(number) == 20 and number.isdecimal():
            yield name, int(number)


def _records(disk: Disk, spans: list[_Span], seed: int, base: int) -> Iterator[bytes]:
    for path, begin, end in spans:
        data = disk.read(path)
        offset = begin
        while offset < end:
            group = group_at(data, offset, seed)
            if group is None:
                raise LogDamagedError(f"{path} changed at byte {offset:,} while it was recovered.")
            if group.first >= base:
                yield from decode_group(data, group)
            else:
                yield from islice(decode_group(data, group), base - group.first, None)
            offset = group.end


def _other_format(path: Path, other: OtherFormat) -> LogFormatError:
    return LogFormatError(
        f"{path} has format {other.number}; this version reads format {FORMAT}. Start the version"
        " that wrote it, or use an empty directory. Nothing was changed."
    )
