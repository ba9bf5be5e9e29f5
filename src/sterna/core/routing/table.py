"""The routing table: which filters were announced over which link, and where an event must go."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, takewhile

import msgspec

from sterna.core.messages import Route
from sterna.core.names import LinkId, RouteId
from sterna.core.routing.foresight import Foresight
from sterna.matching import MatchIndex
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.filters.effort import Effort
from sterna.model.filters.long_texts import checked
from sterna.model.filters.normal_form import ANYTHING


class RoutingTable:
    """Filters by link. Equal filters are matched once, however many links they come from."""

    def __init__(self) -> None:
        self._routes: dict[LinkId, dict[RouteId, Route]] = {}
        self._numbers: dict[Filter, int] = {}
        """The number of each filter; numbers are quicker to count by."""
        self._wanting: dict[int, dict[LinkId, int]] = {}
        """The links that a filter was announced over, and how often."""
        self._index: MatchIndex[int] = MatchIndex()
        self._last = 0
        """The number of the filter that began last."""
        self._entered: dict[tuple[LinkId, RouteId], tuple[Filter, Route]] = {}
        """Entries that were not announced over their link, but made by a component."""
        self._always: dict[LinkId, int] = {}
        """Links with filters that match everything, and how many."""
        self.expected: dict[LinkId, dict[RouteId, Route]] = {}
        """What clients are about to announce: nothing goes there because of it yet."""
        self._names_of: dict[LinkId, dict[int, list[RouteId]]] = {}
        """For some links, the names that each filter has there; 0 is for those that match all."""
        self._retired: deque[int] = deque()
        """Filters that no link wants any more, and that are in the index still."""

    def __len__(self) -> int:
        return sum(len(routes) for routes in self._routes.values()) + len(self._entered)

    def links(self) -> list[LinkId]:
        return list(self._routes)

    def routes(self, link: LinkId) -> dict[RouteId, Route]:
        """What was announced over a link, by the names it has there."""
        return self._routes.get(link, {})

    def has(self, link: LinkId, filter_: Filter) -> bool:
        """Whether this very filter is in the table for a link."""
        return link in (self._links_of(filter_) or ())

    def add(self, link: LinkId, id_: RouteId, route: Route) -> None:
        """Enter a route under the name that it has on the link."""
        self._names_of.pop(link, None)
        self._routes.setdefault(link, {})[id_] = route
        self._match_to(link, route.filter)

    def remove(self, link: LinkId, id_: RouteId) -> Route | None:
        """Remove a route; None if there is none of that name."""
        self._names_of.pop(link, None)
        route = self._routes.get(link, {}).pop(id_, None)
        if route is None:
            return None
        if not self._routes[link]:
            del self._routes[link]
        self._match_no_more(link, route.filter)
        return route

    def retire(self, link: LinkId, ids: Iterable[RouteId]) -> list[Route]:
        """Remove many routes quickly; return those that there were.

        Nothing goes to the link because of them any more, but the index is to be swept: once for
        each of them is enough.
        """
        self._names_of.pop(link, None)
        known = self._routes.get(link, {})
        routes = [known.pop(id_) for id_ in ids if id_ in known]
        if not known:
            self._routes.pop(link, None)
        for route in routes:
            self._want_no_more(link, route.filter, self._retired.append)
        return routes

    def sweep(self, count: int) -> None:
        """Take some of the filters out of the index that no link wants any more."""
        for _ in range(min(count, len(self._retired))):
            self._drop(self._retired.popleft())

    def expect(self, link: LinkId, id_: RouteId, route: Route) -> None:
        """Prepare for a route that is about to be announced."""
        self.expected.setdefault(link, {})[id_] = route
        if self._links_of(route.filter) is None:
            self._begin(route.filter)

    def take_expected(self, link: LinkId, said: Route) -> Route | None:
        """The route that was expected under a name; None if there is none with this filter."""
        route = self.expected.get(link, {}).get(said.id)
        if route is None or route.filter != said.filter:
            return None
        del self.expected[link][said.id]
        if not self.expected[link]:
            del self.expected[link]
        return route

    def expect_no_more(self, link: LinkId) -> list[Route]:
        """Return what was expected and has not come; the index is to be swept as after `retire`."""
        routes = list(self.expected.pop(link, {}).values())
        for route in routes:
            if self._links_of(route.filter) == {} and route.filter in self._numbers:
                self._retired.append(self._numbers.pop(route.filter))
        return routes

    def enter(self, link: LinkId, id_: RouteId, filter_: Filter, route: Route) -> None:
        """Enter a filter that a component answers for, and the route that publishers get for it."""
        self._entered[link, id_] = filter_, route
        self._match_to(link, filter_)

    def withdraw(self, link: LinkId, id_: RouteId) -> Route | None:
        """Remove an entry that a component made; None if there is none of that name."""
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

    def widest_of(self, link: LinkId, id_: RouteId) -> Filter | None:
        """What was announced over a link under a name, whatever a component makes of it."""
        route = self.routes(link).get(id_)
        if route is None:
            _, route = self._entered.get((link, id_), (None, None))
        return None if route is None else route.filter

    def widest(self) -> list[Route]:
        """The routes that publishers get for entries made by components."""
        return [route for _, route in self._entered.values()]

    def _match_to(self, link: LinkId, filter_: Filter) -> None:
        links = self._links_of(filter_)
        if links is None:
            links = self._begin(filter_)
        links[link] = links.get(link, 0) + 1

    def _begin(self, filter_: Filter) -> dict[LinkId, int]:
        """Match a filter that was in the table for no link so far."""
        self._last += 1
        number = self._numbers[filter_] = self._last
        self._index.add(number, filter_)
        links = self._wanting[number] = {}
        return links

    def _match_no_more(self, link: LinkId, filter_: Filter) -> None:
        self._want_no_more(link, filter_, self._drop)

    def _want_no_more(self, link: LinkId, filter_: Filter, drop: Callable[[int], None]) -> None:
        links = self._links_of(filter_) or {}
        links[link] -= 1
        if not links[link]:
            del links[link]
        if not links and links is not self._always:
            drop(self._numbers.pop(filter_))

    def _drop(self, number: int) -> None:
        del self._wanting[number]
        self._index.remove(number)

    def _links_of(self, filter_: Filter) -> dict[LinkId, int] | None:
        """The links that a filter is in the table for, and how often; None if for none."""
        if filter_.normal_form == (ANYTHING,):
            return self._always
        number = self._numbers.get(filter_)
        return None if number is None else self._wanting[number]

    def keep(self) -> "KeptTable":
        """What a snapshot has to hold."""
        kept = KeptTable(
            routes={link: dict(routes) for link, routes in self._routes.items()},
            entered=[(*key, filter_, route) for key, (filter_, route) in self._entered.items()],
            always=list(self._always),
            expected={link: dict(routes) for link, routes in self.expected.items()},
        )
        return msgspec.structs.replace(kept, order=self._order(kept.filters()))

    def _order(self, filters: Iterable[Filter]) -> list[tuple[int, list[LinkId]]]:
        places: dict[int, int] = {}
        for place, filter_ in enumerate(filters):
            number = self._numbers.get(filter_)
            if number is not None:
                places.setdefault(number, place)
        return [
            (places[number], list(links) if len(links) > 1 else [])
            for number, links in self._wanting.items()
            if links
        ]

    def restore(self, kept: "KeptTable") -> None:
        """Go on with what a snapshot has held."""
        filters = list(kept.filters())
        for place, links in kept.order:
            self._begin(filters[place]).update(dict.fromkeys(links, 0))
        self._always.update(dict.fromkeys(kept.always, 0))
        for link, routes in kept.routes.items():
            for id_, route in routes.items():
                self.add(link, id_, route)
        for link, id_, filter_, route in kept.entered:
            self.enter(link, id_, filter_, route)
        for link, routes in kept.expected.items():
            for id_, route in routes.items():
                self.expect(link, id_, route)

    @property
    def uncompiled(self) -> int:
        """How many filters are tested slowly until they are compiled to machine code."""
        return self._index.uncompiled

    @property
    def effort(self) -> Effort:
        """What an event may need besides what is compiled to machine code."""
        return self._index.effort

    def foresee(self, foresight: Foresight) -> Generator[None, None, None]:
        """Match events before they are handled; it yields whenever time is up."""
        foresight.since = self._last
        events = [event.attributes for event in foresight.events]
        foresight.found = yield from self._index.match_in_slices(events, foresight.texts)
        while foresight.since < self._last:
            yield from self._match_new(foresight)

    def _match_new(self, foresight: Foresight) -> Generator[None, None, None]:
        """Match the filters that have come meanwhile."""
        newest, foresight.since = self._newest(foresight.since), self._last
        texts = foresight.texts
        for number, filter_ in newest:
            places = []
            for place, event in enumerate(foresight.events):
                if (yield from checked(filter_.matches, event.attributes, texts)):
                    places.append(place)
                if texts.is_time_up:
                    yield
            if places:
                foresight.found[number] = places

    def _newest(self, since: int) -> list[tuple[int, Filter]]:
        """The filters that began after another one."""
        pairs = ((number, filter_) for filter_, number in reversed(self._numbers.items()))
        return list(takewhile(lambda pair: pair[0] > since, pairs))

    def _foreseen(
        self, events: Sequence[Event], foresight: Foresight
    ) -> dict[int, list[int]] | None:
        """What was found for events before, as it is now; None if they were not foreseen."""
        found = foresight.found_for(events)
        if found is None:
            return None
        found = {number: places for number, places in found.items() if number in self._wanting}
        for number, filter_ in self._newest(foresight.since):
            tests = enumerate(filter_.matches(each.attributes, foresight.texts) for each in events)
            places = [place for place, matches in tests if matches]
            if places:
                found[number] = places
        return found

    def match(
        self, events: Sequence[Event], foresight: Foresight | None = None
    ) -> dict[LinkId, tuple[Event, ...]]:
        """For each link, the events that are wanted there, in their order.

        Links come in the order of their filters, and filters in the order in which they began. The
        index has an order of its own, which depends on what else it has held.
        Links that want the same events get the very same tuple, which is encoded once.
        """
        if foresight is not None:
            foreseen = self._foreseen(events, foresight)
            if foreseen is not None:
                return self._shared(events, foreseen)
        if len(events) == 1:
            only = (events[0],)
            to: dict[LinkId, tuple[Event, ...]] = dict.fromkeys(self._always, only)
            numbers = self._index.match(only[0].attributes)
            numbers.sort()
            for number in numbers:
                to |= dict.fromkeys(self._wanting[number], only)
            return to
        found = self._index.match_each([event.attributes for event in events])
        return self._shared(events, found)

    def wanting(self, link: LinkId, event: Event) -> list[RouteId]:
        """The names of the routes of one link that match an event.

        This is for links with many routes: it takes no longer than to match the event at all.
        """
        names = self._names_of.get(link)
        if names is None:
            names = self._names_of[link] = {}
            for id_, route in self.routes(link).items():
                names.setdefault(self._numbers.get(route.filter, 0), []).append(id_)
        found = list(names.get(0, ()))
        for number in sorted(self._index.match(event.attributes)):
            found += names.get(number, ())
        return found

    def _shared(
        self, events: Sequence[Event], found: dict[int, list[int]]
    ) -> dict[LinkId, tuple[Event, ...]]:
        everything = tuple(events)
        to = dict.fromkeys(self._always, everything)
        several: dict[LinkId, list[int]] = {}
        for number in sorted(found):
            places = found[number]
            wanted = everything
            if len(places) < len(events):
                wanted = tuple([events[place] for place in places])
            for link in self._wanting[number]:
                if to.setdefault(link, wanted) is wanted:
                    several[link] = [number]
                elif link in several:
                    several[link].append(number)
        for link, numbers in several.items():
            if len(numbers) > 1:
                merged = sorted(set(chain.from_iterable([found[number] for number in numbers])))
                to[link] = tuple([events[place] for place in merged])
        return to


class KeptTable(msgspec.Struct, frozen=True):
    """What a snapshot holds of a routing table."""

    routes: dict[LinkId, dict[RouteId, Route]]
    entered: list[tuple[LinkId, RouteId, Filter, Route]]
    always: list[LinkId] = []
    """The links with filters that match everything, in their order."""
    order: list[tuple[int, list[LinkId]]] = []
    """The other filters in their order: for each, its first place in `filters`, and its links in
    their order if it has several. Older snapshots have none."""
    expected: dict[LinkId, dict[RouteId, Route]] = {}

    def filters(self) -> Iterator[Filter]:
        """The filters of all entries, some of them more than once."""
        for routes in self.routes.values():
            for route in routes.values():
                yield route.filter
        for _, _, filter_, _ in self.entered:
            yield filter_
