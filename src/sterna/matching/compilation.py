"""Compiling the kernels: once for each installation, all at a time, and not in silence."""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba.core import event as numba_event

from sterna.model.filters import Filter

try:
    import fcntl
except ImportError:  # Windows has none.
    fcntl = None  # type: ignore[assignment]

ALONE_S = 120.0
"""How many seconds to wait for another process that is compiling."""

_log = logging.getLogger(__name__)


@cache
def compile_kernels() -> None:
    """Load all kernels from disk or compile them, by using each; later calls return at once.

    Of several processes that begin at the same time one compiles, and the others load the result.
    """
    from sterna.matching.columns import Columns  # noqa: PLC0415
    from sterna.matching.compiled import CompiledSubscriptions  # noqa: PLC0415

    plain, filed = Filter("a < 5"), Filter("a LIKE '%abc%'")
    with (
        ExitStack() as while_compiling,
        numba_event.install_listener("numba:compile", _Compiling(while_compiling)),
    ):
        subscriptions = CompiledSubscriptions()
        for number in range(150):  # Enough for tiles to be split and packed.
            subscriptions.add(number, filed if number % 2 else plain)
        subscriptions.match({"a": 1.0})
        subscriptions.match_batch(Columns({"a": np.array([1.0])}))
        for number in range(150):
            subscriptions.remove(number)


class _Compiling(numba_event.Listener):
    """When something has to be compiled, logs a message and waits for its turn, once."""

    def __init__(self, while_compiling: ExitStack) -> None:
        self._while_compiling = while_compiling
        self._has_begun = False

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        if not self._has_begun:
            self._has_begun = True
            _log.warning("compiling the matching index: this takes about half a minute, once …")
            self._while_compiling.enter_context(_alone())

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process compiles into the same directory, but not for ever."""
    from sterna.matching.kernels.entries import match_event  # noqa: PLC0415

    folder = match_event._cache.cache_path  # type: ignore[attr-defined]
    if folder is None or fcntl is None:
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "compiling.lock").open("w") as lock:
        deadline = time.monotonic() + ALONE_S
        while time.monotonic() < deadline:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.1)
        yield  # The lock ends with the file.
