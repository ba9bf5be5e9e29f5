"""How a broker network routes: one record, the same at every broker but for its parent."""

from enum import StrEnum

import msgspec

from sterna.core.names import LinkId


class Strategy(StrEnum):
    """What a broker announces to a neighbour about filters from elsewhere. (Fiege, 2.2)"""

    FLOODING = "flooding"
    """Ask for everything."""
    SIMPLE = "simple"
    """Announce each subscription."""
    IDENTITY = "identity"
    """Announce each different filter."""
    COVERING = "covering"
    """Announce the filters that no other covers."""
    MERGING = "merging"
    """As covering, and join filters where the union is one conjunction (perfect merging)."""
    IMPERFECT = "imperfect-merging"
    """As merging, and also join where that accepts somewhat more than the parts."""


class RoutingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker routes."""

    strategy: Strategy = Strategy.COVERING
    announces: bool = True
    """Whether brokers announce filters to each other. If not, a protocol makes the routes between
    them in its own way."""
    advertisements: bool = False
    """Subscriptions travel only to where matching events were advertised."""
    hierarchical: bool = False
    """The overlay is a rooted tree: events go up to the root, down only to interest. (Burcea, 2)"""
    parent: LinkId | None = None
    """The way to the root; None at the root itself, and where there is no hierarchy."""
    merge_members_max: int = 16
    """How many filters merging joins into one; this bounds the work and the length of a message.
    With 1, nothing is joined."""
    interest_members_max: int = 2
    """How many filters merging joins into one for publishers that quench. Each change of a member
    sends the whole join, and the way to a mobile publisher is narrow; see the experiment
    `quenching`."""

    @property
    def by_advertisements(self) -> bool:
        """Whether advertisements decide where subscriptions go; with flooding, they need not."""
        return self.advertisements and self.strategy is not Strategy.FLOODING


ARCHITECTURES: dict[str, tuple[RoutingOptions, bool]] = {
    "centralized": (RoutingOptions(strategy=Strategy.SIMPLE), False),
    "centralized-quenching": (RoutingOptions(strategy=Strategy.SIMPLE), True),
    "distributed-broadcast": (RoutingOptions(strategy=Strategy.FLOODING), False),
    "distributed-multicast": (RoutingOptions(strategy=Strategy.COVERING), False),
}
"""Huang's four architectures (3, 3.2, 4.1, 4.2): how to route, and whether publishers quench. The
centralized ones have a single broker."""
