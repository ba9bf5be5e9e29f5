"""The wrong deliveries of the ledger, each with the path of its event."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import Fault, was_published
from sterna.pipeline.audit.ledger import EVENT, GRACE_US, NOT_WANTED, identities
from sterna.pipeline.audit.publications import published
from sterna.pipeline.audit.stated import Stated, slack


def wrong(lines: DataFrame) -> DataFrame:
    """The faults in lines of a ledger, one a row."""
    return lines.where(F.size("faults") > 0).select(
        "world", "client", "publisher", "seq", F.inline("faults").alias("fault", "moment")
    )


def explained(
    wrong: DataFrame, stated: Stated, known: DataFrame, *, grace_us: int = GRACE_US
) -> DataFrame:
    """Wrong deliveries with their paths; unwanted events are set apart from unpublished ones."""
    events = wrong.select(*EVENT).distinct()
    said = (
        identities(published(stated, known, "publishers", "seqs"), "world", "moment")
        .join(F.broadcast(events), list(EVENT), "left_semi")
        .groupBy(*EVENT)
        .agg(F.max("moment").alias("published"))
    )
    hops = (
        identities(
            stated(["Forwarded"], "link", "publishers", "seqs").where("link IS NOT NULL"),
            "world",
            "moment",
            "at",
            "link",
        )
        .join(F.broadcast(events), list(EVENT), "left_semi")
        .groupBy(*EVENT)
        .agg(F.array_sort(F.collect_list(F.struct("moment", "at", "link"))).alias("hops"))
    )
    is_published = F.coalesce(
        was_published(F.col("published"), F.col("moment") + slack(grace_us)), F.lit(col=False)
    )
    fault = (
        F.when(F.col("fault") != NOT_WANTED, F.col("fault"))
        .when(is_published, str(Fault.UNASKED))
        .otherwise(str(Fault.UNPUBLISHED))
    )
    path = F.transform(
        F.coalesce(
            "hops", F.array().cast("array<struct<moment: bigint, at: string, link: string>>")
        ),
        lambda hop: F.concat(hop["at"], F.lit(" → "), hop["link"]),
    )
    return (
        wrong.join(said, list(EVENT), "left")
        .join(hops, list(EVENT), "left")
        .select("world", fault.alias("fault"), "client", "publisher", "seq", path.alias("path"))
    )
