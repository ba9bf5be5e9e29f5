"""Advertisements: a filter goes only to neighbours that advertised events it overlaps."""

from collections import deque

import msgspec

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.overlaps import COMPARING_MAX, KeptOverlaps, OverlapIndex
from sterna.core.routing.stages import Effort, Stage
from sterna.model.filters import Filter
from sterna.model.filters.algebra import Work
from sterna.model.filters.normal_form import NormalForm

FEW = 32
"""So many routes are looked at in one turn when an advertisement begins or ends."""

COMPARED = 10
"""So many routes are compared with an advertisement in a step of an `Effort`."""

STEP = COMPARING_MAX // 100
"""How many cuts are examined in a step."""


class AdvertisementGate(Stage):
    """Passes on the routes that overlap an advertisement; the others wait for one that does.

    An advertisement that many routes may have waited for is expected first: they are passed on a
    few at a time, and only then does it arrive. Until then it counts as not advertised. When such
    an advertisement ends, the routes that it admitted are passed on until they have been looked at.
    """

    def __init__(self) -> None:
        self._advertisements: dict[RouteId, Route] = {}
        self._offers = OverlapIndex()
        self._waiting: dict[RouteId, Route] = {}
        self._wishes = OverlapIndex()
        """The routes that wait for an advertisement."""
        self._admitted_by: dict[RouteId, RouteId] = {}
        self._admits: dict[RouteId, dict[RouteId, Route]] = {}
        self._expected: dict[RouteId, deque[Route]] = {}
        """The advertisements that are expected, and what each was not compared with yet. Some of
        it may wait no more."""
        self._unsure: dict[RouteId, Route] = {}
        """Routes that are passed on although what admitted them has ended."""
        self._many_go = False

    @property
    def waits(self) -> bool:
        return bool(self._unsure) or (bool(self._expected) and any(self._expected.values()))

    def __contains__(self, advertisement: Route) -> bool:
        return advertisement.id in self._advertisements

    @property
    def is_expecting(self) -> bool:
        """Whether an advertisement is expected, even if all is prepared for it."""
        return bool(self._expected)

    @property
    def is_patient(self) -> bool:
        """Whether so many routes wait that an advertisement should be expected first."""
        return len(self._waiting) > FEW

    def add(self, route: Route) -> None:
        if self._admit(route):
            self.onward.add(route)
        else:
            self._wait(route)

    def remove(self, route: Route) -> None:
        if route.id in self._waiting:
            self._wait_no_more(route)
            return
        if self._unsure.pop(route.id, None) is None:
            del self._admits[self._admitted_by.pop(route.id)][route.id]
        self.onward.remove(route)

    def many_go(self) -> None:
        self._many_go = True
        self.onward.many_go()

    def flush(self, effort: Effort) -> None:
        self._many_go = False
        if self.waits and effort:
            self.onward.many_come()
            for id_ in self._expected:
                self._compare(id_, effort)
            if self._unsure:
                self.onward.many_go()
                self._reconsider(effort)

    def advertise(self, advertisement: Route) -> None:
        """An advertisement has arrived: pass on the routes that waited for it."""
        self._advertisements[advertisement.id] = advertisement
        self._offers.add(advertisement)
        self._admits[advertisement.id] = {}
        for route in list(self._wishes.candidates(advertisement.filter)):
            if route.filter.overlaps(advertisement.filter):
                self._pass(route, advertisement)

    def expect(self, advertisement: Route) -> None:
        """An advertisement is about to arrive: begin to pass on what waited for it."""
        candidates = deque(self._wishes.candidates(advertisement.filter))
        if len(candidates) <= FEW:
            self.advertise(advertisement)
            return
        self._advertisements[advertisement.id] = advertisement
        self._admits[advertisement.id] = {}
        self._expected[advertisement.id] = candidates

    def arrive(self) -> None:
        """All advertisements that were expected have arrived."""
        for id_ in self._expected:
            self._compare(id_, Effort())
            self._offers.add(self._advertisements[id_])
        self._expected.clear()

    def unadvertise(self, advertisement: Route) -> None:
        """An advertisement has ended: routes that no other one admits wait again."""
        del self._advertisements[advertisement.id]
        if self._expected.pop(advertisement.id, None) is None:
            self._offers.remove(advertisement)
        routes = self._admits.pop(advertisement.id)
        many = self._many_go or len(routes) > FEW
        for route in routes.values():
            del self._admitted_by[route.id]
            if many:
                self._unsure[route.id] = route
            elif not self._admit(route):
                self._wait(route)
                self.onward.remove(route)

    def overlaps(self, filter_: Filter) -> bool:
        """Whether something was advertised that may match a filter."""
        return self._offers.overlapping(filter_) is not None

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
            expected=[(id_, list(routes)) for id_, routes in self._expected.items()],
            unsure=list(self._unsure.values()),
        )

    def restore(self, kept: "KeptAdvertised") -> None:
        self._advertisements = {route.id: route for route in kept.advertisements}
        self._offers.restore(kept.offers, self._advertisements)
        self._waiting = {route.id: route for route in kept.waiting}
        self._wishes.restore(kept.wishes, self._waiting)
        for id_, routes in kept.admits:
            self._admits[id_] = {route.id: route for route in routes}
            self._admitted_by |= dict.fromkeys(self._admits[id_], id_)
        self._expected = {id_: deque(routes) for id_, routes in kept.expected}
        self._unsure = {route.id: route for route in kept.unsure}

    def _admit(self, route: Route, work: Work | None = None) -> bool:
        advertisement = self._offers.overlapping(route.filter, work)
        if advertisement is None:
            for id_ in self._expected:
                if self._advertisements[id_].filter.overlaps(route.filter, work):
                    advertisement = self._advertisements[id_]
                    break
            else:
                return False
        self._admitted_by[route.id] = advertisement.id
        self._admits[advertisement.id][route.id] = route
        return True

    def _pass(self, route: Route, advertisement: Route) -> None:
        """Pass on a route that waited for an advertisement."""
        self._wait_no_more(route)
        self._admitted_by[route.id] = advertisement.id
        self._admits[advertisement.id][route.id] = route
        self.onward.add(route)

    def _compare(self, id_: RouteId, effort: Effort) -> None:
        """Compare some of the routes that wait with an advertisement that is expected."""
        advertisement, candidates = self._advertisements[id_], self._expected[id_]
        compared = 0
        work = Work(COMPARING_MAX)
        while candidates and effort:
            route = candidates.popleft()
            if route.id in self._waiting:
                compared += 1
                if route.filter.overlaps(advertisement.filter, work):
                    self._pass(route, advertisement)
                    effort.steps -= 1
                if compared % COMPARED == 0:
                    effort.steps -= 1 + work.work // STEP
                    work = Work(COMPARING_MAX)

    def _reconsider(self, effort: Effort) -> None:
        """Look at some of the routes whose advertisement has ended."""
        while self._unsure and effort:
            id_ = next(iter(self._unsure))
            route = self._unsure.pop(id_)
            work = Work(COMPARING_MAX)
            if not self._admit(route, work):
                self._wait(route)
                self.onward.remove(route)
            effort.steps -= 1 + work.work // STEP

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
    expected: list[tuple[RouteId, list[Route]]] = []
    """The advertisements that are expected, and what may overlap each; earlier releases have none.
    """
    unsure: list[Route] = []
    """Routes whose advertisement has ended, and that wait; earlier releases have none."""
