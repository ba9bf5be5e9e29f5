"""How long calls of the client library wait."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sterna.errors import TimedOutError

Problem = str | Callable[[], str]
"""What has not happened in time, for people to read; a function says it when it is so."""


@asynccontextmanager
async def time_limit(timeout: float | None, problem: Problem) -> AsyncIterator[None]:
    """TimedOutError if the block takes longer than `timeout` seconds; None means no limit."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():  # It is about something else, such as what the caller iterates.
            raise
        raise timed_out(timeout, problem) from None


def timed_out(timeout: float | None, problem: Problem) -> TimedOutError:
    """The error for a call that has timed out."""
    said = problem if isinstance(problem, str) else problem()
    return TimedOutError(f"{said} in {timeout or 0:g} s", timeout=timeout)


def renamed(old: str, value: float | None, timeout: float | None) -> float | None:
    """The `timeout` of a call, which may still be given under its old name."""
    if value is None:
        return timeout
    warnings.warn(f"{old} is called timeout now", DeprecationWarning, stacklevel=3)
    return value
