"""Which place leads to which, how often, and how long clients stay: tables made from visits."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.location import MovementGraph
from sterna.pipeline.mining.tables import DWELL, MOVES, PLOC, QUANTILES, TRANSITIONS
from sterna.pipeline.schemas import shaped

MICROS = 1_000_000


def transitions(visits: DataFrame, *, recorded: bool = False) -> DataFrame:
    """The movement graph: TRANSITIONS from VISITS; see `moves`."""
    found = moves(visits, recorded=recorded)
    counted = found.groupBy("origin", "destination").agg(F.count(F.lit(1)).alias("count"))
    all_from_there = F.sum("count").over(Window.partitionBy("origin"))
    return counted.withColumn("probability", F.col("count") / all_from_there).transform(
        shaped(TRANSITIONS)
    )


def moves(visits: DataFrame, *, recorded: bool = False) -> DataFrame:
    """Each visit with the one after it and the one before: MOVES from VISITS.

    If they are `recorded`, as RECORDED_VISITS, those of another recording do not count as after or
    before. (Declared pipelines do not allow for looking which columns there are.)
    """
    keys = ("client", "recording") if recorded else ("client",)
    # A visit of which only the end was seen comes before one that began at that moment.
    order = Window.partitionBy(*keys).orderBy("arrived", F.asc_nulls_last("left"), "place")
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
        .transform(shaped(MOVES))
    )


def dwell(visits: DataFrame) -> DataFrame:
    """How long clients stay: DWELL from VISITS."""
    seconds = (F.unix_micros("left") - F.unix_micros("arrived")) / MICROS
    quantiles = F.percentile(seconds, list(QUANTILES.values()))  # All from one pass over the stays.
    return (
        visits.where("left > arrived")
        .groupBy("place")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.mean(seconds).alias("mean_s"),
            F.min(seconds).alias("min_s"),
            quantiles.alias("quantiles"),
            F.max(seconds).alias("max_s"),
        )
        .select("*", *(F.col("quantiles")[n].alias(name) for n, name in enumerate(QUANTILES)))
        .transform(shaped(DWELL))
    )


def ploc(graph: DataFrame, steps_max: int) -> DataFrame:
    """What can be reached in 0 to `steps_max` steps: PLOC from TRANSITIONS.

    A step leads where a client went; nobody is assumed to go back the same way.
    """
    # A movement graph is no larger than a model: each task has all of it, and some of the places.
    edges = graph.select("origin", "destination").toArrow()
    both = [*edges["origin"].chunks, *edges["destination"].chunks]
    places = pc.unique(pa.chunked_array(both, pa.string())).sort()

    def reach(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pairs = zip(edges["origin"].to_pylist(), edges["destination"].to_pylist(), strict=True)
        space = MovementGraph(sorted(pairs), directed=True)
        for batch in batches:
            yield from _reach(space, batch["place"].to_pylist(), steps_max).to_batches()

    spread = graph.sparkSession.createDataFrame(pa.table({"place": places}))
    return spread.mapInArrow(reach, PLOC)


def _reach(graph: MovementGraph, places: list[str], steps_max: int) -> pa.Table:
    rows = [(place, steps) for place in places for steps in range(steps_max + 1)]
    return pa.table(
        {
            "place": pa.array([place for place, _ in rows], pa.string()),
            "steps": pa.array([steps for _, steps in rows], pa.int32()),
            "places": pa.array(
                [sorted(graph.ploc(place, steps)) for place, steps in rows], pa.list_(pa.string())
            ),
        }
    )
