"""What one neighbour is told: the chains for it, and what came out of them so far."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from sterna.core.messages import AdvertisementChange, Route, SubscriptionChange
from sterna.core.names import RouteId
from sterna.core.routing.advertisements import AdvertisementGate
from sterna.core.routing.stages import EVERYTHING, Chain, Difference, Effort, KeptDifference
from sterna.core.routing.strategies import KeptStage

PRESUMED = Route("", EVERYTHING)
"""What a neighbour may publish that does not advertise, as long as its link has never stood."""

FEW_TOLD = 4
"""So many hear of subscriptions in the turn in which they come."""

KINDS: tuple[type[SubscriptionChange | AdvertisementChange], ...]
KINDS = SubscriptionChange, AdvertisementChange

ROUTES_MAX = 250
"""How many routes are added with one message; of more messages than a few, a part is sent at once.
"""


class Announcement(NamedTuple):
    """What one neighbour is told of subscriptions or advertisements."""

    chain: Chain
    """Where filters from other links go in. Publishers share one, for they all hear the same."""
    difference: Difference

    def take(self, looking: Effort) -> tuple[tuple[Route, ...], tuple[RouteId, ...]] | None:
        """Take what there is to announce; None if there is nothing.

        Nothing ends as long as it may be needed for what waits in the chain. A change that has to
        be looked at closely waits for another turn if no effort is left for that.
        """
        if self.chain.waits:
            added = self.difference.take_added()
            return (added, ()) if added else None
        if self.difference.is_unlooked and not looking:
            return None
        return self.difference.take() if self.difference.is_due(looking) else None

    def waits(self, *, is_up: bool) -> bool:
        """Whether something is left to do in later turns."""
        return self.chain.waits or (is_up and self.difference.is_unlooked)


class Neighbour(NamedTuple):
    """All that one neighbour is told."""

    subscriptions: Announcement
    advertisements: Announcement | None = None
    """None if it is told of none."""
    gate: AdvertisementGate | None = None
    """Where its own advertisements admit subscriptions; None if it hears of them all."""
    sends_everything: bool = False
    """It was asked for all events, whatever the subscriptions."""

    @property
    def told(self) -> "tuple[Announcement, ...]":
        """What it is told, of subscriptions first."""
        offers = self.advertisements
        return (self.subscriptions,) if offers is None else (self.subscriptions, offers)

    def waits(self, *, is_up: bool) -> bool:
        """Whether something is left to do in later turns."""
        offers = self.advertisements
        return self.subscriptions.waits(is_up=is_up) or (
            offers is not None and offers.waits(is_up=is_up)
        )

    def due(
        self, *, is_up: bool, effort: Effort, looking: Effort
    ) -> Iterator[SubscriptionChange | AdvertisementChange]:
        """The messages to send now if the link is up; otherwise the difference accumulates."""
        for each in self.told:
            each.chain.flush(effort)
        for each, kind in zip(self.told, KINDS, strict=False):
            change = each.take(looking) if is_up else None
            if change is not None:
                yield from messages(kind, *change)
            elif not is_up and not each.chain.waits:
                each.difference.forget_unannounced()


class KeptNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of what one neighbour is told."""

    subscriptions: list[KeptStage]
    """Empty for a publisher: all publishers share one chain."""
    difference: KeptDifference
    advertisements: list[KeptStage] = []
    offers: KeptDifference | None = None


def messages(
    kind: type[SubscriptionChange | AdvertisementChange],
    added: tuple[Route, ...],
    removed: tuple[RouteId, ...],
) -> Iterator[SubscriptionChange | AdvertisementChange]:
    """One message, or several if it would be long: what ends comes last."""
    first = 0
    while len(added) - first > ROUTES_MAX:
        yield kind(added=added[first : first + ROUTES_MAX])
        first += ROUTES_MAX
    yield kind(added=added[first:], removed=removed)
