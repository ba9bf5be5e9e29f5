"""Snapshots: the state of a node, as bytes with a version.

A snapshot is a record of records: one for each component, in a version of its own, and the events
and messages that they share. What an older release wrote is converted step by step as it is read;
what a later one wrote is refused.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from sterna.core.broker import Broker
from sterna.core.component import Component
from sterna.core.keeping import Part, Reader, Record, Writer
from sterna.core.messages import Message
from sterna.core.node import NODE, Node
from sterna.core.protocol import registered
from sterna.core.settings import Settings
from sterna.errors import SternaError
from sterna.model.event import CheckedEvent, StoredEvent
from sterna.model.filters import Filter
from sterna.wire import codec

N = TypeVar("N", bound=Node)
Require = Callable[[Settings], None]

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


class _OlderSnapshot(_Snapshot, frozen=True, kw_only=True):
    """A snapshot with an event that only an earlier release has taken."""

    events: list[StoredEvent]  # type: ignore[assignment]


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


def restore_node(data: bytes, node: N, require: Require = lambda _: None) -> N:
    """Give a new node, made from the same settings, the state that another one had.

    `require` loads the protocols of settings from before these, if the node still needs one.
    """
    found: _Snapshot
    try:
        found = _decoded(data, _Snapshot)
    except UnreadableSnapshotError:
        found = _decoded(data, _OlderSnapshot)
    if found.version > VERSION:
        raise UnreadableSnapshotError(
            f"the snapshot has version {found.version}, and this release reads up to {VERSION}: "
            "start the release that wrote it, or a later one"
        )
    decode = _Decoding()
    _bring_back_what_ends(found.parts, node, decode, require)
    records = node.records()
    kept = {part.name: _kept(part, records.get(part.name), decode) for part in found.parts}
    node.restore(kept, Reader(found.events, _messages(found.messages, decode)))
    return node


def _messages(data: msgspec.Raw, decode: "_Decoding") -> list[Message | tuple[int, ...]]:
    """The messages; one that holds nothing but events is the numbers of these."""
    formats = codec.formats()
    try:
        found = decode(data, list[formats.any_message | list[int]])  # type: ignore[name-defined]
    except UnreadableSnapshotError:
        formats = codec.formats_stored(formats)
        found = decode(data, list[formats.any_message | list[int]])  # type: ignore[name-defined]
    return [tuple(each) if isinstance(each, list) else formats.meant(each) for each in found]


def _bring_back_what_ends(
    parts: list[_Part], node: Node, decode: "_Decoding", require: Require
) -> None:
    """Add components that the settings have removed, and that had something left to do."""
    record = node.records()[NODE]
    for kept in [_kept(part, record, decode) for part in parts if part.name == NODE]:
        worked_by = {name: kept.worked_by.get(name, node.settings) for name in kept.ending}
        ending = [
            _component(name, node, settings, require).make(settings)
            for name, settings in worked_by.items()
        ]
        node.arrangement.add_ending(ending, worked_by)


def _component(name: str, node: Node, settings: Settings, require: Require) -> type[Component]:
    """The component that a protocol in use adds to such a node under a name."""
    if name not in _components(node, settings):
        require(settings)
    found = _components(node, settings).get(name)
    if found is None:
        raise _missing(name)
    return found


def _components(node: Node, settings: Settings) -> dict[str, type[Component]]:
    """The components of all protocols; of two with the same name, the one that is in use."""
    protocols = sorted(registered(), key=lambda each: each.is_used(settings))
    kinds = [each.broker if isinstance(node, Broker) else each.client for each in protocols]
    return {kind.name: kind for kind in kinds if kind is not None}


def _kept(part: _Part, record: Record | None, decode: "_Decoding") -> Any:
    if record is None:
        raise _missing(part.name)
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


def _missing(name: str) -> UnreadableSnapshotError:
    return UnreadableSnapshotError(
        f"the snapshot holds what a protocol {name!r} kept, which is not there now: "
        "install the package that provides it"
    )


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
