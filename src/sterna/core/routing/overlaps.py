"""Which of many filters may overlap another, without asking them all.

Filters that ask for one value of an attribute (`sensor = 's17'`) are filed under it: filters that
ask for other values of that attribute cannot overlap them.
"""

from collections.abc import Iterator, Mapping

import msgspec

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.model.filters import Filter
from sterna.model.filters.algebra import Work
from sterna.model.filters.values import Cut, cut_after, value_at

Place = tuple[str, Cut] | None

COMPARING_MAX = 10_000
"""How many cuts may be examined to find out what overlaps a filter; this bounds it to some 10
milliseconds. Beyond, the next one counts as overlapping, which is always safe."""


class OverlapIndex:
    """Routes, filed under a value that they ask for; None holds those that ask for none."""

    def __init__(self) -> None:
        self._routes: dict[Place, dict[RouteId, Route]] = {}
        self._values: dict[str, dict[Cut, None]] = {}
        """By attribute, the values under which something is filed."""

    def add(self, route: Route) -> None:
        place = _place(route.filter)
        self._routes.setdefault(place, {})[route.id] = route
        if place is not None:
            name, value = place
            self._values.setdefault(name, {})[value] = None

    def remove(self, route: Route) -> None:
        place = _place(route.filter)
        routes = self._routes[place]
        del routes[route.id]
        if routes:
            return
        del self._routes[place]
        if place is not None:
            name, value = place
            del self._values[name][value]
            if not self._values[name]:
                del self._values[name]

    def keep(self) -> "KeptOverlaps":
        """What a snapshot has to hold besides the routes themselves: their order."""
        return KeptOverlaps([list(routes) for routes in self._routes.values()], list(self._values))

    def restore(self, kept: "KeptOverlaps", routes: Mapping[RouteId, Route]) -> None:
        """Go on with what a snapshot has held."""
        self._values = {name: {} for name in kept.names}
        for ids in kept.places:
            for id_ in ids:
                self.add(routes[id_])

    def overlapping(self, filter_: Filter, work: Work | None = None) -> Route | None:
        """The first route that overlaps a filter (or may: the algebra is not always sure)."""
        work = work or Work(COMPARING_MAX)
        for route in self.candidates(filter_):
            if route.filter.overlaps(filter_, work):
                return route
        return None

    def candidates(self, filter_: Filter) -> Iterator[Route]:
        """The routes that are worth comparing with a filter; all others do not overlap it."""
        for place in self._places(filter_):
            yield from self._routes.get(place, {}).values()

    def _places(self, filter_: Filter) -> Iterator[Place]:
        """Where something may be filed that overlaps a filter."""
        yield None
        for name, values in self._values.items():
            wanted = _points(filter_, name)
            found = values if wanted is None else dict.fromkeys(wanted)
            yield from ((name, value) for value in found if value in values)


class KeptOverlaps(msgspec.Struct, frozen=True):
    """What a snapshot holds of the index: the order in which overlaps are found."""

    places: list[list[RouteId]]
    names: list[str]


def _place(filter_: Filter) -> Place:
    form = filter_.normal_form
    if form is None or len(form) != 1:
        return None
    for name, accepted in sorted(form[0].constraints.items(), key=lambda item: item[0]):
        if len(accepted.cuts) == 2 and _is_point(*accepted.cuts):
            return name, accepted.cuts[0]
    return None


def _points(filter_: Filter, name: str) -> list[Cut] | None:
    """The values of an attribute that a filter asks for; None if that is no list of values."""
    form = filter_.normal_form
    if form is None:
        return None
    points: list[Cut] = []
    for term in form:
        accepted = term.constraints.get(name)
        if accepted is None or not all(_is_point(*each) for each in accepted.stretches()):
            return None
        points += [start for start, _ in accepted.stretches()]
    return points


def _is_point(start: Cut, end: Cut) -> bool:
    value = value_at(start)
    return value is not None and cut_after(value) == end
