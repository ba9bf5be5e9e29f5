"""The texts of queue policies."""

import pytest

from sterna.model.event import Scalar
from sterna.model.queue_policies import (
    CHARACTERS_MAX,
    PolicyError,
    PolicyKind,
    parse_policy,
    policy_or_none,
)

FORMS = "write ttl(30s), last_per(attribute), max(expression), min(expression) or ring(100)"


@pytest.mark.spec("RE-3")
def test_the_five_forms() -> None:
    assert parse_policy("ttl(1.5h)").ttl_us == 5_400_000_000
    assert parse_policy(" RING ( 7 ) ").count == 7
    kinds = [parse_policy(text).kind for text in ("last_per(a.b)", 'max("a b" * 2)', "min(-x)")]
    assert kinds == [PolicyKind.LAST_PER, PolicyKind.MAX, PolicyKind.MIN]


@pytest.mark.spec("RE-3")
@pytest.mark.parametrize(
    ("policy", "attributes", "value"),
    [
        ("last_per(k)", {"k": "a"}, "a"),
        ("last_per(k)", {"k": True}, True),
        ("last_per(k + 1)", {"k": 1}, 2),
        ("last_per(k)", {}, None),
        ("last_per(k + 1)", {"k": "a"}, None),
        ("max(v * 2)", {"v": 1.5}, 3.0),
        ("max(v)", {"v": "high"}, None),
        ("max(v)", {"v": True}, None),
        ("min(v)", {"v": float("nan")}, None),
        ("last_per(v)", {"v": float("nan")}, None),
        ("min(a / b)", {"a": 1, "b": 0}, None),
        ("ring(3)", {"v": 1}, None),
    ],
)
def test_the_value_of_an_event(
    policy: str, attributes: dict[str, Scalar], value: Scalar | None
) -> None:
    found = parse_policy(policy).value(attributes)
    assert (type(found), found) == (type(value), value)


@pytest.mark.spec("RE-3")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not of the form name(…)"),
        ("ring", "it is not of the form name(…)"),
        ("latest(a)", "there is none of the name latest"),
        ("ttl(30)", "a time is written 500ms, 30s, 5m or 1h, not '30'"),
        ("ttl(0s)", "a time is written 500ms, 30s, 5m or 1h, not '0s'"),
        ("ttl(0.0001ms)", "a time is from 1 microsecond to ten years"),
        ("ttl(4000d)", "a time is from 1 microsecond to ten years"),
        ("ring(0)", "a ring has from 1 to 1,000,000,000 events"),
        ("ring(-1)", "a number of events is written 100, not '-1'"),
        ("ring(²)", "a number of events is written 100, not '²'"),
        ("last_per()", "column 10: the name of an attribute is missing"),
        ("max(a = 1)", "column 5: expected a value to compare, found a condition"),
        ("max( $x )", "column 6: there are no $variables here"),
        ("min(1 + 2)", "column 5: this is the same for all events; name an attribute"),
    ],
)
def test_what_is_no_policy_is_told_with_what_is_one(text: str, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    assert str(caught.value) == f"{text!r} is no queue policy: {problem}; {FORMS}"
    assert policy_or_none(text) is None


@pytest.mark.spec("RE-3")
def test_a_text_that_is_too_long_is_not_even_read() -> None:
    with pytest.raises(PolicyError, match="500 characters are the limit") as caught:
        parse_policy(f"max({' ' * CHARACTERS_MAX}v)")
    assert len(str(caught.value)) < 300
