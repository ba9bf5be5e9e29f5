"""What was advertised over each link, by the names that it has there.

A client that has lost its state advertises again what it needs. What an earlier life has advertised
holds for a while: if it ended and came again at once, subscriptions would do so, too. Those that
are still known would let the first events of the new life through, and the next ones were lost.
"""

from collections.abc import Mapping, Sequence

from sterna.core.messages import AdvertisementChange, Route
from sterna.core.names import NEVER, LinkId, RouteId, Time
from sterna.core.routing.neighbours import Neighbours
from sterna.core.routing.stages import NameRoute

MANY = 32
"""When more subscriptions or advertisements than this begin or end together, neighbours are told in
several turns."""

IMPLICIT = ""
"""The name of the advertisement that is assumed of a peer which does not advertise: it may publish
anything. No peer can give this name, for theirs begin with their own."""

EARLIER = "\0"
"""So begin the names here of what an earlier life of a client has advertised. No peer can give such
a name, for the names of nodes are printable."""

OUTLIVES_US: Time = 10_000_000
"""For so long it holds."""


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
        self._until: dict[LinkId, Time] = {}
        """Until when advertisements of earlier lives hold; the first one ends first."""

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

    # ---- Earlier lives

    def live_again(self, link: LinkId, now: Time) -> None:
        """A client has lost its state: what it has advertised so far holds for a while."""
        known = self._routes.get(link, {})
        last = [id_ for id_ in known if id_ != IMPLICIT and not id_.startswith(EARLIER)]
        if last:
            self.remove_all(link, [id_ for id_ in known if id_.startswith(EARLIER)])
            for id_ in last:
                route = known.pop(id_)
                known[EARLIER + route.id] = route
            self._until.pop(link, None)
            self._until[link] = now + OUTLIVES_US

    def of_this_life(self, link: LinkId) -> list[RouteId]:
        """The names of what holds because of what a peer has said, or has not, in this life."""
        return [id_ for id_ in self._routes.get(link, {}) if not id_.startswith(EARLIER)]

    @property
    def due(self) -> Time:
        """When the next advertisements of an earlier life end."""
        return next(iter(self._until.values()), NEVER)

    def end_earlier(self, now: Time) -> list[LinkId]:
        """End what is due of that, of some clients in one turn; return these."""
        ended: list[LinkId] = []
        while self._until and self.due <= now and len(ended) < MANY:
            link = next(iter(self._until))
            del self._until[link]
            known = self._routes.get(link, {})
            self.remove_all(link, [id_ for id_ in known if id_.startswith(EARLIER)])
            ended.append(link)
        return ended

    def forget(self, link: LinkId, *, with_earlier: bool) -> None:
        """All that was advertised over a link ends, also by an earlier life or not."""
        if with_earlier:
            self._until.pop(link, None)
        of_life = list(self._routes.get(link, {})) if with_earlier else self.of_this_life(link)
        self.remove_all(link, of_life)

    # ---- Snapshots

    def keep_earlier(self) -> dict[LinkId, Time]:
        """What a snapshot has to hold of earlier lives."""
        return dict(self._until)

    def keep(self) -> dict[LinkId, list[RouteId]]:
        """What a snapshot has to hold of what is expected."""
        return {link: list(names) for link, names in self.expected.items()}

    def restore(self, kept: Mapping[LinkId, list[RouteId]], earlier: Mapping[LinkId, Time]) -> None:
        """Go on with what a snapshot has held."""
        self._until = dict(earlier)
        self.expected = {link: dict.fromkeys(names) for link, names in kept.items()}
