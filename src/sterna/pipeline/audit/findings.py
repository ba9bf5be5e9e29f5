"""The wrong deliveries of the ledger, each with the path of its event."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.core.names import Peer
from sterna.model.delivery import OF_ENTRIES, Fault, was_published
from sterna.pipeline.audit.ledger import EVENT, NOT_WANTED, identities
from sterna.pipeline.audit.publications import is_recorded, published
from sterna.pipeline.audit.stated import LIVE, Stated

_HOPS = "array<struct<moment: bigint, at: string, link: string, time: timestamp>>"


def wrong(lines: DataFrame) -> DataFrame:
    """The faults in lines of a ledger, one a row."""
    return lines.where(F.size("faults") > 0).select(
        "world", "client", "publisher", "seq", F.inline("faults").alias("fault", "moment")
    )


def in_doubt(lines: DataFrame) -> DataFrame:
    """The doubtful arrivals in lines of a ledger, one a row."""
    arrival = ("moment", "is_stray", "anywhere")
    return lines.select(
        "world", "client", "publisher", "seq", F.explode("doubts").alias("doubt")
    ).select("world", "client", "publisher", "seq", *(f"doubt.{name}" for name in arrival))


UNKNOWN = "unknown"
"""No journal has the event, and one that might have had it ends too early, or is missing."""


class Reach:
    """How far it is known what was published: as far as the journals of all brokers reach.

    Those of a client's network matter: its brokers, and all that these have been connected with.
    """

    def __init__(self, links: Iterable[tuple[str, str]], ends: Mapping[str, int]) -> None:
        """`links` are nodes and brokers that they had a link to, `ends` the brokers' last moments.

        A broker without an end has no journal.
        """
        links = list(links)
        brokers = {broker for _, broker in links}
        self._ends = ends
        self._near: dict[str, set[str]] = defaultdict(set)
        for node, broker in links:
            self._near[node].add(broker)
            if node in brokers:
                self._near[broker].add(node)

    def short_of(self, client: str, moment: int) -> list[str]:
        """The brokers of a client's network whose journals end before a moment, or are missing."""
        return [broker for broker in self._network(client) if self._ends.get(broker, 0) < moment]

    def _network(self, client: str) -> list[str]:
        found: set[str] = set()
        left = list(self._near.get(client, ()))
        while left:
            broker = left.pop()
            if broker not in found:
                found.add(broker)
                left += self._near.get(broker, ())
        return sorted(found)

    def is_known(self, client: str) -> bool:
        """Whether a broker of the client is known."""
        return bool(self._near.get(client))


def reach(stated: Stated, control: DataFrame, clients: Sequence[str]) -> Reach:
    """How far the journals of the brokers of these clients reach."""
    is_live = F.col("world") == LIVE
    attached = control.where(
        is_live & (F.col("kind") == "Attached") & (F.col("peer") == str(Peer.BROKER))
    ).select("at", "link")
    brokers = attached.select(F.col("link").alias("at")).distinct()
    asked = control.sparkSession.createDataFrame([(each,) for each in clients], "at STRING")
    links = attached.join(F.broadcast(brokers.union(asked)), "at", "left_semi").distinct()
    ends = stated(None).where(is_live).groupBy("at").agg(F.max("moment").alias("last"))
    ends = ends.join(F.broadcast(brokers), "at", "left_semi")
    return Reach(
        [(row["at"], row["link"]) for row in links.collect()],
        {row["at"]: row["last"] for row in ends.collect()},
    )


def explained(wrong: DataFrame, stated: Stated, known: DataFrame) -> DataFrame:
    """Wrong deliveries with their paths; unwanted events are set apart from unpublished ones.

    Of those whose publication might be missing (`is_beyond`), unpublished ones are `UNKNOWN`. The
    path of an event that came to a broker wrongly begins with that.
    """
    events = wrong.select(*EVENT).distinct()
    of_publishers = published(stated, known, "publishers", "seqs").withColumns(
        {"first": F.array_min("seqs"), "last": F.array_max("seqs")}
    )
    speakers = known.select("world", F.col("client").alias("link"), "recorded")
    said = (
        identities(of_publishers, "world", "moment", "kind", "link", "first", "last")
        .join(events, list(EVENT), "left_semi")
        .join(speakers, ["world", "link"], "left")
        .where((F.col("kind") == "Published") | ~is_recorded(F.col("first"), F.col("last")))
        .groupBy(*EVENT)
        .agg(F.max("moment").alias("published"))
    )
    entered = wrong.select(*EVENT, F.col("fault").isin(*OF_ENTRIES).alias("is_entry"))
    is_accepted = F.col("kind") == "Accepted"
    sender, receiver = F.when(is_accepted, F.col("link")), F.when(is_accepted, F.col("at"))
    forwarded = (
        identities(
            stated(["Forwarded", "Accepted"], "link", "publishers", "seqs").where(
                "link IS NOT NULL"
            ),
            *("world", "kind", "moment", "at", "link", "time"),
        )
        .join(
            F.broadcast(entered.groupBy(*EVENT).agg(F.max("is_entry").alias("is_entry"))),
            list(EVENT),
        )
        .where(~is_accepted | F.col("is_entry"))
        .withColumns(
            {"at": F.coalesce(sender, F.col("at")), "link": F.coalesce(receiver, F.col("link"))}
        )
        .groupBy(*EVENT)
        .agg(F.array_sort(F.collect_list(F.struct("moment", "at", "link", "time"))).alias("hops"))
    )
    # Nobody wanted it at any time, so clocks do not matter.
    is_published = F.col("published").isNotNull() & (
        (F.col("world") == LIVE) | was_published(F.col("published"), F.col("moment"))
    )
    fault = (
        F.when(F.col("fault") != NOT_WANTED, F.col("fault"))
        .when(is_published, str(Fault.UNASKED))
        .when(F.col("is_beyond"), UNKNOWN)
        .otherwise(str(Fault.UNPUBLISHED))
    )
    made = F.coalesce("hops", F.array().cast(_HOPS))
    path = F.transform(made, lambda hop: F.concat(hop["at"], F.lit(" → "), hop["link"]))
    hops = F.transform(
        made, lambda hop: F.struct(F.unix_micros(hop["time"]), hop["at"], hop["link"])
    )
    return (
        wrong.join(said, list(EVENT), "left")
        .join(forwarded, list(EVENT), "left")
        .select(
            *("world", fault.alias("fault"), "client", "publisher", "seq", "moment"),
            path.alias("path"),
            hops.alias("hops"),
        )
    )
