"""The value line: sets of attribute values and their exact algebra."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.model.filters import values
from sterna.model.filters.values import ValueSet, next_number, previous_number
from tests.scale import examples
from tests.strategies import booleans, comparison_signs, neighbours, numbers, scalars, strings

pytestmark = pytest.mark.spec("MOD-4")

simple = st.one_of(
    st.builds(values.comparison, comparison_signs, numbers),
    st.builds(values.comparison, comparison_signs, strings),
    st.builds(values.comparison, st.sampled_from(["=", "<>"]), booleans),
    st.builds(values.starting_with, strings),
    st.lists(numbers, max_size=4).map(values.members),
    st.sampled_from([values.NULL, values.PRESENT, values.ALL, values.NOTHING, values.NUMBERS]),
)
sets = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(ValueSet.__and__, inner, inner),
        st.builds(ValueSet.__or__, inner, inner),
        st.builds(ValueSet.__invert__, inner),
    ),
    max_leaves=6,
)
any_value = scalars | st.none()


@given(sets, sets, any_value)
@examples(3_000)
def test_the_algebra_is_that_of_sets(a: ValueSet, b: ValueSet, value: Scalar | None) -> None:
    assert (value in a & b) == (value in a and value in b)
    assert (value in a | b) == (value in a or value in b)
    assert (value in a - b) == (value in a and value not in b)
    assert (value in ~a) == (value not in a)


@given(sets, sets)
@examples(2_000)
def test_subsets_are_decided_exactly(a: ValueSet, b: ValueSet) -> None:
    outside = a - b
    assert a.overlaps(b) is bool(a & b)
    if a <= b:
        assert not outside
    else:
        witness = values.value_at(outside.cuts[0])
        assert witness in a
        assert witness not in b


@given(sets)
@examples(1_000)
def test_every_set_has_one_form(a: ValueSet) -> None:
    assert list(a.cuts) == sorted(set(a.cuts))
    assert ~~a == a
    assert a | ~a == values.ALL
    assert a & ~a == values.NOTHING


@given(numbers | neighbours(), numbers | neighbours())
@examples(2_000)
def test_nothing_lies_between_a_number_and_the_next(a: float, b: float) -> None:
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
