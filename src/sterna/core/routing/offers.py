"""What was advertised over each link, by the names that it has there."""

from collections.abc import Mapping, Sequence

from sterna.core.messages import AdvertisementChange, Route
from sterna.core.names import LinkId, RouteId
from sterna.core.routing.neighbours import Neighbours
from sterna.core.routing.stages import NameRoute

MANY = 32
"""When more subscriptions or advertisements than this begin or end together, neighbours are told in
several turns."""


class Offers:
    """Advertisements as they come and go, and those that clients are about to announce."""

    def __init__(
        self,
        routes: dict[LinkId, dict[RouteId, Route]],
        neighbours: Neighbours,
        name: NameRoute,
    ) -> None:
        self._routes = routes
        self._neighbours = neighbours
        self._name = name
        self.expected: dict[LinkId, dict[RouteId, None]] = {}
        """What clients are about to advertise, by name. It counts as advertised already."""

    def change(self, message: AdvertisementChange, link: LinkId, *, expected: bool = False) -> None:
        """The other end of a link has advertised, or is expected to."""
        come = self.expected.get(link, {})
        for said in message.added:
            if not said.filter.is_bound:
                continue
            come.pop(said.id, None)
            known = self._routes.get(link, {}).get(said.id)
            if known is not None:
                if known.filter == said.filter:
                    continue
                self.remove(link, said.id)
            self.add(link, said, expected=expected)
        self.remove_all(link, message.removed)

    def expect(self, routes: Sequence[Route], link: LinkId) -> None:
        """A client is about to introduce itself: its advertisements count from now on."""
        known = self._routes.get(link, {})
        for said in routes:
            if said.filter.is_bound and said.id not in known:
                self.add(link, said)
                self.expected.setdefault(link, {})[said.id] = None

    def expect_no_more(self, link: LinkId) -> None:
        """What a client was expected to advertise and has not leaves again."""
        self.remove_all(link, list(self.expected.pop(link, ())))

    def add(self, link: LinkId, said: Route, *, expected: bool = False) -> None:
        """Enter an advertisement, under a name of this broker."""
        route = Route(self._name(), said.filter)
        self._routes.setdefault(link, {})[said.id] = route
        self._neighbours.advertisement_added(link, route, expected=expected)

    def remove_all(self, link: LinkId, ids: Sequence[RouteId]) -> None:
        """They hold no longer; if they are many, neighbours hear of it later."""
        if len(ids) > MANY:
            known = self._routes.get(link, {})
            self._neighbours.ending.extend((link, known.pop(id_)) for id_ in ids if id_ in known)
            if not known:
                self._routes.pop(link, None)
            return
        for id_ in ids:
            self.remove(link, id_)

    def remove(self, link: LinkId, id_: RouteId) -> None:
        """End an advertisement, if there is one of that name."""
        route = self._routes.get(link, {}).pop(id_, None)
        if route is None:
            return
        if not self._routes[link]:
            del self._routes[link]
        self._neighbours.advertisement_removed(link, route)

    def keep(self) -> dict[LinkId, list[RouteId]]:
        """What a snapshot has to hold of what is expected."""
        return {link: list(names) for link, names in self.expected.items()}

    def restore(self, kept: Mapping[LinkId, list[RouteId]]) -> None:
        """Go on with what a snapshot has held."""
        self.expected = {link: dict.fromkeys(names) for link, names in kept.items()}
