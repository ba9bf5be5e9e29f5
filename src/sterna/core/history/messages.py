"""How a client asks for what was published before it subscribed."""

from collections.abc import Iterable
from typing import ClassVar

from sterna.core.messages import Claim, Message, Route
from sterna.core.names import RouteId
from sterna.model.event import Event, EventId
from sterna.model.ranges import Instant, Number


class PastAsked(Message, frozen=True, kw_only=True):
    """Client -> border broker: I subscribe, and want the past events that you still have."""

    from_clients: ClassVar[bool] = True

    route: Route
    events_max: Number | None = None
    """At most so many events, the newest ones."""
    since_us: Instant | None = None
    """Only events that were published at this time or later."""
    number: Number = 0
    """The number by which the client recognizes the answer."""
    in_parts: bool = False
    """Whether the client takes the answer in several messages; those of release 0.1 do not."""

    def claims(self) -> Iterable[Claim]:
        return (Claim("subscription", (self.route.id,)),)


class Past(Message, frozen=True, kw_only=True):
    """Border broker -> client: past events; later ones arrive as usual."""

    subscription: RouteId
    number: Number = 0
    events: tuple[Event, ...]
    more: bool = False
    """Whether another part of the answer follows."""
    later: bool = False
    """Whether the broker has too many requests, and the client is to ask again later."""
    missed: tuple[EventId, ...] = ()
    """Events that the broker had to drop, because the client took the others too slowly."""
