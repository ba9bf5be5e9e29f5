"""MOD-3: a bad filter gets one clear error; nothing else happens, and it happens quickly."""

import itertools
import pickle
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna import Filter, FilterError, merge
from sterna.model.filters.parser import LENGTH_MAX, MEMBERS_MAX
from tests.scale import examples, soon
from tests.strategies import BATCH, batches, filter_text

pytestmark = pytest.mark.spec("MOD-3")


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("", 1, 1, "the filter is empty"),
        ("price > AND x = 1", 1, 9, "expected a value, found 'AND'"),
        ("price >", 1, 8, "expected a value, found the end of the filter"),
        ("price 3", 1, 7, "expected AND, OR or the end of the filter, found '3'"),
        ("a = 1\n  AND b ==\n2", 2, 10, "equality is written ="),
        ("a != 1", 1, 3, "inequality is written <>"),
        ("a && b", 1, 3, "write AND"),
        ("a || b", 1, 3, "write OR"),
        ("name = 'bob", 1, 8, "no closing quote"),
        ('"name = 1', 1, 1, "no closing quote"),
        ("name = ’bob’", 1, 8, "is no quote here"),
        ("x = NULL", 1, 5, "IS NULL"),
        ("location = myloc", 1, 12, "write location IN myloc"),
        ("and = 1", 1, 1, 'an attribute of that name is written "and"'),
        ("(a = 1", 1, 7, "expected ')'"),
        ("a = 1)", 1, 6, "found ')'"),
        ("a IN ()", 1, 7, "there is nothing between the parentheses"),
        ("a IN (1, 'b')", 1, 10, "cannot mix numbers and strings"),
        ("a IN (b)", 1, 7, "an IN list holds constants"),
        ("a LIKE b", 1, 8, "expected a string, found 'b'"),
        ("a LIKE 'x!y' ESCAPE '!'", 1, 8, "must be followed by %, _ or itself"),
        ("a LIKE 'x' ESCAPE '!!'", 1, 19, "a single character"),
        ("5 LIKE 'x'", 1, 1, "LIKE takes the name of an attribute"),
        ("a MATCHES 'x/#/y'", 1, 11, "# must be alone on the last level"),
        ("a MATCHES 'x+'", 1, 11, "+ must be alone on its level"),
        ("a MATCHES ''", 1, 11, "not empty"),
        ("3", 1, 1, "expected a condition, found a number"),
        ("'text'", 1, 1, "expected a condition, found a string"),
        ("a + 1", 1, 1, "expected a condition, found a number"),
        ("a = (b = 1)", 1, 5, "expected a value to compare, found a condition"),
        ("a + 'x' = 1", 1, 5, "+ works on numbers"),
        ("-'x' = a", 1, 2, "a sign goes with numbers"),
        ("a + 1 = 'x'", 1, 1, "a number never compares with a string"),
        ("a < TRUE", 1, 3, "booleans have no order"),
        ("a BETWEEN 1 AND 'x'", 1, 1, "BETWEEN mixes numbers and strings"),
        ("a = 9223372036854775808", 1, 5, "does not fit in 64 bits"),
        ("a = 1e999", 1, 5, "outside the range"),
        ("a = 017", 1, 5, "octal or decimal"),
        ("a IN myloc(1.5)", 1, 12, "expected a whole number"),
        ("a IN myloc(1001)", 1, 12, "at most 1000 steps"),
        ("near(lat, lon, 91, 0, 5)", 1, 1, "latitudes go from -90 to 90"),
        ("near(lat, lon, 9, 0, -5)", 1, 1, "not negative"),
        ("near(lat, lon, 9)", 1, 1, "then latitude, longitude and metres"),
        ("a = 1 OR near(lat, lon, 9, 0, 5, 7)", 1, 10, "then latitude, longitude and metres"),
        ("within(lat, lon, 1, 2, 3)", 1, 1, "latitude, longitude pairs"),
        ("within(lat, lon, 9, 0, 5, 0)", 1, 1, "south-west and its north-east"),
        ("a = '\ud800'", 1, 5, "surrogate"),
        ("a = 1;", 1, 6, "one condition"),
    ],
)
def test_the_message_says_what_and_where(text: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter(text)

    assert (caught.value.line, caught.value.column) == (line, column)
    assert problem in caught.value.problem


def test_the_caret_points_at_the_place() -> None:
    with pytest.raises(FilterError) as caught:
        Filter("speed > 50\nAND lane === 2")

    assert str(caught.value) == (
        "line 2, column 11: expected a value, found '='; equality is written = and inequality <>\n"
        "  AND lane === 2\n"
        "            ^"
    )


def test_a_long_line_is_shown_around_the_place() -> None:
    with pytest.raises(FilterError) as caught:
        Filter("x IN (" + "1, " * 500 + "oops'")

    *_, excerpt, caret = str(caught.value).splitlines()
    assert len(excerpt) < 90
    assert excerpt[caret.index("^")] == "'"


def test_an_error_survives_pickling() -> None:
    with pytest.raises(FilterError) as caught:
        Filter("price + 1 = 'xxxxx'")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made one line above.

    assert str(again) == str(caught.value)
    assert (again.problem, again.column) == (caught.value.problem, caught.value.column)


# ---- Limits


def accepted(text: str) -> bool:
    """Whether it is a filter, and if so whether all can be done with it; else it is a failure."""
    with soon():
        try:
            parsed = Filter(text)
        except FilterError:
            return False
    if parsed.is_bound:
        other = Filter("other = 1")
        with soon():
            parsed.matches({})
        with soon():
            parsed.covers(parsed & other)
        with soon():
            parsed.overlaps(~parsed)
        with soon():
            merge([parsed, other], exact=False)
    with soon():
        assert Filter(str(parsed)) == parsed
    return True


NUMBERS_600 = ", ".join(map(str, range(600)))


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("(" * 5_000 + "a = 1" + ")" * 5_000, True),
        ("(" * 100_000, False),
        ("NOT " * 50_000 + "a", False),
        ("- " * 50_000 + "a = 1", False),
        ("a" + " + 1" * 50_000 + " = 1", False),
        ("a = 1" + " AND a = 1" * 5_000, True),
        (" OR ".join(f"a = {i}" for i in range(5_000)), True),
        (" AND ".join(f"a <> {i}" for i in range(5_000)), True),
        (" AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(500)), True),
        (" AND ".join(f"NOT (a{i} = 1 AND b{i} = 1)" for i in range(500)), True),
        ("(a AND (b OR " * 30 + "c" + "))" * 30, True),
        ("x IN (" + ", ".join(map(str, range(MEMBERS_MAX))) + ")", True),
        ("x IN (" + ", ".join(map(str, range(MEMBERS_MAX + 1))) + ")", False),
        ("x = '" + "a" * (LENGTH_MAX - 6) + "'", True),
        ("x = '" + "a" * 1_000_000 + "'", False),
        ("x LIKE '" + "%a" * 50_000 + "'", True),
        ("a" * 1_000_000, False),
        ("9" * 100_000 + " = x", False),
        ("0x" + "f" * 100_000 + " = x", False),
        ("\0" * 100, False),
        (" OR ".join(f"a{i}=1" for i in range(15_000)), True),
        (" OR ".join(f"a{i}=1" for i in range(22_000)), False),
        (" OR ".join(f"a{i} LIKE '%_'" for i in range(10_000)), True),
        (" AND ".join(f"a LIKE '%{i}_'" for i in range(10_000)), True),
        (" AND ".join("t MATCHES '" + "/".join(p) + "'" for p in product("+a", repeat=12)), True),
        (" OR ".join(f"x IN ({NUMBERS_600}) AND y{i} > 0" for i in range(60)), True),
        (" OR ".join(f"a = {i} AND b = {i}" for i in range(5_000)), True),
        ("a" + "+1" * 60 + " IN (" + ", ".join(map(str, range(MEMBERS_MAX))) + ")", True),
        ("x ıN (1)", False),
    ],
    ids=itertools.count(),
)
def test_extreme_filters_are_accepted_or_refused_quickly(text: str, fine: bool) -> None:
    assert accepted(text) is fine


def test_like_never_backtracks() -> None:
    evil = Filter("x LIKE '" + "%a" * 30 + "%b'")
    with soon():
        assert not evil.matches({"x": "a" * 100_000})
    with soon():
        assert not Filter("x LIKE '%" + "a" * 1_000 + "_b%'").matches({"x": "a" * 50_000})


# ---- Nonsense

PIECES = [
    *"()',\"$.+-*/<>=% \n\t_#!&;[]{}é😀\0",
    *["AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "MATCHES"],
    *["myloc", "near(", "within(", "price", "a.b", "$x", "'text'", '"q"', "0", "42", "1.5", "1e9"],
    *["<>", "<=", ">=", "''", "9223372036854775808", "0x", "1e400", "\ud800", "\u202e"],
]


def pieces(random: Random) -> str:
    return " ".join(random.choices(PIECES, k=random.randint(0, 12)))


@given(batches(pieces))
@examples(4_000 // BATCH)
def test_random_pieces_give_a_filter_or_a_filter_error(batch: list[tuple[str]]) -> None:
    for (text,) in batch:
        assert accepted(text) in (True, False)  # Any other exception is a failure.


@given(st.text(max_size=40))
@examples(2_000)
def test_random_text_gives_a_filter_or_a_filter_error(text: str) -> None:
    assert accepted(text) in (True, False)


def mutated(random: Random) -> str:
    letters = list(filter_text(random))
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(letters) + 1)
        match random.randrange(3):
            case 0:
                letters[place : place + random.randint(1, 5)] = []
            case 1:
                letters[place:place] = random.choice(PIECES)
            case _:
                letters[place:place] = letters[place : place + 8]
    return "".join(letters)


@given(batches(mutated))
@examples(4_000 // BATCH)
def test_mutated_filters_give_a_filter_or_a_filter_error(batch: list[tuple[str]]) -> None:
    for (text,) in batch:
        assert accepted(text) in (True, False)
