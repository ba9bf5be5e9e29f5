"""Virtual time: planned calls, in order."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from sterna.core.names import Time


class Kernel:
    """Calls functions at their planned times; at equal times, in the order of planning."""

    def __init__(self) -> None:
        self.now: Time = 0
        self._planned: list[tuple[Time, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def __len__(self) -> int:
        """How many calls are planned."""
        return len(self._planned)

    def at(self, time: Time, act: Callable[..., None], *details: Any) -> None:
        """Plan a call."""
        self._count += 1
        heappush(self._planned, (time, self._count, act, details))

    def run(self, until: Time | None = None) -> None:
        """Do everything that is planned, up to a time or to the end."""
        planned = self._planned
        while planned and (until is None or planned[0][0] <= until):
            self.now, _, act, details = heappop(planned)
            act(*details)
        if until is not None:
            self.now = max(self.now, until)

    def step(self) -> None:
        """Do the next planned call."""
        self.now, _, act, details = heappop(self._planned)
        act(*details)
