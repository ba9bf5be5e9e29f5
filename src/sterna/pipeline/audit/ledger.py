"""The ledger: for each client and event, what was owed, what arrived, and what is wrong with it."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import (
    Fault,
    Lifetime,
    is_allowed,
    is_explained,
    is_out_of_order,
    is_settled,
    was_published,
)
from sterna.pipeline.audit.conduct import OFFER, SUBSCRIPTION
from sterna.pipeline.audit.stated import LIVE, Stated, slack

GRACE_US = 5_000_000

EVENT = ("world", "publisher", "seq")
LINE = ("world", "client", "publisher", "seq")

NOT_WANTED = "not wanted"
"""It came to a client that never asked for anything like it: unasked, if it was published."""


def lines(
    stated: Stated, known: DataFrame, events: DataFrame, *, grace_us: int = GRACE_US
) -> DataFrame:
    """A line for each client and each event that was for it or came to it.

    From facts, what clients did (`known`), and what was published. `is_owed`, how often it was
    `delivered`, `faults`: an array of (fault, moment), and whether it `is_open`: it did not come,
    and nobody knows whether it had to.
    """
    wanted = _wanted(events, known.select("world", "client", F.inline("asks")))
    rows = wanted.unionByName(_arrived(stated, known), allowMissingColumns=True)
    return _judged(rows, slack(grace_us))


def identities(facts: DataFrame, *columns: str) -> DataFrame:
    """A row for each event of each fact: these columns, `place` in the fact, publisher, seq."""
    # A single publisher is written for all. Zipped first: each row would carry all names otherwise.
    names = F.when(
        F.size("publishers") == 1, F.array_repeat(F.get("publishers", F.lit(0)), F.size("seqs"))
    ).otherwise(F.col("publishers"))
    pairs = F.arrays_zip(names.alias("publisher"), F.col("seqs").alias("seq"))
    return facts.select(*columns, F.posexplode(pairs).alias("place", "event")).select(
        *columns, "place", "event.publisher", "event.seq"
    )


# ---- Lines: what each client was owed, and what arrived.


def _wanted(events: DataFrame, asks: DataFrame) -> DataFrame:
    """A row for each event and each subscription that matches it."""
    span = Lifetime(asked=F.col("asked"), settled=F.col("settled"), ended=F.col("ended"))
    # It was calm before the end if it left its publisher by the last moment early enough for that.
    was_calm = F.coalesce(F.col("out") <= F.col("lasted"), F.lit(col=False))
    is_owed = (F.col("role") == SUBSCRIPTION) & is_settled(span, F.col("published")) & was_calm
    return (
        events.withColumn("filter_id", F.explode("matched"))
        .join(F.broadcast(asks.where(F.col("role") != OFFER)), ["world", "filter_id"])
        .select(
            *LINE,
            is_owed.alias("is_owed"),
            "published",
            F.struct(
                "asked", "ended", "forgotten", (F.col("role") == SUBSCRIPTION).alias("is_exact")
            ).alias("span"),
        )
    )


def _arrived(stated: Stated, known: DataFrame) -> DataFrame:
    """A row for each event that came to a client, whether its application saw it or not.

    `is_purged` marks those that were discarded for a client, if that was recorded. `life` counts
    the lives of a client: one that has lost its memory may get again what an earlier one got.
    """
    is_purged = F.col("kind").isin("Purged", "Discarded", "Missed")
    came = identities(
        stated(
            ["Delivered", "Stray", "Purged", "Discarded", "Missed"],
            *("client", "anywhere", "publishers", "seqs"),
        )
        # A simulation knows better than its clients what brokers discarded.
        .where((F.col("kind") != "Missed") | (F.col("world") == LIVE)),
        *("world", "kind", "at", "client", "moment", "position", "turn", "anywhere"),
    )
    reborn = known.where(F.size("lives") > 0).select("world", "client", "lives")
    came = came.withColumn("client", F.coalesce("client", "at")).join(
        F.broadcast(reborn), ["world", "client"], "left"
    )
    life = F.size(F.filter("lives", lambda begun: begun <= F.col("moment")))
    arrival = F.struct(
        "position",
        "turn",
        "place",
        "moment",
        F.coalesce(life, F.lit(0)).alias("life"),
        (F.col("kind") == "Stray").alias("is_stray"),
        F.coalesce("anywhere", F.lit(col=False)).alias("anywhere"),
    )
    return came.select(
        "world",
        "client",
        "publisher",
        "seq",
        is_purged.alias("is_purged"),
        F.when(~is_purged, arrival).alias("arrival"),
    )


def _judged(rows: DataFrame, slack: Column) -> DataFrame:
    """The lines, from their rows."""
    is_delivery = ~F.col("arrival.is_stray")
    earlier = (
        Window.partitionBy("world", "client", "publisher", "arrival.life")
        .orderBy("arrival.position", "arrival.turn", "arrival.place")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    # By client and publisher: the lines of events are then in the same partition already.
    rows = rows.repartition("world", "client", "publisher").withColumn(
        "last_seq", F.max(F.when(is_delivery, F.col("seq"))).over(earlier)
    )
    grouped = rows.groupBy(*LINE).agg(
        F.coalesce(F.max("is_owed"), F.lit(col=False)).alias("is_owed"),
        F.coalesce(F.max("is_purged"), F.lit(col=False)).alias("is_purged"),
        F.max("published").alias("published"),
        F.collect_list("span").alias("spans"),
        F.collect_list(
            F.when(F.col("arrival").isNotNull(), F.struct("arrival.*", "last_seq"))
        ).alias("arrivals"),
    )
    deliveries = F.array_sort(F.filter("arrivals", lambda arrival: ~arrival["is_stray"]))
    return grouped.withColumn("deliveries", deliveries).select(
        *LINE,
        (F.col("is_owed") & ~F.col("is_purged")).alias("is_owed"),
        F.size("deliveries").alias("delivered"),
        _faults(slack).alias("faults"),
        (
            ~(F.col("is_owed") | F.col("is_purged"))
            & (F.size("deliveries") == 0)
            & F.exists("spans", _is_in_force)
        ).alias("is_open"),
    )


def _faults(slack: Column) -> Column:
    """The faults of a line, each with the moment of the arrival."""
    deliveries, never = F.col("deliveries"), F.lit(None).cast("long")
    first = F.get(deliveries, F.lit(0))
    lives = F.array_distinct(F.transform(deliveries, lambda each: each["life"]))
    lost = F.col("is_owed") & ~F.col("is_purged") & (F.size("deliveries") == 0)
    firsts = F.transform(
        lives, lambda life: F.get(F.filter(deliveries, lambda each: each["life"] == life), F.lit(0))
    )
    swapped = F.exists(firsts, lambda each: is_out_of_order(F.col("seq"), each["last_seq"]))
    repeated = F.size("deliveries") - F.size(lives)
    return F.concat(
        F.when(lost, F.array(_fault(Fault.LOST, never))).otherwise(_none()),
        F.when(swapped, F.array(_fault(Fault.REORDERED, first["moment"]))).otherwise(_none()),
        F.array_repeat(_fault(Fault.DUPLICATED, first["moment"]), repeated),
        F.filter(
            F.transform("arrivals", lambda arrival: _fault_of(arrival, slack)),
            lambda fault: fault.isNotNull(),
        ),
    )


def _is_in_force(ask: Column) -> Column:
    published = F.col("published")
    return ask["is_exact"] & (ask["asked"] <= published) & (published <= ask["ended"])


def _fault_of(arrival: Column, slack: Column) -> Column:
    """The fault of one arrival by itself, or null."""
    moment = arrival["moment"]

    def permits(ask: Column) -> Column:
        span = Lifetime(asked=ask["asked"], ended=ask["ended"], forgotten=ask["forgotten"])
        explains = is_explained(span, F.col("published") - slack, moment)
        allows = is_allowed(span, moment, anywhere=arrival["anywhere"])
        return F.when(arrival["is_stray"], explains).otherwise(ask["is_exact"] & allows)

    return (
        F.when(F.size("spans") == 0, _fault(NOT_WANTED, moment))
        .when(~was_published(F.col("published"), moment + slack), _fault(Fault.UNPUBLISHED, moment))
        .when(~F.exists("spans", permits), _fault(Fault.UNASKED, moment))
    )


def _fault(fault: str, moment: Column) -> Column:
    return F.struct(F.lit(str(fault)).alias("fault"), moment.alias("moment"))


def _none() -> Column:
    return F.array().cast("array<struct<fault: string, moment: bigint>>")
