"""Advertisements: a neighbour hears only of filters that overlap what was advertised from there."""

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.overlaps import OverlapIndex
from sterna.core.routing.stages import Stage
from sterna.model.filters import Filter
from sterna.model.filters.normal_form import NormalForm


class Advertised(Stage):
    """Passes on the routes that overlap an advertisement; the others wait for one that does."""

    def __init__(self) -> None:
        self._advertisements: dict[RouteId, Route] = {}
        self._offers = OverlapIndex()
        self._waiting: dict[RouteId, Route] = {}
        self._wishes = OverlapIndex()
        """Those that wait."""
        self._admitted_by: dict[RouteId, RouteId] = {}
        self._admits: dict[RouteId, dict[RouteId, Route]] = {}

    def add(self, route: Route) -> None:
        if self._admit(route):
            self.onward.add(route)
        else:
            self._wait(route)

    def remove(self, route: Route) -> None:
        if route.id in self._waiting:
            self._wait_no_more(route)
            return
        del self._admits[self._admitted_by.pop(route.id)][route.id]
        self.onward.remove(route)

    def advertise(self, advertisement: Route) -> None:
        """An advertisement has come: it pulls in what waited for it."""
        self._advertisements[advertisement.id] = advertisement
        self._offers.add(advertisement)
        self._admits[advertisement.id] = {}
        for route in list(self._wishes.overlapping(advertisement.filter)):
            self._wait_no_more(route)
            self._admitted_by[route.id] = advertisement.id
            self._admits[advertisement.id][route.id] = route
            self.onward.add(route)

    def unadvertise(self, advertisement: Route) -> None:
        """An advertisement has gone: what no other admits waits again."""
        del self._advertisements[advertisement.id]
        self._offers.remove(advertisement)
        for route in self._admits.pop(advertisement.id).values():
            del self._admitted_by[route.id]
            if not self._admit(route):
                self._wait(route)
                self.onward.remove(route)

    def overlaps(self, filter_: Filter) -> bool:
        """Whether something was advertised that may match a filter."""
        return next(self._offers.overlapping(filter_), None) is not None

    def form(self) -> NormalForm | None:
        """Everything that was advertised; None if that is beyond the limits of the algebra."""
        forms = [offer.filter.normal_form for offer in self._advertisements.values()]
        if any(form is None for form in forms):
            return None
        return tuple(term for form in forms for term in form or ())

    def _admit(self, route: Route) -> bool:
        advertisement = next(self._offers.overlapping(route.filter), None)
        if advertisement is None:
            return False
        self._admitted_by[route.id] = advertisement.id
        self._admits[advertisement.id][route.id] = route
        return True

    def _wait(self, route: Route) -> None:
        self._waiting[route.id] = route
        self._wishes.add(route)

    def _wait_no_more(self, route: Route) -> None:
        del self._waiting[route.id]
        self._wishes.remove(route)
