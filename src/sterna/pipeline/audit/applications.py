"""What applications were given of their sessions: ordered, consistent and complete, or what is not.

(Huang and Garcia-Molina, section 5.) Each session is a client, and judged as such. Here the merging
is judged by the checkers of `sterna.model.replicas`: each application, and of it each publisher, by
itself. What a filter does not promise is no fault: without one, events come twice.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.core.replication.options import PROMISES, Filtering
from sterna.model.delivery import Fault
from sterna.model.event import EventId
from sterna.model.replicas import inconsistent, missing, out_of_order
from sterna.pipeline.audit.conduct import WATCHES
from sterna.pipeline.audit.ledger import identities
from sterna.pipeline.audit.stated import Stated, slack

WRONG_DISPLAYS = """
    world STRING, client STRING, publisher STRING, seq BIGINT, fault STRING, session STRING
"""
"""A wrong display; of a lost event, the first session that has brought it."""


def wrong_displays(stated: Stated, *, grace_us: int) -> DataFrame:
    """What applications were given wrongly, or not at all, one event a row.

    What a session has brought counts if the application went on for long enough to be given it. At
    the end of a subscription, its sessions still bring some events, within the grace period.
    """
    rows = _displayed(stated).unionByName(_brought(stated, grace_us), allowMissingColumns=True)
    whose = ("world", "client", "publisher")
    ordered = rows.repartition(*whose).sortWithinPartitions(*whose, "position", "turn", "place")
    return ordered.mapInArrow(_judged, WRONG_DISPLAYS)


def _displayed(stated: Stated) -> DataFrame:
    """What was displayed or withheld: by subscription, and `life` of it, with its `filtering`."""
    facts = stated([WATCHES, "Displayed", "Withheld"], "name", "details", "publishers", "seqs")
    so_far = (
        Window.partitionBy("world", "at", "name")
        .orderBy("position", "turn")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    filtering = F.get_json_object("details", "$.filtering")
    known = facts.withColumns(
        {
            "life": F.count_if(F.col("kind") == WATCHES).over(so_far),
            "filtering": F.last(filtering, ignorenulls=True).over(so_far),
        }
    ).where(F.col("kind") != WATCHES)
    columns = ("world", "at", "kind", "name", "life", "filtering", "position", "turn")
    return identities(known, *columns).withColumnRenamed("at", "client")


def _brought(stated: Stated, grace_us: int) -> DataFrame:
    """What sessions were given, by application, but for what it may have been too late for."""
    own = stated([WATCHES, "WatchEnded", "SessionWatches", "Displayed", "Withheld"], "client")
    in_order = Window.partitionBy("world", "at").orderBy("position", "turn")
    moment, kind = F.col("moment"), F.col("kind")
    # A program that was killed has not displayed what its sessions had just got.
    since = F.when(kind == WATCHES, F.coalesce(F.lag("moment").over(in_order), moment))
    since = F.when(kind == "WatchEnded", moment).otherwise(since)
    until = F.when(kind == "WatchEnded", moment + slack(grace_us)).otherwise(moment)
    gap = F.when(
        kind.isin(WATCHES, "WatchEnded"), F.struct(since.alias("since"), until.alias("until"))
    )
    applications = (
        own.withColumn("gap", gap)
        .groupBy("world", F.col("at").alias("application"))
        .agg(
            F.max("moment").alias("last"),
            F.collect_list("gap").alias("gaps"),
            F.collect_set(F.when(kind == "SessionWatches", F.col("client"))).alias("sessions"),
        )
    )
    sessions = applications.select(
        "world", "application", "last", "gaps", F.explode("sessions").alias("at")
    )
    came = stated(["Delivered"], "publishers", "seqs").join(F.broadcast(sessions), ["world", "at"])
    in_time = came.where(
        (moment <= F.col("last"))
        & ~F.exists("gaps", lambda gap: (gap["since"] < moment) & (moment <= gap["until"]))
    )
    columns = ("world", "application", "kind", "at", "position", "turn")
    return (
        identities(in_time, *columns)
        .withColumnRenamed("at", "session")
        .withColumnRenamed("application", "client")
    )


# ---- One partition


def _judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (row for batch in batches for row in batch.to_pylist())
    for whose, group in groupby(rows, itemgetter("world", "client", "publisher")):
        found = [(*whose, *wrong) for wrong in _wrong(whose[2], group)]
        if found:
            columns = zip(*found, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(each, field.type) for each, field in zip(columns, _SCHEMA, strict=True)],
                schema=_SCHEMA,
            )


def _wrong(
    publisher: str, rows: Iterator[dict[str, Any]]
) -> Iterator[tuple[int, Fault, str | None]]:
    """The wrong displays of one publisher's events at one application."""
    shown: defaultdict[tuple[str, int, str], list[EventId]] = defaultdict(list)
    told: list[EventId] = []
    brought: dict[EventId, str] = {}
    for row in rows:
        id_ = EventId(publisher, row["seq"])
        if row["kind"] == "Delivered":
            brought.setdefault(id_, row["session"])
            continue
        told.append(id_)
        if row["kind"] == "Displayed":
            shown[row["name"], row["life"], row["filtering"]].append(id_)
    for (_, _, filtering), ids in shown.items():
        promised = PROMISES[Filtering(filtering)] if filtering in [*Filtering] else None
        if promised is not None and promised.consistent:
            yield from ((id_.seq, Fault.DUPLICATED, None) for id_ in inconsistent(ids))
        if promised is not None and promised.ordered:
            yield from ((id_.seq, Fault.REORDERED, None) for id_ in out_of_order(ids))
    for id_ in missing(told, brought):
        yield id_.seq, Fault.LOST, brought[id_]


_SCHEMA = pa.schema(
    {
        **{name: pa.string() for name in ("world", "client", "publisher")},
        "seq": pa.int64(),
        "fault": pa.string(),
        "session": pa.string(),
    }
)
