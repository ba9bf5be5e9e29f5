"""The few numbers that pictures are drawn from, computed from tables of any size."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.delta import files_of
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.tables.reading import read_files
from sterna.pipeline.tables.schemas import AUDITED, GROWING, VIEWS

LINKS_MAX = 8
"""How many links have a line of their own; the others share one."""
OTHERS = "all others"
MOVES_MAX = 400
"""How many moves are drawn, the most frequent ones."""
PLACES_MAX = 12
"""For how many places dwell times are drawn."""
FINDINGS_MAX = 20
"""How many wrong deliveries are listed."""
SLICES = 240
"""Into about how many slices the time in which something happened is cut."""
SLICES_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3600 * n for n in (1, 3, 6, 12, 24)),
)
"""How long a slice may be."""

LATER_COLUMNS = {*AUDITED, "bootstrap_latency"}
"""The views that have columns which earlier releases did not write."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class ReportTables:
    """The folders of tables by name; some may be missing."""

    spark: SparkSession
    folders: Mapping[str, Path]
    opened: dict[str, DataFrame] = field(default_factory=dict)
    """The tables that were read: Spark looks at all files of each."""

    def get(self, name: str) -> DataFrame | None:
        """A table; None if it is missing. Columns that earlier releases did not write are null."""
        if name in self.folders and name not in self.opened:
            schema = GROWING[name].schema if name in GROWING else None
            if name in LATER_COLUMNS:
                schema = VIEWS[name]
            self.opened[name] = read_files(self.spark, self.folders[name], schema)
        return self.opened.get(name)

    def counts(self) -> dict[str, int]:
        """How many rows each table has."""
        return {
            name: sum(map(_rows_in, files_of(folder)))
            for name, folder in sorted(self.folders.items())
        }


def _rows_in(file: Path) -> int:
    try:
        return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise PipelineError(f"{file} cannot be read as Parquet: {error}") from None


def folders_in(*directories: Path) -> dict[str, Path]:
    """The tables of directories, the last one of a name; a directory without any is an error."""
    found: dict[str, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise PipelineError(
                f"there is no directory {directory}; give the --out of another command"
            )
        all_ = [each for each in sorted(directory.iterdir()) if each.is_dir()]
        tables = {each.name: each for each in all_ if each.name[0] not in "._" and files_of(each)}
        if not tables:
            raise PipelineError(
                f"{directory} has no tables; `sterna pipeline run` and `sterna pipeline mine` make "
                "them"
            )
        found |= {each.name: each for each in all_ if each.name in GROWING} | tables
    return found


def rows_of(table: DataFrame) -> Rows:
    """The rows of a table that is small."""
    found: Rows = table.toArrow().to_pylist()
    return found


def traffic(tables: ReportTables) -> Rows | None:
    """Events per link over time; those to clients are joined, and links with little traffic.

    The statistics of brokers are exact to the second, the table of traffic is to the minute.
    """
    exact, by_minute = tables.get("statistics"), tables.get("traffic")
    if exact is not None:
        found = exact.where("kind = 'Forwarded' AND link IS NOT NULL")
        found = found.select("broker", "link", "time", "events")
    elif by_minute is not None:
        found = by_minute.select("broker", "link", F.col("minute").alias("time"), "events")
    else:
        return None
    ((brokers, busy),) = found.agg(F.collect_set("broker"), _minutes()).collect()
    to = F.when(F.col("link").isin(brokers), F.col("link")).otherwise("clients")
    found = found.select(F.concat_ws(" → ", "broker", to).alias("link"), "time", "events")
    rows = rows_of(
        _sliced(found, busy, 1 if exact is not None else 60)
        .groupBy("link", "time", "slice_s")
        .agg(F.sum("events").alias("events"))
    )
    return _largest(rows)


def _largest(rows: Rows) -> Rows:
    """The lines with the most events, and one for all others."""
    events = Counter[str]()
    for row in rows:
        events[row["link"]] += row["events"]
    named = sorted(events, key=lambda link: (-events[link], link))[:LINKS_MAX]
    joined = Counter[tuple[str, Any]]()
    for row in rows:
        joined[row["link"] if row["link"] in named else OTHERS, row["time"]] += row["events"]
    return [
        {"link": link, "time": time, "events": count, "slice_s": rows[0]["slice_s"]}
        for (link, time), count in joined.items()
    ]


def handovers(tables: ReportTables) -> Rows | None:
    """Steps of handovers over time, by kind."""
    found = tables.get("handovers")
    if found is None:
        return None
    ((busy,),) = found.agg(_minutes()).collect()
    sliced = _sliced(found, busy, 1).groupBy("kind", "time", "slice_s")
    return rows_of(sliced.agg(F.count(F.lit(1)).alias("count")))


def waiting(tables: ReportTables) -> Rows:
    """How long handovers took, and how long clients waited for events: percentiles of each.

    A handover takes from its start at a broker to the end of the same at the same broker. Clients
    wait for a first event and, if they asked for n past ones, for the n-th.
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
        nth = latencies.withColumn("seconds", F.col("nth_latency_s"))
        found += _hundredths(nth, F.lit("as many events as asked for: subscribed"))
    return found


def movement_graph(tables: ReportTables) -> Rows | None:
    """The most frequent moves from place to place."""
    found = tables.get("movement_graph")
    if found is None:
        return None
    return rows_of(
        found.where("origin != destination")
        .orderBy(F.desc("count"), "origin", "destination")
        .limit(MOVES_MAX)
    )


def visits_per_place(tables: ReportTables) -> Rows | None:
    """How often each place was visited."""
    found = tables.get("visits")
    return None if found is None else rows_of(found.groupBy("place").count())


def places(tables: ReportTables) -> Rows | None:
    """The positions of places."""
    found = tables.get("places")
    return None if found is None else rows_of(found)


def dwell(tables: ReportTables) -> Rows | None:
    """How long clients stay at the places with the most visits."""
    found = tables.get("dwell")
    if found is None:
        return None
    return rows_of(found.orderBy(F.desc("count"), "place").limit(PLACES_MAX))


def evaluation(tables: ReportTables) -> Rows | None:
    """How good predictions were."""
    found = tables.get("evaluation")
    return None if found is None else rows_of(found)


def audit(tables: ReportTables) -> dict[str, Any] | None:
    """What was lost, repeated or out of order, and how much was judged."""
    found = tables.get("delivery_audit")
    if found is None:
        return None
    arrived, judged = tables.get("deliveries"), tables.get("audit_totals")
    totals = [] if judged is None else rows_of(judged)
    deliveries = totals[0]["delivered"] if totals else None
    if deliveries is None and arrived is not None:
        deliveries = arrived.where("kind = 'Delivered'").count()
    listed = found.orderBy("world", "client", "publisher", "seq").limit(FINDINGS_MAX)
    return {
        "faults": {row["fault"]: row["count"] for row in rows_of(found.groupBy("fault").count())},
        "findings": rows_of(listed),
        "deliveries": deliveries,
        **{name: totals[0][name] if totals else None for name in ("owed", "open", "unknown")},
    }


def _hundredths(table: DataFrame, name: Column) -> Rows:
    parts = [number / 100 for number in range(101)]
    return rows_of(
        table.where("seconds IS NOT NULL")
        .groupBy(name.alias("name"))
        .agg(F.count(F.lit(1)).alias("count"), F.percentile("seconds", parts).alias("seconds"))
    )


def _minutes() -> Column:
    """In how many minutes something happened."""
    return F.count_distinct(F.floor(F.unix_seconds("time") / 60))


def _sliced(table: DataFrame, minutes: int, least_s: int) -> DataFrame:
    """The table with times rounded down, so that a line does not have too many points.

    `minutes` is in how many of them something happened, `least_s` the shortest slice.
    """
    seconds = F.unix_seconds("time")
    wanted_s = max(least_s, minutes * 60 / SLICES)
    slice_s = next((each for each in SLICES_S if each >= wanted_s), SLICES_S[-1])
    start = F.timestamp_seconds(F.floor(seconds / slice_s) * slice_s)
    return table.withColumns({"time": start, "slice_s": F.lit(slice_s)})
