"""Filters of the plainest sort, read without the grammar: tests against constants, joined by AND.

Most filters are of this sort, and the grammar takes several times as long for them. Everything else
is left to the grammar, and so is all that is wrong: it alone says what is allowed.
"""

import math
import re

from sterna.model.filters.tree import (
    KEYWORDS,
    Attribute,
    Between,
    Compare,
    Condition,
    In,
    Literal,
    conjunction,
)

LISTED_MAX = 1_000
"""An IN list with more members is left to the grammar, which has a limit."""

_SPACE = r"[ \t\f\r\n]"
_NAME = r"[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)*"
_CONSTANT = r"(?:'[^'\ud800-\udfff]*'|-?[0-9]+\.[0-9]+(?:e[+-]?[0-9]+)?|-?(?:0|[1-9][0-9]{0,17}))"
_LISTED = f"{_CONSTANT}(?:{_SPACE}*,{_SPACE}*{_CONSTANT})*"
_TEST = re.compile(
    rf"""{_SPACE}* ({_NAME}) (?:
        {_SPACE}* (<=|>=|<>|=|<|>) {_SPACE}* ({_CONSTANT})
      | {_SPACE}+ BETWEEN {_SPACE}+ ({_CONSTANT}) {_SPACE}+ AND {_SPACE}+ ({_CONSTANT})
      | {_SPACE}+ IN {_SPACE}* \( {_SPACE}* ({_LISTED}) {_SPACE}* \)
    ) (?: {_SPACE}+ (AND) {_SPACE} | {_SPACE}* \Z)""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_CONSTANTS = re.compile(_CONSTANT, re.ASCII | re.IGNORECASE)


def plain_conjunction(text: str) -> Condition | None:
    """The tree of a filter that is of this sort; None if the grammar has to read it."""
    tests: list[Condition] = []
    place = 0
    while True:
        found = _TEST.match(text, place)
        if found is None:
            return None
        name, sign, constant, low, high, listed, another = found.groups()
        if name.upper() in KEYWORDS:
            return None
        test = _test(Attribute(name), sign, [constant] if sign else [low, high], listed)
        if test is None:
            return None
        tests.append(test)
        if another is None:
            return conjunction(tests)
        place = found.end()


def _test(
    attribute: Attribute, sign: str | None, constants: list[str], listed: str | None
) -> Condition | None:
    if listed is not None:
        constants = _CONSTANTS.findall(listed)
        if len(constants) > LISTED_MAX:
            return None
    if len({constant[0] == "'" for constant in constants}) > 1:
        return None  # Strings and numbers in one test.
    literals = tuple(found for each in constants if (found := _literal(each)))
    if len(literals) < len(constants):
        return None
    if sign is not None:
        return Compare(sign, attribute, *literals)
    return Between(attribute, *literals) if listed is None else In(attribute, literals)


def _literal(written: str) -> Literal | None:
    if written[0] == "'":
        return Literal(written[1:-1])
    if "." not in written:
        return Literal(int(written))
    number = float(written)
    return Literal(number) if math.isfinite(number) else None
