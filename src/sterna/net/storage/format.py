"""The bytes of segments and snapshots, and the checks that distinguish them from anything else.

A segment is a header and groups of records. A group is what one commit wrote, or a part of it:

    magic, checksum of the header | first position, synced position, count, size, checksum
    | lengths of the records | records

Checksums of headers start from the log's random id and cover the position, so that bytes of another
log or of another place never pass for a group, whatever clients send. The synced position is how
much was durable when the group was written. So recovery knows what a power cut may have torn, and
what must be there.

Segments and snapshots begin alike in every format, so that each version can name the others.
"""

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

FORMAT = 2
"""The number of the format that is written.

Format 1 is what release 0.1 wrote: the same bytes, with fewer kinds of records and with pickled
snapshots. A log goes on in a new segment of this format, so that the older release refuses it.
"""

READABLE = frozenset({1, 2})
"""The formats that can be read; another one is refused."""

RECORD_BYTES_MAX = 1 << 30
GROUP_BYTES_MAX = 1 << 20
"""Larger commits become several groups; only a single record may make a larger one."""

SEGMENT_MAGIC = b"sternlog"
SNAPSHOT_MAGIC = b"sternsnp"
GROUP_MAGIC = b"\xa5grp"

_START = struct.Struct("<8sI")  # Magic, format; then the checksum of both. Never changes.
_SUM = struct.Struct("<I")
_SEGMENT = struct.Struct("<16sQ")  # Log id, first position; then the checksum of all before it.
_GROUP = struct.Struct("<4sI")
_GROUP_REST = struct.Struct("<QQIII")  # First position, synced position, count, size, checksum.
_GROUP_WHOLE = struct.Struct("<4sIQQIII")  # Both.
_SNAPSHOT = struct.Struct("<QQI")  # Position, size of the state, size of the kind.

_START_BYTES = _START.size + _SUM.size
SEGMENT_BYTES = _START_BYTES + _SEGMENT.size + _SUM.size
"""The size of a segment's header."""
GROUP_BYTES = _GROUP.size + _GROUP_REST.size
"""The size of a group's header."""
LOG_ID_BYTES = 16
_CLOSED = b"closed"


class OtherFormat(Exception):  # noqa: N818 - a finding; the caller knows the file and raises.
    """Intact, but of a format that this version does not know."""

    def __init__(self, number: int) -> None:
        super().__init__(f"format {number}")
        self.number = number


class Damage(Exception):  # noqa: N818 - a finding, as above.
    """Not as it was written; the message says in what way."""


class RecordGroup(NamedTuple):
    """A group found intact in a segment."""

    offset: int
    end: int
    first: int
    """The position of its first record."""
    synced: int
    """How many records were durable when it was written."""
    records: int
    """How many records are in it."""


def encode_segment(log_id: bytes, first: int) -> bytes:
    """The header of a segment."""
    header = _start(SEGMENT_MAGIC) + _SEGMENT.pack(log_id, first)
    return header + _SUM.pack(crc32(header))


def decode_segment(data: bytes) -> tuple[bytes, int]:
    """The log id and first position of a segment."""
    _check_start(data, SEGMENT_MAGIC)
    if len(data) < SEGMENT_BYTES:
        raise Damage("its header is cut off")
    (checksum,) = _SUM.unpack_from(data, SEGMENT_BYTES - _SUM.size)
    if checksum != crc32(data[: SEGMENT_BYTES - _SUM.size]):
        raise Damage("the checksum of its header is wrong")
    log_id, first = _SEGMENT.unpack_from(data, _START_BYTES)
    return log_id, first


def seed_of(log_id: bytes) -> int:
    """Where the checksums of a log's groups start."""
    return crc32(log_id)


def encode_groups(
    records: Sequence[bytes], first: int, synced: int, seed: int
) -> Iterator[tuple[int, list[bytes]]]:
    """Groups for these records, each as its number of records and the parts to write."""
    lengths = array("I", map(len, records))
    begin = 0
    for end in _cuts(lengths):
        table = _little(lengths[begin:end]).tobytes()
        body = b"".join(records[begin:end])
        yield end - begin, _group(first + begin, synced, end - begin, table, body, seed)
        begin = end


def encode_mark(position: int, seed: int, *, closed: bool) -> list[bytes]:
    """A group without records that marks everything before this position as durable."""
    return _group(position, position, 0, b"", _CLOSED if closed else b"", seed)


def is_closed(data: bytes, group: RecordGroup) -> bool:
    """Whether this group is the mark of a log that was closed."""
    return group.records == 0 and data[group.offset + GROUP_BYTES : group.end] == _CLOSED


def group_at(data: bytes, offset: int, seed: int) -> RecordGroup | None:
    """The intact group at this place, if there is one."""
    begin = offset + GROUP_BYTES
    if begin > len(data):
        return None
    magic, head_sum, first, synced, records, size, body_sum = _GROUP_WHOLE.unpack_from(data, offset)
    if magic != GROUP_MAGIC or head_sum != crc32(data[offset + _GROUP.size : begin], seed):
        return None
    end = begin + size
    if end > len(data) or body_sum != crc32(data[begin:end]):
        return None
    return RecordGroup(offset, end, first, synced, records)


def groups_after(data: bytes, offset: int, seed: int) -> Iterator[RecordGroup]:
    """All intact groups that can be found from this place on, wherever they begin."""
    while (offset := data.find(GROUP_MAGIC, offset)) >= 0:
        group = group_at(data, offset, seed)
        if group is None:
            offset += 1
        else:
            yield group
            offset = group.end


def decode_group(data: bytes, group: RecordGroup) -> Iterator[bytes]:
    """The records of an intact group."""
    begin = group.offset + GROUP_BYTES
    table_end = begin + 4 * group.records
    if group.records == 1:
        yield data[table_end : group.end]
        return
    lengths = array("I")
    lengths.frombytes(data[begin:table_end])
    begin = table_end
    for length in _little(lengths):
        end = begin + length
        yield data[begin:end]
        begin = end


def encode_snapshot(state: bytes, position: int, kind: str) -> bytes:
    """The header of a snapshot."""
    label = kind.encode()
    header = _start(SNAPSHOT_MAGIC) + _SNAPSHOT.pack(position, len(state), len(label)) + label
    return header + _digest(header, state)


def decode_snapshot(data: bytes) -> tuple[int, str, bytes]:
    """The position, the kind and the state of a snapshot."""
    _check_start(data, SNAPSHOT_MAGIC)
    label = _START_BYTES + _SNAPSHOT.size
    if len(data) < label:
        raise Damage("its header is cut off")
    position, size, label_size = _SNAPSHOT.unpack_from(data, _START_BYTES)
    digest = label + label_size
    begin = digest + hashlib.sha256().digest_size
    if len(data) != begin + size:
        raise Damage(f"it has {len(data):,} bytes instead of {begin + size:,}")
    state = data[begin:]
    if data[digest:begin] != _digest(data[:digest], state):
        raise Damage("its checksum is wrong")
    return position, data[label:digest].decode(), state


def _start(magic: bytes) -> bytes:
    start = _START.pack(magic, FORMAT)
    return start + _SUM.pack(crc32(start))


def format_of(data: bytes) -> int:
    """The format of an intact segment or snapshot."""
    number: int = _START.unpack_from(data)[1]
    return number


def _check_start(data: bytes, magic: bytes) -> None:
    if len(data) < _START_BYTES:
        raise Damage("its header is cut off")
    found, number = _START.unpack_from(data)
    (checksum,) = _SUM.unpack_from(data, _START.size)
    if found != magic or checksum != crc32(data[: _START.size]):
        raise Damage("it does not begin as such a file does")
    if number not in READABLE:
        raise OtherFormat(number)


def _cuts(lengths: "array[int]") -> Iterator[int]:
    """Where groups end, so that none is larger than need be."""
    if sum(lengths) + 4 * len(lengths) <= GROUP_BYTES_MAX:
        yield len(lengths)
        return
    size = 0
    for index, length in enumerate(lengths):
        if size and size + length + 4 > GROUP_BYTES_MAX:
            yield index
            size = 0
        size += length + 4
    yield len(lengths)


def _group(
    first: int, synced: int, records: int, table: bytes, body: bytes, seed: int
) -> list[bytes]:
    checksum = crc32(body, crc32(table))
    rest = _GROUP_REST.pack(first, synced, records, len(table) + len(body), checksum)
    return [_GROUP.pack(GROUP_MAGIC, crc32(rest, seed)) + rest + table, body]


def _little(lengths: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths


def _digest(header: bytes, state: bytes) -> bytes:
    digest = hashlib.sha256(header)
    digest.update(state)
    return digest.digest()
