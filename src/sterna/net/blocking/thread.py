"""An event loop in a thread of its own, and how long other threads wait for it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from time import monotonic
from typing import Any, TypeVar

from sterna.errors import ClosedError
from sterna.net.client.waiting import Problem, time_limit
from sterna.net.loop import new_event_loop

Answer = TypeVar("Answer")


class LoopThread:
    """A thread with an event loop, which runs coroutines for other threads."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sterna", daemon=True)
        self._thread.start()

    def wait(
        self,
        what: Callable[[], Coroutine[Any, Any, Answer]],
        timeout: float | None = None,
        problem: Problem = "this was not done",
    ) -> Answer:
        """Run a coroutine in the thread, and wait for it; TimedOutError says `problem`."""

        async def do() -> Answer:
            async with time_limit(timeout, problem):
                return await what()

        doing = do()
        try:
            future = asyncio.run_coroutine_threadsafe(doing, self.loop)
        except RuntimeError:  # The loop is closed.
            doing.close()
            raise ClosedError("the client is closed") from None
        try:
            return future.result()
        except CancelledError:
            raise ClosedError("the client is closed") from None
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Stop the loop and its tasks, and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()


def left(deadline: float | None) -> float | None:
    """How many seconds are left, if there is a deadline."""
    return None if deadline is None else max(0.0, deadline - monotonic())


def acquired(lock: threading.Lock, deadline: float | None) -> bool:
    """Wait for a lock until a deadline; return whether it was acquired."""
    seconds = left(deadline)
    return lock.acquire(timeout=-1 if seconds is None else seconds)
