"""The ledger: for each client and event, what was owed, what arrived, and what is wrong with it."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import (
    Fault,
    Lifetime,
    is_allowed,
    is_explained,
    is_out_of_order,
    was_published,
)
from sterna.pipeline.audit.stated import BEGUN, LIVE, STARTS, Stated, slack

GRACE_US = 5_000_000

EVENT = ("world", "publisher", "seq")
LINE = ("world", "client", "publisher", "seq")

NOT_WANTED = "not wanted"
"""It came to a client that never asked for anything like it: unasked, if it was published."""


EARLY = "early"
"""It came before it was published, by clocks: one of them is wrong."""


def lines(stated: Stated, wanted: DataFrame, *, grace_us: int = GRACE_US) -> DataFrame:
    """A line for each client and each event that was for it or came to it.

    From facts, and who `wanted` what was published. `is_owed`, how often it was `delivered`,
    `faults`: an array of (fault, moment), `doubts`: the arrivals that nothing explains which the
    client wanted at that time, whether it `is_missed`: it was discarded, which is declared, and
    whether it `is_open`: it did not come, and nobody knows whether it had to.
    """
    known = wanted.where("client IS NOT NULL").drop("events", "pairs")
    return _judged(known.unionByName(_arrived(stated), allowMissingColumns=True), slack(grace_us))


BY_ORDER = (str(Fault.DUPLICATED), str(Fault.REORDERED))
"""The faults that no clock is needed for."""


def set_apart(lines: DataFrame, names: Collection[str]) -> DataFrame:
    """Judge nothing by clocks that cannot be compared, those of these clients; `is_apart` says so.

    What came twice or out of order is wrong by the client's own journal, whatever its clock shows.
    """
    is_between = (F.col("world") == LIVE) & (
        F.col("client").isin(*names) | F.col("publisher").isin(*names)
    )
    is_judged = ~is_between if names else F.lit(col=True)
    said = F.col("is_owed") | F.col("is_open") | (F.col("delivered") > 0)
    return lines.select(
        *(*LINE, "delivered", "is_missed"),
        *((F.col(name) & is_judged).alias(name) for name in ("is_owed", "is_open")),
        F.filter("faults", lambda each: is_judged | each["fault"].isin(*BY_ORDER)).alias("faults"),
        F.when(is_judged, F.col("doubts")).alias("doubts"),
        (said & ~is_judged).alias("is_apart"),
    )


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

_COMING = ("Delivered", "Stray", "Recalled")
"""The facts of clients about events that came."""

_OVERTOOK = "Overtook"
"""The fact behind a delivery of events to which earlier ones may follow."""

_LINKS = ("Attached", "Detached", "Restarted")
"""The facts, besides the beginning of a life, that say whether a client has a link."""

_NEVER = -1


def _arrived(stated: Stated) -> DataFrame:
    """A row for each event that came to a client, whether its application saw it or not.

    `is_purged` marks those that were discarded for a client, if that was recorded. `life` counts
    the lives of a client: one that has lost its memory may get again what an earlier one got.
    `went` is when a client had lost its link, if it had none in that run of its program.
    `overtakes` marks deliveries behind which a client states that earlier ones may follow.
    """
    is_purged = F.col("kind").isin("Purged", "Discarded", "Missed")
    in_order = Window.partitionBy("world", "client").orderBy("moment", "position", "turn")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # A simulation knows better than its clients what brokers discarded. Its oracle, with which an
    # audit agrees, knows only of deliveries.
    is_told = (F.col("world") == LIVE) | ~F.col("kind").isin("Missed", "Recalled", *_LINKS)
    has_link = F.col("kind").isin("Attached", *STARTS)  # Or it is unknown.
    went = F.when(F.col("kind") == "Detached", F.col("moment")).when(has_link, _NEVER)
    facts = (
        stated(
            [*_COMING, "Purged", "Discarded", "Missed", _OVERTOOK, BEGUN, *_LINKS],
            *("client", "anywhere", "publishers", "seqs"),
        )
        .where(is_told)
        .withColumn("client", F.coalesce("client", "at"))
        .withColumn("life", F.count_if(F.col("kind") == BEGUN).over(so_far))
        .withColumn("went", F.last(went, ignorenulls=True).over(so_far))
        .withColumn("overtakes", F.lead("kind").over(in_order).eqNullSafe(_OVERTOOK))
        .where(~F.col("kind").isin(BEGUN, _OVERTOOK, *_LINKS))
    )
    came = identities(
        facts,
        *("world", "kind", "client", "moment", "position", "turn"),
        *("anywhere", "overtakes", "life", "went"),
    )
    arrival = F.struct(
        "position",
        "turn",
        "place",
        "moment",
        "life",
        F.nullif("went", F.lit(_NEVER)).alias("went"),
        (F.col("kind") == "Stray").alias("is_stray"),
        (F.col("kind") == "Recalled").alias("is_recalled"),
        F.coalesce("anywhere", F.lit(col=False)).alias("anywhere"),
        "overtakes",
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
    is_delivery = _is_delivery(F.col("arrival"))
    earlier = (
        Window.partitionBy("world", "client", "publisher", "arrival.life")
        .orderBy("arrival.position", "arrival.turn", "arrival.place")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    # By client and publisher: the lines of events are then in the same partition already.
    rows = rows.repartition("world", "client", "publisher").withColumn(
        "last_seq",
        F.max(F.when(is_delivery & ~F.col("arrival.overtakes"), F.col("seq"))).over(earlier),
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
    deliveries = F.array_sort(F.filter("arrivals", _is_delivery))
    came_not = ~F.exists("arrivals", lambda arrival: ~arrival["is_stray"])
    return grouped.withColumn("deliveries", deliveries).select(
        *LINE,
        (F.col("is_owed") & ~F.col("is_purged")).alias("is_owed"),
        F.size("deliveries").alias("delivered"),
        _faults(slack, came_not).alias("faults"),
        F.filter("arrivals", lambda arrival: _is_doubtful(arrival, slack)).alias("doubts"),
        (F.col("is_purged") & came_not).alias("is_missed"),
        (
            ~(F.col("is_owed") | F.col("is_purged")) & came_not & F.exists("spans", _is_in_force)
        ).alias("is_open"),
    )


def _is_delivery(arrival: Column) -> Column:
    """Whether an event came as it was published: not in vain, and not from the past."""
    return ~(arrival["is_stray"] | arrival["is_recalled"])


def _faults(slack: Column, came_not: Column) -> Column:
    """The faults of a line, each with the moment of the arrival."""
    deliveries, never = F.col("deliveries"), F.lit(None).cast("long")
    first = F.get(deliveries, F.lit(0))
    lives = F.array_distinct(F.transform(deliveries, lambda each: each["life"]))
    lost = F.col("is_owed") & ~F.col("is_purged") & came_not
    firsts = F.transform(
        lives, lambda life: F.get(F.filter(deliveries, lambda each: each["life"] == life), F.lit(0))
    )
    swapped = F.exists(
        firsts,
        lambda each: ~each["overtakes"] & is_out_of_order(F.col("seq"), each["last_seq"]),
    )
    repeated = F.size("deliveries") - F.size(lives)
    early = F.when(F.col("world") == LIVE, EARLY).otherwise(str(Fault.UNPUBLISHED))
    return F.concat(
        F.when(lost, F.array(_fault(Fault.LOST, never))).otherwise(_none()),
        F.when(swapped, F.array(_fault(Fault.REORDERED, first["moment"]))).otherwise(_none()),
        F.array_repeat(_fault(Fault.DUPLICATED, first["moment"]), repeated),
        F.transform(
            F.filter("arrivals", lambda arrival: _is_early(arrival, slack)),
            lambda arrival: _fault(early, arrival["moment"]),
        ),
        F.transform(
            F.filter(deliveries, lambda each: F.col("published") > each["went"] + slack),
            lambda each: _fault(Fault.DETACHED, each["moment"]),
        ),
    )


def _is_in_force(ask: Column) -> Column:
    return (ask["asked"] <= F.col("published")) & (F.col("published") <= ask["ended"])


def _is_early(arrival: Column, slack: Column) -> Column:
    """Whether an event that the client wanted came before it was published."""
    was_there: Column = was_published(F.col("published"), arrival["moment"] + slack)
    return (F.size("spans") > 0) & ~was_there


def _is_doubtful(arrival: Column, slack: Column) -> Column:
    """Whether nothing explains an arrival that the client wanted when the event was published."""

    def permits(ask: Column) -> Column:
        moment = arrival["moment"]
        span = Lifetime(asked=ask["asked"], ended=ask["ended"], forgotten=ask["forgotten"])
        explains = is_explained(span, F.col("published") - slack, moment)
        allows = is_allowed(span, moment, anywhere=arrival["anywhere"])
        return F.when(arrival["is_stray"], explains).otherwise(allows)

    return ~(_is_early(arrival, slack) | F.exists("spans", permits))


def _fault(fault: str | Column, moment: Column) -> Column:
    named = fault if isinstance(fault, Column) else F.lit(str(fault))
    return F.struct(named.alias("fault"), moment.alias("moment"))


def _none() -> Column:
    return F.array().cast("array<struct<fault: string, moment: bigint>>")
