"""The routing table: which filters were announced over which link, and where an event must go."""

from collections.abc import Sequence

from sterna.core.messages import Route
from sterna.core.names import LinkId, RouteId
from sterna.matching import MatchIndex
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.filters.normal_form import ANYTHING


class RoutingTable:
    """Filters by link. Equal filters of a link are matched once."""

    def __init__(self) -> None:
        self._routes: dict[LinkId, dict[RouteId, Route]] = {}
        self._counts: dict[tuple[LinkId, Filter], int] = {}
        self._index: MatchIndex[tuple[LinkId, Filter]] = MatchIndex()
        self._entered: dict[tuple[LinkId, RouteId], tuple[Filter, Route]] = {}
        """Entries that were not announced over their link, but made by a component."""
        self._always: dict[LinkId, int] = {}
        """Links with filters that match everything, and how many."""

    def __len__(self) -> int:
        return sum(len(routes) for routes in self._routes.values()) + len(self._entered)

    def links(self) -> list[LinkId]:
        return list(self._routes)

    def routes(self, link: LinkId) -> dict[RouteId, Route]:
        """What was announced over a link, by the names it has there."""
        return self._routes.get(link, {})

    def has(self, link: LinkId, filter_: Filter) -> bool:
        """Whether this very filter is in the table for a link."""
        if filter_.normal_form == (ANYTHING,):
            return link in self._always
        return (link, filter_) in self._counts

    def add(self, link: LinkId, id_: RouteId, route: Route) -> None:
        """Enter a route under the name that it has on the link."""
        self._routes.setdefault(link, {})[id_] = route
        self._match_to(link, route.filter)

    def remove(self, link: LinkId, id_: RouteId) -> Route | None:
        """Remove a route; None if there is none of that name."""
        route = self._routes.get(link, {}).pop(id_, None)
        if route is None:
            return None
        if not self._routes[link]:
            del self._routes[link]
        self._match_no_more(link, route.filter)
        return route

    def enter(self, link: LinkId, id_: RouteId, filter_: Filter, route: Route) -> None:
        """Enter a filter that a component answers for, with what publishers hear of it."""
        self._entered[link, id_] = filter_, route
        self._match_to(link, filter_)

    def withdraw(self, link: LinkId, id_: RouteId) -> Route | None:
        """Remove such an entry; None if there is none of that name."""
        filter_, route = self._entered.pop((link, id_), (None, None))
        if filter_ is not None:
            self._match_no_more(link, filter_)
        return route

    def entered(self, link: LinkId | None = None) -> dict[tuple[LinkId, RouteId], Filter]:
        """The filters that components have entered, for all links or one."""
        return {
            key: filter_
            for key, (filter_, _) in self._entered.items()
            if link is None or key[0] == link
        }

    def widest(self) -> list[Route]:
        """What publishers hear of them."""
        return [route for _, route in self._entered.values()]

    def _match_to(self, link: LinkId, filter_: Filter) -> None:
        if filter_.normal_form == (ANYTHING,):
            self._always[link] = self._always.get(link, 0) + 1
            return
        key = link, filter_
        count = self._counts.get(key, 0)
        if count == 0:
            self._index.add(key, filter_)
        self._counts[key] = count + 1

    def _match_no_more(self, link: LinkId, filter_: Filter) -> None:
        if filter_.normal_form == (ANYTHING,):
            self._always[link] -= 1
            if not self._always[link]:
                del self._always[link]
            return
        key = link, filter_
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self._index.remove(key)

    def match(self, events: Sequence[Event]) -> dict[LinkId, tuple[Event, ...]]:
        """For each link, the events that are wanted there, in their order."""
        if len(events) == 1:
            only = (events[0],)
            to: dict[LinkId, tuple[Event, ...]] = dict.fromkeys(self._always, only)
            for link, _ in self._index.match(only[0].attributes):
                to[link] = only
            return to
        found: dict[LinkId, list[Event]] = {}
        for event in events:
            links = dict.fromkeys(self._always)
            for link, _ in self._index.match(event.attributes):
                links[link] = None
            for link in links:
                found.setdefault(link, []).append(event)
        return {link: tuple(wanted) for link, wanted in found.items()}
