"""Which place leads to which, how often, and how long clients stay: tables made from visits."""

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.location import MovementGraph
from sterna.pipeline.mining.tables import DWELL, MOVES, PLOC, QUANTILES, TRANSITIONS

MICROS = 1_000_000


def transitions(visits: DataFrame) -> DataFrame:
    """The movement graph: TRANSITIONS from VISITS."""
    counted = moves(visits).groupBy("origin", "destination").agg(F.count(F.lit(1)).alias("count"))
    all_from_there = F.sum("count").over(Window.partitionBy("origin"))
    return counted.withColumn("probability", F.col("count") / all_from_there).to(TRANSITIONS)


def moves(visits: DataFrame) -> DataFrame:
    """Each visit with the one after it and the one before: MOVES from VISITS."""
    # A visit of which only the end was seen comes before one that began at that moment.
    order = Window.partitionBy("client").orderBy("arrived", F.asc_nulls_last("left"), "place")
    return (
        visits.select(
            "client",
            F.lag("place").over(order).alias("previous"),
            F.col("place").alias("origin"),
            F.lead("place").over(order).alias("destination"),
            F.col("left").alias("time"),
            F.lead("arrived").over(order).alias("known"),
        )
        .where("destination IS NOT NULL")
        .to(MOVES)
    )


def dwell(visits: DataFrame) -> DataFrame:
    """How long clients stay: DWELL from VISITS."""
    seconds = (F.unix_micros("left") - F.unix_micros("arrived")) / MICROS
    return (
        visits.where("left > arrived")
        .groupBy("place")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.mean(seconds).alias("mean_s"),
            F.min(seconds).alias("min_s"),
            *(F.percentile(seconds, part).alias(name) for name, part in QUANTILES.items()),
            F.max(seconds).alias("max_s"),
        )
        .to(DWELL)
    )


def ploc(graph: DataFrame, steps_max: int) -> DataFrame:
    """What can be reached in 0 to `steps_max` steps: PLOC from TRANSITIONS.

    A step leads where a client went; nobody is assumed to go back the same way.
    """

    def reach(edges: pa.Table) -> pa.Table:
        return _reach(edges, steps_max)

    # A movement graph is small, and brokers answer the question on one machine, too.
    return graph.groupBy().applyInArrow(reach, PLOC)


def _reach(edges: pa.Table, steps_max: int) -> pa.Table:
    pairs = zip(edges["origin"].to_pylist(), edges["destination"].to_pylist(), strict=True)
    graph = MovementGraph(sorted(pairs), directed=True)
    rows = [(place, steps) for place in graph.locations for steps in range(steps_max + 1)]
    return pa.table(
        {
            "place": [place for place, _ in rows],
            "steps": pa.array([steps for _, steps in rows], pa.int32()),
            "places": [sorted(graph.ploc(place, steps)) for place, steps in rows],
        }
    )
