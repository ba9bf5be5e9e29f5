"""From when on a broker has everything that matches a filter.

A broker keeps what passes it. Whether that is everything depends on who has subscribed behind it,
since when, and whether all brokers before it knew that already. A search finds out: it follows its
subscription to the publishers, so when the last answer has come back, all who were asked send what
matches. That holds as long as the subscription does which the search came with.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from sterna.core.messages import Route
from sterna.core.names import LinkId, RouteId, Time
from sterna.model.filters import Filter

COVERED_MAX = 256
"""For how many filters a broker remembers it; those that were used longest ago are forgotten."""


@dataclass(slots=True)
class Covered:
    """A filter, and since when all that matches it comes over some links."""

    filter: Filter
    link: LinkId
    """The link over which it is subscribed to."""
    route: RouteId
    """The subscription."""
    since: dict[LinkId, Time] = field(default_factory=dict)


class KeptCovered(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of a filter."""

    filter: Filter
    link: LinkId
    route: RouteId
    since: dict[LinkId, Time]


class Coverage:
    """The filters of which a broker knows since when it has everything."""

    def __init__(self) -> None:
        self._covered: dict[tuple[LinkId, RouteId, Filter], Covered] = {}
        self._by_route: dict[tuple[LinkId, RouteId], dict[Filter, None]] = {}

    def note(
        self, filter_: Filter, link: LinkId, route: RouteId, sources: Iterable[LinkId], now: Time
    ) -> None:
        """All that matches a filter comes over some links from now on, if it has not before."""
        key = link, route, filter_
        covered = self._covered.pop(key, None) or Covered(filter_, link, route)
        for source in sources:
            covered.since.setdefault(source, now)
        self._covered[key] = covered
        self._by_route.setdefault((link, route), {})[filter_] = None
        if len(self._covered) > COVERED_MAX:
            self._drop(next(iter(self._covered)))

    def since(self, filter_: Filter, sources: Iterable[LinkId]) -> Time | None:
        """Since when all that matches a filter comes over these links; None if not over all.

        Were it known of some of them only, a publisher could have been behind another meanwhile.
        """
        found: dict[LinkId, Time] = {}
        for covered in self._covered.values():
            if covered.filter == filter_ or covered.filter.covers(filter_):
                for link, time in covered.since.items():
                    found[link] = min(time, found.get(link, time))
        times = [found.get(link) for link in sources]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    def changed(self, link: LinkId, added: Collection[Route], removed: Collection[RouteId]) -> None:
        """Subscriptions have changed on a link; one that is wider may take the place of another."""
        known = {route.id: route.filter for route in added}
        for id_ in (*removed, *known):
            for filter_ in list(self._by_route.get((link, id_), ())):
                if id_ in known and known[id_].covers(filter_):
                    continue
                covered = self._drop((link, id_, filter_))
                wider = next((r.id for r in added if r.filter.covers(filter_)), None)
                if wider is not None:
                    covered.route = wider
                    self._covered[link, wider, filter_] = covered
                    self._by_route.setdefault((link, wider), {})[filter_] = None

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
        link, route, filter_ = key
        named = self._by_route[link, route]
        del named[filter_]
        if not named:
            del self._by_route[link, route]
        return covered

    def keep(self) -> list[KeptCovered]:
        """What a snapshot has to hold."""
        return [
            KeptCovered(each.filter, each.link, each.route, dict(each.since))
            for each in self._covered.values()
        ]

    def restore(self, kept: Iterable[KeptCovered]) -> None:
        """Go on with what a snapshot has held."""
        for each in kept:
            covered = Covered(each.filter, each.link, each.route, dict(each.since))
            self._covered[each.link, each.route, each.filter] = covered
            self._by_route.setdefault((each.link, each.route), {})[each.filter] = None
