"""How long clients wait for events after they subscribe or attach: a view."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.schemas import shaped
from sterna.pipeline.tables.schemas import BOOTSTRAP_LATENCY

MICROS = 1_000_000

_ORDER = ("time", "position", "turn")


def bootstrap_latency(
    subscriptions: DataFrame, movements: DataFrame, deliveries: DataFrame
) -> DataFrame:
    """Each beginning with the first delivery after it and, if it asked for n past events, the n-th.

    A delivery counts as long as the subscription or the connection lasts, and until it begins
    anew; after that, and if there is none, `delivered` is null.
    """
    asked = subscriptions.where("kind IN ('subscribed', 'unsubscribed')").select(
        "client",
        F.lit("subscribed").alias("cause"),
        "subscription",
        F.lit(None).cast("string").alias("broker"),
        (F.col("kind") == "subscribed").alias("begins"),
        *_ORDER,
        F.col("past_events_max").alias("asked"),
    )
    came = movements.where("kind IN ('attached', 'detached')").select(
        "client",
        F.lit("attached").alias("cause"),
        F.lit(None).cast("string").alias("subscription"),
        "broker",
        (F.col("kind") == "attached").alias("begins"),
        *_ORDER,
        F.lit(None).cast("bigint").alias("asked"),
    )
    # A connection ends when its broker states that, or when there is another one.
    of_broker = Window.partitionBy("client", "cause", "subscription", "broker").orderBy(*_ORDER)
    backwards = Window.partitionBy("client", "cause", "subscription").orderBy(*map(F.desc, _ORDER))
    before = backwards.rowsBetween(Window.unboundedPreceding, -1)
    next_begin = F.last(F.when(F.col("begins"), F.col("time")), ignorenulls=True).over(before)
    periods = (
        asked.unionByName(came)
        .withColumn("until", F.least(F.lead("time").over(of_broker), next_begin))
        .where("begins")
    )
    first = _first_after(periods, deliveries)
    nth = _nth_after(periods.where("asked > 0"), deliveries)
    return first.join(nth, _PERIOD, "left").transform(shaped(BOOTSTRAP_LATENCY))


def _first_after(periods: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Backwards in time, the last delivery seen is the first one after a beginning."""
    moments = deliveries.where("kind = 'Delivered'").select(
        "client", "time", F.col("time").alias("delivered")
    )
    backwards = (
        Window.partitionBy("client")
        .orderBy(F.desc("time"), F.desc_nulls_last("delivered"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    first = F.last("delivered", ignorenulls=True).over(backwards)
    counts = F.col("until").isNull() | (F.col("first") < F.col("until"))
    delivered = F.when(counts, F.col("first"))
    return (
        periods.unionByName(moments.distinct(), allowMissingColumns=True)
        .withColumn("first", first)
        .where("begins")
        .select(
            *("client", "cause", "subscription", "broker", "asked", "position", "turn"),
            F.col("time").alias("started"),
            delivered.alias("delivered"),
        )
        .withColumn("latency_s", _seconds("started", "delivered"))
    )


# ---- The n-th event

_PERIOD = ["client", "subscription", "started", "position", "turn"]
"""What tells the beginnings apart that ask for a past."""
_MOMENT = ("came", "came_position", "came_turn", "place")
"""The order of what was delivered."""


def _nth_after(asking: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Of each beginning that asks for n past events, when as many had come, and how many were past.

    Past events count for the subscription whose past they are. For which subscription another one
    came is not recorded, so all of the client's count. The live deliveries of a client are
    numbered: so each beginning is joined with n of them at most, however many there are.
    """
    begun = (
        asking.withColumnRenamed("time", "started").select(*_PERIOD, "asked", "until").distinct()
    )
    given = deliveries.join(begun.select("client").distinct(), "client", "left_semi").select(
        "client",
        "kind",
        F.col("subscription").alias("past_of"),
        F.col("time").alias("came"),
        F.col("position").alias("came_position"),
        F.col("turn").alias("came_turn"),
        "place",
    )
    live = given.where("kind = 'Delivered'").withColumn(
        "number", F.row_number().over(Window.partitionBy("client").orderBy(*_MOMENT))
    )
    found = _live_after(begun, live).unionByName(_past_after(begun, given))
    in_order = Window.partitionBy(*_PERIOD).orderBy(*_MOMENT)
    is_nth = F.col("rank") == F.col("asked")
    return (
        found.where("until IS NULL OR came < until")
        .withColumn("rank", F.row_number().over(in_order))
        .where("rank <= asked")
        .groupBy(*_PERIOD)
        .agg(
            F.max(F.when(is_nth, F.col("came"))).alias("nth_delivered"),
            F.count_if("is_past").alias("nth_past"),
        )
        .where("nth_delivered IS NOT NULL")
        .withColumn("nth_latency_s", _seconds("started", "nth_delivered"))
    )


def _live_after(begun: DataFrame, live: DataFrame) -> DataFrame:
    """The next n live deliveries after each beginning."""
    counted = begun.select("*", F.col("started").alias("came"), F.lit(0).alias("is_live"))
    moments = live.select("client", "came", F.lit(1).alias("is_live"))
    so_far = Window.partitionBy("client").orderBy("came", "is_live")
    numbered = counted.unionByName(moments, allowMissingColumns=True).select(
        "*",
        F.sum("is_live").over(so_far.rowsBetween(Window.unboundedPreceding, 0)).alias("before"),
        F.sum("is_live").over(Window.partitionBy("client")).alias("all"),
    )
    wanted = F.least("asked", F.col("all") - F.col("before"))
    numbers = F.sequence(F.col("before") + 1, F.col("before") + wanted)
    return (
        numbered.where("is_live = 0 AND before < all")
        .select(*_PERIOD, "asked", "until", F.explode(numbers).alias("number"))
        .join(live, ["client", "number"])
        .select(*_PERIOD, "asked", "until", *_MOMENT, F.lit(col=False).alias("is_past"))
    )


def _past_after(begun: DataFrame, given: DataFrame) -> DataFrame:
    """The past of each beginning."""
    past = given.where("kind = 'Recalled'").withColumnRenamed("past_of", "subscription")
    return (
        begun.join(past, ["client", "subscription"])
        .where("came >= started")
        .select(*_PERIOD, "asked", "until", *_MOMENT, F.lit(col=True).alias("is_past"))
    )


def _seconds(start: str, end: str) -> Column:
    return (F.unix_micros(end) - F.unix_micros(start)) / MICROS
