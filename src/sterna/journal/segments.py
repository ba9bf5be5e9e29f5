"""The journal's files: plain Arrow IPC streams whose messages carry checksums in their padding.

An Arrow message is `FFFFFFFF`, the length of its metadata, the metadata, and a body. Padding may
follow the metadata; it counts as metadata, and no reader looks at it. It holds the length of the
body, the positions of the first and the last fact, a CRC-32 of all the rest of the message, and a
mark. So every Arrow library reads these files, and this module also knows whether a byte is missing
or changed, and skips what nobody asked for without reading it.
"""

import logging
import re
import struct
import zlib
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from sterna.errors import SegmentDamagedError
from sterna.journal.rows import problem_with, up_to_date

FINISHED = ".arrows"
OPEN = ".arrows.open"
"""The ending of the names of files that are still written to."""

END = struct.pack("<II", 0xFFFFFFFF, 0)
"""How a stream of Arrow messages ends."""

END_OF_TIME = 2**63 - 1
"""A position that no fact has."""

NOWHERE = (-1, -1)
"""The positions of a message without facts."""

COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

log = logging.getLogger("sterna.journal")


class SegmentName(NamedTuple):
    """The parts of a file's name; names sort as the facts in the files do."""

    node: str
    position: int
    """The position of the first fact."""
    started_us: int
    is_open: bool
    path: Path

    @classmethod
    def of(cls, path: Path) -> "SegmentName | None":
        parts = _NAME.fullmatch(path.name)
        if parts is None:
            return None
        node, position, started_us, ending = parts.groups()
        return cls(unquote(node), int(position), int(started_us), ending == OPEN, path)


class ArrowMessage(NamedTuple):
    """One intact message of a file."""

    data: bytes
    ends_at: int
    """The offset in the file after the message."""
    first: int
    """The position of the message's first fact."""
    last: int
    """The position of the message's last fact; the schema has none."""


def read_journal(directory: Path, node: str | None = None) -> Iterator[pa.RecordBatch]:
    """All that nodes, or one of them, have written in a directory: by node, in order.

    Files that are still written to are read as far as they go. Where one is damaged, a warning is
    logged and the rest of it is left out; half a batch is never given.
    """
    for segment in segments_in(directory, node):
        path = segment.path
        if segment.is_open and not path.exists():  # It was finished since the directory was listed.
            path = finished_path(path)
        try:
            yield from read_segment(path)
        except (SegmentDamagedError, OSError) as error:
            log.warning("%s", error, extra={"segment": path.name})


def read_segment(path: Path, start: int = 0, end: int = END_OF_TIME) -> Iterator[pa.RecordBatch]:
    """The batches of a file; where it is cut off or changed, SegmentDamagedError ends them.

    `start` and `end` leave out facts with positions before the one and from the other on.
    """
    schema: pa.Schema | None = None
    for message in read_messages(path, start, end):
        if schema is None:
            schema = read_schema(message.data)
            problem = problem_with(schema)
            if problem is not None:
                raise SegmentDamagedError(f"{path} {problem}")
        else:
            yield between(up_to_date(read_batch(message.data, schema)), start, end)


def between(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The facts of a batch with these positions, which ascend."""
    first, last = np.searchsorted(batch["position"].to_numpy(), [start, end])
    return batch.slice(first, last - first)


def read_messages(path: Path, start: int = 0, end: int = END_OF_TIME) -> Iterator[ArrowMessage]:
    """The schema and the intact messages of a file with facts from `start` to before `end`.

    SegmentDamagedError at the first that is not intact; but a file that is still written to may end
    anywhere: its last message is not there yet.
    """
    is_open = path.name.endswith(OPEN)
    with path.open("rb") as file:
        size_bytes = file.seek(0, 2)
        file.seek(0)
        number = 0
        while True:
            place = file.tell()
            message = _read_message(file, size_bytes, start)
            if message == END and file.tell() == size_bytes:
                return
            if message is None and is_open:
                return
            if isinstance(message, bytes) and is_sealed(message, number):
                first, last = positions_of(message)
                if first >= end:
                    return
                yield ArrowMessage(message, file.tell(), first, last)
            elif message is not SKIPPED:
                what = "is cut off" if message is None else "has been changed"
                raise SegmentDamagedError(
                    f"{path} {what} at byte {place} of {size_bytes}: the rest is left out"
                )
            number += 1


def segments_in(directory: Path, node: str | None = None) -> list[SegmentName]:
    """The files of the journal in a directory, in order."""
    found = (SegmentName.of(path) for path in directory.iterdir()) if directory.is_dir() else ()
    return sorted(name for name in found if name is not None and node in {None, name.node})


def file_name(node: str, position: int, started_us: int) -> str:
    """The name of a file while it is written to."""
    return f"{quote(node, safe='')}-{position:020d}-{started_us}{OPEN}"


def finished_path(path: Path) -> Path:
    """The path of a file that is finished."""
    return path.with_name(path.name.removesuffix(OPEN) + FINISHED)


def read_schema(message: bytes) -> pa.Schema:
    """The schema in the first message of a file."""
    return pa.ipc.read_schema(pa.py_buffer(message))


def read_batch(message: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in a later message of a file."""
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def schema_message(schema: pa.Schema) -> bytes:
    """The first message of a file."""
    return seal(schema.serialize().to_pybytes(), 0, NOWHERE)


def batch_message(batch: pa.RecordBatch, number: int) -> bytes:
    """A batch as the message with this index in the file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=COMPRESSED) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes()
    _, length = _HEAD.unpack_from(stream)  # The schema comes first, the end of the stream last.
    positions = batch["position"]
    return seal(
        stream[_HEAD.size + length : -len(END)],
        number,
        (positions[0].as_py(), positions[-1].as_py()) if len(positions) else NOWHERE,
    )


def seal(message: bytes, number: int, positions: tuple[int, int]) -> bytes:
    """An Arrow message with a checksum; its number in the file is part of that."""
    mark, length = _HEAD.unpack_from(message)
    metadata, body = message[_HEAD.size : _HEAD.size + length], message[_HEAD.size + length :]
    head = _HEAD.pack(mark, length + _SEAL.size) + metadata
    return b"".join([head, _seal(head, body, number, positions), body])


def is_sealed(message: bytes, number: int) -> bool:
    """Whether a message is intact, and was sealed with that number."""
    _, length = _HEAD.unpack_from(message)
    end = _HEAD.size + length
    start = end - _SEAL.size
    view = memoryview(message)
    return start >= _HEAD.size and view[start:end] == _seal(
        view[:start], view[end:], number, positions_of(message)
    )


def positions_of(message: bytes) -> tuple[int, int]:
    """The positions of the first and the last fact of a sealed message."""
    _, length = _HEAD.unpack_from(message)
    _, first, last, _, _ = _SEAL.unpack_from(message, _HEAD.size + length - _SEAL.size)
    return first, last


_HEAD = struct.Struct("<II")
_SEAL = struct.Struct("<QqqI4s")
_MARK = b"Tern"


class _Skipped(Enum):
    """Stands in for a message that nobody asked for."""

    SKIPPED = auto()


SKIPPED = _Skipped.SKIPPED

_NAME = re.compile(r"(.+)-(\d{20})-(\d+)(\.arrows|\.arrows\.open)", re.ASCII)


def _seal(
    head: bytes | memoryview,
    body: bytes | memoryview,
    number: int,
    positions: tuple[int, int],
) -> bytes:
    length = len(body)
    checksum = zlib.crc32(struct.pack("<QQqq", number, length, *positions))
    return _SEAL.pack(length, *positions, zlib.crc32(body, zlib.crc32(head, checksum)), _MARK)


def _read_message(file: BinaryIO, size_bytes: int, start: int) -> "bytes | _Skipped | None":
    """The next message, intact or not; None where the file ends before it does."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    _, length = _HEAD.unpack(head)
    if head == END or length < _SEAL.size:
        return head  # The end, or no message of ours.
    if length > size_bytes - file.tell():
        return None
    metadata = file.read(length)
    if len(metadata) < length:
        return None
    body_length, _, last, _, mark = _SEAL.unpack_from(metadata, length - _SEAL.size)
    if mark != _MARK:
        return head + metadata
    if body_length > size_bytes - file.tell():
        return None
    if NOWHERE[1] < last < start:
        file.seek(body_length, 1)
        return SKIPPED
    body = file.read(body_length)
    return head + metadata + body if len(body) == body_length else None
