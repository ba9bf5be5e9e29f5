"""Reports changes of a client's connection to callbacks and readers."""

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
"""How many changes may wait for one reader; beyond that, the oldest are discarded."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A broker accepts what the client publishes, and delivers what it subscribes to."""

    broker: str
    """The name of the broker."""
    address: str
    """Its address, as a URL."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection has ended. Unless the client is detached or closed, it looks for another."""

    broker: str
    """The name of the broker."""
    reason: str
    """Why the connection ended, for people to read."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The client is at another broker than before. This follows right after `Connected`."""

    old: str
    """The name of the previous broker."""
    new: str
    """The name of the current broker."""


Change = Connected | Lost | Moved


class Changes:
    """Passes changes of the connection on to callbacks and readers."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.now: Connected | None = None
        """The current connection, if there is one."""
        self._callbacks: list[Callable[[Change], object]] = []
        self._readers: list[Connections] = []

    def tell(self, change: Change) -> None:
        """Report a change to all of them; if a callback fails, that is logged."""
        if isinstance(change, Connected):
            self.now = change
        elif isinstance(change, Lost):
            self.now = None
        for reader in self._readers:
            reader._put(change)
        for callback in [*self._callbacks]:
            call(callback, change)

    def add_callback(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call this with the current connection and each change; return a function to end that."""
        self._callbacks.append(callback)
        if self.now is not None:
            call(callback, self.now)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def add_reader(self) -> "Connections":
        """Return an iterator over the current connection and each change."""
        reader = Connections(self)
        if self.now is not None:
            reader._put(self.now)
        if self.life.is_over:
            reader._end()
        else:
            self._readers.append(reader)
        return reader

    def remove_reader(self, reader: "Connections") -> None:
        """Report nothing more to one reader."""
        if reader in self._readers:
            self._readers.remove(reader)
        reader._end()

    def end(self) -> None:
        """End all readers, because the client has ended."""
        for reader in [*self._readers]:
            self.remove_reader(reader)


class Connections:
    """Changes of a client's connection: `async for change in client.connections()`.

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
        """Wait for the next change.

        TimedOutError if there is none after `timeout` seconds, ClosedError at the end.
        """
        async with time_limit(timeout, "the connection did not change"):
            try:
                return await anext(self)
            except StopAsyncIteration:
                raise ClosedError("the client or this iterator is closed") from None

    def close(self) -> None:
        """End the iteration once all changes so far are read."""
        self._changes.remove_reader(self)

    def _put(self, change: Change) -> None:
        self._unread.append(change)
        self._arrived.set()

    def _end(self) -> None:
        self._is_over = True
        self._arrived.set()


def call(callback: Callable[[Change], object], change: Change) -> None:
    """Call a function with a change; if it fails, that is logged."""
    try:
        callback(change)
    except Exception:
        log.exception("a callback for changes of the connection failed")
