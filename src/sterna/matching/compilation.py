"""Compiling the kernels: once for each installation, all at a time, and not in silence."""

import logging
from functools import cache
from typing import Any

import numpy as np
from numba.core import event as numba_event

from sterna.model.filters import Filter

_log = logging.getLogger(__name__)


@cache
def compile_kernels() -> None:
    """Load all kernels from disk or compile them, by using each; later calls return at once."""
    from sterna.matching.columns import Columns  # noqa: PLC0415
    from sterna.matching.compiled import CompiledSubscriptions  # noqa: PLC0415

    plain, filed = Filter("a < 5"), Filter("a LIKE '%abc%'")
    with numba_event.install_listener("numba:compile", _Notice()):
        subscriptions = CompiledSubscriptions()
        for number in range(150):  # Enough for tiles to be split and packed.
            subscriptions.add(number, filed if number % 2 else plain)
        subscriptions.match({"a": 1.0})
        subscriptions.match_batch(Columns({"a": np.array([1.0])}))
        for number in range(150):
            subscriptions.remove(number)


class _Notice(numba_event.Listener):
    """Logs a message, once, when something has to be compiled."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        if not self._said:
            self._said = True
            _log.warning("compiling the matching index: this takes about half a minute, once …")

    def on_end(self, event: Any) -> None:
        pass
