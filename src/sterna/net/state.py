"""The state of a node as a snapshot of its log holds it."""

from typing import Any

import msgspec
from msgspec.structs import replace

import sterna
from sterna.core.keeping import Writer
from sterna.core.names import Time
from sterna.core.node import Node
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.records import Began
from sterna.net.storage.errors import LogFormatError
from sterna.wire.codec import from_msgpack, to_msgpack
from sterna.wire.snapshots import encode_node

VERSION = 1
"""The version of `State`; counted up when an older release could not read it."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one position of its log, and what its driver has to remember."""

    version: int = VERSION
    release: str
    """The release that wrote it."""
    time: Time
    began: Began
    settings: Settings
    """The settings that the node works by now."""
    node: bytes
    """The state of the node; see `sterna.wire.snapshots`."""
    memory: bytes = b""


def encode_state(
    node: Node, began: Began, time: Time, memory: bytes = b"", writer: Writer | None = None
) -> bytes:
    """A node's state as bytes; a `writer` of the caller's own may limit its size."""
    return to_msgpack(
        State(
            release=sterna.__version__,
            time=time,
            # What it was configured with at first does not matter any more, and may be large.
            began=replace(began, settings=Settings()),
            settings=node.settings,
            node=encode_node(node, writer),
            memory=memory,
        )
    )


def decode_state(data: bytes) -> State:
    """A node's state; LogFormatError if a later release wrote it, or it is damaged."""
    try:
        found: dict[str, Any] = msgspec.msgpack.decode(data, type=dict[str, Any])
        if found["version"] > VERSION:
            raise LogFormatError(
                f"the snapshot was written by release {found['release']} in version "
                f"{found['version']}, and this release reads up to {VERSION}: start that release, "
                "or a later one"
            )
        return from_msgpack(data, State)
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, TypeError) as error:
        raise LogFormatError(f"the snapshot cannot be read: {error}") from None


class KeptSubscription(msgspec.Struct, frozen=True, array_like=True):
    """What a client's application has not taken of a subscription yet."""

    name: str
    where: Filter
    done: int
    """How many events the application has finished."""
    waiting: list[Event]


def encode_memory(kept: list[KeptSubscription]) -> bytes:
    """What a client's application has not taken yet, for `State.memory`."""
    return to_msgpack(kept)


def decode_memory(memory: bytes) -> list[KeptSubscription]:
    """What a client's application has not taken yet, from `State.memory`."""
    return from_msgpack(memory, list[KeptSubscription])
