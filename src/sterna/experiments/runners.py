"""Where the tasks of a sweep are performed: processes on this machine, or Spark.

A small sweep is over before Spark has started. So processes take those, and what is left where
Spark is not installed; Spark takes the others, and all whose user names a master.
"""

import multiprocessing
import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from queue import Empty, LifoQueue
from threading import Lock, Thread, current_thread, main_thread
from typing import TYPE_CHECKING

from sterna.errors import MissingExtraError
from sterna.experiments.sweep import Outcome, Runner, Task, failed, perform
from sterna.extras import require
from sterna.pipeline.errors import SparkUnavailable
from sterna.pipeline.quiet import interruptible, was_interrupted
from sterna.pipeline.session import (
    LOCAL,
    first_line,
    require_java,
    running_session,
    spark_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESSES = "processes"
"""The master that is not Spark: a process for each core. `processes[1]` is the command's own."""

SMALL = 50
"""Up to so many runs, processes are there before Spark is."""

JOBS_MIN = 32
"""At least so many tasks wait at Spark, for workers that join later."""

_PROCESSES = re.compile(r"processes(?:\[(\*|[1-9]\d*)\])?")


def choose_master(master: str | None, runs: int) -> str:
    """The master that the user names or, without one, what suits that many runs."""
    if master is not None:
        return master
    return LOCAL if runs > SMALL and _has_spark() else PROCESSES


@contextmanager
def runner_at(master: str, runs: int) -> Iterator[Runner]:
    """A place for so many runs; SparkUnavailable says what to do if this master has none."""
    if match := _PROCESSES.fullmatch(master):
        if match[1] == "1":
            yield Here()
            return
        count = _cores() if match[1] in {None, "*"} else int(match[1])
        processes = Processes(max(1, min(count, runs)))
        try:
            yield processes
        finally:
            processes.close()
        return
    with interruptible():
        running = running_session()
        spark = running or spark_session("sterna experiment", master)
        try:
            yield SparkJobs(spark)
        finally:
            if running is None and not was_interrupted():  # Java ends with this process.
                spark.stop()


class Here:
    """Performs one task after the other in this process, as a debugger likes it."""

    slots = 1

    def run(self, task: Task) -> Sequence[Outcome]:
        """Perform a task."""
        return perform(task)


class SparkJobs:
    """Performs each task as a Spark job of its own, so that its result comes when it is done."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context = spark.sparkContext
        self.slots = max(JOBS_MIN, 2 * self._context.defaultParallelism)

    def run(self, task: Task) -> Sequence[Outcome]:
        """Perform a task on a worker; it is wrong if its worker dies and Spark gives up on it."""
        try:
            (outcomes,) = self._context.parallelize([task], 1).map(perform).collect()
        except Exception as error:
            if self._has_ended():
                raise SparkUnavailable(
                    f"Spark has ended ({first_line(error)}); the same command goes on"
                ) from error
            return failed(task, f"Spark failed: {first_line(error)}")
        return outcomes

    def _has_ended(self) -> bool:
        try:
            return self._context._jsc is None or self._context._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - Java does not answer.
            return True


class Processes:
    """Performs tasks in processes of this machine."""

    def __init__(self, count: int) -> None:
        self.slots = count
        self._idle: LifoQueue[Child] = LifoQueue()
        self._children: list[Child] = []
        self._lock = Lock()
        with _uninterrupted():
            for _ in range(count):
                self._idle.put(self._started())

    def run(self, task: Task) -> Sequence[Outcome]:
        """Perform a task in a process that is idle; one that dies takes no other along."""
        try:
            child = self._idle.get_nowait()
        except Empty:  # One has died.
            child = self._started()
        try:
            outcomes = child.perform(task)
        except (EOFError, OSError):
            return failed(task, child.end())
        self._idle.put(child)
        return outcomes

    def _started(self) -> "Child":
        with self._lock:
            child = Child()
            self._children.append(child)
            return child

    def close(self) -> None:
        """End all processes, whatever they do."""
        with self._lock:
            for child in self._children:
                child.end()


class Child:
    """A process that performs tasks."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def perform(self, task: Task) -> Sequence[Outcome]:
        """Perform a task; EOFError if the process dies."""
        self._pipe.send(task)
        outcomes: Sequence[Outcome] = self._pipe.recv()
        return outcomes

    def end(self) -> str:
        """End the process, if it has not ended by itself; how it did."""
        self._process.join(0.1)
        status = self._process.exitcode
        self._process.kill()
        self._process.join()
        if status is not None and status < 0:
            name = signal.Signals(-status).name
            return f"its process was ended by {name}; perhaps there is too little memory"
        return f"its process has ended with status {status}"


def _serve(pipe: Connection) -> None:
    """Perform one task after the other, until nobody has any, or the sweep is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The sweep gets it, and ends its processes.
    Thread(target=_follow, daemon=True).start()
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(perform(task))


def _follow() -> None:
    """End this process when the sweep is gone, in the middle of a task as well."""
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Have processes that are started in the block ignore Ctrl-C from their first moment."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _has_spark() -> bool:
    try:
        require("pipeline", "Spark")
        require_java()
    except (MissingExtraError, SparkUnavailable):
        return False
    return True


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on macOS.
        return os.cpu_count() or 1
