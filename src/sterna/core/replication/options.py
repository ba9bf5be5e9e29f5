"""How what several sessions bring is merged."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from sterna.core.names import Time
from sterna.model.replicas import Verdict


class Filtering(StrEnum):
    """What is done about duplicates and about the order. (Huang, Table 1)"""

    NONE = "none"
    """Everything is given to the application as it comes: complete, but not consistent, and not in
    order."""
    DUPLICATES = "duplicates"
    """Each event is given once: complete and consistent, but not in order."""
    ORDER = "order"
    """Duplicates are dropped, and what comes after a later event: ordered and consistent, but not
    complete."""
    HOLDING = "holding"
    """Events wait while a session may still bring an earlier one, for a bounded time: ordered,
    consistent, and complete unless that time was too short."""


PROMISES: Mapping[Filtering, Verdict] = {
    Filtering.NONE: Verdict(ordered=False, consistent=False, complete=True),
    Filtering.DUPLICATES: Verdict(ordered=False, consistent=True, complete=True),
    Filtering.ORDER: Verdict(ordered=True, consistent=True, complete=False),
    Filtering.HOLDING: Verdict(ordered=True, consistent=True, complete=True),
}
"""What each filter promises; when it holds events back, as long as its time lasts."""


class MergingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which filter is used, and its bounds."""

    filtering: Filtering = Filtering.HOLDING
    hold_us: Time = 1_000_000
    """How long an event waits at most for earlier ones of its publisher."""
    held_events_max: int = 10_000
    """How many events wait at most; of more, the one that has waited longest goes on."""
    remembered_max: int = 1_000
    """How many numbers of given events are remembered of each publisher. An event that is older
    than these is taken for a duplicate."""

    def __post_init__(self) -> None:
        for name in ("hold_us", "held_events_max", "remembered_max"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it cannot be negative")
