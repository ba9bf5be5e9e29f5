"""What is compared: ways to know the state of a light, how fast cars are, how well one predicts."""

from enum import StrEnum

import msgspec

from sterna.core.history.options import HistoryOptions, Search


class Way(StrEnum):
    """How a car that comes to a crossing gets to know the state of its light. (Section 2)"""

    PLAIN = "plain subscribing"
    """It waits for the next change."""
    REQUEST = "request/reply"
    """It looks up which light is there, asks it, and gets an answer."""
    EVENT = "request as an event"
    """It publishes a request, and the light publishes its state again."""
    STATUS_1 = "status every second"
    STATUS_5 = "status every 5 s"
    STATUS_20 = "status every 20 s"
    """Lights publish their state again and again, besides each change."""
    PAST = "past"
    """Its subscription begins with the last event about the place. (Section 5)"""
    VIRTUAL = "virtual clients"
    """Others have subscribed there before it. (Section 4)"""
    BOTH = "both"

    @property
    def period_s(self) -> int | None:
        """How often lights publish their state."""
        return {Way.STATUS_1: 1, Way.STATUS_5: 5, Way.STATUS_20: 20}.get(self)

    @property
    def history(self) -> HistoryOptions:
        """What brokers remember of the past, and where they look for it: nothing, if virtual
        clients are to keep it.
        """
        if self in {Way.PAST, Way.BOTH}:
            return HistoryOptions(search=Search.COMPLETE)
        return HistoryOptions(search=Search.NONE, events_max=0, publisher_events=0)

    @property
    def is_ahead(self) -> bool:
        """Whether there are virtual clients."""
        return self in {Way.VIRTUAL, Way.BOTH}

    @property
    def wants_past(self) -> bool:
        """Whether subscriptions begin with the past."""
        return self in {Way.PAST, Way.VIRTUAL, Way.BOTH}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run."""

    way: Way
    speed_kmh: int
    quality: float | None = None
    """How often the one place is right where a car is expected; None: it is expected at all the
    crossings that come next."""
    cars: int = 12
    minutes: int = 5

    @property
    def stay_us(self) -> int:
        """How long a car is between two crossings."""
        return round(BLOCK_M / (self.speed_kmh / 3.6) * 1e6)


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; messages and bytes are those of each hop, for each visit of a crossing."""

    known_ms: float
    """How long it took on average until a car knew the state of its light, at most its stay."""
    known_ms_median: float
    known_ms_p95: float
    unknown: float
    """The share of visits in which it never knew."""
    stale: float
    """The share of visits in which the first state that it heard of was not the present one."""
    slower: float
    """The share of visits in which it knew later than by plain subscribing."""
    messages: float
    """Between brokers."""
    bytes: float
    car_messages: float
    """Over the cars' own links."""
    repeated: float
    """States that a car knew already, for each visit."""


BLOCK_M = 150
"""How far it is from crossing to crossing."""
SPEEDS = (10, 30, 50, 100)
SPEED = 50
QUALITIES = (0.0, 0.25, 0.5, 0.75, 1.0)
SIDE = 4
"""The town is a square of so many crossings on each side; each has a broker of its own."""
LINK_MS = 10
"""The latency of every link, also to cars."""
CHANGE_S = (15, 45)
"""A light changes after a time between these."""
JUMPS = 0.05
"""The share of moves to a crossing far away, which nobody foresees: out of a tunnel, a garage."""
