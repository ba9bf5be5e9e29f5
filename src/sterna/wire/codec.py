"""Records as bytes: MessagePack for the network, JSON for people."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from threading import Lock, local
from time import perf_counter
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from weakref import WeakValueDictionary

import msgspec

from sterna.core import catalogue as _catalogue  # noqa: F401 - registers Sterna's own protocols.
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.messages import Events, Message, OtherMessage
from sterna.core.protocol import message_types, when_registered
from sterna.errors import SternaError
from sterna.model.event import CheckedEvent, Event, StoredEvent
from sterna.model.filters import Filter, FilterError
from sterna.model.ranges import INT_MAX
from sterna.wire.ranges import checks_of

T = TypeVar("T")


class MalformedError(SternaError):
    """These bytes are not what they should be: the sender does not speak the protocol."""


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
        """A message as bytes; ValueError, or another one, if its receiver could not read it.

        Events are not looked at again: they were checked when they came in.
        """
        if type(message) is not Events:
            _formats.check(message)
            return _sending_encoder.encode(message)
        events = message.events
        found = self._kept.get(id(events))
        if found is None:  # Kept with the events themselves, so that their id is not reused.
            found = self._kept[id(events)] = events, _encoder.encode(message)
        return found[1]

    def clear(self) -> None:
        """Forget all encoded forms."""
        self._kept.clear()


def encode(frame: Frame, bodies: Bodies) -> tuple[bytes, ...]:
    """A frame as it goes over a connection, in parts, without its length.

    The body of a message is a part of its own: it is not copied for each link that it goes over.
    """
    if type(frame) is Data:
        head = _encoder.encode((_DATA, frame.seq, frame.acknowledged))
        return _ARRAY_OF_4 + head[1:], bodies.body(frame.message)
    if type(frame) is Ack:
        return (_encoder.encode((_ACK, frame.acknowledged)),)
    if type(frame) is Resume:
        said = (frame.incarnation, frame.partner, frame.acknowledged, frame.answers)
        return (_encoder.encode((_RESUME, *said)),)
    raise TypeError(f"a {type(frame).__name__} is no frame")


def decode(body: bytes | memoryview, *, short_filters: bool = False) -> Frame:
    """A frame that came over a connection; MalformedError if it is none.

    A message of a type that is not known is an `OtherMessage`. With `short_filters`, a frame with a
    filter that takes long to read is malformed. So is one with a number that is out of range.
    """
    formats = _formats  # The same to the end, even if another thread registers a protocol.
    return _decode_frame(body, formats, formats.short_decoder if short_filters else formats.decoder)


def decode_quickly(body: memoryview, *, short_filters: bool, until_s: float) -> Frame | None:
    """Like `decode`, but None if that takes long: then `decode_slowly` is for another thread.

    It takes long if the frame has long filters that are not known yet, or so many that they are not
    read when `perf_counter` shows `until_s`.
    """
    formats = _formats
    reading = _reading
    reading.until_s = until_s
    try:
        return _decode_frame(
            body, formats, formats.short_decoder if short_filters else formats.decoder
        )
    except _TakesLong:
        return None
    finally:
        reading.until_s = math.inf


def decode_slowly(body: bytes | memoryview, *, short_filters: bool) -> Frame:
    """Like `decode`; but all that takes long to find out about the filters is found out."""
    _reading.prepares = True
    try:
        return decode(body, short_filters=short_filters)
    finally:
        _reading.prepares = False


def decode_stored(body: bytes | memoryview) -> Frame:
    """A frame from a log. What an earlier release took is read, whatever numbers it has."""
    formats = _formats
    try:
        return _decode_frame(body, formats, formats.decoder)
    except MalformedError:
        older = formats_stored(formats)
        return _decode_frame(body, older, older.decoder)


def _decode_frame(
    body: bytes | memoryview, formats: "Formats", decoder: "msgspec.msgpack.Decoder[Any]"
) -> Frame:
    try:
        form = decoder.decode(body)
        if type(form) is formats.data:
            message = form.message
            if type(message) is formats.events:  # Most are, and the decoder has checked them.
                return Data(form.seq, form.acknowledged, Events(events=message.events))
            message = formats.meant(message)
            formats.check(message)
            return Data(form.seq, form.acknowledged, message)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        other = _with_other_message(body, formats)
        if other is None:
            raise MalformedError(f"not a frame of this protocol: {error}") from None
        return other
    if type(form) is formats.ack:
        return Ack(form.acknowledged)
    return Resume(form.incarnation, form.partner, form.acknowledged, form.answers)


def _with_other_message(body: bytes | memoryview, formats: "Formats") -> Data | None:
    """The frame, if all that is wrong with it is that the type of its message is not known."""
    try:
        form = _other_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    kind = form.message.type
    if kind in formats.names:
        return None
    numbers = form.seq, form.acknowledged
    if not formats.is_stored and not 0 <= min(numbers) <= max(numbers) <= INT_MAX:
        return None
    return Data(form.seq, form.acknowledged, OtherMessage(kind=kind))


def size(frame: Frame) -> int:
    """How many bytes a frame takes on the network."""
    return LENGTH_BYTES + sum(map(len, encode(frame, Bodies())))


def formats() -> "Formats":
    """How the messages of the protocols that are known now are decoded."""
    return _formats


@lru_cache(maxsize=1)
def formats_stored(formats: "Formats") -> "Formats":
    """How the same messages are decoded where an earlier release has stored them."""
    return Formats(formats.kinds, is_stored=True)


class Formats:
    """How messages are decoded. It never changes: another protocol comes with another one.

    What one of them has decoded, only the same one can make a message of. Those for what is stored
    take numbers of any size, as earlier releases did.
    """

    __slots__ = (
        *("_checks", "_kinds", "ack", "any_message", "data", "decoder", "events", "is_stored"),
        *("kinds", "names", "short_decoder"),
    )

    def __init__(self, kinds: Sequence[type[Message]], *, is_stored: bool = False) -> None:
        with_arrival: Any = reduce(or_, [kind for kind in kinds if kind.with_arrival])
        stand_ins = {Event: StoredEvent if is_stored else CheckedEvent, Message: with_arrival}
        forms = {kind: _form(kind, stand_ins) for kind in kinds}
        self.kinds = tuple(kinds)
        """The messages."""
        self.is_stored = is_stored
        self._checks = {} if is_stored else checks_of(kinds)
        self._kinds = {form: kind for kind, form in forms.items() if form is not kind}
        """The messages that are decoded in another form than their own, by that form."""
        self.events = forms[Events]
        """The type that events are decoded as."""
        self.names = frozenset(kind.__name__ for kind in kinds)
        """The types of messages that are known."""
        self.any_message: Any = reduce(or_, forms.values())
        """The type that any message is decoded as; `meant` makes a message of it."""
        number: Any = int if is_stored else Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
        acknowledged = ("acknowledged", number)
        self.data: Any = _frame(
            "_Data", _DATA, ("seq", number), acknowledged, ("message", self.any_message)
        )
        """The type that a data frame is decoded as."""
        self.ack: Any = _frame("_Ack", _ACK, acknowledged)
        """The type that an acknowledgement is decoded as."""
        session: Any = int if is_stored else Annotated[int, msgspec.Meta(ge=0)]  # All 64 bits.
        partner = ("partner", session | None)
        resume: Any = _frame(
            *("_Resume", _RESUME, ("incarnation", session), partner, acknowledged),
            ("answers", bool),
        )
        any_frame: Any = self.data | self.ack | resume
        self.decoder = msgspec.msgpack.Decoder(any_frame, dec_hook=_decode)
        """Decodes any frame."""
        self.short_decoder = msgspec.msgpack.Decoder(any_frame, dec_hook=_decode_short)
        """Decodes any frame without long filters."""

    def meant(self, form: Any) -> Message:
        """The message that was decoded in a form of its own."""
        kind = self._kinds.get(type(form))
        if kind is None:
            return form  # type: ignore[no-any-return]
        return kind(**{name: getattr(form, name) for name in form.__struct_fields__})

    def check(self, message: Message) -> None:
        """Raise ValueError if a message holds a number that is out of range."""
        check = self._checks.get(type(message))
        if check is not None:
            check(message)


SHORT_FILTER_CHARACTERS_MAX = 32_768
"""Reading a longer filter takes a noticeable part of a second."""

LONG_FILTER_CHARACTERS = 500
"""Reading a longer filter, and finding out what it means, may take several milliseconds."""

LENGTH_BYTES = 4
"""The size of the length that precedes each frame on a connection."""


# ---- The wire format. Frames are arrays; the first element says which one it is. Messages are maps
# with a "type", so that later versions can add fields; events, which are many, are arrays.


_DATA, _ACK, _RESUME = range(3)
_ARRAY_OF_4 = b"\x94"


def _frame(name: str, tag: int, *fields: tuple[str, Any]) -> Any:
    return msgspec.defstruct(name, fields, array_like=True, tag=tag, gc=False)


class _Typed(msgspec.Struct):
    type: str


class _Other(msgspec.Struct, array_like=True, tag=_DATA):
    """A data frame, whatever its message is."""

    seq: int
    acknowledged: int
    message: _Typed


_other_decoder = msgspec.msgpack.Decoder(_Other)


def _form(kind: type[Message], stand_ins: Mapping[Any, Any]) -> Any:
    """The type that a message is decoded as: its events are checked by the decoder, and messages in
    it are those that may be there.
    """
    hints = get_type_hints(kind)
    changed = {
        field.name: type_
        for field in msgspec.structs.fields(kind)
        if (type_ := _replaced(hints[field.name], stand_ins)) != hints[field.name]
    }
    if not changed:
        return kind
    fields = [
        (field.name, changed[field.name])
        if field.required
        else (field.name, changed[field.name], field.default)
        for field in msgspec.structs.fields(kind)
        if field.name in changed
    ]
    name = kind.__name__
    return msgspec.defstruct(
        f"_{name}", fields, bases=(kind,), tag=name, frozen=True, kw_only=True, gc=False
    )


def _replaced(hint: Any, stand_ins: Mapping[Any, Any]) -> Any:
    """A type in which some of the types that it is made of are replaced."""
    if hint in stand_ins:
        return stand_ins[hint]
    arguments = get_args(hint)
    if not arguments or get_origin(hint) in {Annotated, Literal}:
        return hint
    replaced = tuple(_replaced(each, stand_ins) for each in arguments)
    if replaced == arguments:
        return hint
    origin = get_origin(hint)
    return reduce(or_, replaced) if origin in {Union, UnionType} else origin[replaced]


def _encode(value: object) -> object:
    if isinstance(value, Filter):
        return str(value)
    raise NotImplementedError(f"no wire form for {type(value).__name__}")


def _decode(kind: type, value: Any) -> object:
    if kind is Filter:
        return (_filters.get(value) if isinstance(value, str) else None) or _read_filter(value)
    raise NotImplementedError(f"no wire form for {kind.__name__}")


def _read_filter(text: str) -> Filter:
    reading = _reading
    if reading.until_s < math.inf and (
        len(text) > LONG_FILTER_CHARACTERS or perf_counter() > reading.until_s
    ):
        raise _TakesLong
    try:
        found = Filter(text)
    except FilterError as error:
        raise ValueError(f"bad filter: {error.problem}") from None
    if reading.prepares:
        found.prepare()
    _filters[text] = found
    return found


class _TakesLong(Exception):  # noqa: N818 - it never leaves this module.
    """There are filters that take long to read."""


class _Reading(local):
    """How the present thread reads filters."""

    until_s = math.inf
    """When there is no more time to read filters."""
    prepares = False


_reading = _Reading()

_filters: WeakValueDictionary[str, Filter] = WeakValueDictionary()
"""The filters in use, by the text they came as. Many clients want the same, and a filter comes
again with each move of its client: it is parsed once, and what was computed from it is shared.
"""

_encoder = msgspec.msgpack.Encoder(enc_hook=_encode)


def _encode_to_send(value: object) -> object:
    if isinstance(value, Filter) and not value.is_readable:
        raise ValueError(f"a filter of {len(str(value)):,} characters could not be read")
    return _encode(value)


_sending_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_to_send)


def _decode_short(kind: type, value: Any) -> object:
    if kind is Filter and isinstance(value, str) and len(value) > SHORT_FILTER_CHARACTERS_MAX:
        raise ValueError(
            f"a filter has {len(value):,} characters; {SHORT_FILTER_CHARACTERS_MAX:,} are the limit"
        )
    return _decode(kind, value)


def _renew_formats() -> None:
    """Decode the messages of every protocol that is known."""
    global _formats  # noqa: PLW0603 - replaced as a whole: frames are decoded meanwhile.
    with _renewing:
        _formats = Formats(message_types())


_renewing = Lock()
"""Held while the formats are made, so that those with fewer protocols do not replace the others."""
_formats: Formats
_renew_formats()
when_registered(_renew_formats)
