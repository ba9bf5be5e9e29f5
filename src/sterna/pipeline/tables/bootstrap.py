"""How long clients wait for a first event after they subscribe or attach: a view."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.schemas import shaped
from sterna.pipeline.tables.schemas import BOOTSTRAP_LATENCY

MICROS = 1_000_000


def bootstrap_latency(
    subscriptions: DataFrame, movements: DataFrame, deliveries: DataFrame
) -> DataFrame:
    """Each beginning with the first delivery after it.

    The delivery counts as long as the subscription or the connection lasts, and until it begins
    anew; after that, and if there is none, `delivered` is null.
    """
    asked = subscriptions.where("kind IN ('subscribed', 'unsubscribed')").select(
        "client",
        F.lit("subscribed").alias("cause"),
        "subscription",
        F.lit(None).cast("string").alias("broker"),
        (F.col("kind") == "subscribed").alias("begins"),
        *("time", "position", "turn"),
    )
    came = movements.where("kind IN ('attached', 'detached')").select(
        "client",
        F.lit("attached").alias("cause"),
        F.lit(None).cast("string").alias("subscription"),
        "broker",
        (F.col("kind") == "attached").alias("begins"),
        *("time", "position", "turn"),
    )
    # A connection ends when its broker states that, or when there is another one.
    order = ("time", "position", "turn")
    of_broker = Window.partitionBy("client", "cause", "subscription", "broker").orderBy(*order)
    backwards = Window.partitionBy("client", "cause", "subscription").orderBy(*map(F.desc, order))
    before = backwards.rowsBetween(Window.unboundedPreceding, -1)
    next_begin = F.last(F.when(F.col("begins"), F.col("time")), ignorenulls=True).over(before)
    periods = (
        asked.unionByName(came)
        .withColumn("until", F.least(F.lead("time").over(of_broker), next_begin))
        .where("begins")
    )
    return _first_after(periods, deliveries).transform(shaped(BOOTSTRAP_LATENCY))


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
    latency_s = (F.unix_micros("delivered") - F.unix_micros("started")) / MICROS
    return (
        periods.unionByName(moments.distinct(), allowMissingColumns=True)
        .withColumn("first", first)
        .where("begins")
        .select(
            *("client", "cause", "subscription", "broker"),
            F.col("time").alias("started"),
            delivered.alias("delivered"),
        )
        .withColumn("latency_s", latency_s)
    )
