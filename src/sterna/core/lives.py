"""The lives of a client: each time that it starts without a memory, another one begins.

Of two visits or two events of one client the greater number is the later one, in whichever life. A
life that remembers nothing begins with numbers from its wall clock. That clock may have been set
back since an earlier life, so the life also asks the broker, and begins above what the network
knows of earlier lives.
"""

from typing import Self

import msgspec

from sterna.core.names import Time
from sterna.model.ranges import Number, Visit

SESSIONS_MAX = 2**32
"""How many sessions a node may have in one incarnation."""

EPOCH_US: Time = 1_767_225_600_000_000
"""The beginning of 2026."""


class Earlier(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a broker knows of the lives that a client had so far."""

    visit: Visit = 0
    """The greatest number of a visit or a session; 0 if none is known."""
    seq: Number = 0
    """No event of these lives has a greater number, as far as the broker knows."""

    def join(self, other: Self) -> "Earlier":
        """What two parts of a broker know together."""
        return Earlier(max(self.visit, other.visit), max(self.seq, other.seq))


NOTHING_KNOWN = Earlier()
"""What a broker knows of a name that it has never met."""


def incarnation(wall_us: Time, earlier: Earlier) -> int:
    """The number of a life that begins now: greater than that of each earlier one.

    By the clock it is tenths of seconds since 2026; once that takes 31 bits, seconds are added.
    """
    tenths = max(0, wall_us - EPOCH_US) // 100_000
    by_clock = tenths if tenths < _TENTHS_END else _TENTHS_END + (tenths - _TENTHS_END) // 10
    known = life_of(earlier.visit) + 1
    return min(max(min(by_clock, _BY_CLOCK_MAX), known), SESSIONS_MAX - 2)


def life_of(visit: Visit) -> int:
    """The number of the life that a visit belongs to."""
    return visit // SESSIONS_MAX


def last_visit(earlier: Earlier) -> Visit:
    """A number that is at least that of every visit of the earlier lives.

    A broker may know of such a life only when it began, and not how often it has moved since. So
    this is the first number of the next life.
    """
    return max(incarnation(EPOCH_US, earlier) * SESSIONS_MAX, earlier.visit)


def first_seq(wall_us: Time, earlier: Earlier) -> int:
    """The number from which such a life counts its events: at least that of each earlier event.

    By the clock it is microseconds since 2026: a client that publishes less than a million events a
    second, and whose clock is right, is above its earlier lives even if no broker knows them.
    """
    by_clock = min(max(0, wall_us - EPOCH_US), _SEQ_BY_CLOCK_MAX)
    return max(by_clock, earlier.seq)


_TENTHS_END = 2**31
"""Reached in 2032; with seconds from there on, 32 bits last until 2100."""
_BY_CLOCK_MAX = SESSIONS_MAX - 2**24
"""Above this are the numbers of lives after one whose clock was far ahead."""
_SEQ_BY_CLOCK_MAX = 2**62
"""Leaves as many numbers above it."""
