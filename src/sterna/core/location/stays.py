"""How long a client stays at a location: the paper's Δ, configured, mined or measured.

Until one of these is known, the dwell time is None, and the client may be anywhere. A configured or
mined dwell time is a promise that the client keeps; measurements can only make it shorter. Without
a promise, the client's own stays count as soon as there are `STAYS_MAX` of them. Delivery is then
as if flooding for as long as every stay that begins lasts for the dwell time in force. No
measurement guarantees that: of stays in no particular order, the next one is shorter than the last
n with a probability of 1 in n + 1. Events that are missed because of such a stay remain missed; see
`docs/decisions/0012-steps.md`.
"""

from collections import deque
from enum import StrEnum

from sterna.core.names import Time

STAYS_MAX = 16
"""How many of a client's last stays count, and how many it takes before they do."""


class Dwell(StrEnum):
    """How the time that a client stays at a location is estimated."""

    LEAST = "least"
    """The shortest of the last stays, and never more than the promise."""
    AVERAGE = "average"
    """The mean of the last stays, of which the promise is the first. (Fiege, App. B.1)"""
    FIXED = "fixed"
    """The promise, and nothing else."""


class Stays:
    """The last stays of a client, and the dwell time that follows from them."""

    def __init__(self, how: Dwell, promised_us: Time | None) -> None:
        self._how = how
        self._promised_us = promised_us
        self._last_us: deque[Time] = deque(maxlen=STAYS_MAX)

    def configure(self, how: Dwell, promised_us: Time | None) -> None:
        """Count in another way from now on, or with another promise."""
        self._how, self._promised_us = how, promised_us

    def keep(self) -> list[Time]:
        """What a snapshot has to hold."""
        return list(self._last_us)

    def restore(self, kept: list[Time]) -> None:
        """Go on with what a snapshot has held."""
        self._last_us = deque(kept, maxlen=STAYS_MAX)

    def ended(self, stay_us: Time) -> None:
        """The client has moved on; a stay of no time at all does not count."""
        if stay_us > 0:
            self._last_us.append(stay_us)

    @property
    def dwell_us(self) -> Time | None:
        """The dwell time in force; None if it is not known.

        Unless it is fixed, it is rounded down to two digits. So small changes do not count, and
        clients that move alike can share routes.
        """
        promised = () if self._promised_us is None else (self._promised_us,)
        if self._how is Dwell.FIXED:
            return self._promised_us
        if not promised and len(self._last_us) < STAYS_MAX:
            return None
        stays = (*promised, *self._last_us)
        if self._how is Dwell.LEAST:
            return _two_digits(min(stays))
        latest = stays[-STAYS_MAX:]
        return _two_digits(sum(latest) // len(latest))


def _two_digits(us: Time) -> Time:
    unit: int = 10 ** max(0, len(str(us)) - 2)
    return max(1, us // unit * unit)
