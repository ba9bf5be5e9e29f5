"""Which of many filters may cover another one, or may be covered by it, without asking them all.

A term of a filter is a box, with values for each attribute, and residual conditions that boxes
cannot express. A filter covers a term only by boxes around it whose residual conditions all follow
from those of the term. So two *corners* of its box, a lower and an upper one, are in such boxes.

Residual conditions have *keys*, such that one follows from another only if they have a key in
common. A key is like one more attribute: the boxes around a corner that have a key in common with
the term are what a `MatchIndex` finds for the corner and the key. The other way round, corners and
keys in a box are found among all corners in the order of their values.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from sterna.core.names import RouteId
from sterna.matching import MatchIndex
from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.model.filters.normal_form import NormalForm, Term
from sterna.model.filters.tree import Condition, Matches, Not, write
from sterna.model.filters.values import (
    NUMBERS_RANK,
    STRINGS_RANK,
    Cut,
    ValueSet,
    cut_at,
    members,
    previous_number,
    value_at,
)

KEY = "\0key"
"""The attribute of keys; no filter has one of this name."""

LEVELS_MAX = 8
"""How many levels of a topic have keys."""

Point = Mapping[str, Scalar]


class Candidates:
    """Filters by name. A filter that matches nothing is none of them."""

    def __init__(self) -> None:
        self._boxes: dict[RouteId, NormalForm] = {}
        self._index: MatchIndex[RouteId] = MatchIndex()
        """The boxes of filters: they may cover others."""
        self._corners: dict[RouteId, Corners] = {}
        self._by_attribute: dict[str, list[tuple[Cut, RouteId]]] = {}
        """The values of lower corners, in order, by attribute: others may cover their filters."""

    def add(self, id_: RouteId, filter_: Filter) -> None:
        """Add a filter."""
        boxes = boxes_of(filter_)
        if boxes:
            self._boxes[id_] = boxes
            is_known = boxes == filter_.normal_form
            self._index.add(id_, filter_ if is_known else Filter.from_normal_form(boxes))
        corners = self._corners[id_] = corners_of(filter_)
        for name, cut in corners.places():
            insort(self._by_attribute.setdefault(name, []), (cut, id_))

    def remove(self, id_: RouteId) -> None:
        """Remove a filter."""
        if self._boxes.pop(id_, None) is not None:
            self._index.remove(id_)
        for name, cut in self._corners.pop(id_).places():
            line = self._by_attribute[name]
            del line[bisect_left(line, (cut, id_))]
            if not line:
                del self._by_attribute[name]

    def covering(self, filter_: Filter) -> Iterable[RouteId]:
        """Everything that may cover the filter."""
        corners = corners_of(filter_)
        found = dict.fromkeys(id_ for high in corners.high() for id_ in self._index.match(high))
        return [id_ for id_ in found if corners.is_low_in(self._boxes[id_])]

    def covered(self, filter_: Filter) -> list[RouteId]:
        """Everything that the filter may cover."""
        return self.likely(filter_, self.inside(filter_))

    def inside(self, filter_: Filter) -> list[RouteId]:
        """The same, and more that a closer look would exclude."""
        return list(dict.fromkeys(id_ for box in boxes_of(filter_) for id_ in self._inside(box)))

    def likely(self, filter_: Filter, ids: Iterable[RouteId]) -> list[RouteId]:
        """Those of some others that the filter may cover, at a closer look."""
        boxes = boxes_of(filter_)
        return [
            id_
            for id_ in ids
            if self._corners[id_].is_low_in(boxes) and self._corners[id_].is_high_in(boxes)
        ]

    def _inside(self, box: Term) -> Iterable[RouteId]:
        """The lower corners inside a box, found by its most selective attribute."""
        best: list[tuple[list[tuple[Cut, RouteId]], int, int]] | None = None
        fewest = len(self._corners)
        for name, accepted in box.constraints.items():
            if None in accepted:
                continue  # Corners without the attribute are inside, too.
            line = self._by_attribute.get(name, [])
            parts = []
            for start, end in accepted.stretches():
                first = bisect_left(line, (start,))
                last = bisect_left(line, (end,))
                if first < last:
                    parts.append((line, first, last))
            count = sum(last - first for _, first, last in parts)
            if count < fewest or best is None:
                best, fewest = parts, count
        if best is None:
            return self._corners
        return [id_ for line, first, last in best for _, id_ in line[first:last]]


class Corners(NamedTuple):
    """The corners of a filter's first term, and the keys of what its residuals imply."""

    lower: Point
    upper: Point
    keys: tuple[int, ...]

    def low(self) -> Iterator[Point]:
        """The lower corner, with each of the keys."""
        return self._with_keys(self.lower)

    def high(self) -> Iterator[Point]:
        """The upper corner, with each of the keys."""
        return self._with_keys(self.upper)

    def _with_keys(self, corner: Point) -> Iterator[Point]:
        if not self.keys:
            yield corner
        for key in self.keys:
            yield {**corner, KEY: key}

    def places(self) -> Iterator[tuple[str, Cut]]:
        """Where the lower corner is, attribute by attribute."""
        for name, value in self.lower.items():
            yield name, cut_at(value)
        for key in self.keys:
            yield KEY, cut_at(key)

    def is_low_in(self, boxes: NormalForm) -> bool:
        """Whether the lower corner is in one of these boxes, with one of the keys."""
        return any(_holds(box, low) for low in self.low() for box in boxes)

    def is_high_in(self, boxes: NormalForm) -> bool:
        """Whether the upper corner is in one of these boxes, with one of the keys."""
        return any(_holds(box, high) for high in self.high() for box in boxes)


def boxes_of(filter_: Filter) -> NormalForm:
    """The terms of a filter as boxes with keys; none if it covers nothing but its equals."""
    form = filter_.normal_form or ()
    if not any(term.residuals for term in form):
        return form
    return tuple(_box(term) for term in form)


def corners_of(filter_: Filter) -> Corners:
    """The corners of a filter. Beyond the limits of the algebra, they are in the box of TRUE."""
    for term in filter_.normal_form or ():
        sets = term.constraints.items()
        keys = dict.fromkeys(key for each in term.residuals for key in _keys_given(each))
        return Corners(
            _present({name: value_at(accepted.cuts[0]) for name, accepted in sets}),
            _present({name: _last_value(accepted) for name, accepted in sets}),
            tuple(keys),
        )
    return Corners({}, {}, ())


def _box(term: Term) -> Term:
    if not term.residuals:
        return term
    # One of them is enough to find it; topics have keys in common with many others.
    residual = min(term.residuals, key=lambda each: _topic(each) is not None)
    return Term({**term.constraints, KEY: members(_keys_wanted(residual))})


def _holds(box: Term, point: Point) -> bool:
    return all(point.get(name) in accepted for name, accepted in box.constraints.items())


def _present(values: Mapping[str, Scalar | None]) -> Point:
    return {name: value for name, value in values.items() if value is not None}


def _last_value(accepted: ValueSet) -> Scalar | None:
    """A value near the upper end of a set; with strings, the beginning of its last stretch."""
    start, end = accepted.cuts[-2:]
    if end[0] == NUMBERS_RANK and start[0] == NUMBERS_RANK:
        return previous_number(end[1])
    if end == (STRINGS_RANK, "") and start[0] == NUMBERS_RANK:
        return math.inf
    return value_at(start)


# ---- Keys. They are checksums: two that are equal by accident only make one more candidate.


def _keys_given(residual: Condition) -> tuple[int, ...]:
    """The keys of a condition from which others follow."""
    topic = _topic(residual)
    if topic is None:
        return (_key(write(residual)),)
    narrow, is_negated = topic
    return (_chosen(narrow, "not"),) if is_negated else _each(narrow, "")


def _keys_wanted(residual: Condition) -> tuple[int, ...]:
    """The keys of a condition that follows from others."""
    topic = _topic(residual)
    if topic is None:
        return (_key(write(residual)),)
    wide, is_negated = topic
    return _each(wide, "not") if is_negated else (_chosen(wide, ""),)


def _topic(residual: Condition) -> tuple[Matches, bool] | None:
    """The topic filter of a condition, and whether it is negated; None if there is none."""
    match residual:
        case Matches():
            return residual, False
        case Not(Matches() as operand):
            return operand, True
    return None


def _each(topic: Matches, word: str) -> tuple[int, ...]:
    """The keys of all topic filters that may be wider: those of its levels, and one for all."""
    levels = (_key(word, topic.value.name, *level) for level in _levels(topic))
    return _key(word, topic.value.name), *levels


def _chosen(topic: Matches, word: str) -> int:
    """The key of a topic filter among those that may be narrower: its longest level."""
    longest = max(_levels(topic), key=lambda level: (len(level[1]), level[0]), default=())
    return _key(word, topic.value.name, *longest)


def _levels(topic: Matches) -> list[tuple[int, str]]:
    levels = topic.topic.split("/", LEVELS_MAX)[:LEVELS_MAX]
    return [(place, level) for place, level in enumerate(levels) if level not in ("+", "#")]


def _key(*parts: object) -> int:
    return crc32(repr(parts).encode())
