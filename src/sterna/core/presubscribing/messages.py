"""What replicators tell each other about clients that may come."""

import msgspec

from sterna.core.names import NodeId, RouteId
from sterna.core.overlay.messages import Unicast
from sterna.model.filters import Filter
from sterna.model.ranges import Duration, Number


class VirtualRoute(msgspec.Struct, frozen=True, array_like=True):
    """A client's subscription at a place where it may come."""

    id: RouteId
    """The name that the client has given it."""
    place: str
    filter: Filter
    """What it means there."""
    events_max: Number | None = None
    """How many events it begins with there."""
    ago_us: Duration | None = None
    """How old these are at most."""


class VirtualAsked(Unicast, frozen=True, kw_only=True):
    """To all brokers: the sender has begun to have virtual clients; say what you want of it."""


class VirtualWanted(Unicast, frozen=True, kw_only=True):
    """To a broker that serves places: a client may come there; have these subscriptions there.

    It replaces what the sender has said before about the client, so an empty one ends them all.
    """

    client: NodeId
    number: Number
    """The greater one is later, whatever way they have come."""
    routes: tuple[VirtualRoute, ...] = ()
