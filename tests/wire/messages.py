"""Random messages, sensible and not, for the tests of wire and brokers."""

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.location.messages import MovingChange
from sterna.core.messages import Message
from sterna.core.terms.messages import TermsChange
from sterna.model.event import CheckedEvent, Event, EventId
from sterna.model.filters import Filter
from sterna.model.ranges import INT_MAX, Range
from sterna.wire.codec import to_msgpack

FILTERS = (
    "TRUE",
    "zone = 1",
    "zone > 1 AND kind = 'car'",
    "NOT (zone IN (1, 2))",
    "line LIKE 'a%'",
)

ANY_NUMBERS = st.sampled_from((0, 1, 2, 3, -1, 2**31, 2**53, 2**62, -(2**63), INT_MAX, 2**64 - 1))
"""Numbers that can be encoded, in range or not."""


def in_range(range_: Range) -> st.SearchStrategy[int]:
    """Numbers of a range, often at its ends."""
    low, high = range_
    few = [each for each in (0, 1, 2, 3, low, high - 1, high) if low <= each <= high]
    return st.sampled_from(few) | st.integers(max(low, 0), min(high, 5))


def in_range_or_not(range_: Range) -> st.SearchStrategy[int]:
    """Numbers of a range and others."""
    return in_range(range_) | ANY_NUMBERS


NUMBERS = in_range(Range(0, INT_MAX))
Numbers = Callable[[Range], st.SearchStrategy[int]]
TEXTS = st.sampled_from(("c1", "c2", "B1", "B2", "c1/1", "c1/2", "", "x")) | st.text(max_size=3)
EVENTS = st.builds(
    CheckedEvent,
    publisher=st.sampled_from(("c1", "c2")),
    seq=st.sampled_from((1, 2, 3, 2**62)),
    time_us=st.integers(0, 10),
    attributes=st.dictionaries(
        st.sampled_from(("zone", "kind", "line")),
        st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    ),
    payload=st.binary(max_size=8),
)


def messages_of(kind: type[Any], numbers: Numbers = in_range) -> st.SearchStrategy[Any]:
    """Records of a type with anything in their fields that its types allow."""
    hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **{name: _values(hint, numbers) for name, hint in hints.items()})


def frames(of: st.SearchStrategy[Message]) -> st.SearchStrategy[Frame]:
    """Frames with such messages, rarely with numbers that make sense."""
    return (
        st.builds(Data, NUMBERS, NUMBERS, of)
        | st.builds(Ack, NUMBERS)
        | st.builds(Resume, NUMBERS, st.none() | NUMBERS, NUMBERS, st.booleans())
    )


def raw(frame: Frame) -> bytes:
    """A frame as an attacker sends it, with any numbers that there are bytes for."""
    match frame:
        case Data(seq, acknowledged, message):
            return to_msgpack((0, seq, acknowledged, message))
        case Ack(acknowledged):
            return to_msgpack((1, acknowledged))
        case Resume(incarnation, partner, acknowledged, answers):
            return to_msgpack((2, incarnation, partner, acknowledged, answers))
    raise TypeError(frame)


def _values(hint: Any, numbers: Numbers) -> st.SearchStrategy[Any]:
    ranges = [each for each in get_args(hint) if isinstance(each, Range)]
    if get_origin(hint) is Annotated:
        return numbers(ranges[0]) if ranges else _values(get_args(hint)[0], numbers)
    if hint is Event:
        return EVENTS
    if hint is Filter:
        return st.sampled_from(FILTERS).map(Filter)
    if hint is Message:  # What else a client that arrives has to say.
        return messages_of(MovingChange, numbers) | messages_of(TermsChange, numbers)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return messages_of(hint, numbers)
    if hint is EventId:
        return st.builds(EventId, TEXTS, numbers(Range(0, INT_MAX)))
    if isinstance(hint, type) and issubclass(hint, tuple):
        fields = get_type_hints(hint, include_extras=True).values()
        return st.builds(hint, *(_values(each, numbers) for each in fields))
    if get_origin(hint) is tuple:
        first, *others = get_args(hint)
        if others and others[0] is not Ellipsis:
            return st.tuples(*(_values(each, numbers) for each in (first, *others)))
        return st.lists(_values(first, numbers), max_size=3).map(tuple)
    if get_args(hint):
        return st.one_of(*(_values(each, numbers) for each in get_args(hint)))
    plain = {int: ANY_NUMBERS, str: TEXTS, bytes: st.binary(max_size=20), bool: st.booleans()}
    return {**plain, type(None): st.none()}[hint]
