"""What a filter means: three-valued logic, read off the tree one node at a time.

This is the definition that the compiled test, the algebra and Spark are held against. It is also
what `explain` uses. None is UNKNOWN for conditions and NULL for values.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from sterna.model import geo
from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.model.filters import patterns
from sterna.model.filters.errors import UnboundError
from sterna.model.filters.tree import (
    Always,
    And,
    Arithmetic,
    Attribute,
    Between,
    Compare,
    Condition,
    Holds,
    In,
    InMyloc,
    IsNull,
    Like,
    Literal,
    Matches,
    Near,
    Negative,
    Not,
    Or,
    Value,
    Variable,
    Within,
)

Verdict = bool | None
"""TRUE, FALSE, or None for unknown."""

COMPARISONS: dict[str, Callable[..., Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The comparisons, for Python values and Spark columns alike."""


def evaluate(node: Condition, event: Mapping[str, Scalar | None]) -> Verdict:
    """TRUE, FALSE or UNKNOWN (None) for an event's attributes."""
    match node:
        case And(operands):
            return conjunction([evaluate(operand, event) for operand in operands])
        case Or(operands):
            return negate(conjunction([negate(evaluate(operand, event)) for operand in operands]))
        case Not(operand):
            return negate(evaluate(operand, event))
        case Always(verdict):
            return verdict
        case Holds(value):
            found = compute(value, event)
            return found if isinstance(found, bool) else None
        case Compare(sign, left, right):
            return compare(sign, compute(left, event), compute(right, event))
        case Between():
            return evaluate(node.bounds(), event)
        case In(value, members):
            found = compute(value, event)
            each = [compare("=", found, compute(member, event)) for member in members]
            return negate(conjunction([negate(verdict) for verdict in each]))
        case Like(value, pattern, escape):
            found = compute(value, event)
            test = patterns.like_test(patterns.like_segments(pattern, escape))
            return test(found) if isinstance(found, str) else None
        case Matches(value, topic):
            found = compute(value, event)
            return patterns.topic_test(topic)(found) if isinstance(found, str) else None
        case IsNull(value):
            return compute(value, event) is None
        case Near(lat, lon):
            return near_test(*node.circle())(compute(lat, event), compute(lon, event))
        case Within(lat, lon, corners):
            if len(corners) == 2:
                return evaluate(node.box(), event)
            return polygon_test(corners)(compute(lat, event), compute(lon, event))
        case InMyloc():
            raise UnboundError("the filter refers to myloc: bind it to a location first")


def compute(value: Value, event: Mapping[str, Scalar | None]) -> Scalar | None:
    """The value for an event's attributes, or None where there is none."""
    match value:
        case Literal(constant):
            return constant
        case Attribute(name):
            return event.get(name)
        case Negative(operand):
            return negative(compute(operand, event))
        case Arithmetic(sign, left, right):
            return ARITHMETIC[sign](compute(left, event), compute(right, event))
        case Variable(name):
            raise UnboundError(f"the filter refers to ${name}: bind it to a value first")


# ---- The operations, on values that may be missing or of the wrong kind


def conjunction(verdicts: list[Verdict]) -> Verdict:
    if False in verdicts:
        return False
    return None if None in verdicts else True


def negate(verdict: Verdict) -> Verdict:
    return None if verdict is None else not verdict


def compare(sign: str, a: Scalar | None, b: Scalar | None) -> Verdict:
    """UNKNOWN unless both are numbers, both strings, or both booleans tested for equality."""
    if isinstance(a, bool) or isinstance(b, bool):
        comparable = isinstance(a, bool) and isinstance(b, bool) and sign in ("=", "<>")
    elif isinstance(a, str) or isinstance(b, str):
        comparable = isinstance(a, str) and isinstance(b, str)
    else:  # NaN compares with nothing.
        comparable = a is not None and b is not None and a == a and b == b  # noqa: PLR0124
    return COMPARISONS[sign](a, b) if comparable else None


def number_in(value: Scalar | None, members: frozenset[Scalar]) -> Verdict:
    """Whether a computed number is in a list of numbers."""
    return value in members if is_number(value) else None


def is_number(value: Scalar | None) -> bool:
    """A number that compares: NaN does not."""
    return type(value) in (int, float) and value == value  # noqa: PLR0124


def _arithmetic(apply: Callable[..., int | float]) -> Callable[..., int | float | None]:
    """Exact on integers, in floats as soon as one side is a float; NULL beyond 64 bits."""

    def compute_numbers(a: Scalar | None, b: Scalar | None) -> int | float | None:
        if not (is_number(a) and is_number(b)):
            return None
        result = apply(a, b)
        if isinstance(result, int) and not INT_MIN <= result <= INT_MAX:
            return None
        return result

    return compute_numbers


def divide(a: Scalar | None, b: Scalar | None) -> float | None:
    """Always in floats; NULL by zero."""
    if not (is_number(a) and is_number(b)) or b == 0:
        return None
    return float(a) / float(b)  # type: ignore[arg-type]


def negative(value: Scalar | None) -> int | float | None:
    return ARITHMETIC["-"](0, value) if type(value) is int else _negative_float(value)


def _negative_float(value: Scalar | None) -> float | None:
    return -value if type(value) is float else None


ARITHMETIC: dict[str, Callable[..., int | float | None]] = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": divide,
}


# ---- Places


def near_test(
    centre: geo.Point, metres: float
) -> Callable[[Scalar | None, Scalar | None], Verdict]:
    limit = geo.haversine_limit(metres)
    reach = geo.latitude_reach(metres)

    def test(lat: Scalar | None, lon: Scalar | None) -> Verdict:
        if not is_position(lat, lon):
            return None
        # Most points are far: their latitude alone says so.
        if abs(lat - centre[0]) > reach:  # type: ignore[operator]
            return False
        return bool(geo.haversine(float(lat), float(lon), centre) <= limit)  # type: ignore[arg-type]

    return test


def polygon_test(
    corners: tuple[geo.Point, ...],
) -> Callable[[Scalar | None, Scalar | None], Verdict]:
    sides = geo.edges(corners)

    def test(lat: Scalar | None, lon: Scalar | None) -> Verdict:
        if not is_position(lat, lon):
            return None
        return geo.inside(sides, float(lat), float(lon))  # type: ignore[arg-type]

    return test


def is_position(lat: Scalar | None, lon: Scalar | None) -> bool:
    return (
        is_number(lat)
        and is_number(lon)
        and -90 <= lat <= 90  # type: ignore[operator]
        and -180 <= lon <= 180  # type: ignore[operator]
    )
