"""Whether a client works, and if not, why."""

import asyncio
from collections.abc import Callable
from copy import copy

from sterna.errors import ClosedError, SternaError


class Life:
    """What all parts of a client share: its name, and whether it works, has failed or is closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: SternaError | None = None
        """Why the client cannot continue."""
        self.is_closing = False
        self.is_closed = False
        self._at_end: list[Callable[[], None]] = []
        self._changed = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether the client has failed or is closed."""
        return self.is_closed or self.failure is not None

    def at_end(self, call: Callable[[], None]) -> None:
        """Call a function when the client fails or is closed, in the order of these requests."""
        self._at_end.append(call)

    def fail(self, failure: SternaError) -> None:
        """End the client with an error, which later calls of the application raise."""
        if not self.is_over:
            self.failure = failure
            self._end()

    def close(self) -> None:
        """End the client, because the application closes it."""
        if not self.is_closed:
            self.is_closed = True
            self._end()

    def check(self) -> None:
        """Raise the error for the application, if the client has ended."""
        if self.failure is not None:
            raise copy(self.failure)
        if self.is_closed:
            raise ClosedError(f"{self.name} is closed")

    def changed(self) -> None:
        """Wake all calls that wait for a change."""
        self._changed.set()

    async def change(self) -> None:
        """Wait until something may have changed: the connection, or the end of the client."""
        self._changed.clear()
        await self._changed.wait()

    def _end(self) -> None:
        for call in self._at_end:
            call()
        self.changed()
