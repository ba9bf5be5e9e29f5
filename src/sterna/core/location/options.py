"""Where clients of a network can be, and how their subscriptions follow them."""

from functools import lru_cache
from hashlib import sha256

import msgspec

from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.names import Time
from sterna.model.location import HexGrid, LocationSpace, MovementGraph


class PlacesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The locations of a network, and how moving subscriptions are routed in it."""

    edges: tuple[tuple[str, str], ...] = ()
    """The movement graph: which location leads to which."""
    directed: bool = False
    """Whether its edges go one way only."""
    h3_resolution: int | None = None
    """Instead of a graph: the hexagons of this resolution."""
    rule: StepRule = StepRule.SAFE
    dwell: Dwell = Dwell.LEAST
    dwell_us: Time | None = None
    """The shortest time that clients stay at a location, configured or mined from where they went.
    None if it is not known; then a client may be anywhere until it has measured its own stays."""
    probe_us: Time = 1_000_000
    """The time between two measurements of a link that carries moving subscriptions."""
    away_steps_max: int = 8
    """How many moves a client may make while its link is down and still receive every event about
    its new location from the moment when the link is up again."""
    grain_us: Time = 1_000
    """Round trips are rounded up to a multiple of this, so that clients at about the same distance
    can share a route."""

    def digest(self) -> int:
        """A number that is equal for equal locations, edges between them and rules."""
        return _digest(self.edges, self.h3_resolution, self.rule, directed=self.directed)

    def space(self) -> LocationSpace:
        """The locations; one space serves all nodes of a process."""
        return _space(self.edges, self.h3_resolution, directed=self.directed)


@lru_cache(maxsize=8)
def _space(
    edges: tuple[tuple[str, str], ...], h3_resolution: int | None, *, directed: bool
) -> LocationSpace:
    if h3_resolution is not None:
        return HexGrid(h3_resolution)
    return MovementGraph(edges, directed=directed)


@lru_cache(maxsize=8)
def _digest(
    edges: tuple[tuple[str, str], ...],
    h3_resolution: int | None,
    rule: StepRule,
    *,
    directed: bool,
) -> int:
    back = () if directed else ((end, start) for start, end in edges)
    ways = sorted({*edges, *back})
    text = msgspec.msgpack.encode((ways, h3_resolution, rule))
    return int.from_bytes(sha256(text).digest()[:8], "big")
