"""How long a client stays at a location: the paper's Δ, measured."""

from collections import deque
from enum import StrEnum

from sterna.core.names import Time

STAYS_MAX = 16
"""How many stays count."""


class Dwell(StrEnum):
    """What is taken for the time that a client stays at a location."""

    LEAST = "least"
    """The shortest of the last stays: steps that are counted with it suffice for all of them."""
    AVERAGE = "average"
    """Their mean. (Fiege, App. B.1)"""
    FIXED = "fixed"
    """A number that is known."""


class Stays:
    """The last stays of a client. What is assumed at the beginning counts as the first."""

    def __init__(self, how: Dwell, dwell_us: Time) -> None:
        self._how = how
        self._fixed_us = dwell_us
        self._last_us: deque[Time] = deque([dwell_us], maxlen=STAYS_MAX)

    def configure(self, how: Dwell, dwell_us: Time) -> None:
        """Count in another way from now on."""
        self._how, self._fixed_us = how, dwell_us

    def keep(self) -> list[Time]:
        """What a snapshot has to hold."""
        return list(self._last_us)

    def restore(self, kept: list[Time]) -> None:
        """Go on with what a snapshot has held."""
        self._last_us = deque(kept, maxlen=STAYS_MAX)

    def ended(self, stay_us: Time) -> None:
        """The client has moved on; where it has only been for a moment, it has not been."""
        if stay_us > 0:
            self._last_us.append(stay_us)

    @property
    def dwell_us(self) -> Time:
        """Rounded down to two digits, so that small changes are none and clients are alike."""
        match self._how:
            case Dwell.LEAST:
                return _two_digits(min(self._last_us))
            case Dwell.AVERAGE:
                return _two_digits(sum(self._last_us) // len(self._last_us))
            case Dwell.FIXED:
                return self._fixed_us


def _two_digits(us: Time) -> Time:
    unit: int = 10 ** max(0, len(str(us)) - 2)
    return max(1, us // unit * unit)
