"""Loading the compiled kernels, which takes seconds: at once, or in another thread meanwhile."""

import threading
from functools import cache

_COMPILERS = {"llvmlite", "numba", "numpy"}
"""The packages that compiled code needs. A client's installation has none of them."""


class _Background:
    """Whether kernels are loaded in another thread, and how far that is."""

    is_wanted = False
    is_ready = False
    thread: threading.Thread | None = None


def load_in_background() -> None:
    """From now on, kernels are loaded in another thread when an index nears the need of them.

    Until they are there, filters are tested one by one, so nothing waits. This is for brokers.
    """
    _Background.is_wanted = True


def is_loaded_in_background() -> bool:
    """Whether kernels are loaded in another thread."""
    return _Background.is_wanted


def kernels_are_ready(*, now: bool) -> bool:
    """Whether an index can use the kernels. If not, have them loaded; with `now`, wait for it.

    In the background, it never waits.
    """
    if not _Background.is_wanted:
        return now and can_compile()
    if _Background.thread is None:
        _Background.thread = threading.Thread(target=_load, name="kernels", daemon=True)
        try:
            _Background.thread.start()
        except RuntimeError:  # The system allows for no more threads: once more the next time.
            _Background.thread = None
    return _Background.is_ready


def _load() -> None:
    if can_compile():
        from sterna.matching.compilation import compile_kernels  # noqa: PLC0415 - it is large.

        compile_kernels()
        _Background.is_ready = True


@cache
def can_compile() -> bool:
    """Whether NumPy and numba are installed; a broken installation raises its own error."""
    try:
        import numba  # noqa: F401, PLC0415 - both are large, and few filters do without.
        import numpy  # noqa: F401, ICN001, PLC0415
    except ModuleNotFoundError as error:
        if error.name in _COMPILERS:
            return False
        raise
    return True
