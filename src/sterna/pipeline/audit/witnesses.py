"""Who tells of a network, and by which clock."""

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.core.names import Peer
from sterna.pipeline.audit.conduct import WENT_BACK
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
    went_back: tuple[str, ...] = ()
    """The clients whose clocks went back while their programs ran."""

    @property
    def unfit(self) -> tuple[str, ...]:
        """The clients of which nothing can be judged by a clock."""
        return (*self.apart_us, *self.went_back)


ALL_TELL = Witnesses()
"""Everybody has a journal and a clock that can be compared."""


def witnesses(control: DataFrame, known: DataFrame, odd: DataFrame, *, grace_us: int) -> Witnesses:
    """Who has no journal, and whose clock differs by more than `grace_us`.

    By what clients did, when connections began, and `odd` publications, which brokers accepted
    beforehand.
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
    back = known.where("went_back").select("client", F.lit(WENT_BACK), F.lit(None))
    rows = silent.union(apart.orderBy("name")).union(back).collect()
    return Witnesses(
        tuple(row["name"] for row in rows if row["peer"] == str(Peer.CLIENT)),
        tuple(row["name"] for row in rows if row["peer"] == str(Peer.BROKER)),
        {row["name"]: row["ahead"] // moments(1) for row in rows if row["peer"] is None},
        tuple(sorted(row["name"] for row in rows if row["peer"] == WENT_BACK)),
    )


def _apart(attached: DataFrame, grace: int) -> DataFrame:
    """The clients that have connections which their brokers have at quite another time.

    Both ends of a connection state it within the time that a message is on its way. What one end
    has lost when it was killed must not be compared with another connection. So two statements are
    compared only if of all that the other end states, each is the nearest to the other one.
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
    in_order = Window.partitionBy("client", "broker").orderBy("moment", "is_own")
    moment, is_own = F.col("moment"), F.col("is_own")
    before = F.when(F.lag(is_own).over(in_order) != is_own, moment - F.lag(moment).over(in_order))
    after = F.when(F.lead(is_own).over(in_order) != is_own, F.lead(moment).over(in_order) - moment)
    return (
        # How far away the statement of the other end is, if it is the next one to this.
        both.withColumns({"before": before, "after": after})
        .withColumn("later", F.lead("after").over(in_order))
        .where("after <= coalesce(before, after) AND after <= coalesce(later, after)")
        .where(F.col("after") > grace)
        .withColumn("ahead", F.when(is_own, -F.col("after")).otherwise(F.col("after")))
        .groupBy("client")
        .agg(F.min_by("ahead", "after").alias("ahead"))
    )
