"""What nodes say to each other over a link."""

import msgspec

from sterna.core.names import NodeId, RouteId, Time
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Anything that a node says to its neighbour. Links keep the order and lose nothing."""


class Route(msgspec.Struct, frozen=True, gc=False):
    """A filter under the name by which it is withdrawn later."""

    id: RouteId
    filter: Filter


class Events(Message, frozen=True, kw_only=True):
    """Towards subscribers: events, in the order of each publisher."""

    events: tuple[Event, ...]


class SubscriptionChange(Message, frozen=True, kw_only=True):
    """Towards publishers: events that match these filters are wanted here (and no longer those).

    Both halves take effect at once, so that a filter is replaced without a gap.
    """

    added: tuple[Route, ...] = ()
    removed: tuple[RouteId, ...] = ()


class AdvertisementChange(Message, frozen=True, kw_only=True):
    """Towards subscribers: events that match these filters may come from here (no longer those)."""

    added: tuple[Route, ...] = ()
    removed: tuple[RouteId, ...] = ()


class InterestAsked(Message, frozen=True, kw_only=True):
    """Publisher -> border broker: tell me what is wanted, and keep me informed. (Huang, 3.2)"""

    number: int


class InterestKnown(Message, frozen=True, kw_only=True):
    """Border broker -> publisher: the subscription changes you have are all there are just now."""

    number: int
    """Of the question that this answers: an old answer may come after a new question."""


# ---- Roaming clients. (Fiege, 4 and App. A)

KeptFor = tuple[tuple[EventId, tuple[RouteId, ...]], ...]
"""The moving subscriptions that wanted an event where the client was when it was kept."""


class Arrival(Message, frozen=True, kw_only=True):
    """Client -> new border broker: here I am, with all my subscriptions. (Fiege, Fig. 10, line 1)

    A client that no broker has welcomed yet only says that it is there.
    """

    visit: int
    """Counts the brokers that the client has turned to."""
    born: int
    """The visit on which it was welcomed for the first time; 0 if it never was."""
    stay: int
    """The last visit on which it was welcomed (and left for good, if it is born anew) …"""
    received: int
    """… and how many events it got there: the sequence number of the last one, the paper's num."""
    subscriptions: tuple[Route, ...] = ()
    advertisements: tuple[Route, ...] = ()
    others: tuple[Message, ...] = ()


class Welcome(Message, frozen=True, kw_only=True):
    """Border broker -> client: all that was kept for you follows; from now on you may publish."""

    published: int
    """The number of the last event that the network has from you."""
    born: int = 0
    """Another number than the client has said: it had been forgotten. 0: its own."""


class Replayed(Message, frozen=True, kw_only=True):
    """Border broker -> client: what was kept for you while you were away."""

    events: tuple[Event, ...]
    missed: tuple[EventId, ...] = ()
    """What was kept no longer."""
    moving: KeptFor = ()


class Located(Message, frozen=True, kw_only=True):
    """To all brokers: a new client is in the direction that this comes from."""

    client: NodeId
    born: int


class Request(Message, frozen=True, kw_only=True):
    """What both forms of the search for the old border broker say."""

    client: NodeId
    number: int
    """By which the broker that asks knows the answer."""
    born: int
    stay: int
    received: int
    filters: tuple[Filter, ...]
    path: tuple[NodeId, ...] = ()
    """The brokers it came through, the way back for the replay."""


class Resubscribe(Request, frozen=True, kw_only=True):
    """New border broker -> junction: the client is here now. (Fiege, Fig. 11, line 1)

    On each link it follows the client's subscriptions, so that whatever passes a broker after it
    is routed to the new place as well.
    """


class Fetch(Request, frozen=True, kw_only=True):
    """Junction -> old border broker: send what the client missed. (Fiege, Fig. 11, line 13)"""

    junction: NodeId
    """The last broker on the way that leads to another producer: from there on, no event will come
    for the client."""


class Replay(Message, frozen=True, kw_only=True):
    """Old border broker -> new border broker: what the client missed. (Fiege, Fig. 11, line 22)"""

    client: NodeId
    number: int
    events: tuple[Event, ...]
    missed: tuple[EventId, ...]
    moving: KeptFor
    published: int
    path: tuple[NodeId, ...]
    """The brokers it still has to go through."""
    forgotten: bool = False
    """Whether nothing was kept, because the client has left, or was away for too long."""
    departing: int = 0
    """The visit on which the client has said farewell meanwhile; 0 if it has not."""


class Farewell(Message, frozen=True, kw_only=True):
    """Client -> border broker: I will not come back; forget me."""


class Departed(Message, frozen=True, kw_only=True):
    """To all brokers: a client has left for good, or was away for too long."""

    client: NodeId
    visit: int
    """Its last one: whatever belongs to it, or to one before, has ended."""
    published: int
    """The number of the last event that the network has from it."""


# ---- What was published before a subscription was made.


class PastAsked(Message, frozen=True, kw_only=True):
    """Client -> border broker: I subscribe, and want what you still have of before."""

    route: Route
    events_max: int | None = None
    """The last so many …"""
    since_us: Time | None = None
    """… that were published at this time or later."""
    number: int = 0
    """By which the client knows the answer."""


class Past(Message, frozen=True, kw_only=True):
    """Border broker -> client: what was there; all that comes later comes as usual."""

    subscription: RouteId
    number: int = 0
    events: tuple[Event, ...]


# ---- The overlay.


class OverlayLink(msgspec.Struct, frozen=True, order=True, gc=False):
    """Two brokers that are neighbours, in alphabetical order."""

    a: NodeId
    b: NodeId


class OverlayChange(Message, frozen=True, kw_only=True):
    """To a neighbour: these links are on my side of the network (and no longer those)."""

    added: tuple[OverlayLink, ...] = ()
    removed: tuple[OverlayLink, ...] = ()


# ---- Subscriptions that move with their client. (Fiege, 5 and App. B)


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


class MovingChange(Message, frozen=True, kw_only=True):
    """Towards publishers: clients with these filters are here, at these locations (and no longer).

    A route under a known name replaces the one before: its client has moved. (Fiege, Fig. 13)
    """

    added: tuple[MovingRoute, ...] = ()
    removed: tuple[RouteId, ...] = ()
    anew: bool = False
    """Whether this is all there is: what was said before has ended."""


class Probe(Message, frozen=True, kw_only=True):
    """To a neighbour: send this number back at once, for I want to know how far you are."""

    number: int


class Probed(Message, frozen=True, kw_only=True):
    """The answer."""

    number: int
