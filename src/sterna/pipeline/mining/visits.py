"""Visits, made from trips, movements and places passed: which client was where, and when."""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import StructType

from sterna.pipeline.mining.graph import MICROS
from sterna.pipeline.mining.tables import RECORDED_VISITS, VISITS
from sterna.pipeline.schemas import shaped


def docked(trips: DataFrame) -> DataFrame:
    """Where vehicles stood between their trips: VISITS from TRIPS.

    A vehicle that begins a trip elsewhere than it ended the one before was moved meanwhile: it was
    seen where it stood last, but not as it left; and where it began, but not as it came.
    """
    in_order = Window.partitionBy("client").orderBy("started", "stopped", "origin", "destination")
    known = trips.select(
        "*",
        F.lag("destination").over(in_order).alias("stood"),
        F.lead("origin").over(in_order).alias("next_origin"),
        F.lead("started").over(in_order).alias("next_started"),
    )
    end = F.struct(
        F.col("destination").alias("place"),
        F.least("stopped", "next_started").alias("arrived"),  # No trip ends after the next began.
        F.when(F.col("next_origin") == F.col("destination"), F.col("next_started")).alias("left"),
    )
    begin = F.struct(
        F.col("origin").alias("place"),
        F.col("started").alias("arrived"),
        F.col("started").alias("left"),
    )
    was_moved = F.col("stood").isNull() | (F.col("stood") != F.col("origin"))
    both = F.when(was_moved, F.array(begin, end)).otherwise(F.array(end))
    return (
        known.select("client", F.explode(both).alias("visit"))
        .select("client", "visit.*")
        .transform(shaped(VISITS))
    )


def attached(movements: DataFrame) -> DataFrame:
    """Which brokers clients were at: VISITS from the table `movements` of journals.

    A client that comes back to the broker it was at last has not moved: that is one visit. It ends
    when the broker loses the client for good, or when the client is at another one.
    """
    in_order = Window.partitionBy("client").orderBy("time", "journal", "position", "turn")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    came = F.col("kind") == "attached"
    rows = (
        movements.where("kind IN ('attached', 'detached') AND broker IS NOT NULL")
        .select(
            *("client", "broker", "time", "journal", "position", "turn"),
            F.when(came, F.col("time")).alias("came"),
            F.when(~came, F.col("time")).alias("went"),
            F.last(F.when(came, F.col("broker")), ignorenulls=True).over(so_far).alias("place"),
        )
        .withColumn("before", F.lag("place").over(in_order))
        .withColumn("begins", F.expr("place IS DISTINCT FROM before").cast("int"))
        .withColumn("visit", F.sum("begins").over(so_far))
    )
    stays = (
        rows.where("broker = place")
        .groupBy("client", "visit", "place")
        .agg(
            F.min("came").alias("arrived"),
            F.max("came").alias("came"),
            F.max("went").alias("went"),
        )
    )
    next_arrived = F.lead("arrived").over(Window.partitionBy("client").orderBy("visit"))
    lost = F.when(F.col("went") >= F.col("came"), F.col("went"))
    left = F.least(lost, next_arrived)  # If one of them is null, the other.
    return stays.select("client", "place", "arrived", left.alias("left")).transform(shaped(VISITS))


def recorded(fixes: DataFrame, gap_s: float) -> DataFrame:
    """Fixes with `recording`: the number of the client's recording, which ends at a gap.

    A gap is a time without fixes that is longer than this; 0: there are no gaps.
    """
    in_order = Window.partitionBy("client").orderBy("time")
    since_us = F.unix_micros("time") - F.unix_micros(F.lag("time").over(in_order))
    after_gap = F.coalesce(since_us > round(gap_s * MICROS), F.lit(False)).cast("long")  # noqa: FBT003
    number = F.sum("after_gap").over(in_order) if gap_s else F.lit(0).cast("long")
    return (
        fixes.withColumn("after_gap", after_gap).withColumn("recording", number).drop("after_gap")
    )


def passed(places: DataFrame) -> DataFrame:
    """Every place on the way: VISITS from rows of client, time and place.

    A visit lasts from the first row at a place to the first row at another. With `recording`, the
    result has it, too, and the last visit of a recording ends with its last row. Nobody knows how
    the very last visit of a client ends.
    """
    in_order = Window.partitionBy("client").orderBy("time", "place")
    found = [name for name in ("client", "recording") if name in places.columns]
    rows = places.select(
        *(*found, "place", "time"),
        F.lag("place").over(in_order).alias("before"),
        F.lag("time").over(in_order).alias("seen"),
        _is_other("recording", in_order, places).alias("after_gap"),
    )
    firsts = rows.where("before IS DISTINCT FROM place OR after_gap")
    ended = F.when(F.col("after_gap"), F.col("seen")).otherwise(F.col("time"))
    return firsts.select(
        *found,
        "place",
        F.col("time").alias("arrived"),
        F.lead(ended).over(in_order).alias("left"),
    ).transform(shaped(schema_of(places)))


def joined(stays: DataFrame) -> DataFrame:
    """Join consecutive stays at the same place into one visit: VISITS from VISITS.

    Stays of two recordings stay apart.
    """
    in_order = Window.partitionBy("client").orderBy("arrived")
    found = [name for name in ("client", "recording") if name in stays.columns]
    is_other = F.col("before").isNull() | (F.col("place") != F.col("before")) | F.col("after_gap")
    return (
        stays.withColumn("before", F.lag("place").over(in_order))
        .withColumn("after_gap", _is_other("recording", in_order, stays))
        .withColumn("visit", F.sum(is_other.cast("int")).over(in_order))
        .groupBy(*found, "visit", "place")
        .agg(F.min("arrived").alias("arrived"), F.max_by("left", "arrived").alias("left"))
        .transform(shaped(schema_of(stays)))
    )


def schema_of(rows: DataFrame) -> StructType:
    """VISITS, or RECORDED_VISITS if rows are of recordings."""
    return RECORDED_VISITS if is_recorded(rows) else VISITS


def is_recorded(rows: DataFrame) -> bool:
    """Whether rows are of recordings."""
    return "recording" in rows.columns


def _is_other(name: str, in_order: WindowSpec, rows: DataFrame) -> Column:
    """Whether the value differs from that of the row before; never without such a column."""
    if name not in rows.columns:
        return F.lit(False)  # noqa: FBT003 - a column.
    return F.coalesce(F.col(name) != F.lag(name).over(in_order), F.lit(False))  # noqa: FBT003
