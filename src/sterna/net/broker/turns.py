"""Turns of a broker's event loop: how much of each is for what has arrived."""

import asyncio
from time import thread_time

TURN_S = 0.05
"""How many seconds of a turn of the event loop are for what has arrived, in processor time. The
system may hand over dozens of reads of one connection in a turn. What is read later is not in the
processor's cache any more, so this is longer than what usually arrives in a turn takes."""

NOTICED_S = TURN_S / 10
"""So much is noticed: what is less may be counted in later turns as well."""


class LoopTurn:
    """The present turn of the event loop: how much of it was used for what may take long."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.used_s = 0.0
        """How many seconds by the clock; a few of earlier turns may be among them."""
        self._noticed_at: float | None = None
        """The thread's processor time when that was noticed; None if it was not."""

    @property
    def is_over(self) -> bool:
        """Whether it is the turn of others.

        The processor time is asked for only then: that takes ten times as long as the clock does.
        """
        if self.used_s <= TURN_S:
            return False
        if self._noticed_at is not None:
            self.used_s = min(self.used_s, thread_time() - self._noticed_at)
        return self.used_s > TURN_S

    def use(self, seconds: float) -> None:
        """So much was used."""
        self.used_s += seconds
        if self.used_s > NOTICED_S and self._noticed_at is None:
            self._noticed_at = thread_time() - min(self.used_s, TURN_S)
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        self.used_s = 0.0
        self._noticed_at = None
