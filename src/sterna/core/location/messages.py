"""What is sent about subscriptions that move with their client. (Fiege, 5 and App. B)"""

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from sterna.core.messages import Claim, Message
from sterna.core.names import RouteId
from sterna.model.filters import Filter
from sterna.model.ranges import Digest, Duration, Number


class MovingRoute(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A filter with `myloc`, and what a receiver needs to make an instance of it."""

    id: RouteId
    filter: Filter
    at: str
    """Where its client is, as far as the sender knows."""
    dwell_us: Duration | None
    """The shortest time that it stays at a location: the paper's Δ; None if that is not known."""
    delay_us: Duration | None
    """The round trip between the receiver and the client; None if that is not known."""
    places: Digest = 0
    """The digest of the places that the sender uses; 0 if it gives none. A receiver that uses other
    places cannot know what the client may want, and lets all locations through."""
    past: tuple[Number | None, Duration | None] | None = None
    """What a client wants of the past wherever it comes: how many events, how old at most. Only its
    own broker gets to know that."""


class MovingChange(Message, frozen=True, kw_only=True):
    """Towards publishers: clients with these filters are at these locations, or are here no longer.

    A route under a known name replaces the one before: its client has moved. (Fiege, Fig. 13)
    """

    from_clients: ClassVar[bool] = True
    with_arrival: ClassVar[bool] = True

    added: tuple[MovingRoute, ...] = ()
    removed: tuple[RouteId, ...] = ()
    anew: bool = False
    """Whether this replaces everything that was announced before. A broker that begins to route
    moving subscriptions sends an empty one: it knows nothing of what it was sent until now."""

    def claims(self) -> Iterable[Claim]:
        names = [route.id for route in self.added]
        return (Claim("moving", names, self.removed, replaces=self.anew),)


class Probe(Message, frozen=True, kw_only=True):
    """To a neighbour: send this number back at once, so that I can measure the round trip."""

    from_clients: ClassVar[bool] = True

    number: Number


class Probed(Message, frozen=True, kw_only=True):
    """The answer to a Probe."""

    from_clients: ClassVar[bool] = True

    number: Number
