"""Filters that are valid, and hardly what their authors mean."""

import pickle

import pytest

from sterna import Filter, FilterError
from sterna.model.filters.advice import advice

pytestmark = pytest.mark.spec("MOD-3")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ('service = "parking"', "service = 'parking'"),
        ('"service" = "parking" AND price < 3', "service = 'parking'"),
        ('NOT name <> "it\'s"', "name <> 'it''s'"),
        ("x BETWEEN 'a' AND \"m\"", "x BETWEEN 'a' AND 'm'"),
        ('a = 1 OR (b = 2 AND c >= "two words")', "c >= 'two words'"),
    ],
)
def test_a_string_in_double_quotes_is_noticed(text: str, right: str) -> None:
    (sentence,) = advice(Filter(text))

    assert sentence.endswith(f"a string is written in single quotes: {right}")


@pytest.mark.parametrize(
    "text",
    [
        "service = 'parking'",
        "speed > limit",
        "\"car-type\" = 'van'",
        "'van' = \"car-type\"",
        '"car-type" = type',
        'speed * 2 > "speed limit"',
        '$budget > "lowest price"',
        '"speed limit" IS NOT NULL AND speed > "speed limit"',
    ],
)
def test_what_is_meant_as_an_attribute_is_left_alone(text: str) -> None:
    assert advice(Filter(text)) == []


def test_each_place_gets_a_sentence() -> None:
    assert len(advice(Filter('a = "x" AND b = "y" AND x IS NULL'))) == 1
    assert len(advice(Filter('a = "x" AND b = "y"'))) == 2


@pytest.mark.parametrize("text", ['x IN ("a")', 'x LIKE "a"', 'x MATCHES "a"'])
def test_where_only_a_string_fits_the_error_says_how_to_write_it(text: str) -> None:
    with pytest.raises(FilterError, match="a string is written in single quotes: 'a'"):
        Filter(text)


def test_quotes_make_no_other_filter() -> None:
    plain, quoted = Filter("a = b"), Filter('"a" = "b"')

    assert (plain, hash(plain), str(plain), repr(plain.condition)) == (
        *(quoted, hash(quoted), str(quoted)),
        repr(quoted.condition),
    )
    again = pickle.loads(pickle.dumps(quoted))  # noqa: S301 - just made.
    assert advice(again) == advice(quoted) != []
