"""Snapshots: the state of a node, as bytes with a version.

A snapshot is a record of records: one for each component, in a version of its own, and the events
and messages that they share. What an older release wrote is converted step by step as it is read;
what a later one wrote is refused.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from sterna.core.broker import Broker
from sterna.core.keeping import Part, Reader, Record, Writer
from sterna.core.node import NODE, KeptNode, Node
from sterna.core.protocol import named
from sterna.errors import SternaError
from sterna.model.event import CheckedEvent
from sterna.model.filters import Filter
from sterna.wire import codec

N = TypeVar("N", bound=Node)

VERSION = 1
"""The version of the record as a whole."""


class UnreadableSnapshotError(SternaError):
    """A snapshot cannot be read by this release; the message says what to do."""


class _Part(msgspec.Struct, frozen=True, array_like=True):
    name: str
    version: int
    kept: msgspec.Raw


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    events: list[CheckedEvent]
    messages: msgspec.Raw
    parts: list[_Part]


def encode_node(node: Node, writer: Writer | None = None) -> bytes:
    """The state of a node as bytes; a `writer` of the caller's own may limit its size."""
    writer = writer or Writer()
    return encode_parts(node.keep(writer), writer)


def encode_parts(parts: Iterable[Part], writer: Writer) -> bytes:
    """The states of a node's components, with the events and messages that they refer to."""
    return codec.to_msgpack(
        {
            "version": VERSION,
            "events": writer.events,
            "messages": writer.messages,
            "parts": [
                _Part(part.name, part.version, msgspec.Raw(codec.to_msgpack(part.kept)))
                for part in parts
            ],
        }
    )


def restore_node(data: bytes, node: N) -> N:
    """Give a new node, made from the same settings, the state that another one had."""
    found = _decoded(data, _Snapshot)
    if found.version > VERSION:
        raise UnreadableSnapshotError(
            f"the snapshot has version {found.version}, and this release reads up to {VERSION}: "
            "start the release that wrote it, or a later one"
        )
    decode = _Decoding()
    _bring_back_what_ends(found.parts, node, decode)
    records = node.records()
    kept = {part.name: _kept(part, records.get(part.name), decode) for part in found.parts}
    formats = codec.formats()
    messages = decode(found.messages, list[formats.any_message | list[int]])  # type: ignore[name-defined]
    meant = [tuple(each) if isinstance(each, list) else formats.meant(each) for each in messages]
    node.restore(kept, Reader(found.events, meant))
    return node


def _bring_back_what_ends(parts: list[_Part], node: Node, decode: "_Decoding") -> None:
    """Add components that the settings have removed, and that had something left to do."""
    records = node.records()
    for part in parts:
        if part.name == NODE:
            kept: KeptNode = _kept(part, records[NODE], decode)
            for name in kept.ending:
                protocol = named(name)
                kind = protocol.broker if isinstance(node, Broker) else protocol.client
                if kind is not None:
                    node.arrangement.add_ending(kind.make(node.settings))


def _kept(part: _Part, record: Record | None, decode: "_Decoding") -> Any:
    if record is None:
        raise UnreadableSnapshotError(
            f"the snapshot holds what a protocol {part.name!r} kept, which is not there now: "
            "install the package that provides it"
        )
    if part.version > record.version:
        raise UnreadableSnapshotError(
            f"the snapshot holds version {part.version} of what {part.name!r} keeps, and this "
            f"release reads up to {record.version}: start the release that wrote it, or a later one"
        )
    if part.version == record.version:
        return decode(part.kept, record.kind)
    kind, convert = record.older[part.version]
    kept = convert(decode(part.kept, kind))
    for version in range(part.version + 1, record.version):
        kept = record.older[version][1](kept)
    return kept


class _Decoding:
    """Decodes records; each filter is parsed once, however often it occurs."""

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {}

    def __call__(self, data: bytes | msgspec.Raw, kind: Any) -> Any:
        return _decoded(data, kind, self._filter)

    def _filter(self, kind: type, value: Any) -> object:
        if kind is not Filter:
            raise NotImplementedError(f"no stored form for {kind.__name__}")
        filter_ = self._filters.get(value)
        if filter_ is None:
            filter_ = self._filters[value] = Filter.stored(value)
        return filter_


def _decoded(
    data: bytes | msgspec.Raw, kind: Any, hook: Callable[[type, Any], object] | None = None
) -> Any:
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=hook)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableSnapshotError(f"the snapshot is damaged: {error}") from None
