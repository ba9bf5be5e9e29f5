"""Chains that nobody is told from yet: what is known already goes into them a little at a time."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from sterna.core.messages import Route
from sterna.core.names import LinkId
from sterna.core.routing.advertisements import AdvertisementGate
from sterna.core.routing.announcements import Neighbour
from sterna.core.routing.stages import Chain, Effort, KeptDifference
from sterna.core.routing.strategies import KeptStage


class Filling:
    """A chain, and what it does not have yet of what is known; what is new it gets at once."""

    def __init__(self, chain: Chain, routes: Iterable[Route]) -> None:
        self.chain = chain
        self._routes = {route.id: route for route in routes}

    @property
    def waits(self) -> bool:
        """Whether something is left to do in later turns."""
        return bool(self._routes) or self.chain.waits

    def add(self, route: Route) -> None:
        """A route has come."""
        self.chain.add(route)

    def remove(self, route: Route) -> None:
        """A route has gone."""
        if self._routes.pop(route.id, None) is None:
            self.chain.remove(route)

    def many_go(self) -> None:
        """Many routes are about to go in this turn."""
        self.chain.many_go()

    def go_on(self, effort: Effort) -> None:
        """Put some more of what is known into the chain: as many as there may be steps."""
        if not self.waits or not effort:
            return
        self.chain.many_come()
        for id_ in [id_ for id_, _ in zip(self._routes, range(effort.steps), strict=False)]:
            self.chain.add(self._routes.pop(id_))
        self.chain.flush(effort)

    def filled(self) -> Chain:
        """The chain with all that is known."""
        self.go_on(Effort())
        return self.chain

    def keep(self) -> "KeptFilling":
        """What a snapshot has to hold besides the end of the chain."""
        return KeptFilling(self.chain.keep(), list(self._routes.values()))


class Advertised(NamedTuple):
    """What a neighbour has advertised, where it admits subscriptions."""

    gate: AdvertisementGate

    def many_go(self) -> None:
        """Many advertisements are about to go in this turn."""
        self.gate.many_go()

    def remove(self, route: Route) -> None:
        """An advertisement has gone."""
        self.gate.unadvertise(route)


Leavable = Chain | Filling | Advertised
"""Where routes are that may leave together with many others."""


class KeptFilling(msgspec.Struct, frozen=True):
    """What a snapshot holds of a chain that nobody is told from yet."""

    stages: list[KeptStage]
    routes: list[Route]

    def restored(self, chain: Chain) -> Filling:
        """Go on with a chain of the same stages."""
        chain.restore(self.stages)
        return Filling(chain, self.routes)


class Preparation(NamedTuple):
    """What a neighbour will be told of subscriptions and advertisements."""

    neighbour: Neighbour
    subscriptions: Filling
    advertisements: Filling | None

    @property
    def waits(self) -> bool:
        """Whether something is left to do in later turns."""
        offers = self.advertisements
        return self.subscriptions.waits or (offers is not None and offers.waits)

    def go_on(self, effort: Effort) -> None:
        """Prepare some more of it."""
        self.subscriptions.go_on(effort)
        if self.advertisements is not None:
            self.advertisements.go_on(effort)

    def keep(self) -> "KeptPreparation":
        """What a snapshot has to hold."""
        told, offers = self.neighbour.subscriptions, self.neighbour.advertisements
        return KeptPreparation(
            subscriptions=self.subscriptions.keep(),
            difference=told.difference.keep(),
            advertisements=None if self.advertisements is None else self.advertisements.keep(),
            offers=None if offers is None else offers.difference.keep(),
        )


class KeptPreparation(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of what a neighbour will be told."""

    subscriptions: KeptFilling
    difference: KeptDifference
    advertisements: KeptFilling | None = None
    offers: KeptDifference | None = None

    def restored(self, neighbour: Neighbour) -> Preparation:
        """Go on with the empty chains of a neighbour."""
        told, announced = neighbour.subscriptions, neighbour.advertisements
        told.difference.restore(self.difference)
        offers = None
        if announced is not None and self.advertisements and self.offers:
            announced.difference.restore(self.offers)
            offers = self.advertisements.restored(announced.chain)
        return Preparation(neighbour, self.subscriptions.restored(told.chain), offers)


class Preparations:
    """What will be told to neighbours whose links have never stood, and to the first publisher that
    asks what is wanted.
    """

    def __init__(self) -> None:
        self._neighbours: dict[LinkId, Preparation] = {}
        self.interest: Filling | None = None
        """The chain that publishers will share, if one is about to ask."""

    def __contains__(self, link: LinkId) -> bool:
        return link in self._neighbours

    def clear(self) -> None:
        """Forget what was prepared: it is of no use any more."""
        self._neighbours.clear()
        self.interest = None

    def begin(
        self, link: LinkId, neighbour: Neighbour, wanted: Iterable[Route], offered: Iterable[Route]
    ) -> None:
        """Begin with what is wanted and advertised already."""
        offers = neighbour.advertisements
        self._neighbours[link] = Preparation(
            neighbour,
            Filling(neighbour.subscriptions.chain, wanted),
            None if offers is None else Filling(offers.chain, offered),
        )

    def take(self, link: LinkId) -> Neighbour:
        """All that is known is in the chains of the neighbour from now on."""
        preparation = self._neighbours.pop(link)
        preparation.go_on(Effort())
        for told in preparation.neighbour[:2]:
            if told is not None:
                told.difference.forget_unannounced()  # Nothing waits that needs it.
        return preparation.neighbour

    def take_interest(self) -> Chain | None:
        """The chain that publishers share from now on; None if none was prepared."""
        filling, self.interest = self.interest, None
        return None if filling is None else filling.filled()

    def drop(self, link: LinkId) -> None:
        """The link will never stand."""
        self._neighbours.pop(link, None)

    def go_on(self, effort: Effort) -> None:
        """Prepare some more for all."""
        for preparation in self._neighbours.values():
            preparation.go_on(effort)
        if self.interest is not None:
            self.interest.go_on(effort)

    def wanting(self, link: LinkId) -> list[Filling]:
        """The chains that filters from a link go into, besides that of the publishers."""
        return [each.subscriptions for other, each in self._neighbours.items() if other != link]

    def offering(self, link: LinkId) -> list[Filling]:
        """The chains that advertisements from a link go into."""
        fillings = [each.advertisements for it, each in self._neighbours.items() if it != link]
        return [each for each in fillings if each is not None]

    def waits_for(self, link: LinkId) -> bool:
        """Whether something is left to do for a neighbour or a publisher."""
        if link in self._neighbours:
            return self._neighbours[link].waits
        return self.interest is not None and self.interest.waits

    @property
    def waits(self) -> bool:
        """Whether something is left to do in later turns."""
        return any(each.waits for each in self._neighbours.values()) or (
            self.interest is not None and self.interest.waits
        )

    def keep(self) -> "KeptPreparations":
        """What a snapshot has to hold."""
        return KeptPreparations(
            {link: each.keep() for link, each in self._neighbours.items()},
            None if self.interest is None else self.interest.keep(),
        )

    def restore(
        self,
        kept: "KeptPreparations",
        made: Callable[[LinkId], Neighbour],
        interest: Callable[[], Chain],
    ) -> None:
        """Go on with what a snapshot has held; the arguments make empty chains."""
        for link, each in kept.neighbours.items():
            self._neighbours[link] = each.restored(made(link))
        if kept.interest is not None:
            self.interest = kept.interest.restored(interest())


class KeptPreparations(msgspec.Struct, frozen=True):
    """What a snapshot holds of all that is being prepared."""

    neighbours: dict[LinkId, KeptPreparation] = {}
    interest: KeptFilling | None = None
