"""How many events a publisher has in flight before it waits for its broker."""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

WINDOW_EVENTS = 8_000
"""How many events may be in flight by default. A client keeps more than that while it has no
connection."""

BATCH_EVENTS = 1_000
"""After this many events, other tasks get their turn."""

R = TypeVar("R")


class Mark(NamedTuple, Generic[R]):
    """The last event of a batch that is in flight."""

    published: int
    """How many events were published up to it."""
    receipt: R


class Window(Generic[R]):
    """Remembers the last event of each batch, and says when to wait for one of them."""

    def __init__(self, events_max: int = WINDOW_EVENTS) -> None:
        self.published = 0
        self._batches_max = events_max // BATCH_EVENTS
        self._marks: deque[Mark[R]] = deque()

    def put(self, receipt: R) -> bool:
        """Count one more event in flight; return whether it ends a batch."""
        self.published += 1
        is_end = self.published % BATCH_EVENTS == 0
        if is_end:
            self._marks.append(Mark(self.published, receipt))
        return is_end

    def next(self) -> Mark[R] | None:
        """The event to wait for before more are published; None if there is room."""
        return self._marks[0] if len(self._marks) > self._batches_max else None

    def arrived(self) -> None:
        """A broker has accepted that event."""
        self._marks.popleft()
