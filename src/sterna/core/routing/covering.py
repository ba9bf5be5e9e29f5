"""Covering: only the filters that no other covers are passed on.

Which filters cover a new one, and which it covers, is found without asking them all. Each filter
has a *sample*, some event that matches it. Whoever covers a filter matches its sample, so the
candidates are what a `MatchIndex` finds for the sample; whoever is covered by a filter has its
sample inside it, so those candidates are found among the samples in order of their values.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.stages import Stage
from sterna.matching import MatchIndex
from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.model.filters.normal_form import Term
from sterna.model.filters.values import Cut, cut_at, value_at

Sample = Mapping[str, Scalar]


class Maximal(Stage):
    """Passes on the routes that no other covers; the others wait behind one that covers them."""

    def __init__(self) -> None:
        self._maximal: dict[RouteId, Route] = {}
        self._hidden: dict[RouteId, RouteId | None] = {}
        self._behind: dict[RouteId, dict[RouteId, Route]] = {}
        self._index: MatchIndex[RouteId] = MatchIndex()
        self._samples = Samples()

    def add(self, route: Route) -> None:
        if route.filter.normal_form == ():
            self._hidden[route.id] = None  # It matches nothing, so nobody has to know.
            return
        sample = sample_of(route.filter)
        coverer = self._coverer(route.filter, sample)
        if coverer is not None:
            self._hidden[route.id] = coverer
            self._behind.setdefault(coverer, {})[route.id] = route
            return
        behind: dict[RouteId, Route] = {}
        for id_ in self._samples.candidates(route.filter):
            covered = self._maximal[id_]
            if route.filter.covers(covered.filter):
                behind |= self._retire(covered)
                behind[id_] = covered
        if behind:
            self._behind[route.id] = behind
            self._hidden |= dict.fromkeys(behind, route.id)
        self._maximal[route.id] = route
        self._index.add(route.id, route.filter)
        self._samples.add(route.id, sample)
        self.onward.add(route)

    def remove(self, route: Route) -> None:
        if route.id in self._hidden:
            coverer = self._hidden.pop(route.id)
            if coverer is not None:
                del self._behind[coverer][route.id]
            return
        for orphan in self._retire(route).values():
            del self._hidden[orphan.id]
            self.add(orphan)

    def _retire(self, route: Route) -> dict[RouteId, Route]:
        """A route is maximal no more; those that waited behind it."""
        del self._maximal[route.id]
        self._index.remove(route.id)
        self._samples.remove(route.id)
        self.onward.remove(route)
        return self._behind.pop(route.id, {})

    def _coverer(self, filter_: Filter, sample: Sample | None) -> RouteId | None:
        candidates = self._maximal if sample is None else self._index.match(sample)
        for id_ in candidates:
            if self._maximal[id_].filter.covers(filter_):
                return id_
        return None


class Samples:
    """Sample events under the names of their filters, in order of their values."""

    def __init__(self) -> None:
        self._samples: dict[RouteId, Sample] = {}
        self._unknown: dict[RouteId, None] = {}
        """Filters of which no sample is known."""
        self._by_attribute: dict[str, list[tuple[Cut, RouteId]]] = {}

    def add(self, id_: RouteId, sample: Sample | None) -> None:
        if sample is None:
            self._unknown[id_] = None
            return
        self._samples[id_] = sample
        for name, value in sample.items():
            insort(self._by_attribute.setdefault(name, []), (cut_at(value), id_))

    def remove(self, id_: RouteId) -> None:
        if id_ in self._unknown:
            del self._unknown[id_]
            return
        for name, value in self._samples.pop(id_).items():
            line = self._by_attribute[name]
            del line[bisect_left(line, (cut_at(value), id_))]
            if not line:
                del self._by_attribute[name]

    def candidates(self, filter_: Filter) -> list[RouteId]:
        """Everything that the filter may cover."""
        form = filter_.normal_form
        if form is None:
            return []  # A filter beyond the limits of the algebra covers its equals only.
        found = dict.fromkeys(self._unknown)
        for term in form:
            found |= dict.fromkeys(self._inside(term))
        return list(found)

    def _inside(self, term: Term) -> Iterable[RouteId]:
        """The samples inside a term as its most selective attribute tells."""
        best: list[tuple[list[tuple[Cut, RouteId]], int, int]] | None = None
        fewest = len(self._samples)
        for name, accepted in term.constraints.items():
            if None in accepted:
                continue  # Samples without the attribute are inside, too.
            line = self._by_attribute.get(name, [])
            parts = []
            for start, end in accepted.stretches():
                low = bisect_left(line, (start,))
                high = bisect_left(line, (end,))
                if low < high:
                    parts.append((line, low, high))
            count = sum(high - low for _, low, high in parts)
            if count < fewest or best is None:
                best, fewest = parts, count
        if best is None:
            return self._samples
        return [id_ for line, low, high in best for _, id_ in line[low:high]]


def sample_of(filter_: Filter) -> Sample | None:
    """Attributes of some event that the filter matches; None when not sure of any."""
    for term in filter_.normal_form or ():
        sample = {}
        for name, accepted in term.constraints.items():
            value = value_at(accepted.cuts[0])
            if value is not None:
                sample[name] = value
        if not term.residuals or filter_.matches(sample):
            return sample
    return None
