"""The time that a node is given: it passes evenly, whatever the machine's clock does.

A machine has a *wall clock*, which people and programs set forward and back, and a count of the
time that has elapsed, which nobody can set. A node compares times to find out how much has elapsed,
so its time follows the count. It begins at what the wall clock shows, and approaches the wall clock
slowly where the two differ.
"""

from collections.abc import Callable

from sterna.core.names import Time

LOOK_US: Time = 1_000_000
"""How often the wall clock is looked at."""

SLEW = 32
"""The node's time differs from what has elapsed by at most one part in so many: an hour by which
the wall clock is off is made up for in 32 hours, and a deadline is at most 3 % early or late."""


class Clock:
    """Microseconds that never go back and never jump, close to those of the wall clock."""

    def __init__(self, wall: Callable[[], Time], elapsed: Callable[[], Time]) -> None:
        """`wall` is the wall clock, in microseconds since 1970; `elapsed` counts from anywhere."""
        self._wall = wall
        self._elapsed = elapsed
        self._from, self._looked_at = wall(), elapsed()
        """The time when the wall clock was looked at last, and the count of then."""
        self._more: Time = 0
        """By how much the time until the next look differs from what elapses."""

    def now(self) -> Time:
        """The time now."""
        passed = self._elapsed() - self._looked_at
        if passed < LOOK_US:
            return self._from + passed + self._more * passed // LOOK_US
        now = self._from + passed + self._more
        self._look(now)
        return now

    def not_before(self, time: Time) -> None:
        """Continue from a time that was reached before a restart, if that is later."""
        now = self.now()
        if now < time:
            self._look(time)

    def _look(self, now: Time) -> None:
        self._from, self._looked_at = now, self._elapsed()
        most = LOOK_US // SLEW
        self._more = max(-most, min(self._wall() - now, most))
