"""What neighbours announced before their links were begun anew, and have not announced again."""

from collections.abc import Mapping, Sequence

from sterna.core.messages import AdvertisementChange, SubscriptionChange
from sterna.core.names import LinkId, RouteId

KeptOutdated = dict[LinkId, tuple[list[RouteId], list[RouteId]]]
"""What a snapshot holds of it: for each link, the names of subscriptions and advertisements."""


class Outdated:
    """The names that subscriptions and advertisements of neighbours had, until all came again."""

    def __init__(self) -> None:
        self._names: dict[LinkId, tuple[dict[RouteId, None], dict[RouteId, None]]] = {}

    def begin(
        self, link: LinkId, subscriptions: Sequence[RouteId], advertisements: Sequence[RouteId]
    ) -> None:
        """A neighbour is going to announce all anew."""
        self._names[link] = dict.fromkeys(subscriptions), dict.fromkeys(advertisements)

    def hear(self, message: SubscriptionChange | AdvertisementChange, link: LinkId) -> None:
        """What a neighbour announces again is not outdated."""
        if link in self._names:
            names = self._names[link][isinstance(message, AdvertisementChange)]
            for route in message.added:
                names.pop(route.id, None)

    def end(self, link: LinkId) -> list[SubscriptionChange | AdvertisementChange]:
        """The neighbour has announced all: return what ends therefore, if anything does."""
        subscriptions, advertisements = self._names.pop(link, ({}, {}))
        ends: list[SubscriptionChange | AdvertisementChange] = []
        if subscriptions:
            ends.append(SubscriptionChange(removed=tuple(subscriptions)))
        if advertisements:
            ends.append(AdvertisementChange(removed=tuple(advertisements)))
        return ends

    def keep(self) -> KeptOutdated:
        """What a snapshot has to hold."""
        return {link: (list(s), list(a)) for link, (s, a) in self._names.items()}

    def restore(self, kept: Mapping[LinkId, tuple[list[RouteId], list[RouteId]]]) -> None:
        """Go on with what a snapshot has held."""
        for link, (subscriptions, advertisements) in kept.items():
            self.begin(link, subscriptions, advertisements)
