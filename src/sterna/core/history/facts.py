"""What brokers and clients state about the past of subscriptions."""

from sterna.core.facts import Fact
from sterna.core.names import NodeId, Time


class PastFound(Fact, frozen=True, kw_only=True):
    """A broker has found the past that one of its clients has asked for."""

    client: NodeId
    subscription: str
    here: int
    """How many events it had itself."""
    neighbours: int
    """How many events came from other brokers."""
    archived: int = 0
    """How many events came from the archive."""
    virtual: int = 0
    """How many events a virtual client had kept, because the client was expected."""
    away: int = 0
    """How many links away the farthest of these brokers is."""
    search_us: Time | None = None
    """How long it took until the other brokers had answered; None if none were asked."""


class PastHeld(Fact, frozen=True, kw_only=True):
    """Events of a subscription have waited at the client until its past was there, or given up."""

    subscription: str
    held: int
    """How many have waited."""
    held_us: Time
    """How long the first of them has."""
