"""What clients state about subscriptions that are known."""

from sterna.core.facts import Fact
from sterna.core.names import NodeId


class SubscriptionKnown(Fact, frozen=True, kw_only=True):
    """Every broker that matters knows a subscription, as the application has asked.

    Whatever is published from now on and matches it will be delivered.
    """

    subscription: str
    but_not: tuple[NodeId, ...] = ()
    """Nodes that could not be asked: what comes from them may be missed for some time yet."""
