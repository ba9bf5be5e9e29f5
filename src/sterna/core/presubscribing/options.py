"""Where virtual clients are, how many, and how long they stay."""

import msgspec

from sterna.core.names import NodeId, Time
from sterna.model.location import areas


class PresubscribingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How brokers subscribe for clients that may come."""

    serves: dict[str, NodeId] = {}
    """Which broker serves which place, as far as that is another one than where the client is; a
    coarse H3 cell stands for all cells in it that are not in a finer one of the list."""
    places_max: int = 8
    """At how many places a client is expected at a time; the most probable ones come first."""
    probability_min: float = 0.0
    """At places that are less probable it is not expected; those within reach have 1 together."""
    events_max: int = 100
    """How many events are kept for each subscription at each place."""
    bytes_max: int = 256 * 1024
    """How many bytes of events."""
    virtual_max: int = 1_000
    """How many virtual clients a broker has at a time, each for one subscription at one place."""
    client_max: int = 64
    """How many of these may be for the same client."""
    linger_us: Time = 10_000_000
    """How long a virtual client stays when it is wanted no more: until others know that its client
    is there itself, and for a client that comes right back."""

    def serving(self, place: str, otherwise: NodeId) -> NodeId:
        """The broker that serves a place."""
        if not self.serves:
            return otherwise
        known = (self.serves[each] for each in areas(place) if each in self.serves)
        return next(known, otherwise)

    def __post_init__(self) -> None:
        if not 0 <= self.probability_min <= 1:
            raise ValueError("a probability is between 0 and 1: probability_min")
        for name in ("places_max", "events_max", "bytes_max", "virtual_max", "client_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"it is 1 at least: {name}")
        if self.linger_us < 0:
            raise ValueError("it is not negative: linger_us")
