"""How many examples a property is tried on, and how long a single step may take."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from hypothesis import settings

CAMPAIGN = int(os.environ.get("STERNA_CAMPAIGN", "1"))
"""`make test-long` sets this to try so many times as many examples."""

MANY = 2_500
"""So many random runs for each unit of a campaign: `make test-long` has 20 of them."""


def examples(count: int, *, long: int = 1) -> settings:
    """The setting for a property that `make test` tries on so many examples.

    `long` is how many times more often still it is tried in a campaign.
    """
    return settings(max_examples=count * CAMPAIGN * (long if CAMPAIGN > 1 else 1))


def seeds(count: int, *, long: float = 1) -> range:
    """The seeds of so many random runs in `make test`; see `examples`."""
    return range(int(count * CAMPAIGN * (long if CAMPAIGN > 1 else 1)))


def many_seeds(count: int) -> range:
    """The seeds of so many random runs in `make test`, and of 50,000 in `make test-long`.

    For brokers that move, die and meet: what goes wrong there is rare.
    """
    return range(count if CAMPAIGN == 1 else CAMPAIGN * MANY)


@contextmanager
def soon(seconds: float = 5) -> Iterator[None]:
    """A step that ends soon or is stopped: by processor time, so a busy machine fails no test.

    The bound stands far above what the step takes, and far below what it takes when it is broken.
    """

    def stop(_signal: int, _frame: FrameType | None) -> None:
        pytest.fail(f"not done after {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
