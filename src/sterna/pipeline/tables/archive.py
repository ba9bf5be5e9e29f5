"""From the raw tables of journals to those of the archive."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.tables.buckets import BUCKETS

HANDOVER_KINDS = {
    "HandoverStarted": "started",
    "JunctionFound": "junction",
    "HandoverFinished": "finished",
}
SUBSCRIPTION_KINDS = {
    "Subscribed": "subscribed",
    "Adapted": "adapted",
    "Unsubscribed": "unsubscribed",
}


def daily(rows: DataFrame) -> DataFrame:
    """Add the day (UTC) of each row's time: however late a row comes, it goes there."""
    return rows.withColumn("day", F.to_date("time"))


def events(accepted: DataFrame) -> DataFrame:
    """Events, those of a publisher in one task, which leaves out those that the table has."""
    hashed = F.crc32(F.col("publisher").cast("binary"))
    return daily(accepted.repartition(F.pmod(hashed, F.lit(BUCKETS))))


def handovers(statistics: DataFrame) -> DataFrame:
    """The steps of handovers."""
    return daily(
        statistics.where(F.col("kind").isin(*HANDOVER_KINDS)).select(
            "client",
            "broker",
            _renamed("kind", HANDOVER_KINDS),
            *("time", "replayed", "held", "journal", "position", "turn"),
        )
    )


def subscriptions(facts: DataFrame) -> DataFrame:
    """What clients subscribed to, and until when."""
    return daily(
        facts.where(F.col("kind").isin(*SUBSCRIPTION_KINDS)).select(
            F.col("at").alias("client"),
            F.col("name").alias("subscription"),
            _renamed("kind", SUBSCRIPTION_KINDS),
            *("filter", "time", "journal", "position", "turn"),
            _detail("past_events_max").try_cast("bigint").alias("past_events_max"),
        )
    )


def _detail(field: str) -> Column:
    """A field of a fact that has no column in the journal; null if an older release wrote it."""
    return F.get_json_object("details", f"$.{field}")


def _renamed(column: str, names: dict[str, str]) -> Column:
    pairs = [part for pair in names.items() for part in pair]
    return F.element_at(F.create_map(*map(F.lit, pairs)), F.col(column)).alias(column)
