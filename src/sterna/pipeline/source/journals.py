"""Journals in directories: which files there are, what they hold, and how tasks share them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from sterna.journal.index import (
    Entry,
    Index,
    first_message,
    index_of,
    open_segment,
    read_columns,
    read_message,
)
from sterna.journal.segments import (
    END_OF_TIME,
    FINISHED,
    OPEN,
    SegmentName,
    between,
    finished_path,
)
from sterna.net.remote import Extent
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.origins import Origin, Piece, Span, Spans
from sterna.pipeline.source.query import Bad

TASK_BYTES = 16 * 2**20
"""About how many bytes of the files a task reads at most: a second or two of work."""
SMALL_BYTES = 2**18
"""Fewer bytes than this are not worth a task of their own."""


@dataclass(frozen=True)
class FilePiece:
    """Adjacent batches of one file."""

    journal: str
    path: Path
    span: Span
    entries: tuple[Entry, ...] = ()
    damage: str | None = None
    """What is wrong after these batches, if something is."""
    damage_at: int = 0
    """The position that represents the damage."""
    is_gap: bool = False
    """Whether a file is missing there."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Bad]:
        """The facts with these columns, and a `Bad` in the place of what cannot be read."""
        try:
            if self.entries:
                yield from self._batches(columns)
        except FileNotFoundError:
            yield self._bad(
                f"{self.path} was removed before it was read: let the broker keep more "
                "(journal.bytes_max) or read more often",
                self.span.start,
                is_gone=True,
            )
        if self.damage is not None:
            yield self._bad(self.damage, self.damage_at, is_gone=self.is_gap)

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Bad]:
        with open_segment(self.path) as file:
            schema = first_message(file)
            for entry in self.entries:
                message = read_message(file, entry)
                if message is not None:
                    yield between(read_columns(schema, message, columns), *self.span)
                else:
                    yield self._bad(
                        f"{file.name} has been changed at byte {entry.place}", entry.first
                    )

    def _bad(self, reason: str, position: int, *, is_gone: bool = False) -> Bad:
        return Bad(reason, position=position, file=str(self.path), is_gone=is_gone)


_Key = tuple[str, int, int]
"""The parts of a file's name, which is the same whether the file is finished or not."""


class Directory(Origin):
    """All journals below a directory; remembers what it has seen of their files."""

    def __init__(self, path: str, *, live: bool) -> None:
        """`live` journals are read again and again while they are written."""
        self._path = Path(path)
        self._live = live
        self._seen: dict[_Key, SegmentName] = {}
        self._indexes: dict[_Key, Index] = {}

    def extents(self, patience_s: float = 0.0) -> dict[str, Extent]:  # noqa: ARG002 - files are there.
        """The present extent of each journal."""
        return {node: self._extent(node, segments) for node, segments in self._segments().items()}

    def tasks(self, spans: Spans, count_min: int | None) -> list[list[Piece]]:
        """These stretches in pieces, a list for each task."""
        segments = self._segments()
        pieces = [
            piece
            for node, span in spans.items()
            if span.start < span.end
            for piece in self._pieces(node, span, segments.get(node, []))
        ]
        return _shared(pieces, count_min)

    def first_batch(self, journal: str, span: Span) -> pa.RecordBatch | None:
        """The first facts of a stretch, with their positions and times."""
        for piece in self._pieces(journal, span, self._segments().get(journal, [])):
            for batch in piece.batches(["position", "time_us"]):
                if not isinstance(batch, Bad) and len(batch):
                    return batch
        return None

    def _segments(self) -> dict[str, list[SegmentName]]:
        """The files of each journal, in order."""
        listed = {segment[:3]: segment for segment in sorted(files_below(self._path))}
        for key, segment in self._seen.items():
            if key not in listed and _is_there(segment):  # It was renamed while they were listed.
                listed[key] = segment
        self._seen = listed
        found = sorted(listed.values())
        segments = {node: list(files) for node, files in groupby(found, attrgetter("node"))}
        for node, files in segments.items():
            places = sorted({str(file.path.parent) for file in files})
            if len(places) > 1:
                raise PipelineError(
                    f"the journal of {node} is in {places[0]} and in {places[1]}: "
                    "read a directory that has each journal once"
                )
        return segments

    def _extent(self, node: str, segments: list[SegmentName]) -> Extent:
        """The extent of a journal: it ends where the newest incarnation does.

        After damage to its log, a broker uses positions again, as another incarnation. Releases
        that did not know incarnations did so, too, and clients once.
        """
        indexes = [self._index(segment) for segment in segments]
        # An incarnation is named after its beginning, and all its files were begun after that.
        known = (index.incarnation for index in indexes if index.entries)
        newest = max((each for each in known if each is not None), default=None)
        own = [
            index
            for segment, index in zip(segments, indexes, strict=True)
            if newest is None or segment.started_us >= newest
        ]
        return Extent(
            node=node,
            start=indexes[0].start,
            end=max(index.end for index in own),
            incarnation=newest,
            begins=min(index.start for index in own),
        )

    def _index(self, segment: SegmentName) -> Index:
        key = segment[:3]
        try:
            index = index_of(segment, self._indexes.get(key), live=self._live)
        except FileNotFoundError:  # Removed since the directory was listed.
            return Index(segment.position)
        self._indexes[key] = index
        return index

    def _pieces(self, node: str, span: Span, segments: list[SegmentName]) -> Iterator[FilePiece]:
        before: Index | None = None
        there = self._extent(node, segments) if segments else None
        whole = span
        for segment in segments:
            index = self._index(segment)
            span = whole if there is None else _span_in(segment, whole, there)
            piece = FilePiece(node, segment.path, span)
            gap = None if before is None else _gap(before, index)
            if gap is not None and gap.start < span.end and span.start < gap.end:
                missing = f"positions {gap.start} to {gap.end - 1} of {node} are missing"
                reason = f"{missing} before {segment.path}"
                yield replace(piece, damage=reason, damage_at=gap.start, is_gap=True)
            entries = tuple(e for e in index.entries if span.start <= e.last and e.first < span.end)
            is_damaged = index.damage is not None and span.start <= index.following < span.end
            if entries or is_damaged:
                yield replace(
                    piece,
                    entries=entries,
                    damage=index.damage if is_damaged else None,
                    damage_at=index.following,
                )
            before = index if before is None or index.end >= before.end else before


def files_below(path: Path) -> Iterator[SegmentName]:
    """The files of journals in a directory or below it; PipelineError if there are none."""
    if path.is_file():
        files: Iterable[Path] = [path]
    elif path.is_dir():
        files = (
            Path(folder, name)
            for folder, _, names in os.walk(path, followlinks=True)
            for name in names
            if name.endswith((FINISHED, OPEN))
        )
    else:
        raise PipelineError(f"{path} is not there: give the directory of a journal or of several")
    found = [name for name in map(SegmentName.of, files) if name is not None]
    if not found:
        raise PipelineError(
            f"{path} has no journal (files *{FINISHED}) in it or below: give the directory "
            "that was given to sterna up as --data, or wait until a broker has written something"
        )
    yield from found


def _span_in(segment: SegmentName, span: Span, there: Extent) -> Span:
    """The part of a stretch that a file may have.

    Files of an earlier incarnation have what comes before the newest one; positions that both have
    are those of the newest one if the stretch begins there.
    """
    if there.incarnation is None or segment.started_us >= there.incarnation:
        return span
    if span.start >= there.own_start:
        return Span(span.start, span.start)
    return Span(span.start, span.end if span.end < there.own_start else END_OF_TIME)


def _gap(before: Index, index: Index) -> Span | None:
    """The positions between two consecutive files that neither has, although one should."""
    is_gap = before.damage is None and before.end < index.start
    return Span(before.end, index.start) if is_gap else None


def _is_there(segment: SegmentName) -> bool:
    path = segment.path
    return path.exists() or (segment.is_open and finished_path(path).exists())


def _shared(pieces: list[FilePiece], count_min: int | None) -> list[list[Piece]]:
    """Cut pieces between batches, so that all tasks get about the same number of bytes."""
    left = sum(len(piece.entries) for piece in pieces)
    total = sum(entry.size_bytes for piece in pieces for entry in piece.entries)
    count = max(
        count_min or 1, -(-total // TASK_BYTES), min(os.cpu_count() or 1, total // SMALL_BYTES)
    )
    tasks: list[list[Piece]] = [[]]
    filled = 0
    for piece in pieces:
        cut = 0
        for number, entry in enumerate(piece.entries):
            to_come = min(count - len(tasks), left)
            is_full = filled * count >= total * len(tasks) or left == to_come
            if to_come and is_full and (tasks[-1] or cut < number):
                if cut < number:
                    part = piece.entries[cut:number]
                    tasks[-1].append(replace(piece, entries=part, damage=None))
                tasks.append([])
                cut = number
            filled += entry.size_bytes
            left -= 1
        tasks[-1].append(replace(piece, entries=piece.entries[cut:]))
    return tasks if tasks[-1] else []
