"""The pipeline as a graph: from raw journals to tables that grow, and from them to views."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import pipelines as dp

from sterna.pipeline.declared.files import TableFiles
from sterna.pipeline.declared.format import format_name, table_format
from sterna.pipeline.source.connector import SternaSource
from sterna.pipeline.tables import archive
from sterna.pipeline.tables.definitions import DEFINITIONS
from sterna.pipeline.tables.schemas import GROWING, INPUTS, NAMES, VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = datetime.fromtimestamp(0, UTC)

Definition = Callable[[Callable[[], "DataFrame"]], None]

POSITIONS_MAX = 1_000_000
"""How many inputs of brokers are archived at once: as much as a killed run has to do again."""


DECLARED = '''"""The tables that Sterna makes of journals, for `spark-pipelines run`."""

from sterna.pipeline.declared.graph import declare

declare(spark)  # Spark gives it.
'''
"""A program that declares the tables, as its spec has configured them; a run has prepared them."""

JOURNALS, TABLES, ONLY, LOSSY = "sterna.journals", "sterna.tables", "sterna.only", "sterna.lossy"


def declare(spark: "SparkSession") -> None:
    """Declare the tables of a spec; to be called by the program that `spark-pipelines` runs."""
    root = Path(spark.conf.get(TABLES) or "")
    for name, table in GROWING.items():
        spark.dataSource.register(journal_format(name))
        spark.dataSource.register(table_format(table, table_files(root, name)))
    define(
        spark,
        Path(spark.conf.get(JOURNALS) or ""),
        (spark.conf.get(ONLY) or "").split(","),
        fail_on_data_loss=spark.conf.get(LOSSY) != "true",
    )


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

    def raw(of: str, table: str, bad_records: str = "skip") -> "DataFrame":
        return (
            spark.readStream.format(journal_format(of).name())
            .option("table", table)
            .option("badRecords", bad_records)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", POSITIONS_MAX)
            .option("failOnDataLoss", str(fail_on_data_loss).lower())
            .load(str(journals))
        )

    @growing("events")
    def events() -> "DataFrame":
        return archive.events(raw("events", "events"))

    @growing("deliveries")
    def deliveries() -> "DataFrame":
        return archive.daily(raw("deliveries", "deliveries"))

    @growing("movements")
    def movements() -> "DataFrame":
        return archive.daily(raw("movements", "movements"))

    @growing("handovers")
    def handovers() -> "DataFrame":
        return archive.handovers(raw("handovers", "statistics"))

    @growing("subscriptions")
    def subscriptions() -> "DataFrame":
        return archive.subscriptions(raw("subscriptions", "facts"))

    @growing("statistics")
    def statistics() -> "DataFrame":
        return archive.daily(raw("statistics", "statistics"))

    @growing("bad_records")
    def bad_records() -> "DataFrame":
        return raw("bad_records", "facts", bad_records="only")

    for name in DEFINITIONS:
        if name in names:
            _view(name)(partial(_made, spark, name))


def journal_format(of: str) -> type[SternaSource]:
    """The format by which the journals are read for a table.

    Each table has its own. When a stream starts, Spark 4.3 adds variables to the environment that
    all streams of a format share, and does not lock it: if two start at once, it may count one
    twice, and then no task can read the environment any more (`java.io.OptionalDataException`).
    """

    class JournalFormat(SternaSource):
        """What Spark creates for every query."""

        @classmethod
        def name(cls) -> str:
            return f"sterna_journals_for_{of}"

    return JournalFormat


def table_files(root: Path, name: str) -> TableFiles:
    """The files of a table that grows."""
    table = GROWING[name]
    return TableFiles(root / name, table.is_daily, table.is_unique)


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
        "apart": verdict.unjudged.apart,
        "early": len(verdict.unjudged.early),
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


def _made(spark: "SparkSession", name: str) -> "DataFrame":
    """A view of tables in the same pipeline."""
    return DEFINITIONS[name](*(spark.read.table(table) for table in INPUTS[name]))


def _view(name: str) -> Definition:
    """Define a table that follows from others."""
    of_view = {"format": "parquet", "schema": VIEWS[name]}
    return dp.materialized_view(name=name, **of_view)  # type: ignore[call-overload,no-any-return]


def _left_out(_query: Callable[[], "DataFrame"]) -> None:
    """Leave a table out: define nothing."""
