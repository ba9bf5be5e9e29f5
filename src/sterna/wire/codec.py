"""Records as bytes: MessagePack for the network, JSON for people."""

from functools import reduce
from operator import or_
from typing import Any, TypeVar

import msgspec

from sterna.core import messages
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.messages import Events, Message, MovingChange, Replay, Replayed
from sterna.errors import SternaError
from sterna.model.event import CheckedEvent
from sterna.model.filters import Filter, FilterError

T = TypeVar("T")


class MalformedError(SternaError):
    """These bytes are not what they should be; whoever sent them does not speak our language."""


def to_json(record: object) -> bytes:
    """A record as JSON, filters as their text."""
    return msgspec.json.encode(record, enc_hook=_encode)


def from_json(text: bytes | str, kind: type[T]) -> T:
    """A record from JSON; ValueError says what is wrong and where."""
    return msgspec.json.decode(text, type=kind, dec_hook=_decode)


def to_msgpack(record: object) -> bytes:
    """A record as MessagePack, filters as their text."""
    return _encoder.encode(record)


def from_msgpack(data: bytes, kind: type[T]) -> T:
    """A record from MessagePack; ValueError says what is wrong and where."""
    return msgspec.msgpack.decode(data, type=kind, dec_hook=_decode)


class Bodies:
    """The encoded forms of messages. What goes to many links is encoded once, while it is kept."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[object, bytes]] = {}

    def body(self, message: Message) -> bytes:
        """A message as bytes."""
        if type(message) is not Events:
            return _encoder.encode(message)
        events = message.events
        found = self._kept.get(id(events))
        if found is None:  # With the events themselves, lest their id is given to others.
            found = self._kept[id(events)] = events, _encoder.encode(message)
        return found[1]

    def clear(self) -> None:
        """Forget them."""
        self._kept.clear()


def encode(frame: Frame, bodies: Bodies) -> tuple[bytes, ...]:
    """A frame as it goes over a connection, in parts, without its length.

    The body of a message is a part of its own: it is not copied for each link that it goes over.
    """
    if type(frame) is Data:
        head = _encoder.encode((_DATA, frame.seq, frame.acknowledged))
        return _ARRAY_OF_4 + head[1:], bodies.body(frame.message)
    if type(frame) is Ack:
        return (_encoder.encode(_Ack(frame.acknowledged)),)
    if type(frame) is Resume:
        said = (frame.incarnation, frame.partner, frame.acknowledged, frame.answers)
        return (_encoder.encode(_Resume(*said)),)
    raise NotImplementedError(f"no wire form for {type(frame).__name__}")


def decode(body: bytes | memoryview, *, short_filters: bool = False) -> Frame:
    """A frame that came over a connection; MalformedError if it is none.

    With `short_filters`, one with a filter that takes long to read is none.
    """
    try:
        form = (_short_decoder if short_filters else _decoder).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise MalformedError(f"not a frame of this protocol: {error}") from None
    if type(form) is _Data:
        return Data(form.seq, form.acknowledged, _message(form.message))
    if type(form) is _Ack:
        return Ack(form.acknowledged)
    return Resume(form.incarnation, form.partner, form.acknowledged, form.answers)


def size(frame: Frame) -> int:
    """How many bytes a frame takes on the network."""
    return LENGTH_BYTES + sum(map(len, encode(frame, Bodies())))


SHORT_FILTER_CHARACTERS_MAX = 32_768
"""To read more than this takes a noticeable part of a second."""

LENGTH_BYTES = 4
"""Before each frame on a connection: how long it is."""


# ---- How it looks on the wire. Frames are arrays; the first element says which one it is. Messages
# are maps with a "type", so that later versions can add fields; events, which are many, are arrays.


_DATA = 0
_ARRAY_OF_4 = b"\x94"


class _Ack(msgspec.Struct, array_like=True, tag=1, gc=False):
    acknowledged: int


class _Resume(msgspec.Struct, array_like=True, tag=2, gc=False):
    incarnation: int
    partner: int | None
    acknowledged: int
    answers: bool


class _Events(Events, frozen=True, kw_only=True, tag="Events"):
    events: tuple[CheckedEvent, ...]


class _Replayed(Replayed, frozen=True, kw_only=True, tag="Replayed"):
    events: tuple[CheckedEvent, ...]


class _Replay(Replay, frozen=True, kw_only=True, tag="Replay"):
    events: tuple[CheckedEvent, ...]


class _Past(messages.Past, frozen=True, kw_only=True, tag="Past"):
    events: tuple[CheckedEvent, ...]


class _Arrival(messages.Arrival, frozen=True, kw_only=True, tag="Arrival"):
    others: tuple[MovingChange, ...] = ()


_FORMS: dict[type[Message], type] = {
    Events: _Events,
    Replayed: _Replayed,
    Replay: _Replay,
    messages.Past: _Past,
    messages.Arrival: _Arrival,
}
"""What is decoded in another form than the message has."""

_MEANT = {form: message for message, form in _FORMS.items()}


def _messages() -> list[type[Message]]:
    """Every message there is: what `messages.py` defines."""
    return [
        kind
        for kind in vars(messages).values()
        if isinstance(kind, type) and issubclass(kind, Message) and kind not in _ABSTRACT
    ]


_ABSTRACT = {Message, messages.Request}

_AnyMessage: Any = reduce(or_, [_FORMS.get(kind, kind) for kind in _messages()])


class _Data(msgspec.Struct, array_like=True, tag=_DATA, gc=False):
    seq: int
    acknowledged: int
    message: _AnyMessage


def _message(form: Any) -> Message:
    meant = _MEANT.get(type(form))
    if meant is None:
        return form  # type: ignore[no-any-return]
    return meant(**{name: getattr(form, name) for name in form.__struct_fields__})


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


def _decode_short(kind: type, value: Any) -> object:
    if kind is Filter and isinstance(value, str) and len(value) > SHORT_FILTER_CHARACTERS_MAX:
        raise ValueError(
            f"a filter has {len(value):,} characters; {SHORT_FILTER_CHARACTERS_MAX:,} are the limit"
        )
    return _decode(kind, value)


_decoder = msgspec.msgpack.Decoder(_Data | _Ack | _Resume, dec_hook=_decode)
_short_decoder = msgspec.msgpack.Decoder(_Data | _Ack | _Resume, dec_hook=_decode_short)
