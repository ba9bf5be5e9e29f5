"""What a snapshot of a node is made of: a record for each component, and what they share.

Components refer to events and messages by number, so that each is held once, whatever keeps it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from sterna.core.messages import Events, Message
from sterna.model.event import Event, EventId

M = TypeVar("M", bound=Message)


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What one component keeps, in its version."""

    name: str
    version: int
    kept: Any


class Record(NamedTuple):
    """The record of something that is kept, and how records of older versions become it."""

    version: int
    kind: Any
    older: Mapping[int, tuple[Any, Callable[[Any], Any]]] = {}


class Writer:
    """Gathers the events and messages that components keep."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.messages: list[Message | tuple[int, ...]] = []
        """The messages; one that holds nothing but events is the numbers of these."""
        self._numbers: dict[EventId, int] = {}

    def event(self, event: Event) -> int:
        """Keep an event; return its number."""
        number = self._numbers.get(event.id)
        if number is not None and self.events[number] == event:
            return number
        self.events.append(event)
        # Two events of one identity are a publisher's mistake, and both are kept.
        return self._numbers.setdefault(event.id, len(self.events) - 1) if number is None else (
            len(self.events) - 1
        )  # fmt: skip

    def more(self, numbers: int) -> None:
        """So many more things are kept, of which each is only a few numbers."""

    def message(self, message: Message) -> int:
        """Keep a message; return its number."""
        if type(message) is Events:
            self.messages.append(tuple([self.event(event) for event in message.events]))
        else:
            self.messages.append(message)
        return len(self.messages) - 1


class Reader:
    """Gives components the events and messages that they kept."""

    def __init__(
        self, events: Sequence[Event], messages: Sequence[Message | tuple[int, ...]]
    ) -> None:
        self._events = events
        self._messages = messages

    def event(self, number: int) -> Event:
        """The event with a number."""
        return self._events[number]

    def message(self, number: int, kind: type[M] = Message) -> M:  # type: ignore[assignment]
        """The message with a number, which is of this kind."""
        kept = self._messages[number]
        message = (
            kept
            if isinstance(kept, Message)
            else Events(events=tuple([self._events[each] for each in kept]))
        )
        if not isinstance(message, kind):
            raise TypeError(f"message {number} of the snapshot is no {kind.__name__}")
        return message
