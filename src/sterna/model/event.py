"""An event: named attributes, a payload, and an identity that is unique system-wide."""

import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from sterna.model import ranges
from sterna.model.ranges import Number

Scalar = bool | int | float | str
"""The types of an attribute: bool, int64, float64 or a Unicode string."""

INT_MIN, INT_MAX = ranges.INT_MIN, ranges.INT_MAX

PLAIN_TYPES = frozenset({bool, int, float, str, type(None)})
"""The exact types that filters evaluate; None means that the attribute is missing."""


AttributeName = Annotated[str, msgspec.Meta(min_length=1)]
CheckedScalar = bool | Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)] | float | str
"""A `Scalar` with the bounds of integers, as decoders check it."""


class EventId(NamedTuple):
    """The publisher of an event, and its sequence number at that publisher."""

    publisher: str
    seq: Number


class Event(msgspec.Struct, frozen=True, kw_only=True, array_like=True, eq=False):
    """What a publisher sends once, and brokers carry to all clients whose filters match it.

    Attributes with the value None are dropped: a missing attribute is NULL in every filter.
    Group and topic addressing need nothing special: a topic is an attribute.
    """

    publisher: str
    seq: int
    """The sequence number: at least 1, and greater than those of the publisher's earlier events.

    It grows by one, unless the publisher has lost its memory and begins above its earlier lives.
    """
    time_us: int
    """When it was published, by the wall clock of its publisher, in microseconds since 1970."""
    attributes: Mapping[str, Scalar] = {}
    payload: bytes = b""

    def __post_init__(self) -> None:
        if type(self.publisher) is not str or not self.publisher:
            raise ValueError(f"an event needs the id of its publisher, not {self.publisher!r}")
        if type(self.seq) is not int or not 1 <= self.seq <= INT_MAX:
            raise ValueError(f"sequence numbers count from 1, not {self.seq!r}")
        if type(self.time_us) is not int:
            raise TypeError(f"the time is in whole microseconds, not {self.time_us!r}")
        if type(self.payload) is not bytes:
            raise TypeError(f"the payload is bytes, not {type(self.payload).__name__}")
        msgspec.structs.force_setattr(self, "attributes", plain_attributes(self.attributes))

    def __repr__(self) -> str:
        """The class for applications and a payload that fits on a screen."""
        length = len(self.payload)
        payload = (
            repr(self.payload) if length <= 100 else f"{self.payload[:20]!r}… {length:,} bytes"
        )
        return (
            f"Event(publisher={self.publisher!r}, seq={self.seq}, time_us={self.time_us}, "
            f"attributes={self.attributes!r}, payload={payload})"
        )

    def __eq__(self, other: object) -> bool:
        """Events with equal content are equal, whether a decoder has checked them or not."""
        if not isinstance(other, Event):
            return NotImplemented
        return msgspec.structs.astuple(self) == msgspec.structs.astuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    @property
    def id(self) -> EventId:
        return EventId(self.publisher, self.seq)


class CheckedEvent(Event, frozen=True, kw_only=True, array_like=True, gc=False):
    """An event that its decoder has checked: brokers handle many, and each is checked once."""

    publisher: Annotated[str, msgspec.Meta(min_length=1)]
    seq: Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]
    time_us: Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
    attributes: dict[AttributeName, CheckedScalar] = {}

    def __post_init__(self) -> None:
        """Do nothing: the decoder has checked the event."""


class StoredEvent(Event, frozen=True, kw_only=True, array_like=True, gc=False):
    """An event as an earlier release took and stored it, with a time that nobody can read now.

    The time is brought into range: other nodes would refuse the event.
    """

    attributes: dict[AttributeName, CheckedScalar] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "time_us", max(INT_MIN, min(self.time_us, INT_MAX)))


def plain_attributes(attributes: Mapping[str, object]) -> dict[str, Scalar]:
    """A copy with every value as a plain bool, int, float or str; None values left out."""
    plain: dict[str, Scalar] = {}
    for name, value in attributes.items():
        if type(name) is not str or not name:
            raise TypeError(f"attribute names are non-empty strings, not {name!r}")
        _encodable(name, name)
        scalar = plain_scalar(name, value)
        if scalar is not None:
            plain[name] = scalar
    return plain


def plain_scalar(name: str, value: object) -> Scalar | None:
    """The value as one of the four attribute types: enumerations and NumPy scalars included."""
    kind = type(value)
    if kind is float or kind is bool or value is None:
        return value  # type: ignore[return-value]
    if kind is str:
        return _encodable(name, value)  # type: ignore[arg-type]
    if kind is int:
        return _int64(name, value)  # type: ignore[arg-type]
    if isinstance(value, str):
        return _encodable(name, str.__str__(value))
    if isinstance(value, int):
        return _int64(name, int(value))
    if isinstance(value, float):
        return float(value)
    item = getattr(value, "item", None)  # NumPy and Arrow-backed scalars.
    if callable(item) and getattr(value, "shape", None) == () and type(item()) is not kind:
        return plain_scalar(name, item())
    raise TypeError(
        f"attribute {name!r} is a {kind.__name__}; "
        "events carry bool, int, float and str (send anything else as payload)"
    )


def describe(value: Scalar | None) -> str:
    """The value's type in the words of the filter language."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    return "not a number (NaN)" if math.isnan(value) else "a number"


def _int64(name: str, value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise ValueError(f"attribute {name!r} is {value}, which does not fit in 64 bits")
    return value


def _encodable(name: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"attribute {name!r} holds half a surrogate pair, not text") from None
    return value
