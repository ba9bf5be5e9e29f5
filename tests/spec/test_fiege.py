"""Fiege, Gärtner, Kasten, Zeidler (2003): Supporting Mobility in Content-Based Pub/Sub."""

import pytest

from sterna import Filter, MovementGraph
from sterna.model.event import Scalar

FIG_7 = MovementGraph([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
"""The movement graph of Figure 7."""

TABLE_1 = [
    {"a": "a", "b": "b", "c": "c", "d": "d"},
    {"a": "abc", "b": "abd", "c": "acd", "d": "bcd"},
    {"a": "abcd", "b": "abcd", "c": "abcd", "d": "abcd"},
    {"a": "abcd", "b": "abcd", "c": "abcd", "d": "abcd"},
]


@pytest.mark.spec("MOD-6")
@pytest.mark.parametrize("t", range(4))
def test_table_1(t: int) -> None:
    """Values of ploc(x, t) for the example setting."""
    assert {x: "".join(sorted(FIG_7.ploc(x, t))) for x in "abcd"} == TABLE_1[t]


@pytest.mark.spec("MOD-6")
@pytest.mark.parametrize("x", "abcd")
def test_equation_1(x: str) -> None:
    """ploc(x, q) is a subset of ploc(x, q + 1)."""
    for q in range(5):
        assert FIG_7.ploc(x, q) <= FIG_7.ploc(x, q + 1)


@pytest.mark.spec("MOD-2")
def test_the_subscription_of_section_2_1() -> None:
    """A free space on Rebeca Drive for less than 3 EURO, for a car of type compact or above."""
    f = Filter(
        "service = 'parking' AND location = '100 Rebeca Drive' AND cost < 3"
        " AND \"car-type\" >= 'compact'"
    )
    event: dict[str, Scalar] = {
        "service": "parking",
        "location": "100 Rebeca Drive",
        "cost": 2.5,
        "car-type": "van",
    }

    assert f.matches(event)
    assert not f.matches({**event, "cost": 3})
    assert not f.matches({**event, "car-type": "bus"})
