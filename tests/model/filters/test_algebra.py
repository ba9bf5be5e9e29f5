"""MOD-4: covers, overlaps and merge: sound for every filter, exact where exactness is promised."""

import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given

from sterna import Filter, merge
from sterna.model.event import Scalar
from sterna.model.filters import values
from sterna.model.filters.logic import evaluate
from sterna.model.filters.normal_form import NormalForm
from tests.scale import examples, soon
from tests.strategies import (
    exact_conjunctions,
    exact_texts,
    filter_text,
    filter_texts,
    seeded,
    several,
    sign,
    some_event,
)

pytestmark = pytest.mark.spec("MOD-4")

Event = dict[str, Scalar | None]


def edge_events(*forms: NormalForm | None) -> Iterable[Event]:
    """Events at the first and behind the last value of every stretch of every term."""
    for form in forms:
        for term in form or ():
            corners: dict[str, list[Scalar | None]] = {}
            for name, accepted in term.constraints.items():
                edges = [values.value_at(cut) for cut in accepted.cuts if cut != values.END]
                numbers = [
                    e for e in edges if isinstance(e, int | float) and not isinstance(e, bool)
                ]
                corners[name] = edges + [values.previous_number(n) for n in numbers]
            for position in range(max(map(len, corners.values()), default=0)):
                yield {name: edges[position % len(edges)] for name, edges in corners.items()}


# ---- Soundness


some_events = seeded(several(some_event, 3, 6))


@given(seeded(several(filter_text, 5)), some_events)
@examples(2_000)
def test_covers_and_overlaps_are_sound(texts: list[str], some: list[Event]) -> None:
    filters = [Filter(text) for text in texts]
    tried = [*some, *edge_events(*(f.normal_form for f in filters))]
    matched = [[f.matches(event) for event in tried] for f in filters]
    for (f, in_f), (g, in_g) in permutations(zip(filters, matched, strict=True), 2):
        both = [a and b for a, b in zip(in_f, in_g, strict=True)]
        assert both == in_g or not f.covers(g)
        overlaps = f.overlaps(g)
        assert overlaps == g.overlaps(f)
        assert overlaps or not any(both)


@given(seeded(several(filter_text, 1, 4)), some_events)
@examples(2_500)
def test_a_merge_covers_every_input_and_an_exact_one_nothing_else(
    texts: list[str], some: list[Event]
) -> None:
    filters = [Filter(text) for text in texts]
    exact, wide = merge(filters), merge(filters, exact=False)

    for event in [*some, *edge_events(*(f.normal_form for f in filters))]:
        wanted = any(f.matches(event) for f in filters)
        assert exact.matches(event) is wanted
        assert wide.matches(event) or not wanted
    assert Filter(str(exact)) == exact
    assert Filter(str(wide)) == wide


@given(filter_texts, some_events)
@examples(1_000)
def test_the_normal_form_in_words_means_the_same(text: str, some: list[Event]) -> None:
    f = Filter(text)
    reworded = merge([f])

    for event in [*some, *edge_events(f.normal_form)]:
        assert reworded.matches(event) is f.matches(event)


@given(filter_texts, filter_texts)
@examples(1_000)
def test_covering_is_reflexive_and_a_conjunction_is_covered(f_text: str, g_text: str) -> None:
    f, g = Filter(f_text), Filter(g_text)

    assert f.covers(f)
    if None not in (f.normal_form, (f & g).normal_form):
        assert f.covers(f & g)
        assert (f | g).covers(f) or (f | g).normal_form is None


# ---- Completeness, by an independent decision procedure

# Between, at and around all constants that the filters below can use, so that every region that
# such filters can tell apart has a representative here.
DOMAIN: tuple[Scalar | None, ...] = (
    *(None, True, False, float("nan")),
    *(-1, 0, 0.5, 1, 1.5, 2, 2.25, 2.5, 3),
    *("", "a", "aa", "ab", "abz", "ac", "az", "b", "ba", "c"),
)
SMALL_NUMBERS, SMALL_STRINGS = ("0", "1", "2", "2.5"), ("'a'", "'ab'", "'b'")


def small_test(random: Random) -> str:
    name, maybe_not = random.choice("xy"), random.choice(("", "NOT "))
    constants = random.choice((SMALL_NUMBERS, SMALL_STRINGS))
    one, other = random.choice(constants), random.choice(constants)
    match random.randrange(7):
        case 0 | 1 | 2:
            return f"{name} {sign(random)} {one}"
        case 3:
            return f"{name} {maybe_not}BETWEEN {one} AND {other}"
        case 4:
            return f"{name} {maybe_not}IN ({one}, {other})"
        case 5:
            return f"{name} {maybe_not}LIKE {random.choice(SMALL_STRINGS)[:-1]}%'"
        case _:
            return f"{name} = {random.choice(('TRUE', 'FALSE'))}"


small_conjunction = several(small_test, 1, 4)


def small_alternative(random: Random) -> list[str]:
    if random.random() < 0.5:
        return small_conjunction(random)
    return [f"{random.choice('xy')} IS {random.choice(('', 'NOT '))}NULL"]


Alternatives = list[list[str]]
"""The tests of a disjunction of conjunctions."""


def matching(alternatives: Alternatives) -> frozenset[int]:
    """Which events of the small domain match, by the definition of the language alone: all tests of
    a conjunction have to be true, and one alternative of a disjunction.
    """
    return frozenset().union(
        *(frozenset.intersection(*map(matching_test, tests)) for tests in alternatives)
    )


@cache
def matching_test(text: str) -> frozenset[int]:
    condition = Filter(text).condition
    return frozenset(
        position
        for position, (x, y) in enumerate(product(DOMAIN, DOMAIN))
        if evaluate(condition, {"x": x, "y": y}) is True
    )


@given(seeded(several(small_conjunction, 5)))
@examples(600)
def test_conjunctions_are_decided_exactly(conjunctions: list[list[str]]) -> None:
    check_exactly([[tests] for tests in conjunctions])


@given(seeded(several(several(small_alternative, 1, 3), 5)))
@examples(200)
def test_disjunctions_are_decided_exactly_too(disjunctions: list[Alternatives]) -> None:
    """More than is promised: alternatives are cut from each other until nothing is left."""
    check_exactly(disjunctions)


def check_exactly(all_: list[Alternatives]) -> None:
    """Each filter is compared with each, and the events that match with those that match."""
    decided = [(Filter(text_of(alternatives)), matching(alternatives)) for alternatives in all_]
    for (f, in_f), (g, in_g) in permutations(decided, 2):
        assert f.covers(g) is (in_g <= in_f)
        assert f.overlaps(g) is bool(in_f & in_g)


def text_of(alternatives: Alternatives) -> str:
    return " OR ".join(" AND ".join(tests) for tests in alternatives)


@given(exact_conjunctions, exact_conjunctions)
@examples(1_500)
def test_what_is_not_covered_has_a_witness(f_text: str, g_text: str) -> None:
    """Exactness over the full range of values: every "no" comes with an event that proves it."""
    f, g = Filter(f_text), Filter(g_text)
    assert f.normal_form is not None
    assert g.normal_form is not None
    if not f.covers(g):
        pieces = list(g.normal_form)
        for term in f.normal_form:
            pieces = [rest for piece in pieces for rest in piece.without(term)]
        witness = {
            name: values.value_at(accepted.cuts[0])
            for name, accepted in pieces[0].constraints.items()
        }
        assert g.matches(witness)
        assert not f.matches(witness)
    if f.overlaps(g):
        met = [a.meet(b) for a in f.normal_form for b in g.normal_form]
        (both, *_) = (term for term in met if term is not None)
        witness = {
            name: values.value_at(accepted.cuts[0]) for name, accepted in both.constraints.items()
        }
        assert f.matches(witness)
        assert g.matches(witness)


@given(exact_texts)
@examples(500)
def test_a_filter_and_its_negation_never_overlap(text: str) -> None:
    f = Filter(text)

    assert not f.overlaps(~f)


# ---- Cases worth naming


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("x > 1", "x >= 1.0000000000000002"),
        ("x >= 1", "x = 1.0"),
        ("x < 9007199254740993", "x <= 9007199254740992.0"),
        ("x IS NOT NULL", "x > 1"),
        ("x >= ''", "x LIKE 'a%'"),
        ("x LIKE 'a%'", "x LIKE 'ab%'"),
        ("x LIKE 'a%'", "x LIKE 'a%b_c'"),
        ("x LIKE 'a%'", "x BETWEEN 'ab' AND 'ac'"),
        ("x LIKE '%'", "x = 'a'"),
        ("x NOT LIKE 'b%'", "x LIKE 'a_'"),
        ("x < 5 OR x > 3", "x BETWEEN 0 AND 9"),
        ("x < 5 AND y < 5 OR x >= 5 OR y >= 5", "x > 0 AND y > 0"),
        ("x IN (1, 2, 3)", "x IN (3, 1)"),
        ("x <> 1", "x > 1"),
        ("TRUE", "x = 1"),
        ("x = 1", "FALSE"),
        ("x = 1", "x = 1 AND x = 2"),
        ("topic MATCHES 'a/#'", "topic MATCHES 'a/+/c'"),
        ("topic MATCHES 'a/#'", "topic = 'a'"),
        ("topic MATCHES 'a/+/c'", "topic MATCHES 'a/+/c' AND x = 1"),
        ("topic MATCHES 'a/+/#'", "topic MATCHES 'a/+/c'"),
        ("within(lat, lon, 0, 0, 10, 10)", "within(lat, lon, 1, 1, 2, 2)"),
        ("lat BETWEEN 0 AND 2", "within(lat, lon, 0, 0, 2, 0, 2, 2)"),
        ("lat < 53", "near(lat, lon, 52, 13, 1000)"),
        ("a + b > 3", "a + b > 3 AND c = 1"),
        ("a IS NOT NULL", "a + b > 3"),
        ("x = TRUE", "x"),
        ("a < b", "b > a AND c = 1"),
    ],
)
def test_covers(wide: str, narrow: str) -> None:
    assert Filter(wide).covers(Filter(narrow))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x < 1", "x >= 1"),
        ("x > 1", "x < 1.0000000000000002"),
        ("x > 9007199254740992", "x < 9007199254740993"),
        ("x = 'a'", "x = 1"),
        ("x LIKE 'a%'", "x LIKE 'b%'"),
        ("x > 'a'", "x < 'a' OR x = 1"),
        ("x IS NULL", "x = 1"),
        ("x", "NOT x"),
        ("topic MATCHES 'a/+'", "topic MATCHES 'b/+'"),
        ("topic MATCHES 'a/+/c'", "topic MATCHES 'a/+/d'"),
        ("topic MATCHES '+/x'", "topic MATCHES '$SYS/#'"),
        ("near(lat, lon, 52, 13, 1000)", "lat < 51"),
        ("a < b", "NOT a < b"),
        ("a < b", "b <= a"),
    ],
)
def test_do_not_overlap(one: str, other: str) -> None:
    assert not Filter(one).overlaps(Filter(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a < b", "a = 'x'"),
        ("a = b", "a = TRUE AND b"),
        ("a + b > 3", "a < 0"),
        ("a LIKE '%x'", "a LIKE 'x%'"),
        ("a LIKE '_b%'", "a = 'ab'"),
        ("NOT a LIKE '%x'", "a = 'y'"),
        ("topic MATCHES 'a/+'", "topic MATCHES '+/b'"),
        ("near(lat, lon, 52, 13, 1000)", "lat = 52.001"),
        ("NOT near(lat, lon, 52, 13, 1000)", "lat = 52 AND lon = 13"),
    ],
)
def test_what_may_overlap_is_never_denied(one: str, other: str) -> None:
    assert Filter(one).overlaps(Filter(other))


@pytest.mark.parametrize(
    ("inputs", "merged"),
    [
        (["x = 1", "x = 2"], "x IN (1, 2)"),
        (["x < 5", "x >= 5"], "x <= 0 OR x > 0"),
        (["x BETWEEN 0 AND 3", "x BETWEEN 2 AND 9"], "x BETWEEN 0 AND 9"),
        (["x <= 1", "x < 2"], "x < 2"),
        (["x = 1 AND y = 2", "x = 1 AND y = 3"], "x = 1 AND y IN (2, 3)"),
        (["x = 1", "x = 1 AND y = 3"], "x = 1"),
        (["x LIKE 'a%'", "x LIKE 'ab%'"], "x LIKE 'a%'"),
        (["x <> 5"], "x <> 5"),
        (["x NOT IN (5, 6)"], "x NOT IN (5, 6)"),
        (["x LIKE '5!%%' ESCAPE '!'"], "x LIKE '5\\%%' ESCAPE '\\'"),
        (["x IS NULL", "x IS NOT NULL"], "TRUE"),
        (["x = 1 AND x = 2"], "FALSE"),
        (["a < b AND c = 1", "a < b AND c = 2"], "c IN (1, 2) AND a < b"),
    ],
)
def test_perfect_merging(inputs: list[str], merged: str) -> None:
    assert str(merge(Filter(text) for text in inputs)) == merged


def test_imperfect_merging_is_bounded() -> None:
    """Only new combinations come in: each attribute keeps to values that some input accepts."""
    wide = merge(
        [Filter("x = 1 AND y = 1"), Filter("x = 2 AND y = 2"), Filter("z > 9")], exact=False
    )

    assert str(wide) == "x IN (1, 2) AND y IN (1, 2) OR z > 9"


def test_merging_nothing_matches_nothing() -> None:
    assert merge([]) == Filter("FALSE")


PROGRAM = """
from sterna import Filter, merge
filters = [Filter(f"n{i % 5} = {i} AND s LIKE 'a{i % 3}%' AND a < b") for i in range(40)]
print(merge(filters), merge(filters, exact=False), merge([~f for f in filters[:3]]))
"""


def test_the_same_filters_give_the_same_text_under_every_hash_seed() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(texts) == 1


# ---- Limits


def alternatives(count: int) -> str:
    return " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(count))


def test_beyond_the_limit_of_the_normal_form_the_answer_is_safe_and_quick() -> None:
    with soon():
        huge, one = Filter(alternatives(40)), Filter("a0 = 1")

        assert huge.normal_form is None
        assert huge.covers(huge)
        assert not one.covers(huge)
        assert not huge.covers(one)
        assert huge.overlaps(one)
        assert merge([huge, one]).matches({"a0": 1})
        assert merge([huge, one], exact=False).matches({"a0": 1})
        assert Filter("TRUE").covers(huge)
        assert not Filter("FALSE").overlaps(huge)


def test_cutting_many_alternatives_from_each_other_ends_soon() -> None:
    grid = " OR ".join(f"a{i} > {i} AND b{i} < {i} AND c{i} <> {i}" for i in range(60))
    with soon():
        assert not Filter(grid).covers(Filter("z IS NULL"))


def test_a_verdict_tells_no_from_not_sure() -> None:
    bricks = (
        "x >= 0 AND x < 2 AND y >= 0 AND y < 1 OR x >= 2 AND x < 3 AND y >= 0 AND y < 2 OR "
        "x >= 1 AND x < 3 AND y >= 2 AND y < 3 OR x >= 0 AND x < 1 AND y >= 1 AND y < 3 OR "
        "x >= 1 AND x < 2 AND y >= 1 AND y < 2"
    )
    unrelated = " OR ".join(f"a{i} = 1 AND b{i} = 2 AND c{i} = 3" for i in range(30))
    square = Filter("x >= 0 AND x < 3 AND y >= 0 AND y < 3")

    assert Filter(f"{unrelated} OR {bricks}").covers(square)
    assert Filter("x > 2").covers_verdict(Filter("x > 1")) is False
    assert Filter("x + 1 > 2").covers_verdict(Filter("x > 1")) is None
    assert Filter("x > 2 OR y + 1 > 2").covers_verdict(Filter("x > 1 AND y IS NULL")) is False
    assert Filter(alternatives(40)).covers_verdict(square) is None
    assert Filter("x > 2").overlaps_verdict(Filter("x > 1")) is True
    assert Filter("x LIKE '%a'").overlaps_verdict(Filter("x LIKE '%b'")) is None
    assert Filter("x LIKE '%a'").overlaps_verdict(Filter("x = 1")) is False


def test_near_the_antipode_the_algebra_is_never_narrower_than_the_test() -> None:
    """Around the opposite side of the globe a haversine cannot tell neighbours apart."""
    near = Filter("near(lat, lon, 90, 0, 20015114.222648636)")
    event = {"lat": -89.99999820800544, "lon": 0.0}

    assert near.matches(event)
    assert near.overlaps(Filter("lat = -89.99999820800544 AND lon = 0"))
    assert not Filter("lat >= -89.99999820800542").covers(near)


def test_every_question_is_answered_soon() -> None:
    def lists(start: int, name: str) -> Filter:
        members = ", ".join(map(str, range(start, 7_200, 2)))
        return Filter(
            f"x IN ({members}) AND (" + " OR ".join(f"{name}{i} = 1" for i in range(64)) + ")"
        )

    even, odd = lists(0, "a"), lists(1, "b")
    with soon():
        assert even.overlaps_verdict(odd) is None
        assert even.covers_verdict(odd) in (None, False)


def test_a_merge_covers_its_inputs_however_many_there_are() -> None:
    filters = [Filter(f"a = {i} AND b = {i}") for i in range(300)]
    merged = merge(filters)

    assert all(merged.covers(f) for f in filters)
    assert not merged.covers(Filter("a = 1 AND b = 2"))
    assert not merged.overlaps(Filter("a = 1 AND b = 2"))


def test_a_merge_of_very_many_filters_stays_one_list() -> None:
    with soon(20):
        merged = merge(Filter(f"x = {i} AND y = 'a'") for i in range(2_000))

        assert merged.normal_form is not None
        assert len(merged.normal_form) == 1
        assert merged.matches({"x": 1_999, "y": "a"})
