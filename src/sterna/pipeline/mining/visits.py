"""Visits, made from trips, movements and places passed: which client was where, and when."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.mining.tables import VISITS


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
        .to(VISITS)
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
    return stays.select("client", "place", "arrived", left.alias("left")).to(VISITS)


def passed(places: DataFrame) -> DataFrame:
    """Every place on the way: VISITS from rows of client, time and place.

    A visit lasts from the first row at a place to the first row at another.
    """
    in_order = Window.partitionBy("client").orderBy("time", "place")
    firsts = places.select(
        "client", "place", "time", F.lag("place").over(in_order).alias("before")
    ).where("before IS DISTINCT FROM place")
    return firsts.select(
        "client",
        "place",
        F.col("time").alias("arrived"),
        F.lead("time").over(in_order).alias("left"),
    ).to(VISITS)


def joined(stays: DataFrame) -> DataFrame:
    """Join consecutive stays at the same place into one visit: VISITS from VISITS."""
    in_order = Window.partitionBy("client").orderBy("arrived")
    before = F.lag("place").over(in_order)
    return (
        stays.withColumn("before", before)
        .withColumn("begins", F.expr("place IS DISTINCT FROM before").cast("int"))
        .withColumn("visit", F.sum("begins").over(in_order))
        .groupBy("client", "visit", "place")
        .agg(F.min("arrived").alias("arrived"), F.max_by("left", "arrived").alias("left"))
        .to(VISITS)
    )
