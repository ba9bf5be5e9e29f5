"""Random messages, sensible and not, for the tests of wire and brokers."""

from typing import Any, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.location.messages import MovingChange
from sterna.core.messages import Message
from sterna.model.event import CheckedEvent, Event, EventId
from sterna.model.filters import Filter

FILTERS = (
    "TRUE",
    "zone = 1",
    "zone > 1 AND kind = 'car'",
    "NOT (zone IN (1, 2))",
    "line LIKE 'a%'",
)

NUMBERS = st.sampled_from((0, 1, 2, 3, -1, 2**31, 2**62, -(2**63))) | st.integers(0, 5)
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


def messages_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Records of a type with anything in their fields that its types allow."""
    hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **{name: _values(hint) for name, hint in hints.items()})


def frames(of: st.SearchStrategy[Message]) -> st.SearchStrategy[Frame]:
    """Frames with such messages, rarely with numbers that make sense."""
    return (
        st.builds(Data, NUMBERS, NUMBERS, of)
        | st.builds(Ack, NUMBERS)
        | st.builds(Resume, NUMBERS, st.none() | NUMBERS, NUMBERS, st.booleans())
    )


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint is Event:
        return EVENTS
    if hint is Filter:
        return st.sampled_from(FILTERS).map(Filter)
    if hint is Message:  # What else a client that arrives has to say.
        return messages_of(MovingChange)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return messages_of(hint)
    if hint is EventId:
        return st.builds(EventId, TEXTS, NUMBERS)
    if get_origin(hint) is tuple:
        first, *others = get_args(hint)
        if others and others[0] is not Ellipsis:
            return st.tuples(*map(_values, (first, *others)))
        return st.lists(_values(first), max_size=3).map(tuple)
    if get_args(hint):
        return st.one_of(*map(_values, get_args(hint)))
    return {int: NUMBERS, str: TEXTS, bool: st.booleans(), type(None): st.none()}[hint]
