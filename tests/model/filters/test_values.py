"""The value line: sets of attribute values and their exact algebra."""

import math
from random import Random

import pytest
from hypothesis import given

from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.model.filters import values
from sterna.model.filters.values import ValueSet, next_number, previous_number
from tests.scale import examples
from tests.strategies import (
    BATCH,
    Making,
    batches,
    boolean,
    neighbour,
    number,
    scalar,
    several,
    sign,
    string,
)

pytestmark = pytest.mark.spec("MOD-4")

SPECIAL = (values.NULL, values.PRESENT, values.ALL, values.NOTHING, values.NUMBERS)
SIMPLE: tuple[Making[ValueSet], ...] = (
    lambda random: values.comparison(sign(random), number(random)),
    lambda random: values.comparison(sign(random), string(random)),
    lambda random: values.comparison(random.choice(("=", "<>")), boolean(random)),
    lambda random: values.starting_with(string(random)),
    lambda random: values.members(several(number, 0, 4)(random)),
    lambda random: random.choice(SPECIAL),
)


def value_set(random: Random, leaves: int = 6) -> ValueSet:
    """A simple set, or one that is made of others."""
    leaves = random.randint(1, leaves)
    if random.randrange(4) == 0:
        return ~value_set(random, leaves)
    if leaves == 1:
        return random.choice(SIMPLE)(random)
    left, right = value_set(random, leaves // 2), value_set(random, leaves - leaves // 2)
    return left & right if boolean(random) else left | right


def any_value(random: Random) -> Scalar | None:
    return None if random.randrange(7) == 0 else scalar(random)


def any_number(random: Random) -> float:
    return number(random) if boolean(random) else neighbour(random)


@given(batches(value_set, value_set, any_value))
@examples(3_000 // BATCH)
def test_the_algebra_is_that_of_sets(
    batch: list[tuple[ValueSet, ValueSet, Scalar | None]],
) -> None:
    for a, b, value in batch:
        assert (value in a & b) == (value in a and value in b)
        assert (value in a | b) == (value in a or value in b)
        assert (value in a - b) == (value in a and value not in b)
        assert (value in ~a) == (value not in a)


@given(batches(value_set, value_set))
@examples(2_000 // BATCH)
def test_subsets_are_decided_exactly(batch: list[tuple[ValueSet, ValueSet]]) -> None:
    for a, b in batch:
        outside = a - b
        assert a.overlaps(b) is bool(a & b)
        if a <= b:
            assert not outside
        else:
            witness = values.value_at(outside.cuts[0])
            assert witness in a
            assert witness not in b


@given(batches(value_set))
@examples(1_000 // BATCH)
def test_every_set_has_one_form(batch: list[tuple[ValueSet]]) -> None:
    for (a,) in batch:
        assert list(a.cuts) == sorted(set(a.cuts))
        assert ~~a == a
        assert a | ~a == values.ALL
        assert a & ~a == values.NOTHING


@given(batches(any_number, any_number))
@examples(2_000 // BATCH)
def test_nothing_lies_between_a_number_and_the_next(batch: list[tuple[float, float]]) -> None:
    for a, b in batch:
        following, preceding = next_number(a), previous_number(a)

        assert following is None or (a < following and not a < b < following)
        assert preceding is None or (preceding < a and not preceding < b < a)
        if following is not None:
            assert previous_number(following) == a


@pytest.mark.parametrize(
    ("number", "following"),
    [
        (0, 5e-324),
        (1, 1.0000000000000002),
        (2**53, 2**53 + 1),
        (2**53 + 1, 2**53 + 2),
        (float(2**60), 2**60 + 1),
        (INT_MAX - 1, INT_MAX),
        (INT_MAX, float(2**63)),
        (float(2**63), float(2**63 + 2**11)),
        (INT_MIN, INT_MIN + 1),
        (-math.inf, -1.7976931348623157e308),
        (1.7976931348623157e308, math.inf),
        (math.inf, None),
    ],
)
def test_the_next_number_is_the_nearer_of_the_next_int_and_the_next_float(
    number: float, following: float | None
) -> None:
    assert next_number(number) == following


def test_a_prefix_is_a_stretch_of_the_line() -> None:
    for prefix in ("a", "ab", "\ud7ff", "a\U0010ffff", "\U0010ffff"):
        accepted = values.starting_with(prefix)
        assert len(accepted.cuts) == 2
        assert prefix in accepted
        assert prefix + "\U0010ffff" in accepted
        assert prefix[:-1] not in accepted


def test_no_string_lies_between_the_characters_around_the_surrogates() -> None:
    """U+E000 follows U+D7FF, so these two stretches are one."""
    below, above = values.starting_with("\ud7ff"), values.comparison(">=", "\ue000")

    assert below | above == values.comparison(">=", "\ud7ff")
