"""Terms and value sets in words: from a normal form back to a filter that people can read."""

import math
from collections.abc import Iterator

from sterna.model.event import Scalar
from sterna.model.filters import values
from sterna.model.filters.normal_form import NormalForm, Term, implied
from sterna.model.filters.parser import MEMBERS_MAX
from sterna.model.filters.tree import (
    And,
    Attribute,
    Between,
    Compare,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    conjunction,
    disjunction,
    negation,
    write_scalar,
)
from sterna.model.filters.values import Cut, ValueSet


def in_words(terms: NormalForm) -> Condition:
    """A condition that is TRUE exactly where one of the terms is."""
    return disjunction([term_in_words(term) for term in terms])


def term_in_words(term: Term) -> Condition:
    parts = []
    residuals = [implied(residual) for residual in term.residuals]
    for name, accepted in sorted(term.constraints.items()):
        known = values.intersection(residual.accepts(name) for residual in residuals)
        if not known <= accepted:  # Otherwise a residual implies it already.
            parts.append(set_in_words(Attribute(name), accepted))
    return conjunction([*parts, *sorted(term.residuals, key=repr)])


def set_in_words(attribute: Attribute, accepted: ValueSet) -> Condition:
    """The condition that an attribute's value lies in a set."""
    if accepted == values.PRESENT:
        return Not(IsNull(attribute))
    alternatives: list[Condition] = []
    if accepted >= values.NULL:
        alternatives.append(IsNull(attribute))
    for kind in (values.BOOLEANS, values.NUMBERS, values.STRINGS):
        part = accepted & kind
        if part:
            alternatives.append(_one_kind(attribute, part, kind))
    return disjunction(alternatives)


def _one_kind(attribute: Attribute, part: ValueSet, kind: ValueSet) -> Condition:
    rest = kind - part
    if rest and len(rest.cuts) < len(part.cuts):
        match _stretches(attribute, rest):
            case Compare("=", left, right):
                return Compare("<>", left, right)
            case condition:
                return negation(condition)
    return _stretches(attribute, part)


def _stretches(attribute: Attribute, part: ValueSet) -> Condition:
    """Single values as one list, then one range for each other stretch."""
    points: list[Literal] = []
    ranges: list[Condition] = []
    for start, end in part.stretches():
        value = values.value_at(start)
        if value is not None and _writable(value) and values.cut_after(value) == end:
            points.append(Literal(value if isinstance(value, bool | str) else _neat(value)))
        elif (start, end) == (values.FALSE, values.NAN):
            points += [Literal(value=False), Literal(value=True)]
        else:
            ranges.append(_range(attribute, start, end))
    return disjunction([*_lists(attribute, points), *ranges])


def _lists(attribute: Attribute, points: list[Literal]) -> Iterator[Condition]:
    if len(points) == 1:
        yield Compare("=", attribute, points[0])
        return
    for i in range(0, len(points), MEMBERS_MAX):
        yield In(attribute, tuple(points[i : i + MEMBERS_MAX]))


def _range(attribute: Attribute, start: Cut, end: Cut) -> Condition:
    if start[0] == values.STRINGS_RANK:
        if start[1] and values.starting_with(start[1]).cuts == (start, end):
            return _prefix(attribute, start[1])
        bounds = _string_bounds(start, end)
    else:
        bounds = _number_bounds(start, end)
    if not bounds:  # All numbers.
        zero = Literal(0)
        return Or((Compare("<=", attribute, zero), Compare(">", attribute, zero)))
    if [sign for sign, _ in bounds] == [">=", "<="]:
        return Between(attribute, *(Literal(value) for _, value in bounds))
    conditions = tuple(Compare(sign, attribute, Literal(value)) for sign, value in bounds)
    return conditions[0] if len(conditions) == 1 else And(conditions)


def _prefix(attribute: Attribute, prefix: str) -> Condition:
    if not {"%", "_"} & set(prefix):
        return Like(attribute, prefix + "%")
    escaped = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return Like(attribute, escaped + "%", "\\")


def _string_bounds(start: Cut, end: Cut) -> list[tuple[str, Scalar]]:
    low: str = start[1]
    bounds: list[tuple[str, Scalar]] = [(">", low[:-1]) if low.endswith("\0") else (">=", low)]
    if end != values.END:
        high: str = end[1]
        bounds.append(("<=", high[:-1]) if high.endswith("\0") else ("<", high))
    return bounds


def _number_bounds(start: Cut, end: Cut) -> list[tuple[str, Scalar]]:
    bounds: list[tuple[str, Scalar]] = []
    if start != values.NUMBER:
        below = values.previous_number(start[1])
        bounds.append(_shortest((">=", start[1]), (">", below)))
    if end != values.STRING:
        last = values.previous_number(end[1])
        bounds.append(_shortest(("<", end[1]), ("<=", last)))
    return bounds


def _shortest(*choices: tuple[str, float | None]) -> tuple[str, Scalar]:
    """The bound that is shorter to write; `x <= 5` and `x < 5.000000000000001` are the same."""
    written = [
        (sign, _neat(value)) for sign, value in choices if value is not None and _writable(value)
    ]
    return min(written, key=lambda bound: len(write_scalar(bound[1])))


def _writable(value: Scalar) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _neat(value: float) -> int | float:
    """Whole numbers without a decimal point."""
    return int(value) if value == int(value) and abs(value) < 2**53 else value
