"""What brokers state about virtual clients."""

from sterna.core.facts import Fact
from sterna.core.names import NodeId


class VirtualEnded(Fact, frozen=True, kw_only=True):
    """A virtual client has ended; each event that came to it is counted once."""

    client: NodeId
    subscription: str
    place: str
    came: int
    """How many events came: those that its search found, and those that followed."""
    repeated: int
    """How many of them it had already: its search has found what came on the usual way as well."""
    handed: int
    """How many its client got when it came."""
    dropped: int
    """How many were not kept until then: there were too many, memory was short, or something may
    be missing behind them."""
    unused: int
    """How many it still had, which its client never got from it."""
