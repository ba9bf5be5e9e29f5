"""Covering: only the filters that no other covers are passed on."""

from collections import deque

import msgspec

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.candidates import Candidates
from sterna.core.routing.stages import Effort, Stage
from sterna.model.filters import Filter
from sterna.model.filters.algebra import Work

COMPARING_MAX = 50_000
"""How many cuts may be examined to find out what covers a new filter and what it covers; this
bounds it to some 10 milliseconds. Beyond, it counts as not covered, which is always safe."""

STEP = COMPARING_MAX // 100
"""How many cuts are examined in a step of an `Effort`."""

FOLLOWERS_MAX = 32
"""When a route goes that covered more than this, they wait for the end of the turn; so do
those that a new one may cover."""

INSIDE_MAX = 500
"""At how many a closer look is taken in one turn to find those."""

GROWTH, GROWING = 32, 20
"""At each multiple of so many filters the matching index may be loaded or grow, which takes about
so many steps."""

LOOKED_AT = 20
"""At how many it is taken in a step of an `Effort`."""


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
        self._orphans: dict[RouteId, Route] = {}
        """Routes whose coverer has gone together with many others, and that wait until all changes
        of the turn are known: each would find another one that is about to go. The neighbour knows
        the coverer until they all have been looked at, which may take several turns.

        Routes that come together with many others wait here, too."""
        self._new: dict[RouteId, None] = {}
        """The names of those among them that have come."""
        self._hides: dict[RouteId, deque[RouteId]] = {}
        """Maximal routes that may cover many others, and those that each was not compared with yet.
        They are passed on until then, and some of them may have gone."""
        self._many_go = False
        self._many_come = False
        self._places: dict[RouteId, int] = {}
        """The place of each maximal route in the order of their arrival."""
        self._arrivals = 0
        self._candidates = Candidates()

    @property
    def waits(self) -> bool:
        return bool(self._orphans or self._hides)

    @property
    def has_new(self) -> bool:
        return bool(self._new)

    def add(self, route: Route) -> None:
        if self._many_come:
            self._orphans[route.id] = route
            self._new[route.id] = None
        else:
            self._place(route, Work(COMPARING_MAX))

    def _place(self, route: Route, work: Work) -> None:
        if route.filter.normal_form == ():
            self._coverer[route.id] = None
            return
        coverer = self._find_coverer(route.filter, work)
        if coverer is not None:
            self._follow(route, coverer)
            return
        inside = self._candidates.inside(route.filter)
        if len(inside) <= INSIDE_MAX:
            inside = self._candidates.likely(route.filter, inside)
        if len(inside) > FOLLOWERS_MAX:
            self._step_forward(route)
            self._hides[route.id] = deque(inside)
            self.onward.add(route)
            return
        for id_ in inside:
            covered = self._maximal[id_]
            if route.filter.covers(covered.filter, work):
                self._step_back(covered)
                self._follow(covered, route.id)
        self._step_forward(route)
        self.onward.add(route)

    def remove(self, route: Route) -> None:
        if route.id in self._maximal:
            self._step_back(route)
        elif route.id in self._orphans:
            del self._orphans[route.id]
            self._new.pop(route.id, None)
        else:
            coverer = self._coverer.pop(route.id)
            if coverer is not None:
                del self._followers[coverer][route.id]
        followers = self._followers.pop(route.id, {})
        many = self._many_go or len(followers) > FOLLOWERS_MAX
        for orphan in followers.values():
            del self._coverer[orphan.id]
            if many:
                self._orphans[orphan.id] = orphan
            else:
                self.add(orphan)

    def many_go(self) -> None:
        self._many_go = True
        self.onward.many_go()

    def many_come(self) -> None:
        self._many_come = True

    def flush(self, effort: Effort) -> None:
        self._many_go = self._many_come = False
        while self._orphans and effort:
            id_ = next(iter(self._orphans))
            work = Work(COMPARING_MAX)
            self._new.pop(id_, None)
            before = len(self._maximal)
            self._place(self._orphans.pop(id_), work)
            grows = len(self._maximal) > before and len(self._maximal) % GROWTH <= 1
            effort.steps -= 1 + work.work // STEP + GROWING * grows
        while self._hides and effort:
            id_, others = next(iter(self._hides.items()))
            self._hide(self._maximal[id_], others, effort)
            if not others:
                self._hides.pop(id_, None)

    def _hide(self, route: Route, others: "deque[RouteId]", effort: Effort) -> None:
        """Have some of the routes step back that a maximal one covers."""
        while others and effort:
            some = [others.popleft() for _ in range(min(LOOKED_AT, len(others)))]
            effort.steps -= 1
            there = [id_ for id_ in some if id_ in self._maximal]
            for id_ in self._candidates.likely(route.filter, there):
                covered, work = self._maximal[id_], Work(COMPARING_MAX)
                if route.filter.covers(covered.filter, work):
                    self._step_back(covered)
                    self._follow(covered, route.id)
                effort.steps -= 1 + work.work // STEP

    def _follow(self, route: Route, coverer: RouteId) -> None:
        self._coverer[route.id] = coverer
        self._followers.setdefault(coverer, {})[route.id] = route

    def _step_forward(self, route: Route) -> None:
        """A route becomes maximal."""
        self._arrivals += 1
        self._places[route.id] = self._arrivals
        self._maximal[route.id] = route
        self._candidates.add(route.id, route.filter)

    def _step_back(self, route: Route) -> None:
        """A route is no longer maximal."""
        del self._maximal[route.id], self._places[route.id]
        self._hides.pop(route.id, None)
        self._candidates.remove(route.id)
        self.onward.remove(route)

    def _find_coverer(self, filter_: Filter, work: Work) -> RouteId | None:
        """The first that came and covers a filter."""
        candidates = self._candidates.covering(filter_)
        for id_ in sorted(candidates, key=self._places.__getitem__):
            if self._maximal[id_].filter.covers(filter_, work):
                return id_
        return None

    def keep(self) -> "KeptMaximal":
        return KeptMaximal(
            maximal=list(self._maximal.values()),
            followers=[(id_, list(each.values())) for id_, each in self._followers.items()],
            orphans=list(self._orphans.values()),
            new=list(self._new),
            hides=[(id_, list(others)) for id_, others in self._hides.items()],
            unwanted=[id_ for id_, coverer in self._coverer.items() if coverer is None],
        )

    def restore(self, kept: "KeptMaximal") -> None:
        for route in kept.maximal:
            self._step_forward(route)
        for coverer, followers in kept.followers:
            self._followers[coverer] = {route.id: route for route in followers}
            self._coverer |= dict.fromkeys(self._followers[coverer], coverer)
        self._coverer |= dict.fromkeys(kept.unwanted)
        self._orphans = {route.id: route for route in kept.orphans}
        self._new = dict.fromkeys(kept.new)
        self._hides = {id_: deque(others) for id_, others in kept.hides}


class KeptMaximal(msgspec.Struct, frozen=True, tag=True):
    """What a snapshot holds of covering."""

    maximal: list[Route]
    followers: list[tuple[RouteId, list[Route]]]
    unwanted: list[RouteId]
    """Routes that match nothing."""
    orphans: list[Route] = []
    """Routes whose coverer has gone and that wait; earlier releases have none."""
    new: list[RouteId] = []
    """Those of them that have come; earlier releases have none."""
    hides: list[tuple[RouteId, list[RouteId]]] = []
    """Maximal routes, and what each may cover and was not compared with; earlier releases have
    none."""
