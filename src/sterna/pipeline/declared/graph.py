"""The pipeline as a graph: from raw journals to tables that grow, and from them to views."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import pipelines as dp

from sterna.pipeline.declared.format import format_name
from sterna.pipeline.mining import graph
from sterna.pipeline.tables import archive, bootstrap, movement, traffic
from sterna.pipeline.tables.schemas import GROWING, NAMES, VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = datetime.fromtimestamp(0, UTC)

Definition = Callable[[Callable[[], "DataFrame"]], None]

POSITIONS_MAX = 1_000_000
"""How many inputs of brokers are archived at once: as much as a killed run has to do again."""


def define(
    spark: "SparkSession",
    journals: Path,
    names: Collection[str] = NAMES,
    *,
    fail_on_data_loss: bool = True,
) -> None:
    """Define the tables and what they are made of; to be called in a pipeline.

    Only those with these names, which have all their inputs among them.
    """

    def growing(name: str) -> Definition:
        return _growing(name) if name in names else _left_out

    def view(name: str) -> Definition:
        return _view(name) if name in names else _left_out

    def raw(table: str, bad_records: str = "skip") -> "DataFrame":
        return (
            spark.readStream.format("sterna")
            .option("table", table)
            .option("badRecords", bad_records)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", POSITIONS_MAX)
            .option("failOnDataLoss", str(fail_on_data_loss).lower())
            .load(str(journals))
        )

    @growing("events")
    def events() -> "DataFrame":
        return archive.events(raw("events"))

    @growing("deliveries")
    def deliveries() -> "DataFrame":
        return archive.daily(raw("deliveries"))

    @growing("movements")
    def movements() -> "DataFrame":
        return archive.daily(raw("movements"))

    @growing("handovers")
    def handovers() -> "DataFrame":
        return archive.handovers(raw("statistics"))

    @growing("subscriptions")
    def subscriptions() -> "DataFrame":
        return archive.subscriptions(raw("facts"))

    @growing("statistics")
    def statistics() -> "DataFrame":
        return archive.daily(raw("statistics"))

    @growing("bad_records")
    def bad_records() -> "DataFrame":
        return raw("facts", bad_records="only")

    @view("visits")
    def visits() -> "DataFrame":
        return movement.visits(spark.read.table("movements"))

    @view("dwell")
    def dwell() -> "DataFrame":
        return graph.dwell(spark.read.table("visits"))

    @view("movement_graph")
    def movement_graph() -> "DataFrame":
        return graph.transitions(spark.read.table("visits"))

    @view("next_broker")
    def next_broker() -> "DataFrame":
        return movement.next_broker(spark.read.table("movements"))

    @view("traffic")
    def minutes() -> "DataFrame":
        return traffic.traffic(spark.read.table("statistics"))

    @view("bootstrap_latency")
    def bootstrap_latency() -> "DataFrame":
        return bootstrap.bootstrap_latency(
            *(spark.read.table(name) for name in ("subscriptions", "movements", "deliveries"))
        )


def audited(
    spark: "SparkSession", journals: Path, *, fail_on_data_loss: bool = True
) -> "dict[str, DataFrame]":
    """The faults in the journals, as far as they are there, and how much was judged.

    This is beside the graph: an audit takes several queries.
    """
    from sterna.pipeline.audit import audit, in_journals, is_complete  # noqa: PLC0415 - numba is large.
    from sterna.pipeline.audit.ledger import GRACE_US  # noqa: PLC0415

    options = {"badRecords": "skip", "failOnDataLoss": str(fail_on_data_loss).lower()}
    stated = in_journals(spark, journals, **options)
    verdict = audit(stated, is_complete=is_complete(journals))
    found = [
        {
            **each._asdict(),
            "fault": str(each.fault),
            "hops": [(_time(hop.time_us), hop.broker, hop.to) for hop in each.hops],
        }
        for each in verdict.findings
    ]
    totals = {
        "published": verdict.published,
        "subscribed": verdict.subscribed,
        "owed": verdict.owed,
        "delivered": verdict.delivered,
        "wrong": verdict.faults.total(),
        "grace_s": GRACE_US / 1e6,
        "open": verdict.unjudged.open,
        "unknown": verdict.unjudged.unknown,
    }
    return {
        "delivery_audit": spark.createDataFrame(found, VIEWS["delivery_audit"]),
        "audit_totals": spark.createDataFrame([totals], VIEWS["audit_totals"]).coalesce(1),
    }


def _time(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_us)


def _growing(name: str) -> Definition:
    """Define a table to which each run adds what is new."""
    table = GROWING[name]
    of_table = {"comment": table.comment, "format": format_name(table), "schema": table.schema}
    return dp.table(name=name, **of_table)  # type: ignore[call-overload,no-any-return]


def _view(name: str) -> Definition:
    """Define a table that each run makes anew."""
    of_view = {"format": "parquet", "schema": VIEWS[name]}
    return dp.materialized_view(name=name, **of_view)  # type: ignore[call-overload,no-any-return]


def _left_out(_query: Callable[[], "DataFrame"]) -> None:
    """Leave a table out: define nothing."""
