"""The events of one subscription: which ones wait, are in hand, or are done with."""

from collections import deque
from collections.abc import Iterable

from sterna.model.event import Event


class Backlog:
    """Counts events through, in the order of their delivery: waiting, in hand, done."""

    __slots__ = ("done", "in_hand", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Event] = deque()
        """What the application has not taken yet."""
        self.in_hand: deque[Event] = deque()
        """What the application has, and is not done with."""
        self.done = 0
        """How many events it is done with."""

    def put(self, events: Iterable[Event]) -> None:
        """Events have come."""
        self.waiting.extend(events)

    def take(self) -> Event:
        """Hand over the event that waits first."""
        event = self.waiting.popleft()
        self.in_hand.append(event)
        return event

    def take_all(self) -> list[Event]:
        """Hand over all events that wait."""
        events = list(self.waiting)
        self.in_hand += events
        self.waiting.clear()
        return events

    def finish(self, event: Event | None = None) -> bool:
        """The application is done with what it has, or with all up to an event of that.

        False if that changes nothing, such as for an event that it was done with before.
        """
        count = len(self.in_hand) if event is None else self._position(event)
        for _ in range(count):
            self.in_hand.popleft()
        self.done += count
        return count > 0

    def finished_before(self, done: int) -> None:
        """The application was done with so many events before a restart."""
        while self.done < done:
            self.waiting.popleft()
            self.done += 1

    def everything(self) -> tuple[Event, ...]:
        """What the application is not done with, and gets (again) after a restart."""
        return (*self.in_hand, *self.waiting)

    def _position(self, event: Event) -> int:
        """The position of an event among those in hand, counting from 1; 0 if it is not there."""
        for position, each in enumerate(self.in_hand, 1):
            if each is event or each.id == event.id:
                return position
        return 0
