"""How devices find brokers, and what brokers do that meet."""

from enum import StrEnum
from typing import Annotated

import msgspec

from sterna.core.names import Time
from sterna.core.overlay.election import BEAT_MAX_US, BEAT_MIN_US

NAME = "ad-hoc"


class Meeting(StrEnum):
    """What two brokers do that come into reach of each other."""

    MERGE = "merge"
    """One of them serves the clients of both, as far as these reach it."""
    COOPERATE = "cooperate"
    """Both go on to serve, as neighbours."""


class AdHocOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often devices say that they are there, and what they do about silence."""

    meeting: Meeting = Meeting.MERGE
    beat_us: Annotated[Time, msgspec.Meta(ge=BEAT_MIN_US, le=BEAT_MAX_US)] = 500_000
    """The time between two datagrams of a broker or a client."""
    lease_us: Annotated[Time, msgspec.Meta(ge=BEAT_MIN_US)] = 60_000_000
    """A subscriber that is not heard of for so long is forgotten."""

    @property
    def silent_us(self) -> Time:
        """A device that is not heard for so long is out of reach."""
        return self.beat_us * 5 // 2

    @property
    def renew_us(self) -> Time:
        """How often a client renews its lease."""
        return self.lease_us // 3
