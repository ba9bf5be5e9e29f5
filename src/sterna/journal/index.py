"""Where the batches are in a journal's files, found without reading them."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from sterna.journal.rows import SCHEMA, incarnation_of, problem_with, start_of
from sterna.journal.segments import (
    _HEAD,
    _MARK,
    _SEAL,
    END,
    OPEN,
    SegmentName,
    finished_path,
    is_sealed,
    read_schema,
)


class Entry(NamedTuple):
    """One batch of a file, as its header has it; whether it is intact shows when it is read."""

    number: int
    """The index of the batch among the messages of the file."""
    place: int
    """The byte offset of the batch."""
    size_bytes: int
    first: int
    """The position of the batch's first fact."""
    last: int
    """The position of the batch's last fact."""


class Index(NamedTuple):
    """The batches of a file, in order."""

    start: int
    """The first position that the file covers."""
    entries: tuple[Entry, ...] = ()
    damage: str | None = None
    """Why what follows the batches cannot be read."""
    is_final: bool = False
    """Whether the file will never have more."""
    incarnation: int | None = None
    """The incarnation of the journal that the file belongs to, if that is known."""

    @property
    def following(self) -> int:
        """The position after the last fact that has one."""
        return self.entries[-1].last + 1 if self.entries else self.start

    @property
    def end(self) -> int:
        """The position after everything in the file; what cannot be read takes one."""
        return self.following + (self.damage is not None)


def index_of(segment: SegmentName, known: Index | None = None, *, live: bool = False) -> Index:
    """The batches that a file has; with the index of an earlier look only new ones are looked at.

    A file that is still written to ends with its last whole batch. If it is `live`, also wrong
    bytes behind that are no damage: they may be what a crash has left, which its node cuts off
    and writes again when it starts.
    """
    if known is not None and known.is_final:
        return known
    with open_segment(segment.path) as file:
        path = Path(file.name)
        is_open = path.name.endswith(OPEN)
        size_bytes = file.seek(0, 2)
        if known is None or not known.entries:
            known = _begun(file, segment, size_bytes)
            if known is None or (known.damage is not None and is_open and live):
                return Index(segment.position)
            if known.damage is not None:
                return known
        entries = list(known.entries)
        place = entries[-1].place + entries[-1].size_bytes if entries else _schema_bytes(file)
        while True:
            found = _entry(file, entries[-1].number + 1 if entries else 1, place, size_bytes)
            if not isinstance(found, Entry):
                break
            entries.append(found)
            place += found.size_bytes
        damage = f"{path} is cut off or has been changed at byte {place} of {size_bytes}"
        is_whole = found == END or (is_open and (live or found is None))
        entries = _believable(file, known.start, entries, live=is_open and live)
    return known._replace(
        entries=tuple(entries), damage=None if is_whole else damage, is_final=not is_open
    )


def open_segment(path: Path) -> BinaryIO:
    """Open a file, although it may have been finished since its directory was listed."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        if not path.name.endswith(OPEN):
            raise
        return finished_path(path).open("rb")


def first_message(file: BinaryIO) -> bytes:
    """The schema of a file that has an index."""
    file.seek(0)
    return file.read(_schema_bytes(file))


def read_message(file: BinaryIO, entry: Entry) -> bytes | None:
    """A message of a file; None if it is not intact."""
    file.seek(entry.place)
    data = file.read(entry.size_bytes)
    return data if len(data) == entry.size_bytes and is_sealed(data, entry.number) else None


def read_columns(schema: bytes, message: bytes, columns: Sequence[str]) -> pa.RecordBatch:
    """Some columns of a batch, given its file's first message and its own; the rest is not read.

    A column that came with a later version of the journal than the file has is null.
    """
    there = read_schema(schema)
    numbers = sorted(there.get_field_index(column) for column in columns if column in there.names)
    options = pa.ipc.IpcReadOptions(included_fields=numbers, use_threads=False)
    with pa.ipc.open_stream(pa.py_buffer(schema + message), options=options) as stream:
        batch = stream.read_next_batch()
    for column in columns:
        if column not in there.names:
            field = SCHEMA.field(column)
            batch = batch.append_column(field, pa.nulls(len(batch), field.type))
    return batch


_ANY_MARK = _HEAD.unpack(END)[0]


def _begun(file: BinaryIO, segment: SegmentName, size_bytes: int) -> Index | None:
    """The index from the schema of a file; None if the schema is incomplete."""
    found = _entry(file, 0, 0, size_bytes)
    if found is None and file.name.endswith(OPEN):
        return None
    schema = read_message(file, found) if isinstance(found, Entry) else None
    if schema is None:
        return Index(segment.position, damage=f"{file.name} does not begin like a journal")
    form = read_schema(schema)
    problem = problem_with(form)
    if problem is not None:
        return Index(segment.position, damage=f"{file.name} {problem}")
    return Index(start_of(form), incarnation=incarnation_of(form))


def _schema_bytes(file: BinaryIO) -> int:
    file.seek(0)
    length: int = _HEAD.unpack(file.read(_HEAD.size))[1]
    file.seek(0)
    return _HEAD.size + length


def _entry(file: BinaryIO, number: int, place: int, size_bytes: int) -> Entry | bytes | None:
    """The message at a place, END, or other wrong bytes; None where the file ends before it."""
    file.seek(place)
    head = file.read(_HEAD.size)
    if head == END:
        return END if place + len(END) == size_bytes else b""
    if len(head) < _HEAD.size:
        return None
    mark, length = _HEAD.unpack(head)
    if mark != _ANY_MARK or length < _SEAL.size:
        return head
    body = place + _HEAD.size + length
    if body > size_bytes:
        return None
    file.seek(body - _SEAL.size)
    body_bytes, first, last, _, seal_mark = _SEAL.unpack(file.read(_SEAL.size))
    if seal_mark != _MARK:
        return head
    if body + body_bytes > size_bytes:
        return None
    return Entry(number, place, body + body_bytes - place, first, last)


def _believable(file: BinaryIO, start: int, entries: list[Entry], *, live: bool) -> list[Entry]:
    """Entries whose positions ascend: those of a batch that is not intact may be anything.

    The last one is always looked at, since nothing follows that could contradict it.
    """
    if not entries:
        return []
    is_last_intact = read_message(file, entries[-1]) is not None
    if live and not is_last_intact:
        return _believable(file, start, entries[:-1], live=live)
    ascends = all(start <= e.first <= e.last for e in entries) and all(
        a.last < b.first for a, b in pairwise(entries)
    )
    if ascends and is_last_intact:
        return entries
    seen: list[Entry] = []
    for entry in entries:
        after = seen[-1].last + 1 if seen else start
        is_intact = read_message(file, entry) is not None
        seen.append(entry if is_intact else entry._replace(first=after, last=after))
    return seen
