"""Filters that hold for a whole range of values, or wherever a client may be."""

from random import Random
from typing import Any

import pytest
from hypothesis import given

from sterna import Filter, HexGrid, MovementGraph
from sterna.model.event import Scalar
from sterna.model.filters import UnboundError
from tests.scale import examples
from tests.strategies import BATCH, batches, combined, sign

VALUES: tuple[Scalar, ...] = (-2, 0, 1, 1.5, 2, 3, "", "a", "ab", "b", True, False)
NUMBERS = (-2, -1, 0, 1, 1.5, 2, 2.5, 3)
STRINGS = ("", "a", "ab", "b", "c")
NAMES = ("v", "w")


def operand(random: Random) -> str:
    return random.choice(("$v", "$w", random.choice(("1", "2.5", "'a'"))))


def comparison(random: Random) -> str:
    """A test that may depend on variables."""
    tested, negated = random.choice(("x", "y", "x + 1")), random.choice(("", "NOT "))
    match random.randrange(7):
        case 0 | 1:
            return f"{tested} {sign(random)} {operand(random)}"
        case 2:
            return f"{operand(random)} {sign(random)} {tested}"
        case 3:
            return f"{tested} {negated}BETWEEN {operand(random)} AND {operand(random)}"
        case 4:
            return f"x {negated}IN (1, ${random.choice(NAMES)})"
        case 5:
            return f"x {sign(random)} ${random.choice(NAMES)} * 2"
        case _:
            return random.choice(("x IS NULL", "y = 'a'", "x > 1", "$v < y + $w"))


def condition(random: Random) -> str:
    return combined(random, comparison, random.randint(1, 5))


Context = tuple[dict[str, Scalar], dict[str, tuple[Scalar, Scalar]]]


def some_context(random: Random) -> Context:
    """Values of the variables, and ranges around them; one may have none."""
    values: dict[str, Scalar] = {}
    ranges: dict[str, tuple[Scalar, Scalar]] = {}
    for name in NAMES:
        some: tuple[Any, ...] = random.choice((NUMBERS, STRINGS))
        low, value, high = sorted(random.choices(some, k=3))
        values[name] = value
        if random.randrange(10):
            ranges[name] = low, high
    return values, ranges


def pair(random: Random) -> tuple[Filter, Filter]:
    """A filter for the values of its variables, and the same for all that are in range."""
    while True:
        text, (values, ranges) = condition(random), some_context(random)
        try:
            return Filter(text).bind(values), Filter(text).widen(ranges)
        except ValueError:  # Such as a string times two: no filter becomes of that.
            continue


def some_event(random: Random) -> dict[str, Scalar | None]:
    return {name: random.choice((None, *VALUES)) for name in "xy"}


@pytest.mark.spec("LM-7")
@given(batches(pair, some_event))
@examples(2000 // BATCH)
def test_a_widened_filter_matches_all_that_any_value_in_range_matches(
    batch: list[tuple[tuple[Filter, Filter], dict[str, Scalar | None]]],
) -> None:
    for (exact, widened), event in batch:
        if exact.matches(event):
            assert widened.matches(event), (exact, widened, event)


@pytest.mark.spec("LM-7")
@pytest.mark.parametrize(
    ("text", "widened"),
    [
        ("price < $budget", "price < 20"),
        ("price <= $budget", "price <= 20"),
        ("$budget < price", "price > 10"),
        ("price = $budget", "price BETWEEN 10 AND 20"),
        ("price <> $budget", "TRUE"),
        ("price BETWEEN $budget AND 99", "price >= 10 AND price <= 99"),
        ("price NOT BETWEEN $budget AND 99", "price < 20 OR price > 99"),
        ("price IN (5, $budget)", "price = 5 OR price BETWEEN 10 AND 20"),
        ("NOT (price < $budget AND kind = 'x')", "price >= 10 OR NOT kind = 'x'"),
        ("price < $budget * 2 AND kind = 'x'", "kind = 'x'"),
        ("kind = 'x' OR price = 2 * $budget", "TRUE"),
        ("kind = 'x' AND room IN myloc AND price < $budget", None),
    ],
)
def test_what_widening_says(text: str, widened: str | None) -> None:
    found = str(Filter(text).widen({"budget": (10, 20)}))

    assert found == (widened or "kind = 'x' AND room IN myloc AND price < 20")


@pytest.mark.spec("LM-7")
def test_a_range_of_one_value_is_that_value() -> None:
    assert Filter("price < $budget * 2").widen({"budget": (10, 10)}) == Filter("price < 10 * 2")
    assert str(Filter("price < $budget AND x = 1").widen({})) == "x = 1"


HOUSE = MovementGraph([("a", "b"), ("b", "c"), ("c", "d"), ("c", "e")])
PLACED = (
    "room IN myloc",
    "room IN myloc(1)",
    "NOT room IN myloc",
    "NOT (kind = 'x' AND NOT room IN myloc(1))",
    "room IN myloc AND other IN myloc(1)",
    "kind = 'x' OR NOT (room IN myloc OR other IN myloc(2))",
)


@pytest.mark.spec("LM-1")
@pytest.mark.parametrize("text", PLACED)
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_around_matches_all_that_any_place_within_reach_matches(text: str, steps: int) -> None:
    filter_ = Filter(text)
    for start in "ad":
        around = filter_.around(start, HOUSE, steps)
        for place in HOUSE.ploc(start, steps):
            exact = filter_.bind(location=place, space=HOUSE)
            for room in (*"abcde", None):
                for other in (*"abcde", None):
                    for kind in ("x", "y", None):
                        event = {"room": room, "other": other, "kind": kind}
                        if exact.matches(event):
                            assert around.matches(event)
                            assert filter_.anywhere.matches(event)


def test_around_one_place_is_exact_where_nothing_is_negated() -> None:
    filter_ = Filter("room IN myloc(1)")

    assert filter_.around("b", HOUSE, 0) == filter_.bind(location="b", space=HOUSE)
    assert filter_.around("b", HOUSE, 1) == filter_.bind(location="b", space=HOUSE, steps=1)
    assert str(filter_.anywhere) == "room IS NOT NULL"


def test_more_places_than_a_filter_holds() -> None:
    row = MovementGraph([(f"r{n}", f"r{n + 1}") for n in range(12_000)])
    with pytest.raises(UnboundError, match="10,000 are the limit"):
        Filter("room IN myloc").around("r0", row, 11_000)


@pytest.mark.spec("LM-4", "MOD-6")
@pytest.mark.parametrize(
    ("space", "start"),
    [(HOUSE, "a"), (HexGrid(2), HexGrid(2).locate(52.5, 13.4)), (HexGrid(2), "820807fffffffff")],
)
def test_steps_compose(space: MovementGraph | HexGrid, start: str) -> None:
    """Ploc in q + r steps is ploc in r of ploc in q: what is equal within q steps stays so.

    The last start is a pentagon, around which the hexagons do not go round.
    """
    for q in range(3):
        for r in range(3):
            reached = {y for x in space.ploc(start, q) for y in space.ploc(x, r)}
            assert reached == space.ploc(start, q + r)
