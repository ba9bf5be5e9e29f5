"""What nodes say to each other over a link."""

import msgspec

from sterna.core.names import RouteId
from sterna.model.event import Event
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
