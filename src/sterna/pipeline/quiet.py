"""What Java writes to standard error, without what means nothing to a user."""

import logging
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from select import select
from threading import Event, Thread, current_thread, main_thread
from types import FrameType

NOISE = re.compile(
    rb"^(WARNING: Using incubator modules|NOTE: Picked up JDK_JAVA_OPTIONS): .*\n", re.MULTILINE
)
"""Lines that Java writes at each start, because of the modules and options that it is given."""

DELAY_S = 0.2
"""How long anything waits before it is passed on: it may be the answer to an interruption."""

CHUNK = 65_536

_is_muted = Event()


@contextmanager
def java_filtered() -> Iterator[None]:
    """Have processes that are started in the block write their errors through a filter."""
    real = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    Thread(target=_pass_on, args=(reading, real), daemon=True).start()
    try:
        yield
    finally:
        os.dup2(real, 2)


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep a program's own way to handle Ctrl-C, which Spark replaces in the block."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not signal.default_int_handler and current_thread() is main_thread():
        signal.signal(signal.SIGINT, before)


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C end the block at once, without the many words in which all that it does fails.

    Spark would ask Java to cancel its jobs, in the middle of another call to Java. For commands
    that end then: Java ends with its partner in Python. Whatever fails after Ctrl-C counts as
    interrupted: Python drops an exception that is raised while it calls a finalizer, and py4j has
    many, so that what is seen first may be that Spark's workers have gone.
    """
    if current_thread() is not main_thread():
        yield
        return
    _is_muted.clear()

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        _is_muted.set()
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if was_interrupted():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed in the block that is or was `interruptible`."""
    return _is_muted.is_set()


def _pass_on(reading: int, real: int) -> None:
    while written := os.read(reading, CHUNK):
        is_muted = _is_muted.wait(DELAY_S)
        while select([reading], [], [], 0)[0] and (more := os.read(reading, CHUNK)):
            written += more  # Java writes a line in pieces.
        written = NOISE.sub(b"", written)
        if written and not is_muted:
            os.write(real, written)
