"""The few numbers that pictures are drawn from, computed from tables of any size."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.errors import PipelineError

LINKS_MAX = 8
"""How many links have a line of their own; the others share one."""
MOVES_MAX = 400
"""How many moves are drawn, the most frequent ones."""
PLACES_MAX = 12
"""For how many places dwell times are drawn."""
FINDINGS_MAX = 20
"""How many wrong deliveries are listed."""
SLICES = 120
"""How many points a line over time has."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class ReportTables:
    """The folders of tables by name; some may be missing."""

    spark: SparkSession
    folders: Mapping[str, Path]

    def get(self, name: str) -> DataFrame | None:
        """A table; None if it is missing."""
        folder = self.folders.get(name)
        return None if folder is None else self.spark.read.parquet(str(folder))


def folders_in(*directories: Path) -> dict[str, Path]:
    """The tables of directories, the last one of a name; a directory without any is an error."""
    found: dict[str, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise PipelineError(
                f"there is no directory {directory}; give the --out of another command"
            )
        tables = {
            each.name: each
            for each in sorted(directory.iterdir())
            if not each.name.startswith((".", "_")) and any(each.rglob("*.parquet"))
        }
        if not tables:
            raise PipelineError(
                f"{directory} has no tables; `sterna pipeline run` and `sterna pipeline mine` make "
                "them"
            )
        found |= tables
    return found


def traffic(tables: ReportTables) -> Rows | None:
    """Events per link over time; links with little traffic are joined."""
    found = tables.get("traffic")
    if found is None:
        return None
    link = F.concat_ws(" → ", "broker", "link")
    found = found.select(link.alias("link"), F.col("minute").alias("time"), "events")
    busy = found.groupBy("link").agg(F.sum("events").alias("all")).orderBy(F.desc("all"), "link")
    largest = [row.link for row in busy.limit(LINKS_MAX).collect()]
    named = F.when(F.col("link").isin(largest), F.col("link")).otherwise("all others")
    return _rows(
        _sliced(found.withColumn("link", named))
        .groupBy("link", "time")
        .agg(F.sum("events").alias("events"), F.first("slice_s").alias("slice_s"))
    )


def handovers(tables: ReportTables) -> Rows | None:
    """Steps of handovers over time, by kind."""
    found = tables.get("handovers")
    if found is None:
        return None
    return _rows(_sliced(found).groupBy("kind", "time").agg(F.count(F.lit(1)).alias("count")))


def waiting(tables: ReportTables) -> Rows:
    """How long handovers took, and how long clients waited for a first event: percentiles of each.

    A handover takes from its start at a broker to the end of the same at the same broker.
    """
    found: Rows = []
    steps, latencies = tables.get("handovers"), tables.get("bootstrap_latency")
    if steps is not None:
        in_order = Window.partitionBy("client", "broker").orderBy("time", "position", "turn")
        took = (F.unix_micros(F.lead("time").over(in_order)) - F.unix_micros("time")) / 1e6
        ended = F.lead("kind").over(in_order) == "finished"
        pairs = steps.where("kind IN ('started', 'finished')").select(
            "kind", F.when(ended, took).alias("seconds")
        )
        found += _hundredths(pairs.where("kind = 'started'"), F.lit("handover"))
    if latencies is not None:
        first = latencies.withColumn("seconds", F.col("latency_s"))
        found += _hundredths(first, F.concat(F.lit("first event: "), F.col("cause")))
    return found


def movement_graph(tables: ReportTables) -> Rows | None:
    """The most frequent moves from place to place."""
    found = tables.get("movement_graph")
    if found is None:
        return None
    return _rows(
        found.where("origin != destination")
        .orderBy(F.desc("count"), "origin", "destination")
        .limit(MOVES_MAX)
    )


def visits_per_place(tables: ReportTables) -> Rows | None:
    """How often each place was visited."""
    found = tables.get("visits")
    return None if found is None else _rows(found.groupBy("place").count())


def places(tables: ReportTables) -> Rows | None:
    """The positions of places."""
    found = tables.get("places")
    return None if found is None else _rows(found)


def dwell(tables: ReportTables) -> Rows | None:
    """How long clients stay at the places with the most visits."""
    found = tables.get("dwell")
    if found is None:
        return None
    return _rows(found.orderBy(F.desc("count"), "place").limit(PLACES_MAX))


def evaluation(tables: ReportTables) -> Rows | None:
    """How good predictions were."""
    found = tables.get("evaluation")
    return None if found is None else _rows(found)


def audit(tables: ReportTables) -> dict[str, Any] | None:
    """What was lost, repeated or out of order, and how much was delivered."""
    found = tables.get("delivery_audit")
    if found is None:
        return None
    arrived = tables.get("deliveries")
    deliveries = None if arrived is None else arrived.where("kind = 'Delivered'").count()
    return {
        "faults": {row["fault"]: row["count"] for row in _rows(found.groupBy("fault").count())},
        "findings": _rows(found.orderBy("client", "publisher", "seq").limit(FINDINGS_MAX)),
        "deliveries": deliveries,
    }


def _rows(table: DataFrame) -> Rows:
    found: Rows = table.toArrow().to_pylist()
    return found


def _hundredths(table: DataFrame, name: Column) -> Rows:
    parts = [number / 100 for number in range(101)]
    return _rows(
        table.where("seconds IS NOT NULL")
        .groupBy(name.alias("name"))
        .agg(F.count(F.lit(1)).alias("count"), F.percentile("seconds", parts).alias("seconds"))
    )


def _sliced(table: DataFrame) -> DataFrame:
    """The table with times rounded down, so that a line does not have too many points."""
    seconds = F.unix_seconds("time")
    row = table.agg(F.min(seconds).alias("first"), F.max(seconds).alias("last")).first()
    span_s = (row.last or 0) - (row.first or 0) if row is not None else 0
    slice_s = max(60, 60 * round(span_s / 60 / SLICES))
    start = F.timestamp_seconds(F.floor(seconds / slice_s) * slice_s)
    return table.withColumns({"time": start, "slice_s": F.lit(slice_s)})
