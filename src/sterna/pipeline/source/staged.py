"""Events in files, between the task that has made them and the driver that publishes them."""

import struct
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from sterna.model.event import Scalar

Row = tuple[Mapping[str, Scalar], bytes]
"""The attributes and the payload of an event that is to be published."""

FILE_ROWS_MAX = 20_000
FILE_BYTES_MAX = 8 << 20
"""A file has no more bytes than this, except for its last event: it is read as a whole."""

_LARGE_BYTES = 1024
"""Shorter events fit in any frame; those that are longer are measured."""


class StagedFile(msgspec.Struct, frozen=True):
    """A file of events."""

    name: str
    rows: int
    largest_bytes: int = 0
    """The size of its largest event, as brokers count; 0 if it is small."""


def contents(rows: Iterable[Row]) -> Iterator[tuple[bytes, int, int]]:
    """Files for some rows: the content, the number of rows, and the size of the largest."""
    encoder = msgspec.msgpack.Encoder()
    parts: list[bytes] = []
    size = largest_bytes = 0
    for row in rows:
        part = encoder.encode(row)
        parts.append(part)
        size += len(part)
        if len(part) > _LARGE_BYTES:
            largest_bytes = max(largest_bytes, _event_bytes(row))
        if len(parts) == FILE_ROWS_MAX or size >= FILE_BYTES_MAX:
            yield _array(parts), len(parts), largest_bytes
            parts, size, largest_bytes = [], 0, 0
    if parts:
        yield _array(parts), len(parts), largest_bytes


def rows_of(content: bytes) -> list[Row]:
    """The rows of a file; msgspec.DecodeError if it is none."""
    return _DECODER.decode(content)  # type: ignore[return-value]


_DECODER = msgspec.msgpack.Decoder(list[tuple[dict[str, bool | int | float | str], bytes]])
_ARRAY = struct.Struct(">BI")


def _array(parts: list[bytes]) -> bytes:
    return b"".join([_ARRAY.pack(0xDD, len(parts)), *parts])  # MessagePack's array 32.


def _event_bytes(row: Row) -> int:
    attributes, payload = row
    return len(payload) + sum(
        len(name.encode()) + (len(value.encode()) if isinstance(value, str) else 9)
        for name, value in attributes.items()
    )
