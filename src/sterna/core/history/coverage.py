"""From when on a broker has everything that matches a filter.

A broker keeps what passes it. Whether that is everything depends on who has subscribed behind it,
since when, and whether all brokers before it knew that already. A search finds out: it follows its
subscription to the publishers, so when the last answer has come back, all who were asked send what
matches. That holds as long as the subscription does which the search came with.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from sterna.core.messages import Route
from sterna.core.names import LinkId, RouteId, Time
from sterna.model.filters import Filter
from sterna.model.filters.algebra import Work

COVERED_MAX = 256
"""For how many filters a broker remembers it; those that were used longest ago are forgotten."""

COMPARING_MAX = 20_000
"""How many cuts may be examined to find out what covers a filter: some milliseconds. Beyond, it
counts as not covered: then less is known, and nothing wrong."""

ROUTES_MAX = 1_000
"""With how many subscriptions of a link a filter is compared at most."""


@dataclass(slots=True)
class Covered:
    """A filter, and since when all that matches it comes over some links."""

    filter: Filter
    link: LinkId
    """The link over which it is subscribed to."""
    route: RouteId
    """The subscription."""
    number: int
    """The number by which searches refer to it."""
    since: dict[LinkId, Time] = field(default_factory=dict)
    """Empty until a search has found out."""


class KeptCovered(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of a filter."""

    filter: Filter
    link: LinkId
    route: RouteId
    number: int
    since: dict[LinkId, Time]


class Coverage:
    """The filters of which a broker knows since when it has everything."""

    def __init__(self) -> None:
        self._covered: dict[tuple[LinkId, RouteId, Filter], Covered] = {}
        self._by_route: dict[tuple[LinkId, RouteId], dict[Filter, None]] = {}
        self._by_number: dict[int, Covered] = {}
        self._number = 0

    def begin(self, filter_: Filter, link: LinkId, route: RouteId) -> int:
        """A search about a subscription begins; the number to `complete` it with."""
        key = link, route, filter_
        covered = self._covered.pop(key, None)
        if covered is None:
            self._number += 1
            covered = Covered(filter_, link, route, self._number)
        self._enter(covered)
        if len(self._covered) > COVERED_MAX:
            self._drop(next(iter(self._covered)))
        return covered.number

    def complete(self, number: int, sources: Iterable[LinkId], now: Time) -> None:
        """All that matches comes over some links from now on, if it has not before.

        Unless the subscription has ended meanwhile, even if there is another one by now: nobody
        knows yet whether all have heard of that.
        """
        covered = self._by_number.get(number)
        if covered is not None:
            for source in sources:
                covered.since.setdefault(source, now)

    def _enter(self, covered: Covered) -> None:
        self._covered[covered.link, covered.route, covered.filter] = covered
        self._by_route.setdefault((covered.link, covered.route), {})[covered.filter] = None
        self._by_number[covered.number] = covered

    def since(self, filter_: Filter, sources: Iterable[LinkId]) -> Time | None:
        """Since when all that matches a filter comes over these links; None if not over all.

        Were it known of some of them only, a publisher could have been behind another meanwhile.
        """
        found: dict[LinkId, Time] = {}
        work = Work(COMPARING_MAX)
        for covered in self._covered.values():
            if covered.filter == filter_ or covers(covered.filter, filter_, work):
                for link, time in covered.since.items():
                    found[link] = min(time, found.get(link, time))
        times = [found.get(link) for link in sources]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    def changed(self, link: LinkId, added: Collection[Route], removed: Collection[RouteId]) -> None:
        """Subscriptions have changed on a link; one that is wider may take the place of another."""
        known = {route.id: route.filter for route in added}
        work = Work(COMPARING_MAX)
        for id_ in (*removed, *known):
            for filter_ in list(self._by_route.get((link, id_), ())):
                if id_ in known and covers(known[id_], filter_, work):
                    continue
                covered = self._drop((link, id_, filter_))
                wider = find_wider(((each.id, each) for each in added), filter_, work)
                if wider is not None:
                    covered.route = wider
                    self._enter(covered)

    def source_lost(self, link: LinkId) -> None:
        """What came over a link may have been less than everything."""
        for covered in self._covered.values():
            covered.since.pop(link, None)

    def link_gone(self, link: LinkId) -> None:
        """Nothing is subscribed over a link any more, and nothing comes over it."""
        for key in [key for key in self._covered if key[0] == link]:
            self._drop(key)
        self.source_lost(link)

    def _drop(self, key: tuple[LinkId, RouteId, Filter]) -> Covered:
        covered = self._covered.pop(key)
        del self._by_number[covered.number]
        link, route, filter_ = key
        named = self._by_route[link, route]
        del named[filter_]
        if not named:
            del self._by_route[link, route]
        return covered

    def keep(self) -> list[KeptCovered]:
        """What a snapshot has to hold."""
        return [
            KeptCovered(each.filter, each.link, each.route, each.number, dict(each.since))
            for each in self._covered.values()
        ]

    def restore(self, kept: Iterable[KeptCovered]) -> None:
        """Go on with what a snapshot has held."""
        for each in kept:
            self._enter(Covered(each.filter, each.link, each.route, each.number, dict(each.since)))
            self._number = max(self._number, each.number)


def covers(wide: Filter, narrow: Filter, work: Work) -> bool:
    """Whether a filter covers another; False if that is not found with the work that is left."""
    return not work.spent and wide.covers(narrow, work)


def find_wider(
    routes: Iterable[tuple[RouteId, Route]], filter_: Filter, work: Work
) -> RouteId | None:
    """The name of the first of some subscriptions that covers a filter, if that is found."""
    for id_, route in islice(routes, ROUTES_MAX):
        if route.filter == filter_ or covers(route.filter, filter_, work):
            return id_
    return None
