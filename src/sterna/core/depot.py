"""Where a node finds what was spilled: parts of long queues that wait in pages, not in memory.

A page is written once, by the node's driver, before the node is told of it. So the node only ever
reads, and finds the same in every replay of its inputs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Protocol, overload

import msgspec

from sterna.core.messages import Message
from sterna.core.sizes import EVENT_BYTES, Load
from sterna.errors import SternaError
from sterna.model.event import Event

PageId = int
"""The number of a page. Numbers of pages that a node was told of are never used again."""

PAGED_BYTES = 200
"""About how many bytes it takes to remember a part of a queue that is in a page."""

PLACE_BYTES = 100
"""About how many bytes it takes to remember one kept event that is in a page."""


class PageUnreadableError(SternaError):
    """A page is damaged or cannot be read; the message says which one, and what to do."""


class Depot(Protocol):
    """Reads pages; each entry is a message, or an event. PageUnreadableError if it cannot."""

    def message(self, page: PageId, place: int) -> Message:
        """The message at a place of a page; the first is at 0."""
        ...

    def event(self, page: PageId, place: int) -> Event:
        """The event at a place of a page; the first is at 0."""
        ...


class NoDepot:
    """The depot of a node for which nothing is ever spilled."""

    def message(self, page: PageId, place: int) -> Message:
        raise PageUnreadableError(f"there is no page {page} (place {place})")

    def event(self, page: PageId, place: int) -> Event:
        raise PageUnreadableError(f"there is no page {page} (place {place})")


class MemoryDepot:
    """Pages in memory, for simulations and tests."""

    def __init__(self) -> None:
        self.pages: dict[PageId, Sequence[Message | Event]] = {}

    def message(self, page: PageId, place: int) -> Message:
        found = self.pages[page][place]
        if not isinstance(found, Message):
            raise PageUnreadableError(f"page {page} holds no messages")
        return found

    def event(self, page: PageId, place: int) -> Event:
        found = self.pages[page][place]
        if not isinstance(found, Event):
            raise PageUnreadableError(f"page {page} holds no events")
        return found


class Stretch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Consecutive messages of a queue that are in a page."""

    is_said_once: ClassVar[bool] = True
    """No other messages are spilled: those of a link that begins anew can all be sent again."""

    page: PageId
    place: int
    """Where the first of them is in the page."""
    count: int
    events: int
    """How many events they hold, about: after some of them have left, it is estimated."""
    bytes: int

    @property
    def load(self) -> Load:
        """How much they are."""
        return Load(self.events, self.bytes, self.bytes + EVENT_BYTES * self.events - PAGED_BYTES)

    def without(self, count: int) -> "Stretch":
        """What is left without the first so many messages; there is something left."""
        left = self.count - count
        return Stretch(
            self.page,
            self.place + count,
            left,
            -(-self.events * left // self.count),
            -(-self.bytes * left // self.count),
        )

    def messages(self, depot: Depot) -> Iterator[Message]:
        """The messages, one by one."""
        for place in range(self.place, self.place + self.count):
            yield depot.message(self.page, place)


class Unconfirmed(Sequence[Message]):
    """Messages that the other end of a link has not confirmed; those in pages are read lazily."""

    def __init__(self, parts: Iterable[Message | Stretch], depot: Depot) -> None:
        self._parts = tuple(parts)
        self._depot = depot

    def __len__(self) -> int:
        return count(self._parts)

    def __iter__(self) -> Iterator[Message]:
        return messages_in(self._parts, self._depot)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return list(self)[index]


def messages_in(parts: Iterable[Message | Stretch], depot: Depot) -> Iterator[Message]:
    """The messages of the parts of a queue, one by one."""
    for part in parts:
        if isinstance(part, Stretch):
            yield from part.messages(depot)
        else:
            yield part


def count(parts: Iterable[Message | Stretch]) -> int:
    """How many messages these are."""
    return sum(part.count if isinstance(part, Stretch) else 1 for part in parts)
