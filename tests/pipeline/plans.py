"""How many rows the operators of Spark's plans gave: what a query costs, whatever time it takes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "number of output rows"


def rows_of_plans(spark: "SparkSession", act: Callable[[], object]) -> int:
    """The rows that all operators of all queries gave together, while something was done."""
    before = _executions(spark)
    act()
    store: Any = spark._jsparkSession.sharedState().statusStore()
    total = 0
    for number in sorted(_executions(spark) - before):
        metrics = store.executionMetrics(number)
        for node in _each(store.planGraph(number).allNodes()):
            for metric in _each(node.metrics()):
                value = metrics.get(metric.accumulatorId())
                if metric.name() == ROWS and value.isDefined():
                    total += int(value.get().replace(",", ""))
    return total


def _executions(spark: "SparkSession") -> set[int]:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store: Any = spark._jsparkSession.sharedState().statusStore()
    return {each.executionId() for each in _each(store.executionsList())}


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
