"""MOD-7: what the parts of the index promise each other."""

import math
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna import Filter
from sterna.matching import tokens as tokens_module
from sterna.matching.checks import Checks
from sterna.matching.floats import floor
from sterna.matching.records import STRING, describe
from sterna.matching.tokens import Tokens, required
from sterna.model.event import Scalar
from sterna.model.filters import values
from sterna.model.filters.normal_form import normal_form, usual_form
from sterna.model.filters.values import ValueSet
from tests.scale import examples, soon
from tests.strategies import (
    BATCH,
    batches,
    boolean,
    exact_conjunction,
    filter_text,
    like_test,
    prefix,
    scalar,
    some_event,
    string,
    text_of,
    topic_test,
)

pytestmark = pytest.mark.spec("MOD-7")


def described(accepted: ValueSet, value: Scalar | None) -> bool:
    """Whether a value is in a set, according to its description."""
    what = describe(accepted)
    kind = values.cut_at(value)[0]
    if what.kinds >> kind & 1:
        return True
    if isinstance(value, str):
        listed = value in what.strings
        return listed != what.all_but if what.strings else False
    if value is None or isinstance(value, bool) or math.isnan(value):
        return False
    return any(low <= value <= high for low, high in what.ranges)


def any_value(random: Random) -> Scalar | None:
    return None if random.randrange(7) == 0 else scalar(random)


@given(batches(filter_text, any_value))
@examples(1500 // BATCH)
def test_a_description_says_what_the_set_says(batch: list[tuple[str, Scalar | None]]) -> None:
    for text, value in batch:
        sets = (term.constraints.values() for term in Filter(text).normal_form or ())
        for accepted in chain.from_iterable(sets):
            what = describe(accepted)
            if what.exact:
                assert described(accepted, value) == (value in accepted)
            else:
                assert what.kinds >> STRING & 1
                assert described(accepted, value) >= (value in accepted)


@given(number=st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False))
@examples(1000)
def test_floor_takes_a_number_apart_exactly(number: float) -> None:
    low, rest = floor(number)

    assert low <= number
    assert isinstance(low, float)
    if math.isfinite(low):
        assert int(low) + int(rest) == number if isinstance(number, int) else low == number
        assert rest == 0 or math.nextafter(low, math.inf) > number


def pattern_test(random: Random) -> str:
    return random.choice((like_test, topic_test, prefix))(random)


def some_string(random: Random) -> str:
    return string(random) if boolean(random) else text_of(random, "ab/é%_", 9)


@given(batches(pattern_test, some_string))
@examples(3000 // BATCH)
def test_what_matches_a_pattern_has_the_tokens_it_requires(batch: list[tuple[str, str]]) -> None:
    for text, value in batch:
        filter_ = Filter(text)
        if filter_.matches({filter_.attributes[0]: value}):
            check_tokens(filter_, value)


def check_tokens(filter_: Filter, value: str) -> None:
    (name,) = filter_.attributes
    for term in filter_.normal_form or ():
        for attribute, listed in required(term):
            tokens = Tokens()
            for number, token in enumerate(dict.fromkeys(listed)):
                tokens.add(token, number)
            assert attribute == name
            assert len(tokens.of(value)) == len(tokens)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a MATCHES '+/noise/#'", "x/noise"),
        ("a MATCHES 'city/+/noise/#'", "city/x/noise"),
        ("a MATCHES 'city/+/noise/#'", "city/x/noise/y"),
        ("a MATCHES 'city/#'", "city"),
        ("a MATCHES 'long/city/+'", "long/city/"),
        ("a LIKE 'city%street'", "citystreet"),
        ("a LIKE '%long!_city_%street!%' ESCAPE '!'", "a long_city street%"),
        ("a LIKE '_itycity%'", "xitycity"),
    ],
)
def test_long_patterns_require_no_more_than_they_say(text: str, value: str) -> None:
    filter_ = Filter(text)

    assert filter_.matches({"a": value})
    check_tokens(filter_, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a LIKE '%bonfar%'", ["bonfar"]),
        ("a LIKE '%on_ar%'", []),
        ("a LIKE '%tone_one'", ["ton", "one"]),
        ("a LIKE 'bon%'", ["\ud800bon", "bon"]),
        ("a MATCHES 'city/+/noise'", ["city/", "/noise", "\ud800city/"]),
        ("a MATCHES '+/#'", []),
    ],
)
def test_the_tokens_of_a_pattern(text: str, expected: list[str]) -> None:
    (term,) = Filter(text).normal_form or ()
    found = {token for _, tokens in required(term) for token in tokens}

    assert all(any(token in each for each in found) for token in expected), found
    assert bool(found) == bool(expected)


def test_a_token_that_many_patterns_ask_for_is_not_chosen() -> None:
    tokens = Tokens()
    tokens.rarest(["common", "others"])
    for k in range(20):
        count, _, token = tokens.rarest(["common", f"rare{k:02}"])
        assert (count, token) == (1, f"rare{k:02}")


def test_counting_tokens_stays_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are and however often they come, few are kept and few are moved."""
    monkeypatch.setattr(tokens_module, "COUNTED_MAX", 100)
    tokens = Tokens()
    with soon():
        for k in range(20_000):
            for _ in range(2):
                tokens.rarest([f"token {k} {part}" for part in range(5)])
    assert tokens.memory() < 100_000


@given(batches(filter_text, some_event))
@examples(1000 // BATCH)
def test_constraints_and_checks_together_are_the_filter(
    batch: list[tuple[str, dict[str, Scalar | None]]],
) -> None:
    for text, event in batch:
        check_constraints_and_checks(Filter(text), event)


def check_constraints_and_checks(filter_: Filter, event: dict[str, Scalar | None]) -> None:
    if filter_.normal_form is None:
        return
    verdicts = []
    for term in filter_.normal_form:
        left_open = tuple(
            n for n, accepted in term.constraints.items() if not describe(accepted).exact
        )
        held = all(described(accepted, event.get(n)) for n, accepted in term.constraints.items())
        verdicts.append(held and Checks(term, left_open)(event))
    assert any(verdicts) == filter_.matches(event)


@given(batches(exact_conjunction))
@examples(1000 // BATCH)
def test_the_quick_way_to_a_normal_form_leads_to_the_same(batch: list[tuple[str]]) -> None:
    for (text,) in batch:
        condition = Filter(text).condition
        quick = usual_form(condition)

        assert quick is None or quick == normal_form(condition), text
