"""MOD-2: the rules of JMS message selectors, one test each, and what goes beyond them."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given

from sterna import Filter, FilterError
from sterna.model.event import Scalar
from sterna.model.filters import tree
from sterna.model.filters.parser import DEPTH_MAX, LENGTH_MAX
from sterna.model.filters.tree import Literal
from tests.scale import examples
from tests.strategies import BATCH, batches, filter_text, some_event

pytestmark = pytest.mark.spec("MOD-2")

Event = dict[str, Scalar | None]

TRUTH: dict[str, bool | None] = {"t": True, "f": False, "u": None}


def verdict(text: str, **attributes: Scalar | None) -> bool | None:
    """The three-valued verdict, after checking that the compiled test agrees with it."""
    parsed = Filter(text)
    found = parsed.verdict(attributes)
    assert parsed.matches(attributes) is (found is True)
    return found


# ---- Three-valued logic (JMS 3.8.1.2, Tables 3-4 to 3-6)


@pytest.mark.parametrize(("a", "b"), list(product(TRUTH, TRUTH)))
def test_truth_tables(a: str, b: str) -> None:
    x, y = TRUTH[a], TRUTH[b]
    attributes: Event = {"x": x, "y": y}
    both = False if False in (x, y) else None if None in (x, y) else True
    either = True if True in (x, y) else None if None in (x, y) else False

    assert verdict("x AND y", **attributes) is both
    assert verdict("x OR y", **attributes) is either
    assert verdict("NOT x", **attributes) is (None if x is None else not x)


def test_an_event_matches_only_on_true() -> None:
    assert not Filter("price > 10").matches({})
    assert not Filter("NOT price > 10").matches({})
    assert not Filter("price > 10 OR NOT price > 10").matches({})


@given(batches(filter_text, some_event))
@examples(5_000 // BATCH)
def test_the_compiled_test_is_true_exactly_where_the_definition_is(
    batch: list[tuple[str, Event]],
) -> None:
    for text, event in batch:
        parsed = Filter(text)

        assert parsed.matches(event) is (parsed.verdict(event) is True), (text, event)


@given(batches(filter_text, some_event))
@examples(1_000 // BATCH)
def test_a_negated_filter_is_true_where_the_filter_is_false(
    batch: list[tuple[str, Event]],
) -> None:
    for text, event in batch:
        parsed = Filter(text)

        assert (~parsed).matches(event) is (parsed.verdict(event) is False), (text, event)


# ---- Precedence


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a OR b AND c", "a OR (b AND c)"),
        ("NOT a AND b", "(NOT a) AND b"),
        ("NOT a = b", "NOT (a = b)"),
        ("x + 2 * 3 = 7", "x + (2 * 3) = 7"),
        ("x - 1 - 1 = 0", "(x - 1) - 1 = 0"),
        ("x / 2 * 3 = 3", "(x / 2) * 3 = 3"),
        ("-x + 1 < 0", "(-x) + 1 < 0"),
        ("a BETWEEN 1 AND 2 AND b", "(a BETWEEN 1 AND 2) AND b"),
        ("a = 1 OR b = 2 AND NOT c = 3", "(a = 1) OR ((b = 2) AND (NOT (c = 3)))"),
    ],
)
def test_precedence(text: str, meaning: str) -> None:
    assert Filter(text) == Filter(meaning)


def test_parentheses_change_the_order() -> None:
    assert Filter("(a OR b) AND c") != Filter("a OR b AND c")
    assert verdict("(x + 2) * 3 = 9", x=1)


def test_parentheses_open_conditions_and_values_alike() -> None:
    assert verdict("((x) + (1)) > (2) AND ((x > 1))", x=2)


# ---- Comparisons


@pytest.mark.parametrize(
    ("sign", "below", "equal", "above"),
    [
        ("=", False, True, False),
        ("<>", True, False, True),
        ("<", True, False, False),
        ("<=", True, True, False),
        (">", False, False, True),
        (">=", False, True, True),
    ],
)
def test_comparisons(sign: str, below: bool, equal: bool, above: bool) -> None:
    for low, middle, high in ((1, 2, 3), (1.0, 2, 2.5), ("a", "b", "ba")):
        text = f"x {sign} {middle if middle != 'b' else repr(middle)}"
        assert [verdict(text, x=x) for x in (low, middle, high)] == [below, equal, above]


def test_numbers_compare_across_int_and_float() -> None:
    assert verdict("x = 3", x=3.0)
    assert verdict("x = 3.0", x=3)
    assert verdict("x < 3.5", x=3)
    assert verdict("x = 0", x=-0.0)


def test_numbers_compare_exactly_beyond_the_precision_of_floats() -> None:
    assert verdict("x > 9007199254740992.0", x=2**53 + 1)
    assert verdict("x = 9007199254740993", x=float(2**53)) is False
    assert verdict("x < 9223372036854775808.0", x=2**63 - 1)


def test_values_of_different_kinds_do_not_compare() -> None:
    """No coercion: the comparison is UNKNOWN, and so is its negation."""
    mismatches: list[tuple[str, Scalar]] = [
        ("x = '1'", 1),
        ("x <> '1'", 1),
        ("x = 1", "1"),
        ("x < 1", "0"),
        ("x = 1", True),
        ("x <> 0", True),
        ("x = TRUE", 1),
        ("x <> TRUE", "TRUE"),
        ("x IN (1, 2)", True),
        ("x NOT IN ('a')", 1),
        ("x BETWEEN 0 AND 2", True),
        ("x LIKE '1%'", 1),
        ("x MATCHES '#'", 1),
        ("x", 1),
    ]
    for text, value in mismatches:
        assert verdict(text, x=value) is None, text
        assert verdict(f"NOT ({text})", x=value) is None, text


def test_nan_compares_with_nothing() -> None:
    for text in ("x = 1", "x <> 1", "x < 1", "x >= 1", "x = x", "x BETWEEN 0 AND 9", "x IN (1)"):
        assert verdict(text, x=math.nan) is None, text
    assert verdict("x IS NOT NULL", x=math.nan)


def test_infinity_is_the_largest_number() -> None:
    assert verdict("x > 1.7976931348623157e308", x=math.inf)
    assert verdict("x < -9223372036854775808", x=-math.inf)


def test_two_attributes_compare() -> None:
    assert verdict("a < b", a=1, b=1.5)
    assert verdict("a = b", a="x", b="x")
    assert verdict("a = b", a=True, b=True)
    assert verdict("a < b", a=False, b=True) is None
    assert verdict("a = b", a="1", b=1) is None
    assert verdict("a = b", a=1) is None


def test_a_constant_may_stand_on_the_left() -> None:
    assert Filter("10 < price") == Filter("price > 10")
    assert Filter("'a' = x") == Filter("x = 'a'")


def test_strings_order_by_code_point() -> None:
    assert verdict("x < 'a'", x="Z")
    assert verdict("x > '\uffff'", x="😀")
    assert verdict("x > 'ab'", x="abc")


# ---- Literals


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("57", 57),
        ("-957", -957),
        ("+62", 62),
        ("0x1F", 31),
        ("42L", 42),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("7E3", 7000.0),
        ("-57.9E2", -5790.0),
        ("7.", 7.0),
        ("-95.7", -95.7),
        ("+6.2", 6.2),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("'literal'", "literal"),
        ("'literal''s'", "literal's"),
        ("''", ""),
        ("TRUE", True),
        ("false", False),
    ],
)
def test_exact_and_approximate_literals(text: str, value: Scalar) -> None:
    condition = Filter(f"x = {text}").condition

    assert condition.right == Literal(value)  # type: ignore[union-attr]


def test_keywords_in_any_case_attributes_as_written() -> None:
    assert Filter("x Is NoT nUlL aNd y LiKe 'A%'") == Filter("x IS NOT NULL AND y LIKE 'A%'")
    assert Filter("Price > 1") != Filter("price > 1")
    assert verdict("Price > 1", price=2) is None


def test_dotted_and_quoted_identifiers() -> None:
    assert verdict("vehicle.speed > 50", **{"vehicle.speed": 60})
    assert verdict("\"car-type\" = 'compact'", **{"car-type": "compact"})
    assert verdict('"say ""hi""" = 1', **{'say "hi"': 1})
    assert verdict('"and" = 1', **{"and": 1})
    assert verdict("größe_2 = 1", größe_2=1)
    assert verdict("near = 1 AND within = 2", near=1, within=2)


# ---- BETWEEN, IN, LIKE, IS NULL


def test_between_includes_both_ends() -> None:
    assert [verdict("x BETWEEN 15 AND 19", x=x) for x in (14, 15, 19, 20)] == [
        False,
        True,
        True,
        False,
    ]
    assert verdict("x NOT BETWEEN 15 AND 19", x=20)
    assert verdict("x BETWEEN 'b' AND 'd'", x="cat")
    assert verdict("x BETWEEN 3 AND 1", x=2) is False


def test_between_with_one_unknown_bound() -> None:
    assert verdict("x BETWEEN low AND 10", x=5) is None
    assert verdict("x BETWEEN low AND 10", x=11) is False


def test_in_over_strings_and_numbers() -> None:
    assert verdict("country IN ('UK', 'US', 'France')", country="UK")
    assert verdict("country IN ('UK', 'US', 'France')", country="Peru") is False
    assert verdict("country NOT IN ('UK', 'US')", country="Peru")
    assert verdict("country IN ('UK')") is None
    assert verdict("n IN (1, 2.5)", n=2.5)
    assert verdict("n IN (1, 2.5)", n=1.0)
    assert verdict("n NOT IN (1, 2.5)", n=3)
    assert verdict("n + 1 IN (3)", n=2)
    assert verdict("on IN (TRUE)", on=True)
    assert verdict("'a' IN ('a', 'b')") is True
    assert verdict("1 + 1 IN (3)") is False
    assert verdict("n * 2 NOT IN (3, 5)", n="x") is None


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("phone LIKE '12%3'", ["123", "12993"], ["1234"]),
        ("word LIKE 'l_se'", ["lose"], ["loose", "lse"]),
        ("underscored LIKE '\\_%' ESCAPE '\\'", ["_foo"], ["bar"]),
        ("phone LIKE '%'", ["", "any\nthing"], []),
        ("phone LIKE '_%_'", ["ab", "abc", "😀é"], ["a", "😀", ""]),
        ("phone LIKE '%a%b%'", ["ab", "xaxbx"], ["ba"]),
        ("phone LIKE 'a!%!!' ESCAPE '!'", ["a%!"], ["a%", "ab!"]),
        ("phone LIKE 'A%'", ["Abc"], ["abc"]),
        ("phone LIKE '.*'", [".*"], ["ab"]),
    ],
)
def test_like(text: str, yes: list[str], no: list[str]) -> None:
    name = Filter(text).attributes[0]
    assert [verdict(text, **{name: value}) for value in yes] == [True] * len(yes)
    assert [verdict(text, **{name: value}) for value in no] == [False] * len(no)
    assert verdict(text) is None


def test_is_null_is_never_unknown() -> None:
    assert verdict("x IS NULL") is True
    assert verdict("x IS NULL", x=None) is True
    assert verdict("x IS NOT NULL") is False
    assert verdict("x IS NOT NULL", x="") is True


# ---- Arithmetic


def test_arithmetic_is_exact_on_integers() -> None:
    assert verdict("x + 1 = 9007199254740993", x=2**53)
    assert verdict("x * y = 6", x=2, y=3)
    assert verdict("x - y < 0", x=2, y=3)
    assert verdict("-x = 5", x=-5)
    assert verdict("x / 2 = 1.5", x=3)


def test_arithmetic_without_a_result_is_null() -> None:
    assert verdict("x / 0 = 0", x=1) is None
    assert verdict("x / 0.0 > 1", x=1) is None
    assert verdict("x + 1 > 0", x=2**63 - 1) is None
    assert verdict("-x > 0", x=-(2**63)) is None
    assert verdict("x * 2 > 0", x=2**62) is None
    assert verdict("x + 1 > 0", x="1") is None
    assert verdict("x + 1 > 0", x=True) is None
    assert verdict("x - x = 0", x=math.inf) is None
    assert verdict("x + y = 1", x=1) is None


def test_floats_take_over_as_soon_as_one_side_is_one() -> None:
    assert verdict("x + 1.0 > 9e18", x=2**63 - 1)
    assert verdict("x * 2 > 1e308", x=1e308)


# ---- Extensions


@pytest.mark.parametrize(
    ("topic", "yes", "no"),
    [
        ("fleet/+/speed", ["fleet/7/speed", "fleet//speed"], ["fleet/7/8/speed", "fleet/speed"]),
        ("fleet/#", ["fleet", "fleet/7", "fleet/7/speed"], ["fleets", "Fleet/7"]),
        ("#", ["a", "/a", "a/b", ""], ["$SYS/load"]),
        ("+", ["a", ""], ["a/b", "$SYS"]),
        ("+/+", ["a/b", "/b"], ["a", "$SYS/load"]),
        ("$SYS/#", ["$SYS", "$SYS/load"], ["SYS/load"]),
        ("a/b", ["a/b"], ["a/b/", "a"]),
        ("+/b/#", ["a/b", "a/b/c"], ["a", "a/c/b"]),
    ],
)
def test_topics_match_as_in_mqtt(topic: str, yes: list[str], no: list[str]) -> None:
    text = f"topic MATCHES '{topic}'"
    assert [verdict(text, topic=value) for value in yes] == [True] * len(yes)
    assert [verdict(text, topic=value) for value in no] == [False] * len(no)


def test_values_of_other_libraries_are_understood() -> None:
    parsed = Filter("speed > 50 AND lane = 2 AND name LIKE 'a%' AND on")
    values = {
        "speed": np.float64(60),
        "lane": np.int8(2),
        "name": np.str_("abc"),
        "on": np.bool_(1),
    }

    assert parsed.matches(values)  # type: ignore[arg-type]
    assert parsed.verdict(values) is True  # type: ignore[arg-type]


def test_values_that_no_event_can_carry_are_an_error() -> None:
    with pytest.raises(TypeError, match="attribute 'speed' is a list"):
        Filter("speed > 50").matches({"speed": [60]})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="attribute 'speed' is a bytes"):
        Filter("speed > 50").verdict({"speed": b"60"})  # type: ignore[dict-item]


# ---- Text


@given(batches(filter_text))
@examples(2_000 // BATCH)
def test_the_text_of_a_filter_parses_back_to_an_equal_filter(batch: list[tuple[str]]) -> None:
    for (text,) in batch:
        parsed = Filter(text)
        again = Filter(str(parsed))

        assert again == parsed
        assert hash(again) == hash(parsed)


def test_literals_of_different_types_make_different_filters() -> None:
    assert len({Filter("x = 1"), Filter("x = 1.0"), Filter("x = TRUE"), Filter("x = '1'")}) == 4


# ---- What is made in Python can be read


def is_parsed(filter_: Filter) -> bool:
    try:
        return Filter(str(filter_)) == filter_
    except FilterError:
        return False


A = tree.Attribute("a")
DEEPEST: list[tree.Value] = [
    tree.Literal(1),
    tree.Literal(-1),
    tree.Literal(-0.5),
    A,
    tree.Negative(A),
]
MADE_OF_VALUES: list[Callable[[tree.Value], tree.Condition]] = [
    lambda value: tree.Compare(">", tree.Arithmetic("*", A, value), tree.Literal(-3)),
    lambda value: tree.In(tree.Arithmetic("-", A, value), (tree.Literal(-1), tree.Literal(2))),
    lambda value: tree.negation(tree.In(tree.Arithmetic("-", A, value), (tree.Literal(2),))),
    lambda value: tree.Between(A, value, tree.Literal(5)),
    lambda _: tree.IsNull(A),
    lambda _: tree.Holds(A),
]


def nested(value: tree.Value, times: int) -> tree.Value:
    """A value in so many operations."""
    for _ in range(times):
        value = tree.Arithmetic("+", A, value)
    return value


def joined(condition: tree.Condition, times: int) -> tree.Condition:
    """A condition in so many others, as the parser would make it."""
    other = tree.Matches(tree.Attribute("t"), "a/+")
    for number in range(times):
        join = tree.conjunction if number % 2 else tree.disjunction
        condition = tree.negation(condition) if number % 7 == 6 else join([other, condition])
    return condition


@pytest.mark.parametrize("make", MADE_OF_VALUES)
@pytest.mark.parametrize("leaf", DEEPEST, ids=str)
@pytest.mark.parametrize("is_joined", [False, True])
def test_a_filter_knows_whether_it_can_be_read(
    make: Callable[[tree.Value], tree.Condition], leaf: tree.Value, is_joined: bool
) -> None:
    """Up to one depth it can, and beyond it cannot."""
    found = []
    for more in range(DEPTH_MAX - 6, DEPTH_MAX + 3):
        condition = joined(make(leaf), more) if is_joined else make(nested(leaf, more))
        filter_ = Filter.from_condition(condition)
        assert filter_.is_readable is is_parsed(filter_)
        found.append(filter_.is_readable)
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(("more", "readable"), [(0, True), (1, False)])
def test_a_filter_may_be_as_long_as_the_parser_accepts(more: int, readable: bool) -> None:
    text = "a = '" + "x" * (LENGTH_MAX - len("a = ''") + more) + "'"
    filter_ = Filter.from_condition(
        tree.Compare("=", tree.Attribute("a"), tree.Literal(text[5:-1]))
    )
    assert str(filter_) == text
    assert filter_.is_readable is readable is is_parsed(filter_)
