"""How many examples a property is tried on, and how long a single step may take."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import settings

CAMPAIGN = int(os.environ.get("STERNA_CAMPAIGN", "1"))
"""`make test-long` sets this to try so many times as many examples."""


def examples(count: int) -> settings:
    """The setting for a property that `make test` tries on so many examples."""
    return settings(max_examples=count * CAMPAIGN)


@contextmanager
def soon(seconds: float = 5) -> Iterator[None]:
    """One step that ends soon: in processor time, so that a busy machine fails no test.

    The bound stands far above what the step takes, and far below what it takes when it is broken.
    """
    started = time.process_time()
    yield
    taken = time.process_time() - started
    assert taken < seconds, f"took {taken:.1f} s of processor time, expected less than {seconds}"
