"""Records: how the tests of a row are written down, as 64-bit words.

A record begins with the row's number, its flags and how many tests it has. A test begins with its
form, its attribute and a number, and goes on according to the form:

    POINT     nothing: the number names the known value accepted
    RANGE     the lowest and the highest number accepted, as floats
    POINTS    as many known values as the number says
    KINDS     nothing: the number has a bit for each kind accepted
    SET       as many words as the number says: kinds accepted; how many ranges; whether strings are
              listed as accepted (IN) or not (NOT_IN); for each range the lowest and the highest
              number, each as the largest float up to it and the rest; then the strings
"""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sterna.matching.floats import floor, is_float
from sterna.matching.kernels.layout import FLAGS, IN, KINDS, NOT_IN, POINT, POINTS, RANGE, SET
from sterna.model.event import Scalar
from sterna.model.filters import values
from sterna.model.filters.values import Cut, ValueSet

NUMBER, STRING = values.NUMBERS_RANK, values.STRINGS_RANK
"""Two of the kinds of values: their ranks on the value line."""

UNSURE = 1
"""Flag of a row whose record expresses less than its filter, which has to be tested as well."""

SHARED = 2
"""Flag of a row that is one of several of its subscription."""


TESTS_MAX = 1000
"""How many tests a record may have."""


def head(row: int, flags: int, tests: int) -> int:
    """The word that a record begins with."""
    return row << 32 | flags << FLAGS | tests


@dataclass(slots=True)
class EncodedTest:
    """A test in the form of a record."""

    words: list[int]
    named: Sequence[int] = ()
    """The known values it refers to."""
    selects: bool = False
    """Whether it accepts nothing but those."""
    exact: bool = True
    """Whether it expresses all of the set of accepted values."""


def write_test(accepted: ValueSet, attribute: int, known: Callable[[Scalar], int]) -> EncodedTest:
    """Write down which values a test accepts; `known` gives the number of a value."""
    cuts = accepted.cuts
    if len(cuts) == 2:  # One stretch, as most tests have: no need to take it apart.
        start, end = cuts
        if start[0] == NUMBER and (end[0] == NUMBER or end == values.STRING):
            low, high = start[1], _last_before(end)
            if low == high:
                return _point(known(low), attribute)
            if is_float(low) and is_float(high):
                return EncodedTest([attribute << 8 | RANGE, *_as_words(_pack(low, high))])
        elif start[0] == end[0] == STRING and end[1] == start[1] + "\0":
            return _point(known(start[1]), attribute)
    return _write_set(describe(accepted), attribute, known)


def _point(value: int, attribute: int) -> EncodedTest:
    return EncodedTest([value << 32 | attribute << 8 | POINT], (value,), selects=True)


def _write_set(what: "Description", attribute: int, known: Callable[[Scalar], int]) -> EncodedTest:
    listed = what.points()
    if listed is not None:
        named = [known(value) for value in listed]
        words = [len(named) << 32 | attribute << 8 | POINTS, *named]
        return EncodedTest(words, named, selects=True)
    if not what.ranges and not what.strings:
        return EncodedTest([what.kinds << 32 | attribute << 8 | KINDS], exact=what.exact)
    named = [known(string) for string in what.strings]
    body = [what.kinds, len(what.ranges), (NOT_IN if what.all_but else IN) if named else 0]
    for low, high in what.ranges:
        body += _as_words(_pack(*floor(low)))
        body += _as_words(_pack(*floor(high)))
    body += named
    return EncodedTest([len(body) << 32 | attribute << 8 | SET, *body], named, exact=what.exact)


@dataclass(slots=True)
class Description:
    """A set of values, taken apart by kind."""

    kinds: int = 0
    """The kinds accepted as a whole, one bit each."""
    ranges: list[tuple[float, float]] = field(default_factory=list)
    """The ranges of numbers, with both ends included."""
    strings: list[str] = field(default_factory=list)
    """The strings that are listed one by one."""
    all_but: bool = False
    """Whether the listed strings are those not accepted."""
    exact: bool = True
    """Whether this expresses the whole set. If not, it accepts all strings."""

    def points(self) -> list[Scalar] | None:
        """The accepted values if all are listed one by one."""
        if self.kinds or self.all_but or any(low != high for low, high in self.ranges):
            return None
        return [*(low for low, _ in self.ranges), *self.strings]


def describe(accepted: ValueSet) -> Description:
    """Take a set of values apart."""
    found = Description()
    strings: list[tuple[Cut, Cut]] = []
    for start, end in accepted.stretches():
        for kind in range(start[0], end[0] + (len(end) > 1)):
            first = max(start, _KINDS[kind])
            last = min(end, _KINDS[kind + 1])
            if first >= last:
                continue
            if (first, last) == (_KINDS[kind], _KINDS[kind + 1]):
                found.kinds |= 1 << kind
            elif kind == NUMBER:
                found.ranges.append((first[1], _last_before(last)))
            else:
                strings.append((first, last))
    if strings:
        _describe_strings(found, strings)
    return found


_KINDS: tuple[Cut, ...] = (
    *(values.MISSING, values.FALSE, values.TRUE, values.NAN),
    *(values.NUMBER, values.STRING, values.END),
)


def _describe_strings(found: Description, stretches: list[tuple[Cut, Cut]]) -> None:
    listed = _one_by_one(stretches)
    if listed is None:
        accepted = ValueSet(tuple(cut for stretch in stretches for cut in stretch))
        listed = _one_by_one(list((values.STRINGS - accepted).stretches()))
        found.all_but = listed is not None
    if listed is None:
        found.kinds |= 1 << STRING
        found.exact = False
    else:
        found.strings = listed


def _one_by_one(stretches: list[tuple[Cut, Cut]]) -> list[str] | None:
    """The strings of stretches that consist of one string each."""
    if all(end[0] == STRING and end[1] == start[1] + "\0" for start, end in stretches):
        return [start[1] for start, _ in stretches]
    return None


def _last_before(cut: Cut) -> float:
    """The largest number before a cut."""
    if cut[0] > NUMBER:
        return math.inf
    last = values.previous_number(cut[1])
    return -math.inf if last is None else last


_pack = struct.Struct("=2d").pack
_as_words = struct.Struct("=2q").unpack
