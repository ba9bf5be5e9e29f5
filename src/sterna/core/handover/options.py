"""Which handover protocol a network uses, and what brokers keep for clients that are away."""

from enum import StrEnum

import msgspec

from sterna.core.names import Time


class Handover(StrEnum):
    """The names of Sterna's own handover protocols: how clients move from broker to broker."""

    NONE = "none"
    """Clients do not move."""
    NAIVE = "naive"
    """Forget at the old broker, subscribe at the new one: loses and repeats. (Fiege, 3.2)"""
    RELOCATION = "relocation"
    """The new broker fetches what the old one kept. (Fiege, 4)"""
    STANDARD = "standard"
    """The same, from the broker that the client names. (Burcea, 3.1)"""
    PREFETCHING = "prefetching"
    """What is kept goes where the client is going, while it is under way. (Burcea, 3.2.1)"""
    LOGGING = "logging"
    """As standard, without the events that the new broker still has in its log. (3.2.2)"""
    HOME = "home"
    """Subscriptions stay at the client's first broker, which sends it its events. (3.2.3)"""


class HandoverOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a network hands clients over."""

    protocol: str = Handover.NONE
    """The name of a protocol: one of `Handover`, or one that another package provides."""
    cache_events_max: int = 10_000
    """How many events are kept for each subscription of a client that is away."""
    cache_bytes_max: int | None = None
    """About how many bytes are kept for each client that is away; None means no limit."""
    cache_ttl_us: Time | None = None
    """How long events are kept at a broker; None means no limit."""
    away_max_us: Time | None = None
    """Clients that stay away longer are forgotten, with all that was kept. None means never."""

    away_clients_max: int | None = None
    """How many clients a broker remembers that are away; None means no limit."""
    away_filters_max: int | None = None
    """How many filters these may have announced together; None means no limit."""
    filters_max: int | None = None
    """How many filters a client may announce that has its home here and is elsewhere; None means no
    limit. Drivers see to what clients announce themselves."""

    def __post_init__(self) -> None:
        if self.cache_events_max < 1 or (self.cache_ttl_us is not None and self.cache_ttl_us < 1):
            raise ValueError("a cache keeps at least one event, for at least one microsecond")
        if self.cache_bytes_max is not None and self.cache_bytes_max < 1:
            raise ValueError("a cache keeps at least one byte")
        if self.away_max_us is not None and self.away_max_us < 1:
            raise ValueError("a client may be away for at least one microsecond")
        if min(self.away_clients_max or 0, self.away_filters_max or 0) < 0:
            raise ValueError("limits for clients that are away are not negative")
