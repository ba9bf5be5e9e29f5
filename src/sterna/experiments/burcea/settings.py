"""The settings of the experiments after Burcea, and what is measured."""

from enum import StrEnum

import msgspec

from sterna.core.names import Time
from sterna.core.routing.options import Strategy
from sterna.experiments.burcea.city import Ends

POPULATIONS = (200, 400, 600, 800)
LOG_EVENTS = 1_000
"""Table 2: broker_log_size."""
PUBLISHERS = 100
PERIOD_US: Time = 60_000_000
"""Each publisher has an event once a minute."""
HOUR_US: Time = 3_600_000_000
MINUTE_US: Time = 60_000_000
BUCKET_MINUTES = 10
"""The resolution of figures over time."""


class Scenario(StrEnum):
    """How subscribers move."""

    COMMUTE = "commute"
    """Each goes home once, between 16:00 and 19:30. (5.2.2)"""
    RANDOM = "random"
    """They are connected and under way in turn, and get about. (5.2.3)"""
    PERVASIVE = "pervasive"
    """The same journeys, but connected to every broker between. (5.2.4)"""


class Places(StrEnum):
    """Where somebody is in the random scenario, which the paper does not say."""

    ANYWHERE = "anywhere"
    DOWNTOWN = "downtown"
    """As in the commute scenario."""


class Prediction(StrEnum):
    """What prefetching knows of where subscribers go."""

    PERFECT = "perfect"
    """What the paper assumes."""
    NONE = "none"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run; those with a default are what the paper does not vary or say."""

    scenario: Scenario
    strategy: str
    """The handover protocol."""
    subscribers: int
    hours: float
    """The length of a run. The paper does not say it."""
    publishers: int = PUBLISHERS
    begins_h: float = 15.0
    """When a run of the commute scenario begins, on a clock of 24 hours. The paper does not say."""
    subscribers_at: Places = Places.ANYWHERE
    """Where subscribers are at first in the random scenarios. The paper does not say."""
    publishers_at: Places = Places.ANYWHERE
    """Where publishers are in the random scenarios. The paper does not say."""
    ends: Ends = Ends.BOUNCE
    """What happens at the ends of the city in the random scenarios. The paper does not say."""
    handoff_ms: int = 100
    """How long a connected subscriber is without connection between two brokers (pervasive)."""
    locality: float | None = None
    """The share of subscribers with the very same subscription; the others have other ones. None:
    all subscriptions are random."""
    log_events: int = LOG_EVENTS
    """How many events each broker keeps in its log."""
    subscriptions: str = "broker"
    """Who knows a client's subscriptions when it comes: its old "broker", or its "device"."""
    prediction: Prediction = Prediction.PERFECT
    routing: Strategy = Strategy.SIMPLE
    """Which subscriptions a broker sends to its parent: all, or those that no other covers."""
    advertisements: bool = False
    latency_ms: int = 10
    """The latency of every link, also to clients. The paper does not say it."""
    kbytes_per_s: int | None = None
    """The bandwidth of every link; None means unlimited. The paper does not say it."""
    payload_bytes: int = 0
    """The size of an event besides its kind, its publisher and its number."""
    count_bytes: bool = False
    """Whether bytes are counted, which takes time."""

    @property
    def length_us(self) -> Time:
        """The length of the run."""
        return round(self.hours * HOUR_US)

    def at(self, hour: float) -> Time:
        """The time in the run at an hour of the clock."""
        return round((hour - self.begins_h) * HOUR_US)


LARGE_LOG = 800
"""The smallest log in the paper's figures."""

STRATEGIES = ("standard", "prefetching", "logging", "home")
"""The strategies that the paper compares."""


def commute(strategy: str, subscribers: int, **others: object) -> Setting:
    """The commute scenario: from an hour before the first leave until all are long at home."""
    given = {"hours": 6.0, **others}
    return msgspec.convert(
        {"scenario": Scenario.COMMUTE, "strategy": strategy, "subscribers": subscribers, **given},
        Setting,
    )


def random(strategy: str, subscribers: int, **others: object) -> Setting:
    """The random scenario."""
    given = {"hours": 2.0, **others}
    return msgspec.convert(
        {"scenario": Scenario.RANDOM, "strategy": strategy, "subscribers": subscribers, **given},
        Setting,
    )


def pervasive(strategy: str, subscribers: int, **others: object) -> Setting:
    """The pervasive scenario."""
    given = {"hours": 1.0, **others}
    return msgspec.convert(
        {"scenario": Scenario.PERVASIVE, "strategy": strategy, "subscribers": subscribers, **given},
        Setting,
    )


SCENARIOS = {Scenario.COMMUTE: commute, Scenario.RANDOM: random, Scenario.PERVASIVE: pervasive}
"""What makes a setting of each scenario."""


def is_in_figures(setting: Setting) -> bool:
    """Whether the paper has a figure of it; a small setting counts as what it stands for."""
    is_small = setting.publishers != PUBLISHERS
    usual = SCENARIOS[setting.scenario](
        setting.strategy,
        setting.subscribers,
        publishers=setting.publishers,
        locality=setting.locality,
        log_events=setting.log_events,
        **({"hours": setting.hours} if is_small else {}),
    )
    return setting == usual and (is_small or setting.log_events >= LARGE_LOG)


EVENTS_PER_HOUR = 100_000
"""About how many frames 100 publishers cause in an hour, whoever subscribes."""
FRAMES_PER_HOUR = {Scenario.COMMUTE: 900, Scenario.RANDOM: 700, Scenario.PERVASIVE: 3_000}
"""How many more there are for each subscriber."""
FORWARDED = {Scenario.COMMUTE: 900, Scenario.RANDOM: 200, Scenario.PERVASIVE: 300}
"""How many more with home-brokers."""


def work(setting: Setting) -> float:
    """About how many frames a run has."""
    each = FRAMES_PER_HOUR[setting.scenario]
    if setting.strategy == "home":
        each += FORWARDED[setting.scenario]
    frames = EVENTS_PER_HOUR + setting.subscribers * each
    return setting.hours * frames * setting.publishers / PUBLISHERS
