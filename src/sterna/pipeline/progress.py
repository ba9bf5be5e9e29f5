"""How far a command is, in our words and numbers, for users who wait."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.5

FORESEEN, FORESEEN_S = 2, 2.0
"""How many tasks have ended, and how long they ran, before it is said how long others will take."""


@dataclass(frozen=True)
class Tasks:
    """The tasks of all that Spark runs now; they are the parts in which it does a step."""

    stages: frozenset[int] = frozenset()
    """The numbers of what runs, by which something new is noticed."""
    done: int = 0
    total: int = 0


class Progress:
    """The step that a command is at, and when that step and its tasks began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._step = self._part = ""
        self._since = clock()
        self._first = Tasks()
        """The tasks as they were when they were first seen."""
        self._first_s = self._since

    def step(self, words: str, part: str = "") -> None:
        """Begin the next step, which is this part of the whole; what is said again goes on."""
        if words != self._step:
            self._step, self._since = words, self._clock()
        self._part = f" ({part})" if part else ""

    def line(self, tasks: Tasks) -> str:
        """One line for people, such as "matching: 12 of 40 tasks, 3 s, about 7 s left"."""
        now = self._clock()
        if tasks.stages != self._first.stages:
            self._first, self._first_s = tasks, now
        step = f"{self._step or 'reading'}{self._part}"
        parts = [f"{tasks.done:,} of {tasks.total:,} tasks"] if tasks.total else []
        if now - self._since >= 1:
            parts.append(in_words(now - self._since))
        if (left_s := self._left_s(tasks, now)) is not None:
            parts.append(f"about {in_words(_rounded(left_s))} left")
        return f"{step}: {', '.join(parts)}" if parts else f"{step} …"

    def _left_s(self, tasks: Tasks, now: float) -> float | None:
        """How long the tasks that are left will take; None as long as that cannot be known."""
        seen_s, seen = now - self._first_s, tasks.done - self._first.done
        if seen < FORESEEN or seen_s < FORESEEN_S or tasks.done >= tasks.total:
            return None
        return seen_s * (tasks.total - tasks.done) / seen


def _rounded(seconds: float) -> float:
    """A guess, without a precision that it does not have."""
    return seconds if seconds < 10 else 5 * round(seconds / 5)


_current: ContextVar[Progress | None] = ContextVar("progress", default=None)


def step(words: str, part: str = "") -> None:
    """Say what is done next, to whoever waits for it; if nobody does, this does nothing."""
    progress = _current.get()
    if progress is not None:
        progress.step(words, part)


@contextmanager
def shown(spark: "SparkSession", say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, report every now and then how far it is."""
    over = threading.Event()
    progress = Progress()
    token = _current.set(progress)

    def watch() -> None:
        while not over.wait(EVERY_S):
            say(progress.line(running(spark)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        _current.reset(token)


def running(spark: "SparkSession") -> Tasks:
    """The tasks of the stages that Spark runs now."""
    tracker = spark.sparkContext.statusTracker()
    stages = {
        number: info
        for number in tracker.getActiveStageIds()
        if (info := tracker.getStageInfo(number)) is not None
    }
    return Tasks(
        frozenset(stages),
        sum(stage.numCompletedTasks for stage in stages.values()),
        sum(stage.numTasks for stage in stages.values()),
    )


def in_words(seconds: float) -> str:
    """A length of time, no more exact than it is of use."""
    whole = max(1, round(seconds))
    for unit, length in (("s", 1), ("min", 60), ("h", 3600)):
        if whole < 100 * length:
            return f"{round(whole / length)} {unit}"
    return f"{round(whole / 86400)} days"
