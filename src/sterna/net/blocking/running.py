"""What blocking clients have in common: an event loop in a thread, and how calls get there."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from sterna.errors import ClosedError
from sterna.net.blocking.thread import LoopThread
from sterna.net.client.api import Client
from sterna.net.client.waiting import Problem
from sterna.net.client.watching import WatchingClient

Answer = TypeVar("Answer")
Asynchronous = TypeVar("Asynchronous", Client, WatchingClient)


class Running(ABC, Generic[Asynchronous]):
    """Runs a client for asyncio in a thread of its own."""

    def __init__(self, make: Callable[[], Asynchronous]) -> None:
        """The asyncio client that `make` returns does the work."""
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = LoopThread()
        try:
            self._client: Asynchronous = self._thread.wait(lambda: _started(make))
        except BaseException:
            self._thread.end()
            raise

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_details: object) -> None:
        self._close(lambda: self._client.__aexit__(error))

    def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._closing:
            if not self._is_closed:
                try:
                    self._wait(close)
                finally:
                    self._is_closed = True
                    self._thread.end()

    @property
    def name(self) -> str:
        """The name of the client in the network."""
        return self._client.name

    @abstractmethod
    def _unaccepted(self, what: str) -> Callable[[], str]:
        """What to tell those who have waited too long for a broker to accept something."""

    def _before(self) -> None:
        """What is done in the thread before anything else that the application wants."""

    def _wait(
        self,
        what: Callable[[], Coroutine[Any, Any, Answer]],
        timeout: float | None = None,
        problem: Problem = "this was not done",
    ) -> Answer:
        """Run a coroutine in the thread, after everything that was published before."""

        async def do() -> Answer:
            self._before()
            return await what()

        return self._thread.wait(do, timeout, problem)

    def _do(self, what: Callable[[], Answer]) -> Answer:
        """Run a function in the thread, in the same way."""

        async def do() -> Answer:
            return what()

        return self._wait(do)

    def _close_quietly(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with suppress(ClosedError):  # The end of the client has closed it already.
            self._wait(close)


async def _started(make: Callable[[], Asynchronous]) -> Asynchronous:
    client = make()
    try:
        return await client
    except BaseException:
        await client.close()
        raise
