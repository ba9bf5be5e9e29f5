"""What Spark is doing, for users who wait."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.5


@contextmanager
def shown(spark: "SparkSession", say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, report every now and then how far Spark is."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(EVERY_S):
            say(state(spark))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def state(spark: "SparkSession") -> str:
    """The stages that are running, and how many of their tasks are done."""
    tracker = spark.sparkContext.statusTracker()
    stages = [
        info
        for number in tracker.getActiveStageIds()
        if (info := tracker.getStageInfo(number)) is not None
    ]
    if not stages:
        return "Spark is working …"
    done = sum(stage.numCompletedTasks for stage in stages)
    total = sum(stage.numTasks for stage in stages)
    return f"{stages[0].name.split(' at ')[0]}: {done} of {total} tasks"
