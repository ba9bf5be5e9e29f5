"""How a client asks for what was published before it subscribed."""

from collections.abc import Iterable
from typing import ClassVar

from sterna.core.messages import Claim, Message, Route
from sterna.core.names import RouteId
from sterna.model.event import Event
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

    def claims(self) -> Iterable[Claim]:
        return (Claim("subscription", (self.route.id,)),)


class Past(Message, frozen=True, kw_only=True):
    """Border broker -> client: the past events; later ones arrive as usual."""

    subscription: RouteId
    number: Number = 0
    events: tuple[Event, ...]
