"""Sets of attribute values: all values lie on one line, and a set is the places where it begins and
ends.

Everything an attribute can be is put into one total order:

    missing < FALSE < TRUE < NaN < all numbers < all strings

Integers and floats share one number line, compared exactly; strings are ordered by code point. A
set is a sorted tuple of cuts: it begins at the first, ends before the second, begins at the third,
and so on. `x < 5` is one stretch, `x <> 5` two, `x LIKE 'ab%'` is the stretch from `ab` to before
`ac`, IS NOT NULL is everything after the first step. Union, intersection and complement are one
pass over the cuts, and every set has exactly one such form, so emptiness and equality are exact.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

from sterna.model.event import INT_MAX, INT_MIN, Scalar

Cut = tuple[Any, ...]
"""A place on the line: the rank of a kind of value and, for numbers and strings, the value."""

MISSING: Cut = (0,)
FALSE: Cut = (1,)
TRUE: Cut = (2,)
NAN: Cut = (3,)
NUMBER: Cut = (4, -math.inf)
STRING: Cut = (5, "")
END: Cut = (6,)

NUMBERS_RANK, STRINGS_RANK = NUMBER[0], STRING[0]


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set of attribute values, missing included."""

    cuts: tuple[Cut, ...]

    def __contains__(self, value: Scalar | None) -> bool:
        return bisect_right(self.cuts, cut_at(value)) % 2 == 1

    def __bool__(self) -> bool:
        return bool(self.cuts)

    def __and__(self, other: "ValueSet") -> "ValueSet":
        if other.cuts in (self.cuts, ALL.cuts):
            return self
        return ValueSet(_sweep(self.cuts, other.cuts, both=True))

    def __or__(self, other: "ValueSet") -> "ValueSet":
        if self.cuts == other.cuts or not other.cuts:
            return self
        return ValueSet(_sweep(self.cuts, other.cuts, both=False))

    def __invert__(self) -> "ValueSet":
        return ValueSet(_inverse(self.cuts))

    def __sub__(self, other: "ValueSet") -> "ValueSet":
        return ValueSet(_sweep(self.cuts, _inverse(other.cuts), both=True))

    def __le__(self, other: "ValueSet") -> bool:
        """Whether this is a subset of the other: each stretch lies inside one of the other's."""
        theirs = other.cuts
        for start, end in self.stretches():
            place = bisect_right(theirs, start)
            if not place % 2 or theirs[place] < end:
                return False
        return True

    def overlaps(self, other: "ValueSet") -> bool:
        """Whether the two have a value in common."""
        few, many = sorted((self, other), key=lambda values: len(values.cuts))
        for start, end in few.stretches():
            place = bisect_right(many.cuts, start)
            if place % 2 or (place < len(many.cuts) and many.cuts[place] < end):
                return True
        return False

    def stretches(self) -> Iterator[tuple[Cut, Cut]]:
        """Every stretch from a cut to the next."""
        return zip(self.cuts[::2], self.cuts[1::2], strict=True)


def union(sets: Iterable[ValueSet]) -> ValueSet:
    """The union of many sets, joined pairwise so that large lists stay cheap."""
    return _balanced(ValueSet.__or__, list(sets), NOTHING)


def intersection(sets: Iterable[ValueSet]) -> ValueSet:
    """The intersection of many sets."""
    return _balanced(ValueSet.__and__, list(sets), ALL)


def comparison(operator: str, value: Scalar) -> ValueSet:
    """The values for which `attribute operator value` is TRUE."""
    here = cut_at(value)
    after = cut_after(value)
    start, end = _kind_of(value)
    match operator:
        case "=":
            return ValueSet((here, after))
        case "<>":
            return ValueSet((start, end)) - ValueSet((here, after))
        case "<":
            return _stretch(start, here)
        case "<=":
            return _stretch(start, after)
        case ">":
            return _stretch(after, end)
        case _:
            return _stretch(here, end)


def between(low: Scalar, high: Scalar) -> ValueSet:
    """The values for which `attribute BETWEEN low AND high` is TRUE."""
    if _kind_of(low) != _kind_of(high):
        return NOTHING
    return _stretch(cut_at(low), cut_after(high))


def members(values: Iterable[Scalar]) -> ValueSet:
    """Exactly these values."""
    cuts: list[Cut] = []
    for here, after in sorted({(cut_at(value), cut_after(value)) for value in values}):
        if cuts and cuts[-1] == here:  # Neighbours on the line make one stretch.
            cuts[-1] = after
        else:
            cuts += [here, after]
    return ValueSet(tuple(cuts))


def starting_with(prefix: str) -> ValueSet:
    """All strings that start with a prefix."""
    return _stretch((STRINGS_RANK, prefix), _after_prefix(prefix))


def kind(value: Scalar) -> ValueSet:
    """Every value that compares with this one: all numbers, all strings or both booleans."""
    return ValueSet(_kind_of(value))


def cut_at(value: Scalar | None) -> Cut:
    """Where a value lies on the line."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, str):
        return (STRINGS_RANK, value)
    return NAN if math.isnan(value) else (NUMBERS_RANK, value)


def cut_after(value: Scalar) -> Cut:
    """The place right behind a value: the next value there is."""
    if isinstance(value, bool):
        return NAN if value else TRUE
    if isinstance(value, str):
        return (STRINGS_RANK, value + "\0")
    following = next_number(value)
    return STRING if following is None else (NUMBERS_RANK, following)


def next_number(value: float) -> float | None:
    """The smallest number above, among all 64-bit integers and floats; None above infinity."""
    if value == math.inf:
        return None
    nearest = float(value)  # Rounding an integer may lead above it already.
    following: float = nearest if nearest > value else math.nextafter(nearest, math.inf)
    if INT_MIN <= value < INT_MAX:
        following = min(following, math.floor(value) + 1)
    return following


def previous_number(value: float) -> float | None:
    """The largest number below; None below minus infinity."""
    if value == -math.inf:
        return None
    nearest = float(value)
    preceding: float = nearest if nearest < value else math.nextafter(nearest, -math.inf)
    if INT_MIN < value <= INT_MAX + 1:
        preceding = max(preceding, math.ceil(value) - 1)
    return preceding


def value_at(cut: Cut) -> Scalar | None:
    """The value at a place of the line."""
    if len(cut) == 2:
        value: Scalar = cut[1]
        return value
    return {MISSING: None, FALSE: False, TRUE: True, NAN: math.nan}[cut]


def _kind_of(value: Scalar) -> tuple[Cut, Cut]:
    if isinstance(value, bool):
        return FALSE, NAN
    if isinstance(value, str):
        return STRING, END
    return NUMBER, STRING


def _stretch(start: Cut, end: Cut) -> ValueSet:
    return ValueSet((start, end)) if start < end else NOTHING


@lru_cache(maxsize=4096)
def _after_prefix(prefix: str) -> Cut:
    """The first place behind all strings with this prefix."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return END
    following = ord(stem[-1]) + 1
    if following == 0xD800:  # Surrogates are no characters.
        following = 0xE000
    return (STRINGS_RANK, stem[:-1] + chr(following))


def _sweep(a: tuple[Cut, ...], b: tuple[Cut, ...], *, both: bool) -> tuple[Cut, ...]:
    """Walk along both sets at once and cut where membership in both (or in any) changes."""
    cuts: list[Cut] = []
    i = j = 0
    inside = False
    while i < len(a) or j < len(b):
        first = j == len(b) or (i < len(a) and a[i] <= b[j])
        place = a[i] if first else b[j]
        if i < len(a) and a[i] == place:
            i += 1
        if j < len(b) and b[j] == place:
            j += 1
        now = bool(i & j & 1) if both else bool((i | j) & 1)
        if now != inside:
            cuts.append(place)
            inside = now
    return tuple(cuts)


def _inverse(cuts: tuple[Cut, ...]) -> tuple[Cut, ...]:
    start = cuts[1:] if cuts and cuts[0] == MISSING else (MISSING, *cuts)
    return start[:-1] if start and start[-1] == END else (*start, END)


def _balanced(
    join: Callable[[ValueSet, ValueSet], ValueSet], sets: list[ValueSet], empty: ValueSet
) -> ValueSet:
    while len(sets) > 2:
        sets = [reduce(join, sets[i : i + 2]) for i in range(0, len(sets), 2)]
    return reduce(join, sets, empty)


NOTHING = ValueSet(())
ALL = ValueSet((MISSING, END))
NULL = ValueSet((MISSING, FALSE))
PRESENT = ValueSet((FALSE, END))
BOOLEANS = ValueSet((FALSE, NAN))
NUMBERS = ValueSet((NUMBER, STRING))
STRINGS = ValueSet((STRING, END))
COMPARABLE = BOOLEANS | NUMBERS | STRINGS
