"""A journal in pages, for remote readers."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sterna.errors import SegmentDamagedError
from sterna.journal.rows import incarnation_of, start_of
from sterna.journal.segments import (
    SegmentName,
    finished_path,
    read_messages,
    read_schema,
    segments_in,
)

PAGE_BYTES = 4 * 2**20
"""About how many bytes a page has; a batch is never cut."""


class Page(NamedTuple):
    """Some batches of a journal."""

    schema: bytes
    """The Arrow message of the schema that all batches follow; empty if there are none."""
    batches: list[bytes]
    """The batches as Arrow messages, in order."""
    next: int
    """The position that the next page starts with."""
    damage: str | None = None
    """Why facts before `next` are missing, if some are."""


def start(directory: Path, node: str) -> int | None:
    """The first position that a node's journal covers; None if there is no journal."""
    for segment in segments_in(directory, node):
        try:
            for message in read_messages(_path(segment), end=0):
                return start_of(read_schema(message.data))
        except (SegmentDamagedError, OSError):
            return segment.position
    return None


def beginning(directory: Path, node: str, incarnation: int | None) -> int | None:
    """The first position of this incarnation of a node's journal; None if no file is of it."""
    if incarnation is None:
        return None
    for segment in segments_in(directory, node):
        # A file is younger than its journal: most files of earlier ones need not be opened.
        if segment.started_us < incarnation:
            continue
        with suppress(SegmentDamagedError, OSError):
            for message in read_messages(_path(segment), end=0):
                schema = read_schema(message.data)
                if incarnation_of(schema) == incarnation:
                    return start_of(schema)
    return None


def page(directory: Path, node: str, start: int, end: int) -> Page:
    """What a node's journal has from position `start` on, before `end`: a page full, or less."""
    segments = segments_in(directory, node)
    # The last file that begins at or before `start` has it, if any has.
    first = max((n for n, segment in enumerate(segments) if segment.position <= start), default=0)
    for number, segment in enumerate(segments[first:], first + 1):
        after = segments[number].position if number < len(segments) else None
        found = _page_of(segment, start, end, after)
        if found.batches or found.damage is not None or found.next >= end:
            return found
    return Page(b"", [], end)


def _page_of(segment: SegmentName, start: int, end: int, after: int | None) -> Page:
    """A page of one file; `after` is where the next one begins."""
    schema = b""
    batches: list[bytes] = []
    size_bytes = 0
    until = end if after is None else min(end, after)
    try:
        for message in read_messages(_path(segment), start, end):
            if not schema:
                schema = message.data
                begins = start_of(read_schema(schema))
                if begins > start:
                    gone = f"positions {start} to {begins - 1} of {segment.node} are not there"
                    return Page(schema, [], min(end, begins), f"{gone} (any more)")
                continue
            batches.append(message.data)
            size_bytes += len(message.data)
            if size_bytes >= PAGE_BYTES:
                return Page(schema, batches, min(end, message.last + 1))
    except (SegmentDamagedError, OSError) as error:
        return Page(schema, batches, until, str(error))
    return Page(schema, batches, until)


def _path(segment: SegmentName) -> Path:
    """Where a file is, although it may have been finished since its directory was listed."""
    is_moved = segment.is_open and not segment.path.exists()
    return finished_path(segment.path) if is_moved else segment.path
