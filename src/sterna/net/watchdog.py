"""The watchdog: notices when the event loop stands still, and what holds it.

The loop turns a wheel from time to time, and a thread looks whether it does. Neither costs anything
for an event. When the loop is late, the thread takes the stack of the loop's thread.
"""

import asyncio
import logging
import sys
import threading
import time
from pathlib import PurePath
from typing import NamedTuple

log = logging.getLogger("sterna.broker")

HELD_S = 0.1
"""A loop that stands still for longer than this is held."""

TURN_S = 0.05
"""How many seconds pass between two turns of the wheel, and between two looks at it."""

STUCK_S = 5.0
"""When a loop stands still for so long, it is logged before it is over: it may never be."""

FRAMES_MAX = 16
"""How many calls of a stack are kept, the innermost ones."""


class Hold(NamedTuple):
    """A time in which the loop stood still."""

    seconds: float
    """How long, at least."""
    busy_s: float
    """How much processor time the loop's thread has used meanwhile. If it is much less, the loop
    waited: for a disk, for another thread, or because the machine was busy with something else."""
    stack: str
    """The calls that held it, the innermost last; empty if it was over too soon to be seen."""


NO_HOLD = Hold(0.0, 0.0, "")


class Watchdog:
    """Watches the event loop of a broker."""

    def __init__(self, name: str, *, held_s: float = HELD_S) -> None:
        self.holds = 0
        """How often the loop was held."""
        self.longest = NO_HOLD
        """The longest hold."""
        self.busiest = NO_HOLD
        """The hold with the most processor time, which no other process is to blame for."""
        self._name = name
        self._held_s = held_s
        self._turns = 0
        self._due = 0.0
        self._busy_s = 0.0
        self._seen = (0, "")
        """The stack that was seen before which turn."""
        self._timer: asyncio.TimerHandle | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch the loop that runs in this thread, from now on."""
        loop = asyncio.get_running_loop()
        self._wait(loop)
        self._thread = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="watchdog", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # The system allows for no more threads: there are no stacks then.
            self._thread = None

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    # ---- In the loop

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = time.perf_counter() + TURN_S
        self._busy_s = time.thread_time()
        self._timer = loop.call_later(TURN_S, self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        late_s = time.perf_counter() - self._due
        self._turns += 1
        if late_s > self._held_s:
            busy_s = time.thread_time() - self._busy_s
            turns, stack = self._seen
            is_of_this = turns == self._turns
            self._held(Hold(late_s, min(busy_s, late_s), stack if is_of_this else ""))
        self._wait(loop)

    def _held(self, hold: Hold) -> None:
        self.holds += 1
        self.longest = max(self.longest, hold)
        self.busiest = max(self.busiest, hold, key=lambda each: each.busy_s)
        log.warning(
            "the event loop of %s stood still for %.3f s, %.3f s of them at work: %s",
            *(self._name, hold.seconds, hold.busy_s, hold.stack or "over before it was seen"),
        )

    # ---- In a thread

    def _watch(self, watched: int) -> None:
        stuck = 0
        while not self._over.wait(TURN_S):
            turn = self._turns + 1
            late_s = time.perf_counter() - self._due
            if late_s > self._held_s / 2 and self._seen[0] != turn:
                self._seen = turn, stack_of(watched)
            if late_s > STUCK_S and stuck != turn:
                stuck = turn
                log.error("the event loop of %s stands still: %s", self._name, stack_of(watched))


def stack_of(thread: int) -> str:
    """The calls that a thread is in, on one line, the innermost last."""
    frame = sys._current_frames().get(thread)
    calls: list[str] = []
    while frame is not None and len(calls) < FRAMES_MAX:
        file = "/".join(PurePath(frame.f_code.co_filename).parts[-3:])
        calls.append(f"{file}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(calls))
