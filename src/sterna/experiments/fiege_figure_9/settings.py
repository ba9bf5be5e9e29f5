"""The settings of Figure 9, what is measured, and the numbers of the paper."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from sterna.core.location.steps import StepRule
from sterna.core.routing.options import Strategy
from sterna.experiments.experiment import Point

DEGREE, LEVELS = 3, 6
"""The paper's b, and its levels 0 to 5; it prints h = 4, but its counts are those of 5."""
PRODUCERS = 10
"""The producers at each leaf, the paper's p; here one client publishes for all of them."""
PLACES, FACTOR = 100, 4
"""The paper's |L| and s: each step makes four times as many places possible."""
SLOW_MS, FAST_MS = 600, 10
TIMES = (1, 2, 5, 10, 15, 20, 25, 30)
"""The seconds after which the messages of one consumer are counted."""
EXPECTED = {10: 0.0400, 1: 0.1207}
"""The results of the formula for stays of so many seconds."""


class Skew(StrEnum):
    """Whether events, consumers or both prefer some places to others, by Zipf's law."""

    NONE = "none"
    EVENTS = "events"
    BOTH = "both"
    """Events and consumers prefer the same places."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run, and up to when it is counted."""

    rule: StepRule
    dwell_s: int
    consumers: int = 1
    """One is at the root, as in the paper; more are at random brokers other than leaves."""
    skew: Skew = Skew.NONE
    strategy: Strategy = Strategy.SIMPLE
    rate: float = 1.0
    """Events per second of each producer."""
    levels: int = LEVELS
    seconds: int
    run_s: int
    """How long the run is; the counts at several times come from the same run."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """Messages between brokers."""

    flooding: float
    """The messages if all events were flooded."""
    formula: float
    """The paper's N_n(t); 0 where it has none."""
    charged: float
    """Links whose filter lets an event through when it is published, for all events; 0 with several
    consumers."""
    events: float
    """The events that went over links."""
    control: float
    """The messages that announced moves."""
    formula_ratio: float
    charged_ratio: float
    """The ratio of events charged like that and control messages together to flooding."""
    event_ratio: float
    control_ratio: float
    """The ratio of control messages to flooding, at one event per second of each producer."""
    real_ratio: float
    """The ratio of events and control messages together to flooding."""
    control_per_move: float
    entries: float
    """Filters for moving subscriptions in the table of a broker, on average, at the end."""
    missed_share: float
    """The share of the events under flooding that a single consumer does not receive."""


Points = Sequence[Point[Setting, Measures]]


def alone(points: Points, rule: StepRule) -> list[Point[Setting, Measures]]:
    """The points with one consumer and this rule, without flooding."""
    return [
        point
        for point in points
        if point.setting.consumers == 1
        and point.setting.rule is rule
        and point.setting.strategy is not Strategy.FLOODING
    ]


def crowded(points: Points) -> list[Point[Setting, Measures]]:
    """The points with several consumers."""
    return [point for point in points if point.setting.consumers > 1]


def dwells(points: Points) -> set[int]:
    """The stays of consumers in seconds, where there are several."""
    return {point.setting.dwell_s for point in crowded(points)}
