"""Advertisements: a filter goes only to neighbours that advertised events it overlaps."""

import msgspec

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.overlaps import KeptOverlaps, OverlapIndex
from sterna.core.routing.stages import Stage
from sterna.model.filters import Filter
from sterna.model.filters.normal_form import NormalForm


class AdvertisementGate(Stage):
    """Passes on the routes that overlap an advertisement; the others wait for one that does."""

    def __init__(self) -> None:
        self._advertisements: dict[RouteId, Route] = {}
        self._offers = OverlapIndex()
        self._waiting: dict[RouteId, Route] = {}
        self._wishes = OverlapIndex()
        """The routes that wait for an advertisement."""
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
        """An advertisement has arrived: pass on the routes that waited for it."""
        self._advertisements[advertisement.id] = advertisement
        self._offers.add(advertisement)
        self._admits[advertisement.id] = {}
        for route in list(self._wishes.overlapping(advertisement.filter)):
            self._wait_no_more(route)
            self._admitted_by[route.id] = advertisement.id
            self._admits[advertisement.id][route.id] = route
            self.onward.add(route)

    def unadvertise(self, advertisement: Route) -> None:
        """An advertisement has ended: routes that no other one admits wait again."""
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

    def keep(self) -> "KeptAdvertised":
        return KeptAdvertised(
            advertisements=list(self._advertisements.values()),
            offers=self._offers.keep(),
            waiting=list(self._waiting.values()),
            wishes=self._wishes.keep(),
            admits=[(id_, list(routes.values())) for id_, routes in self._admits.items()],
        )

    def restore(self, kept: "KeptAdvertised") -> None:
        self._advertisements = {route.id: route for route in kept.advertisements}
        self._offers.restore(kept.offers, self._advertisements)
        self._waiting = {route.id: route for route in kept.waiting}
        self._wishes.restore(kept.wishes, self._waiting)
        for id_, routes in kept.admits:
            self._admits[id_] = {route.id: route for route in routes}
            self._admitted_by |= dict.fromkeys(self._admits[id_], id_)

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


class KeptAdvertised(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a snapshot holds of advertisements and what they admit."""

    advertisements: list[Route]
    offers: KeptOverlaps
    waiting: list[Route]
    wishes: KeptOverlaps
    admits: list[tuple[RouteId, list[Route]]]
