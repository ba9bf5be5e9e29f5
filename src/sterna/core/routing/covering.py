"""Covering: only the filters that no other covers are passed on.

Which filters cover a new one, and which it covers, is found without asking them all. Each filter
has *samples*, two events that match it: one at the lower end of its ranges and one at the upper.
A filter that covers another matches its samples, so the candidates are what a `MatchIndex` finds
for one sample and what matches the other. A filter that is covered has its samples inside the other
one, so those candidates are found among the samples in order of their values.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.stages import Stage
from sterna.matching import MatchIndex
from sterna.model.event import Scalar
from sterna.model.filters import Filter, tree
from sterna.model.filters.normal_form import Term
from sterna.model.filters.values import (
    NUMBERS_RANK,
    STRINGS_RANK,
    Cut,
    ValueSet,
    cut_at,
    previous_number,
    value_at,
)

Event = Mapping[str, Scalar]


class Samples(NamedTuple):
    """Two events that a filter matches; they may be the same."""

    low: Event
    high: Event


class Maximal(Stage):
    """Passes on the routes that no other covers; the others wait behind one that covers them.

    Those that wait form a forest: a route that becomes covered keeps its followers, so that it has
    them when it comes to the front again.
    """

    def __init__(self) -> None:
        self._maximal: dict[RouteId, Route] = {}
        self._coverer: dict[RouteId, RouteId | None] = {}
        """For each route that waits, the one that covers it; None if it matches nothing."""
        self._followers: dict[RouteId, dict[RouteId, Route]] = {}
        self._places: dict[RouteId, int] = {}
        """The place of each maximal route in the order of their arrival."""
        self._arrivals = 0
        self._index: MatchIndex[RouteId] = MatchIndex()
        self._samples = SampleIndex()

    def add(self, route: Route) -> None:
        if route.filter.normal_form == ():
            self._coverer[route.id] = None
            return
        samples = samples_of(route.filter)
        coverer = self._find_coverer(route.filter, samples)
        if coverer is not None:
            self._follow(route, coverer)
            return
        for id_ in self._samples.candidates(route.filter):
            covered = self._maximal[id_]
            if route.filter.covers(covered.filter):
                self._step_back(covered)
                self._follow(covered, route.id)
        self._step_forward(route, samples)
        self.onward.add(route)

    def remove(self, route: Route) -> None:
        if route.id in self._maximal:
            self._step_back(route)
        else:
            coverer = self._coverer.pop(route.id)
            if coverer is not None:
                del self._followers[coverer][route.id]
        for orphan in self._followers.pop(route.id, {}).values():
            del self._coverer[orphan.id]
            self.add(orphan)

    def _follow(self, route: Route, coverer: RouteId) -> None:
        self._coverer[route.id] = coverer
        self._followers.setdefault(coverer, {})[route.id] = route

    def _step_forward(self, route: Route, samples: Samples | None) -> None:
        """A route becomes maximal."""
        self._arrivals += 1
        self._places[route.id] = self._arrivals
        self._maximal[route.id] = route
        self._index.add(route.id, route.filter)
        self._samples.add(route.id, samples)

    def _step_back(self, route: Route) -> None:
        """A route is no longer maximal."""
        del self._maximal[route.id], self._places[route.id]
        self._index.remove(route.id)
        self._samples.remove(route.id)
        self.onward.remove(route)

    def _find_coverer(self, filter_: Filter, samples: Samples | None) -> RouteId | None:
        candidates: Iterable[RouteId] = self._maximal
        if samples is not None:  # The first that came: the index has an order of its own.
            candidates = sorted(self._index.match(samples.high), key=self._places.__getitem__)
        for id_ in candidates:
            candidate = self._maximal[id_].filter
            if samples is not None and not candidate.matches(samples.low):
                continue
            if candidate.covers(filter_):
                return id_
        return None

    def keep(self) -> "KeptMaximal":
        return KeptMaximal(
            maximal=list(self._maximal.values()),
            followers=[(id_, list(each.values())) for id_, each in self._followers.items()],
            unwanted=[id_ for id_, coverer in self._coverer.items() if coverer is None],
        )

    def restore(self, kept: "KeptMaximal") -> None:
        for route in kept.maximal:
            self._step_forward(route, samples_of(route.filter))
        for coverer, followers in kept.followers:
            self._followers[coverer] = {route.id: route for route in followers}
            self._coverer |= dict.fromkeys(self._followers[coverer], coverer)
        self._coverer |= dict.fromkeys(kept.unwanted)


class KeptMaximal(msgspec.Struct, frozen=True, tag=True):
    """What a snapshot holds of covering."""

    maximal: list[Route]
    followers: list[tuple[RouteId, list[Route]]]
    unwanted: list[RouteId]
    """Routes that match nothing."""


class SampleIndex:
    """Samples under the names of their filters, in order of their values."""

    def __init__(self) -> None:
        self._samples: dict[RouteId, Samples] = {}
        self._unknown: dict[RouteId, None] = {}
        """Filters of which no sample is known."""
        self._by_attribute: dict[str, list[tuple[Cut, RouteId]]] = {}
        """The values of lower samples, in order, by attribute."""

    def add(self, id_: RouteId, samples: Samples | None) -> None:
        if samples is None:
            self._unknown[id_] = None
            return
        self._samples[id_] = samples
        for name, value in samples.low.items():
            insort(self._by_attribute.setdefault(name, []), (cut_at(value), id_))

    def remove(self, id_: RouteId) -> None:
        if id_ in self._unknown:
            del self._unknown[id_]
            return
        for name, value in self._samples.pop(id_).low.items():
            line = self._by_attribute[name]
            del line[bisect_left(line, (cut_at(value), id_))]
            if not line:
                del self._by_attribute[name]

    def candidates(self, filter_: Filter) -> list[RouteId]:
        """Everything that the filter may cover."""
        form = filter_.normal_form
        if form is None:
            return []  # A filter beyond the limits of the algebra covers its equals only.
        inside = dict.fromkeys(id_ for term in form for id_ in self._inside(term))
        found = [
            id_
            for id_ in inside
            if filter_.matches(self._samples[id_].high) and filter_.matches(self._samples[id_].low)
        ]
        return [*self._unknown, *found]

    def _inside(self, term: Term) -> Iterable[RouteId]:
        """The lower samples inside a term, found by its most selective attribute."""
        best: list[tuple[list[tuple[Cut, RouteId]], int, int]] | None = None
        fewest = len(self._samples)
        for name, accepted in term.constraints.items():
            if None in accepted:
                continue  # Samples without the attribute are inside, too.
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
            return self._samples
        return [id_ for line, first, last in best for _, id_ in line[first:last]]


def samples_of(filter_: Filter) -> Samples | None:
    """Two events that the filter matches; None if no match is certain."""
    for term in filter_.normal_form or ():
        low = {name: value_at(accepted.cuts[0]) for name, accepted in term.constraints.items()}
        if not term.residuals:
            high = {name: _last_value(accepted) for name, accepted in term.constraints.items()}
            return Samples(_present(low), _present(high))
        sample = _present(low | _fitting(term.residuals))
        if filter_.matches(sample):
            return Samples(sample, sample)
    return None


def _present(values: Mapping[str, Scalar | None]) -> Event:
    return {name: value for name, value in values.items() if value is not None}


def _last_value(accepted: ValueSet) -> Scalar | None:
    """A value near the upper end of a set; with strings, the beginning of its last stretch."""
    start, end = accepted.cuts[-2:]
    if end[0] == NUMBERS_RANK and start[0] == NUMBERS_RANK:
        return previous_number(end[1])
    if end == (STRINGS_RANK, "") and start[0] == NUMBERS_RANK:
        return math.inf
    return value_at(start)


def _fitting(residuals: tuple[tree.Condition, ...]) -> dict[str, Scalar | None]:
    """Texts that patterns match: what remains without the wildcards."""
    texts: dict[str, Scalar | None] = {}
    for residual in residuals:
        if isinstance(residual, tree.Like) and residual.escape is None:
            texts[residual.value.name] = residual.pattern.replace("%", "").replace("_", "a")
        elif isinstance(residual, tree.Matches):
            texts[residual.value.name] = residual.topic.replace("+", "a").replace("#", "a")
    return texts
