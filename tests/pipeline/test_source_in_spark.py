"""Spark itself reads journals and brokers: batches, streams that start again, clear errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.journal import Journal
from sterna.net import blocking
from sterna.net.local import LocalNetwork
from sterna.pipeline.source import reason
from tests.net.live import network_in
from tests.pipeline import recorded as r
from tests.pipeline.recorded import Recorded, accepted, expected, in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(spark: "SparkSession", path: Path | None = None, **options: Any) -> "DataFrame":
    return spark.read.format("sterna").options(**options).load(None if path is None else str(path))


def rows(frame: "DataFrame") -> list[str]:
    """Rows that can be compared with those that are expected."""
    times = [name for name, kind in frame.dtypes if kind == "timestamp"]
    frame = frame.withColumns({name: F.unix_micros(name) for name in times})
    return in_order(_plain(row.asDict(recursive=True)) for row in frame.collect())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    for name, value in row.items():
        if isinstance(value, dict):
            row[name] = list(value.items())
        elif isinstance(value, bytearray):
            row[name] = bytes(value)
    return row


@pytest.mark.spec("PL-1")
def test_spark_reads_what_was_recorded(spark: "SparkSession", tmp_path: Path) -> None:
    """Tables of a batch query, with their schemas, are what the facts say."""
    recorded = {node: [(5, r.one_of_each(node)), (7, r.one_of_each(node))] for node in r.NODES[:2]}
    r.write(tmp_path, recorded)

    for name in ("facts", "events"):  # Their columns have all types that there are.
        found = table(spark, tmp_path, table=name, minPartitions=3)
        assert rows(found) == in_order(expected(recorded, name)), name
        assert found.schema == r.source(tmp_path, table=name).schema()


@pytest.mark.spec("PL-1")
def test_a_stream_goes_on_where_its_checkpoint_says(spark: "SparkSession", tmp_path: Path) -> None:
    """A query that ends and starts again, while journals grow and appear, has each row once."""
    directory, out = tmp_path / "in", tmp_path / "out"
    written: Recorded = {"B1": [], "B2": []}

    def write(node: str, *positions: int) -> None:
        journal = Journal(directory / node, node)
        for position in positions:
            written[node].append((position, [accepted(node, position)]))
            journal.record(position, written[node][-1][1])
            journal.flush()
        if node == "B1":
            journal.close()

    def run() -> int:
        query = (
            spark.readStream.format("sterna")
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=12, columns="number bigint")
            .load(str(directory))
            .where("number < 2")
            .drop("number")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()
        return len(query.recentProgress)

    write("B1", 3, 4)
    run()
    write("B1", 9)
    write("B2", 2, 20)
    assert run() > 2

    wanted = [row for row in expected(written, "events") if row["seq"] % 100 < 3]
    assert rows(spark.read.parquet(str(out))) == in_order(wanted)


@pytest.mark.spec("PL-1")
def test_predicates_reach_the_source(spark: "SparkSession", tmp_path: Path) -> None:
    """What Spark pushes is understood as Spark writes it, and only the rest is checked by Spark."""
    recorded: Recorded = {
        node: [
            (n, [accepted(node, n, price=n / 2, kind="ab" if n % 2 else "b_")]) for n in range(20)
        ]
        for node in ("B1", "B2")
    }
    r.write(tmp_path, recorded)
    events = table(spark, tmp_path, columns="price double, kind string", pushDown="true")

    found = events.where(
        "journal = 'B1' AND position >= 4 AND time >= timestamp_seconds(5) "
        "AND kind LIKE 'a%' AND price IN (2.5, 3.5, 4.0) AND seq <> 501"
    )

    assert sorted((row.position, row.seq) for row in found.collect()) == [
        *((5, 502), (5, 503)),
        *((7, 701), (7, 702), (7, 703)),
    ]
    plan = found._jdf.queryExecution().executedPlan().toString()
    conditions = next(line for line in plan.splitlines() if "Filter" in line)
    assert "price" in conditions
    assert not any(name in conditions for name in ("journal", "position", "time", "kind", "seq"))


@pytest.mark.spec("PL-1")
def test_a_table_that_is_used_twice_is_the_same_table(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Spark 4.3 gives what it pushes for one use to the other, so nothing is pushed by default."""
    r.write(tmp_path, {node: [(0, [accepted(node, 0)])] for node in ("B1", "B2")})
    events = table(spark, tmp_path)

    both = events.where("journal = 'B1'").union(events.where("journal = 'B2'"))

    assert {row.journal for row in both.collect()} == {"B1", "B2"}


@pytest.mark.spec("PL-1")
def test_errors_are_one_sentence(spark: "SparkSession", tmp_path: Path) -> None:
    """From planning, from tasks and from streams: our sentence is in what Spark raises."""
    with pytest.raises(PySparkException) as planning:
        table(spark, tmp_path, tabel="events")
    assert reason(planning.value) == "format sterna has no option 'tabel': did you mean table?"

    (tmp_path / "B1-00000000000000000001-1.arrows").write_bytes(b"nothing of the kind")
    with pytest.raises(PySparkException) as task:
        table(spark, tmp_path).collect()
    sentence = (
        f"{tmp_path}/B1-00000000000000000001-1.arrows does not begin like a journal; set "
        "failOnDataLoss=false to read the rest, or badRecords=only to see all that cannot be read"
    )
    assert reason(task.value) == sentence

    stream = spark.readStream.format("sterna").option("startingOffsets", "earliest")
    query = stream.load(str(tmp_path)).writeStream.format("noop").trigger(availableNow=True)
    with pytest.raises(PySparkException) as streaming:
        query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert reason(streaming.value) == sentence


# ---- Live brokers.


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    directory = tmp_path_factory.mktemp("network")
    with network_in(directory, 2, journal={"enabled": True}) as network:
        yield network


@pytest.mark.spec("PL-1")
def test_live_brokers_are_read(spark: "SparkSession", network: LocalNetwork) -> None:
    """What brokers have is there at once, at the broker where it happened."""
    brokers = ",".join(network.urls.values())
    clients = {name: f"client of {name}" for name in network.names}
    for name, client in clients.items():
        with blocking.connect(network.url(name), client=client) as publisher:
            publisher.publish_all({"number": number, "at": name} for number in (1, 2, 3))

    events = table(spark, brokers=brokers, columns="number bigint", filter="number > 1")
    found = sorted((e.publisher, e.at, e.number) for e in events.collect())
    assert found == [(clients[name], name, number) for name in clients for number in (2, 3)]

    stream = spark.readStream.format("sterna").option("startingOffsets", "earliest")
    query = stream.options(brokers=brokers, table="movements").load().writeStream
    query.trigger(availableNow=True).format("memory").queryName("seen").start().awaitTermination()
    steps = {(m.client, m.broker, m.kind) for m in spark.table("seen").collect()}
    assert steps >= {(client, name, "attached") for name, client in clients.items()}
    assert {(client, broker) for client, broker, _ in steps} == {(c, b) for b, c in clients.items()}
