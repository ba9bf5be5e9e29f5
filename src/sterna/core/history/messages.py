"""How a client asks for what was published before it subscribed."""

from collections.abc import Iterable
from typing import ClassVar

from sterna.core.messages import Claim, Message, Route
from sterna.core.names import RouteId, Time
from sterna.model.event import Event


class PastAsked(Message, frozen=True, kw_only=True):
    """Client -> border broker: I subscribe, and want what you still have of before."""

    from_clients: ClassVar[bool] = True

    route: Route
    events_max: int | None = None
    """The last so many …"""
    since_us: Time | None = None
    """… that were published at this time or later."""
    number: int = 0
    """By which the client knows the answer."""

    def claims(self) -> Iterable[Claim]:
        return (Claim("subscription", (self.route.id,)),)


class Past(Message, frozen=True, kw_only=True):
    """Border broker -> client: what was there; all that comes later comes as usual."""

    subscription: RouteId
    number: int = 0
    events: tuple[Event, ...]
