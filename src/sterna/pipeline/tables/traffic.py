"""How much went over each link, minute by minute: a view of the table `statistics`."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.schemas import shaped
from sterna.pipeline.tables.schemas import TRAFFIC


def traffic(statistics: DataFrame) -> DataFrame:
    """Events that brokers forwarded, and the facts that state it, per link and minute."""
    return (
        statistics.where("kind = 'Forwarded' AND link IS NOT NULL")
        .groupBy("broker", "link", F.date_trunc("minute", "time").alias("minute"))
        .agg(F.sum("events").alias("events"), F.count(F.lit(1)).alias("facts"))
        .transform(shaped(TRAFFIC))
    )
