"""Who tells of a network, and by which clock."""

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.core.names import Peer
from sterna.pipeline.audit.stated import LIVE, moments

NAMES_MAX = 1_000
"""So many of those who have no journal are reported."""


class Witnesses(NamedTuple):
    """What has to be known of those who keep journals before they are believed."""

    silent_clients: tuple[str, ...] = ()
    """The clients that brokers had, and that have no journal."""
    silent_brokers: tuple[str, ...] = ()
    """The brokers that others were connected with, and that have no journal."""
    apart_us: dict[str, int] = {}  # noqa: RUF012 - nobody changes it.
    """The clients whose clocks cannot be compared with those of their brokers, and about by how
    many microseconds they are ahead."""


ALL_TELL = Witnesses()
"""Everybody has a journal and a clock that can be compared."""


def witnesses(control: DataFrame, odd: DataFrame, *, grace_us: int) -> Witnesses:
    """Who has no journal, and whose clock differs by more than `grace_us`.

    By when connections began, and by `odd` publications, which brokers accepted beforehand.
    """
    attached = control.where((F.col("world") == LIVE) & (F.col("kind") == "Attached")).select(
        "at", "link", "peer", "moment"
    )
    silent = (
        attached.select(F.col("link").alias("at"), "peer")
        .distinct()
        .join(attached.select("at").distinct(), "at", "left_anti")
        .select(F.col("at").alias("name"), "peer", F.lit(None).cast("long").alias("ahead"))
        .orderBy("name")
        .limit(NAMES_MAX)
    )
    # All of them, however many: who is left out would be accused.
    early = odd.where("is_early").groupBy(F.col("publisher").alias("client"))
    apart = (
        _apart(attached, moments(grace_us))
        .select("client", "ahead")
        .union(early.agg(F.max("ahead")))
        .select(F.col("client").alias("name"), F.lit(None).alias("peer"), "ahead")
    )
    rows = silent.union(apart.orderBy("name")).collect()
    return Witnesses(
        tuple(row["name"] for row in rows if row["peer"] == str(Peer.CLIENT)),
        tuple(row["name"] for row in rows if row["peer"] == str(Peer.BROKER)),
        {row["name"]: row["ahead"] // moments(1) for row in rows if row["peer"] is None},
    )


def _apart(attached: DataFrame, grace: int) -> DataFrame:
    """The clients most of whose connections their brokers have at quite another time.

    Both ends of a connection state it within the time that a message is on its way.
    """
    brokers = attached.where(F.col("peer") == str(Peer.CLIENT)).select(
        F.col("link").alias("client"), F.col("at").alias("broker"), "moment"
    )
    clients = attached.where(F.col("peer") == str(Peer.BROKER)).select(
        F.col("at").alias("client"), F.col("link").alias("broker"), "moment"
    )
    both = clients.withColumn("is_own", F.lit(col=True)).unionByName(
        brokers.withColumn("is_own", F.lit(col=False))
    )
    in_order = Window.partitionBy("client", "broker").orderBy("moment")
    theirs = F.when(~F.col("is_own"), F.col("moment"))
    before = F.last(theirs, ignorenulls=True).over(
        in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    after = F.first(theirs, ignorenulls=True).over(
        in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    )
    later, earlier = F.col("moment") - before, F.col("moment") - after
    ahead = F.when(F.coalesce(later <= -earlier, earlier.isNull()), later).otherwise(earlier)
    return (
        both.withColumn("ahead", ahead)
        .where("is_own AND ahead IS NOT NULL")
        .groupBy("client")
        .agg(
            F.count(F.lit(1)).alias("compared"),
            F.count_if(F.abs("ahead") > grace).alias("differ"),
            F.min_by("ahead", F.abs("ahead")).alias("ahead"),
        )
        .where(F.col("differ") * 2 > F.col("compared"))
    )
