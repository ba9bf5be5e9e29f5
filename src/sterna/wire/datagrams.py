"""What brokers in reach of each other say in datagrams.

    magic (4 bytes) | version (1 byte) | MessagePack array: node, run, address, message

A datagram that is longer, of another version, or anything else is no datagram of ours.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any

import msgspec

from sterna.core.messages import Message
from sterna.core.names import NodeId
from sterna.core.protocol import message_types, when_registered
from sterna.wire.codec import MalformedError, to_msgpack
from sterna.wire.ranges import checks_of

MAGIC = b"\x93STR"
VERSION = 1
DATAGRAM_BYTES_MAX = 8_192
"""Enough for a way over sixty brokers with names of a hundred characters."""

_HEAD = MAGIC + bytes([VERSION])


class Datagram(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One datagram."""

    node: Annotated[NodeId, msgspec.Meta(min_length=1, max_length=256)]
    """The broker that sends it."""
    run: Annotated[str, msgspec.Meta(max_length=64)]
    """Which start of that broker it is."""
    address: Annotated[str, msgspec.Meta(max_length=300)]
    """Where links to that broker are made; empty: where the datagram comes from."""
    message: msgspec.Raw


def encode_datagram(node: NodeId, run: str, address: str, message: Message) -> bytes:
    """A datagram as bytes; ValueError if it is too long."""
    _check(message)
    body = Datagram(node=node, run=run, address=address, message=msgspec.Raw(to_msgpack(message)))
    data = _HEAD + _encoder.encode(body)
    if len(data) > DATAGRAM_BYTES_MAX:
        raise ValueError(
            f"a datagram of {len(data):,} bytes is too long; {DATAGRAM_BYTES_MAX:,} are the limit: "
            "give brokers shorter names, or more candidates so that there are shorter ways"
        )
    return data


def decode_datagram(data: bytes) -> tuple[Datagram, Message]:
    """A datagram that has come, and what it says; MalformedError if it is none of ours."""
    if len(data) > DATAGRAM_BYTES_MAX:
        raise MalformedError(f"a datagram of {len(data):,} bytes is too long")
    if not data.startswith(MAGIC):
        raise MalformedError("not a datagram of a broker")
    if data[: len(_HEAD)] != _HEAD:
        raise MalformedError(f"this is version {VERSION} of datagrams, and that is another one")
    try:
        datagram = _decoder.decode(memoryview(data)[len(_HEAD) :])
        message = decode_said(datagram.message)
        _check(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise MalformedError(f"not a datagram of this protocol: {error}") from None
    return datagram, message


def decode_said(data: bytes | msgspec.Raw) -> Message:
    """What a datagram says, from its bytes alone."""
    message: Message = _forms.decoder.decode(data)
    return message


class _Forms:
    """How the messages of datagrams are decoded; another one for each protocol that is added."""

    def __init__(self) -> None:
        kinds = [kind for kind in message_types() if kind.is_datagram]
        union: Any = reduce(or_, kinds)
        self.decoder = msgspec.msgpack.Decoder(union)
        self.checks = checks_of(kinds)


def _check(message: Message) -> None:
    """Raise ValueError if a message holds a number that is out of range."""
    check = _forms.checks.get(type(message))
    if check is not None:
        check(message)


def _renew() -> None:
    global _forms  # noqa: PLW0603 - replaced as a whole.
    _forms = _Forms()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Datagram)
_forms: _Forms
_renew()
when_registered(_renew)
