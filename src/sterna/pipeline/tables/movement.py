"""Where clients were and where they go next: views of the table `movements`."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.mining.graph import transitions
from sterna.pipeline.mining.visits import attached
from sterna.pipeline.schemas import shaped
from sterna.pipeline.tables.schemas import NEXT_BROKER, VISITS

MICROS = 1_000_000


def visits(movements: DataFrame) -> DataFrame:
    """Which locations clients announced, one after the other.

    A journal has them in the order in which they happened, whatever the clock did.
    """
    in_order = Window.partitionBy("journal", "client").orderBy("position", "turn")
    arrivals = (
        movements.where("kind = 'moved'")
        .select("*", F.lag("location").over(in_order).alias("before"))
        .where("before IS DISTINCT FROM location")
    )
    left = F.lead("time").over(in_order)
    dwell_s = (F.unix_micros("left") - F.unix_micros("arrived")) / MICROS
    return (
        arrivals.select(
            "client",
            F.col("location").alias("place"),
            F.col("time").alias("arrived"),
            left.alias("left"),
        )
        .withColumn("dwell_s", dwell_s)
        .transform(shaped(VISITS))
    )


def next_broker(movements: DataFrame) -> DataFrame:
    """Which broker clients attach to after another; rank 1 is the most likely one."""
    likely_first = Window.partitionBy("origin").orderBy(F.desc("count"), "destination")
    graph = transitions(attached(movements))
    return graph.withColumn("rank", F.row_number().over(likely_first)).transform(
        shaped(NEXT_BROKER)
    )
