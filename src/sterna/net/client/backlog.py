"""The events of one subscription: which ones wait, are in hand, or are acknowledged."""

from collections import deque
from collections.abc import Iterable

from sterna.model.event import Event


class Backlog:
    """Tracks events in the order of their delivery: waiting, then in hand, then done."""

    __slots__ = ("done", "in_hand", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Event] = deque()
        """Events that the application has not taken yet."""
        self.in_hand: deque[Event] = deque()
        """Events that the application has taken and not acknowledged."""
        self.done = 0
        """How many events it has acknowledged."""

    def put(self, events: Iterable[Event]) -> None:
        """Add events that have arrived."""
        self.waiting.extend(events)

    def take(self) -> Event:
        """Hand over the first event that waits."""
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
        """Acknowledge all events in hand, or those up to a given one.

        Returns False if that changes nothing, such as for an event that was acknowledged before.
        """
        count = len(self.in_hand) if event is None else self._position(event)
        for _ in range(count):
            self.in_hand.popleft()
        self.done += count
        return count > 0

    def finished_before(self, done: int) -> None:
        """Drop the events that were acknowledged before a restart: the first `done` of all."""
        while self.done < done:
            self.waiting.popleft()
            self.done += 1

    def everything(self) -> tuple[Event, ...]:
        """All events that are not acknowledged; the application gets them after a restart."""
        return (*self.in_hand, *self.waiting)

    def _position(self, event: Event) -> int:
        """The position of an event among those in hand, counting from 1; 0 if it is not there."""
        for position, each in enumerate(self.in_hand, 1):
            if each is event or each.id == event.id:
                return position
        return 0
