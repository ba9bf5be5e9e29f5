"""MOD-1: what an event is."""

import enum
import math
from typing import Any

import numpy as np
import pytest

from sterna import Event, EventId, Filter


class Level(enum.IntEnum):
    HIGH = 3


def event(**attributes: object) -> Event:
    return Event(publisher="car-7", seq=1, time_us=0, attributes=attributes)  # type: ignore[arg-type]


@pytest.mark.spec("MOD-1")
def test_an_event_is_identified_by_its_publisher_and_sequence_number() -> None:
    one = Event(publisher="car-7", seq=41, time_us=5, attributes={"speed": 50}, payload=b"x")
    same = Event(publisher="car-7", seq=41, time_us=9)

    assert one.id == same.id == EventId("car-7", 41)
    assert one.payload == b"x"


@pytest.mark.spec("MOD-1")
def test_a_missing_attribute_and_none_are_the_same() -> None:
    assert event(speed=None, lane=2).attributes == {"lane": 2}


@pytest.mark.spec("MOD-1")
def test_attributes_become_plain_values_of_the_four_types() -> None:
    made = event(
        whole=np.int32(4), real=np.float64(2.5), text=np.str_("é"), level=Level.HIGH, on=np.bool_(1)
    )

    assert [(type(v), v) for v in made.attributes.values()] == [
        (int, 4),
        (float, 2.5),
        (str, "é"),
        (int, 3),
        (bool, True),
    ]


@pytest.mark.spec("MOD-1")
def test_extreme_numbers_are_kept_as_they_are() -> None:
    made = event(low=-(2**63), high=2**63 - 1, inf=math.inf, nan=math.nan)

    assert made.attributes["low"] == -(2**63)
    assert made.attributes["high"] == 2**63 - 1
    assert math.isnan(made.attributes["nan"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"x": 2**63}, "does not fit in 64 bits"),
        ({"x": b"bytes"}, "send anything else as payload"),
        ({"x": [1]}, "attribute 'x' is a list"),
        ({"x": np.array([1])}, "attribute 'x' is a ndarray"),
        ({"x": "\ud800"}, "surrogate"),
        ({"": 1}, "non-empty"),
        ({"\ud800": 1}, "surrogate"),
        ({"x": np.longdouble(1)}, "longdouble"),
    ],
)
@pytest.mark.spec("MOD-1")
def test_what_an_event_cannot_carry_is_said_clearly(
    attributes: dict[str, object], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        event(**attributes)


@pytest.mark.parametrize(
    ("field", "value"),
    [("seq", 1.5), ("seq", True), ("time_us", 0.5), ("payload", "text"), ("publisher", 7)],
)
@pytest.mark.spec("MOD-1")
def test_every_field_has_its_type(field: str, value: object) -> None:
    fields: dict[str, Any] = {"publisher": "car-7", "seq": 1, "time_us": 0, field: value}

    with pytest.raises((TypeError, ValueError), match="not"):
        Event(**fields)


@pytest.mark.parametrize(("publisher", "seq"), [("", 1), ("car-7", 0), ("car-7", -3)])
@pytest.mark.spec("MOD-1")
def test_an_identity_is_complete_and_counts_from_one(publisher: str, seq: int) -> None:
    with pytest.raises(ValueError, match=r"publisher|from 1"):
        Event(publisher=publisher, seq=seq, time_us=0)


@pytest.mark.spec("MOD-1")
def test_a_topic_is_an_attribute() -> None:
    """Huang 2: group and subject addressing are special cases of content addressing."""
    made = event(topic="jobs/berlin/python")

    assert Filter("topic = 'jobs/berlin/python'").matches(made.attributes)
    assert Filter("topic MATCHES 'jobs/#'").matches(made.attributes)
    assert not Filter("topic MATCHES 'sports/#'").matches(made.attributes)
