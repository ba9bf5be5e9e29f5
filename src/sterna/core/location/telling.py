"""Which moving routes one neighbour gets: as few as cover all locations that it must know."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sterna.core.location.messages import MovingRoute
from sterna.core.names import LinkId, RouteId, Time
from sterna.model.filters import Filter

Source = tuple[LinkId, RouteId]
"""Where a route comes from, and its name there."""


class Likeness(NamedTuple):
    """What routes have in common that share announcements to a neighbour."""

    filter: Filter
    dwell_us: Time | None
    delay_us: Time | None
    source: Source | None = None
    """Set if each route is announced by itself."""
    places: int = 0
    """The digest of the places that is announced to the neighbour."""


class Share:
    """Routes that differ only in where their clients are.

    The neighbour knows some of them, not always those of clients that are still there. What counts
    is that together they reach every location where a client may be, and no other.
    """

    def __init__(self) -> None:
        self.routes: dict[str, MovingRoute] = {}
        """One for each location."""
        self.reach: dict[str, frozenset[str]] = {}
        """Where a client from there may be by the time an event gets from the neighbour to it."""
        self.clients: Counter[str] = Counter()
        """How many routes there are for each location; locations with none are only announced."""
        self.told_as: dict[str, RouteId] = {}
        """The names by which the neighbour knows some of them."""

    def choose(self) -> list[str]:
        """The locations to announce: known ones that do no harm, and others as needed."""
        reach = self.reach
        wanted = frozenset[str]().union(*(reach[at] for at in self.clients))
        chosen = [at for at in self.told_as if reach[at] <= wanted]
        asked = set[str]().union(*(reach[at] for at in chosen))
        for at in self.clients:
            if not reach[at] <= asked:
                chosen.append(at)
                asked |= reach[at]
        return chosen if chosen == list(self.told_as) else self._without_ghosts(chosen)

    def _without_ghosts(self, chosen: list[str]) -> list[str]:
        """The same, without locations that no client is at and no location needs."""
        asked = Counter(place for at in chosen for place in self.reach[at])
        for ghost in [at for at in chosen if at not in self.clients]:
            if all(asked[place] > 1 for place in self.reach[ghost]):
                asked.subtract(self.reach[ghost])
                chosen.remove(ghost)
        return chosen


class KeptShare(msgspec.Struct, frozen=True):
    """What a snapshot holds of routes that differ only in the location."""

    likeness: Likeness
    routes: dict[str, MovingRoute]
    clients: dict[str, int]
    told_as: dict[str, RouteId]


class KeptTelling(msgspec.Struct, frozen=True):
    """What a snapshot holds of the announcements to one neighbour."""

    shares: list[KeptShare]
    places: list[tuple[Source, int, str]]
    """The source of each route, the place of its share in the list, and its location."""
    changed: list[int]


class Telling:
    """The shares that concern one neighbour, and what it knows of them."""

    def __init__(self, name: Callable[[], RouteId]) -> None:
        self.shares: dict[Likeness, Share] = {}
        self.places: dict[Source, tuple[Likeness, str]] = {}
        """The share and the location of each route."""
        self._name = name
        self._changed: dict[Likeness, None] = {}

    def put(
        self, source: Source, route: MovingRoute, likeness: Likeness, reach: frozenset[str]
    ) -> None:
        """Add or change a route, which shares with others of the same likeness."""
        self.drop(source)
        share = self.shares.setdefault(likeness, Share())
        share.routes[route.at] = route
        share.reach[route.at] = reach
        share.clients[route.at] += 1
        self.places[source] = likeness, route.at
        self._changed[likeness] = None

    def drop(self, source: Source) -> None:
        """Remove a route, if it is there."""
        likeness, at = self.places.pop(source, (None, ""))
        if likeness is not None:
            self.shares[likeness].clients -= Counter([at])
            self._changed[likeness] = None

    def look_again(self) -> None:
        """Check all shares again: other filters matter to the neighbour now."""
        self._changed = dict.fromkeys(self.shares)

    def difference(
        self, must_hear: Callable[[Filter], bool]
    ) -> tuple[list[MovingRoute], list[RouteId]]:
        """What has begun and ended since the last call, to be announced to the neighbour."""
        begun: list[tuple[Share, str]] = []
        ended: list[RouteId] = []
        for likeness in self._changed:
            share = self.shares[likeness]
            route = next(iter(share.routes.values()))
            chosen = share.choose() if must_hear(route.filter) else []
            ended += [share.told_as.pop(at) for at in list(share.told_as) if at not in chosen]
            begun += [(share, at) for at in chosen if at not in share.told_as]
            known = {*share.clients, *chosen}
            for gone in [at for at in share.routes if at not in known]:
                del share.routes[gone], share.reach[gone]
            if not share.routes:
                del self.shares[likeness]
        self._changed.clear()
        added = []
        for share, at in begun:  # Under the name of one that has ended: its client has moved.
            share.told_as[at] = name = ended.pop(0) if ended else self._name()
            added.append(msgspec.structs.replace(share.routes[at], id=name))
        return added, ended

    def announced(self) -> list[MovingRoute]:
        """All that was announced to the neighbour, under the same names."""
        return [
            msgspec.structs.replace(share.routes[at], id=name)
            for share in self.shares.values()
            for at, name in share.told_as.items()
        ]

    def keep(self) -> KeptTelling:
        """What a snapshot has to hold."""
        numbers = {likeness: number for number, likeness in enumerate(self.shares)}
        return KeptTelling(
            shares=[
                KeptShare(likeness, dict(share.routes), dict(share.clients), dict(share.told_as))
                for likeness, share in self.shares.items()
            ],
            places=[(source, numbers[like], at) for source, (like, at) in self.places.items()],
            changed=[numbers[likeness] for likeness in self._changed],
        )

    def restore(self, kept: KeptTelling, reach: Callable[[MovingRoute], frozenset[str]]) -> None:
        """Go on with what a snapshot has held; `reach` is where a client may be for a route."""
        likenesses = [each.likeness for each in kept.shares]
        for each in kept.shares:
            share = self.shares[each.likeness] = Share()
            share.routes, share.told_as = dict(each.routes), dict(each.told_as)
            share.reach = {at: reach(route) for at, route in each.routes.items()}
            share.clients = Counter(each.clients)
        for source, number, at in kept.places:
            self.places[source] = likenesses[number], at
        self._changed = {likenesses[number]: None for number in kept.changed}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is announced to the neighbour."""
        return not any(share.told_as for share in self.shares.values())
