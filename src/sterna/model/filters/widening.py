"""Filters that match whatever another may match while what it depends on changes.

A condition is taken apart down to its tests, negations pushed inwards (in three-valued logic too,
NOT (a AND b) is NOT a OR NOT b), and each test that depends on the client is replaced by one that
is TRUE wherever the test may be. So the result is TRUE wherever the whole may be.
"""

from collections.abc import Callable, Mapping

from sterna.model.event import Scalar
from sterna.model.filters import tree

Range = tuple[Scalar, Scalar]
"""The lowest and the highest value that a variable may take; both are numbers or both strings."""

Relax = Callable[[tree.Test, bool], tree.Condition]
"""Makes a condition that is TRUE wherever a test may be TRUE or, with False, may be FALSE."""

ANY = tree.Always(verdict=True)


def over_ranges(condition: tree.Condition, ranges: Mapping[str, Range]) -> tree.Condition:
    """Widen for any values of the variables within their ranges; without a range, for any value."""

    def relax(test: tree.Test, wanted: bool) -> tree.Condition:  # noqa: FBT001
        return _over_ranges(test, ranges, wanted=wanted)

    return _relaxed(condition, tree.Variable, relax)


def over_places(
    condition: tree.Condition, reach: Callable[[int], tuple[str, ...]] | None
) -> tree.Condition:
    """Widen for a client that is at one of several places.

    `reach(n)` is what lies at most n steps from any of them; None if they may be any.
    """

    def relax(test: tree.Test, wanted: bool) -> tree.Condition:  # noqa: FBT001
        if not isinstance(test, tree.InMyloc):
            return test if wanted else tree.negation(test)
        if reach is None or not wanted:  # What is not here may be anywhere.
            return tree.Not(tree.IsNull(test.value))
        return tree.In(test.value, tuple(tree.Literal(place) for place in reach(test.steps)))

    return _relaxed(condition, tree.InMyloc, relax)


def _relaxed(
    node: tree.Condition, concerned: type[tree.Node], relax: Relax, *, wanted: bool = True
) -> tree.Condition:
    if not any(isinstance(below, concerned) for below in tree.walk(node)):
        return node if wanted else tree.negation(node)
    match node:
        case tree.Not(operand):
            return _relaxed(operand, concerned, relax, wanted=not wanted)
        case tree.And(operands) | tree.Or(operands):
            parts = [_relaxed(part, concerned, relax, wanted=wanted) for part in operands]
            if isinstance(node, tree.And) is wanted:
                return tree.conjunction([part for part in parts if part != ANY])
            return ANY if ANY in parts else tree.disjunction(parts)
        case _:
            return relax(node, wanted)


def _over_ranges(test: tree.Test, ranges: Mapping[str, Range], *, wanted: bool) -> tree.Condition:
    def compare(sign: str, left: tree.Value, right: tree.Value) -> tree.Condition:
        return _compare(sign if wanted else tree.OPPOSITE[sign], left, right, ranges)

    every, some = tree.conjunction, tree.disjunction
    match test:
        case tree.Compare(sign, left, right):
            return compare(sign, left, right)
        case tree.Between(value, low, high):
            bounds = [compare(">=", value, low), compare("<=", value, high)]
            return every(bounds) if wanted else some(bounds)
        case tree.In(value, members):
            each = [compare("=", value, member) for member in members]
            return some(each) if wanted else every(each)
        case _:
            return ANY


def _compare(
    sign: str, left: tree.Value, right: tree.Value, ranges: Mapping[str, Range]
) -> tree.Condition:
    if isinstance(left, tree.Variable):
        sign, left, right = tree.MIRRORED[sign], right, left
    if any(isinstance(node, tree.Variable) for node in tree.walk(left)):
        return ANY
    if not isinstance(right, tree.Variable):
        depends = any(isinstance(node, tree.Variable) for node in tree.walk(right))
        return ANY if depends else tree.comparison(sign, left, right)
    if right.name not in ranges:
        return ANY
    low, high = (tree.Literal(end) for end in ranges[right.name])
    match sign:
        case "<" | "<=":
            return tree.comparison(sign, left, high)
        case ">" | ">=":
            return tree.comparison(sign, left, low)
        case "=":
            return tree.Between(left, low, high)
        case _:
            return ANY
