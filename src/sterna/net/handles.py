"""What an application holds of what it has asked its client for."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Self

from sterna.core.inputs import Unadvertise
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter

if TYPE_CHECKING:
    from sterna.net.client import Client


class Receipt:
    """What `publish` returns. Awaiting it means to wait until a broker has the event for good."""

    __slots__ = ("_client", "id")

    def __init__(self, client: "Client", id_: EventId) -> None:
        self._client = client
        self.id = id_
        """The identity of the event."""

    def __await__(self) -> Generator[Any, None, EventId]:
        yield from self._client._accepted(self.id.seq).__await__()
        return self.id


class Subscription:
    """The events that match a filter, as they come: `async for event in subscription`.

    It ends with `close()`, with its client, or when an `async with` around it is left.
    """

    def __init__(self, client: "Client", name: str, where: Filter) -> None:
        self.name = name
        self.where = where
        self._client = client
        self._waiting: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_over = False
        self._in_hand: list[Event] = []
        """What the application has, and has not said to be done with."""
        self._handed_over = 0
        """How many events it is done with."""
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many events are here and were not taken yet."""
        return len(self._waiting)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._is_over:
                if self._client._failure is not None:
                    self._client._raise_failure()
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._take()

    def take(self) -> list[Event]:
        """All events that are here now, without waiting."""
        self._done()
        self._in_hand = list(self._waiting)
        self._waiting.clear()
        self._client._read_on()
        return list(self._in_hand)

    async def close(self) -> None:
        """Unsubscribe. What is here already can still be taken."""
        self._client._end_subscription(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def _take(self) -> Event:
        """Hand an event over. Asking for the next one says that the last one is done."""
        self._done()
        event = self._waiting.popleft()
        self._in_hand.append(event)
        self._client._read_on()
        return event

    def _done(self) -> None:
        """The application has done what it was to do with the events it has."""
        if self._in_hand:
            self._handed_over += len(self._in_hand)
            self._in_hand.clear()
            self._client._note_done(self)

    def _put(self, events: Iterable[Event]) -> None:
        self._waiting.extend(events)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self) -> None:
        self._is_over = True
        self._wake()


class Discarded:
    """The numbers of events that were given up: mostly one after the other."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        self._is_news = False

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self._first, seq) - 1
        return place >= 0 and seq <= self._last[place]

    def add(self, seq: int) -> None:
        """An event was given up."""
        self._is_news = True
        place = bisect_right(self._first, seq)
        if place and self._last[place - 1] >= seq - 1:
            self._last[place - 1] = max(seq, self._last[place - 1])
        else:
            self._first.insert(place, seq)
            self._last.insert(place, seq)

    def is_news(self) -> bool:
        """Whether some were given up since this was asked last."""
        is_news, self._is_news = self._is_news, False
        return is_news


class Advertisement:
    """What the application is going to publish; it ends with `close()`."""

    def __init__(self, client: "Client", name: str, where: Filter) -> None:
        self.name = name
        self.where = where
        self._client = client

    async def close(self) -> None:
        """Advertise it no more."""
        self._client._give(Unadvertise(advertisement=self.name))
