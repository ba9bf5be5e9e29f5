"""What becomes of a client's connection, told to whoever wants to know."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from sterna.errors import ClosedError
from sterna.net.client.life import Life
from sterna.net.client.waiting import time_limit

log = logging.getLogger("sterna.client")

UNREAD_MAX = 1_000
"""So many changes at most wait for one reader; then the oldest are discarded."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A broker takes what the client publishes, and delivers what it subscribes to."""

    broker: str
    """The name of the broker."""
    address: str
    """Its address, as a URL."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is over; unless the client has detached or is closed, it looks for another."""

    broker: str
    """The name of the broker."""
    reason: str
    """Why, in words for people."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The client works through another broker than before; this comes right after `Connected`."""

    old: str
    """The name of the broker before."""
    new: str
    """The name of the broker now."""


Change = Connected | Lost | Moved


class Changes:
    """Passes changes of the connection on to callbacks and readers."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.now: Connected | None = None
        """The connection that stands, if one does."""
        self._callbacks: list[Callable[[Change], object]] = []
        self._readers: list[Connections] = []

    def tell(self, change: Change) -> None:
        """Tell everybody; a callback that fails is logged."""
        if isinstance(change, Connected):
            self.now = change
        elif isinstance(change, Lost):
            self.now = None
        for reader in self._readers:
            reader._put(change)
        for callback in [*self._callbacks]:
            _call(callback, change)

    def add_callback(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call this with what is now, and with each change; calling what is returned ends that."""
        self._callbacks.append(callback)
        if self.now is not None:
            _call(callback, self.now)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def add_reader(self) -> "Connections":
        """What is now, and each change, to be iterated over."""
        reader = Connections(self)
        if self.now is not None:
            reader._put(self.now)
        if self.life.is_over:
            reader._end()
        else:
            self._readers.append(reader)
        return reader

    def remove_reader(self, reader: "Connections") -> None:
        """Tell one reader nothing more."""
        if reader in self._readers:
            self._readers.remove(reader)
        reader._end()

    def end(self) -> None:
        """The client is over, and so is its connection for good."""
        for reader in [*self._readers]:
            self.remove_reader(reader)


class Connections:
    """Changes of a client's connection, as they come: `async for change in client.connections()`.

    It begins with `Connected` if the client is connected, and ends with the client or with
    `close()`.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._unread: deque[Change] = deque(maxlen=UNREAD_MAX)
        self._arrived = asyncio.Event()
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._unread:
            if self._is_over:
                if self._changes.life.failure is not None:
                    self._changes.life.check()
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._unread.popleft()

    async def get(self, timeout: float | None = None) -> Change:
        """The next change.

        TimedOutError if there is none in so many seconds, ClosedError at the end.
        """
        async with time_limit(timeout, "the connection did not change"):
            try:
                return await anext(self)
            except StopAsyncIteration:
                raise ClosedError("there is nothing more to be told of this connection") from None

    def close(self) -> None:
        """End the iteration, once all that was told so far is read."""
        self._changes.remove_reader(self)

    def _put(self, change: Change) -> None:
        self._unread.append(change)
        self._arrived.set()

    def _end(self) -> None:
        self._is_over = True
        self._arrived.set()


def _call(callback: Callable[[Change], object], change: Change) -> None:
    try:
        callback(change)
    except Exception:
        log.exception("a callback for changes of the connection failed")
