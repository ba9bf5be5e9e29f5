"""Frames and scripts as bytes: MessagePack for the network, JSON for people."""

from typing import Any, TypeVar

import msgspec

from sterna.core.link import Frame
from sterna.model.filters import Filter, FilterError

T = TypeVar("T")


def size(frame: Frame) -> int:
    """How many bytes a frame takes on the network."""
    return len(_encoder.encode(frame))


def to_json(record: object) -> bytes:
    """A record as JSON, filters as their text."""
    return msgspec.json.encode(record, enc_hook=_encode)


def from_json(text: bytes | str, kind: type[T]) -> T:
    """A record from JSON; ValueError says what is wrong and where."""
    return msgspec.json.decode(text, type=kind, dec_hook=_decode)


def _encode(value: object) -> object:
    if isinstance(value, Filter):
        return str(value)
    raise NotImplementedError(f"no wire form for {type(value).__name__}")


def _decode(kind: type, value: Any) -> object:
    if kind is Filter:
        try:
            return Filter(value)
        except FilterError as error:
            raise ValueError(f"bad filter: {error.problem}") from None
    raise NotImplementedError(f"no wire form for {kind.__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode)
