"""What is sent about subscriptions that move with their client. (Fiege, 5 and App. B)"""

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from sterna.core.messages import Claim, Message
from sterna.core.names import RouteId, Time
from sterna.model.filters import Filter


class MovingRoute(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A filter with `myloc` in it, and how the one who hears of it makes an instance of it."""

    id: RouteId
    filter: Filter
    at: str
    """Where its client is, as far as the one who tells knows."""
    dwell_us: Time | None
    """How long it stays at a location, at least: the paper's Δ; None if that is not known."""
    delay_us: Time | None
    """How long a message takes from the listener to it and back; None if that is not known."""
    places: int = 0
    """The digest of the places that the sender goes by; 0 if it does not say. A listener that goes
    by other places cannot tell what the client may want, and lets through all locations."""


class MovingChange(Message, frozen=True, kw_only=True):
    """Towards publishers: clients with these filters are here, at these locations (and no longer).

    A route under a known name replaces the one before: its client has moved. (Fiege, Fig. 13)
    """

    from_clients: ClassVar[bool] = True
    with_arrival: ClassVar[bool] = True

    added: tuple[MovingRoute, ...] = ()
    removed: tuple[RouteId, ...] = ()
    anew: bool = False
    """Whether this is all there is: what was announced before has ended."""

    def claims(self) -> Iterable[Claim]:
        names = [route.id for route in self.added]
        return (Claim("moving", names, self.removed, replaces=self.anew),)


class Probe(Message, frozen=True, kw_only=True):
    """To a neighbour: send this number back at once, for I want to know how far you are."""

    from_clients: ClassVar[bool] = True

    number: int


class Probed(Message, frozen=True, kw_only=True):
    """The answer to a Probe."""

    from_clients: ClassVar[bool] = True

    number: int
