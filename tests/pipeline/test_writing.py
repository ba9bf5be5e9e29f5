"""What becomes of rows that are written to `format("sterna")`, and what is refused."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from sterna.model.event import Event
from sterna.model.filters.spark import ATTRIBUTES_TYPE
from sterna.net import blocking
from sterna.net.local import LocalNetwork
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source import reason
from sterna.pipeline.source.outgoing import rows
from sterna.pipeline.source.writing import SternaStreamWriter, SternaWriter
from tests.net.live import network_in, settle
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL = "sterna://127.0.0.1:7461"

# ---- Columns

INTEGERS, FLOATS = st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
TEXTS = st.text(max_size=5)
KINDS: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (BooleanType(), st.booleans()),
    (ByteType(), st.integers(-128, 127)),
    (LongType(), INTEGERS),
    (DoubleType(), FLOATS),
    (StringType(), TEXTS),
]
VALUES = st.one_of(st.booleans(), INTEGERS, FLOATS, TEXTS)
ENTRIES = st.dictionaries(st.sampled_from(["a", "b", "é"]), st.none() | VALUES, max_size=3)


def value_struct(value: object) -> dict[str, object] | None:
    """A value as Spark keeps it where its type may be any."""
    names = {bool: "bool", int: "int", float: "float", str: "string"}
    return None if value is None else {names[type(value)]: value}


@pytest.mark.spec("PL-1")
@examples(100)
@given(data=st.data())
def test_rows_become_events(data: st.DataObject) -> None:
    """Each column is an attribute, entries of `attributes` as well, and null is missing."""
    names = data.draw(st.lists(st.sampled_from(["a", "b", "c.d"]), unique=True))
    schema = StructType()
    columns: dict[str, list[Any]] = {}
    for name in names:
        kind, values = data.draw(st.sampled_from(KINDS))
        schema.add(name, kind)
        columns[name] = data.draw(st.lists(st.none() | values, min_size=4, max_size=4))
    entries = data.draw(st.lists(st.none() | ENTRIES, min_size=4, max_size=4))
    schema.add("attributes", ATTRIBUTES_TYPE)
    payloads = data.draw(st.lists(st.none() | st.binary(max_size=3), min_size=4, max_size=4))
    schema.add("payload", BinaryType()).add("publisher", StringType()).add("seq", LongType())
    table = columns | {
        "attributes": [
            each and [(name, value_struct(value)) for name, value in each.items()]
            for each in entries
        ],
        "payload": payloads,
        "publisher": ["p"] * 4,
        "seq": [1] * 4,
    }
    batch = pa.RecordBatch.from_pydict(table, schema=to_arrow_schema(schema))

    told = list(rows([batch.slice(0, 1), batch.slice(1)], schema))

    for place, (attributes, payload) in enumerate(told):
        own = {name: values[place] for name, values in columns.items()}
        expected = (entries[place] or {}) | {
            name: value for name, value in own.items() if value is not None
        }
        assert attributes == {k: v for k, v in expected.items() if v is not None}
        assert payload == (payloads[place] or b"")
    assert len(told) == 4


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("when", TimestampType(), "the column when is timestamp, which no attribute can be; cast"),
        ("price", DecimalType(10, 2), r"the column price is decimal\(10,2\), which no attribute"),
        ("picture", BinaryType(), "the column picture is binary"),
        ("tags", ArrayType(StringType()), "the column tags is array<string>"),
        ("payload", StringType(), "the column payload is string, and payloads are binary"),
        ("attributes", MapType(LongType(), StringType()), "make it a map from strings"),
        ("attributes", MapType(StringType(), DateType()), "make it a map from strings"),
        ("attributes", StructType().add("a", LongType()), "the column attributes is struct<a:big"),
        ("", StringType(), "a column has no name"),
    ],
)
def test_columns_that_no_event_can_have_are_refused(
    name: str, kind: DataType, sentence: str
) -> None:
    """Before anything is published, in one sentence that names the column."""
    with pytest.raises(PipelineError, match=sentence):
        SternaWriter({"brokers": URL}, StructType().add("n", LongType()).add(name, kind))


@pytest.mark.spec("PL-1")
def test_there_has_to_be_a_column() -> None:
    with pytest.raises(PipelineError, match="there is no column to publish"):
        SternaWriter({"brokers": URL}, StructType())


# ---- Options

NUMBERS = StructType().add("n", IntegerType())
STREAM = {"brokers": URL, "checkpointLocation": "/nowhere"}


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize(
    ("writer", "options", "sentence"),
    [
        (SternaWriter, {}, "set the option brokers"),
        (SternaWriter, {"broker": URL}, "no option 'broker': did you mean brokers"),
        (SternaWriter, {"brokers": URL, "xyz": "1"}, "it knows brokers, client, staging"),
        (SternaWriter, {"brokers": URL, "transaction": ""}, "the option transaction is empty"),
        (SternaWriter, {"brokers": "tcp://localhost"}, "is no address of a broker"),
        (SternaWriter, {"brokers": URL, "transaction": "mon"}, "set the option staging"),
        (SternaWriter, {"brokers": URL, "advertise": "price <"}, "price <"),
        (SternaStreamWriter, {"brokers": URL}, "set the option checkpointLocation"),
        (SternaStreamWriter, STREAM | {"checkpointLocation": "hdfs://host/c"}, "option staging"),
        (SternaStreamWriter, STREAM | {"transaction": "mon"}, "no option 'transaction'"),
    ],
)
def test_wrong_options_are_refused(
    writer: Callable[[Mapping[str, str], StructType], object],
    options: dict[str, str],
    sentence: str,
) -> None:
    with pytest.raises(PipelineError, match=sentence):
        writer(options, NUMBERS)


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize(
    ("options", "directory"),
    [
        ({}, "/nowhere/sterna"),
        ({"checkpointLocation": "file:///some%20where"}, "/some where/sterna"),
        ({"STAGING": "/elsewhere"}, "/elsewhere"),
    ],
)
def test_a_stream_keeps_its_events_in_its_checkpoint(
    options: dict[str, str], directory: str
) -> None:
    writer = SternaStreamWriter(STREAM | options, NUMBERS)

    assert str(writer._staging.directory) == directory


# ---- Through Spark and a broker


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("writing"), 1) as network:
        yield network


def told(network: LocalNetwork, work: Callable[[], object]) -> list[Event]:
    """All that is published while something is done, in this thread, which Spark knows."""
    with blocking.connect(network.url("B1")) as client:
        events = client.subscribe("TRUE")
        asyncio.run(settle(network, [client._client]))
        work()
        asyncio.run(settle(network, [client._client]))
        return events.take()


@pytest.mark.spec("PL-1")
def test_a_dataframe_is_published(
    spark: "SparkSession", network: LocalNetwork, tmp_path: Path
) -> None:
    """Partition by partition, in order; a transaction once, however often it is written."""
    frame = spark.range(6, numPartitions=2).selectExpr(
        "id AS n", "if(id > 3, 'ü', NULL) AS text", "cast(cast(id AS string) AS binary) AS payload"
    )
    to_broker = frame.write.format("sterna").mode("append").option("brokers", network.url("B1"))

    def work() -> None:
        to_broker.option("client", "once").option("staging", str(tmp_path / "tmp")).save()
        for _ in range(2):
            to_broker.option("client", "feed").option("transaction", "mon").save()

    events = told(network, work)

    assert [event.publisher for event in events] == ["once"] * 6 + ["feed"] * 6
    numbers = [event.attributes["n"] for event in events]
    assert numbers == [0, 1, 2, 3, 4, 5] * 2
    assert [event.attributes.get("text") for event in events[:6]] == [None] * 4 + ["ü"] * 2
    assert events[5].payload == b"5"
    left = sorted(path.name for path in (tmp_path / "tmp").iterdir())
    assert left == ["client", "ledger.json", "lock"]


@pytest.mark.spec("PL-1")
def test_a_job_that_fails_publishes_nothing(
    spark: "SparkSession", network: LocalNetwork, tmp_path: Path
) -> None:
    """And what the source says can be found."""
    frame = spark.range(6, numPartitions=2).selectExpr("if(id = 5, raise_error('x'), id) AS n")
    options = {"brokers": network.url("B1"), "staging": str(tmp_path), "transaction": "mon"}

    def work() -> None:
        with pytest.raises(Exception, match="x"):
            frame.write.format("sterna").mode("append").options(**options).save()
        with pytest.raises(Exception, match="which no attribute") as caught:
            spark.sql("SELECT current_timestamp() AS now").write.format("sterna").mode(
                "append"
            ).options(**options).save()
        sentence = reason(caught.value) or ""
        assert sentence.startswith("the column now is timestamp")

    assert told(network, work) == []


@pytest.mark.spec("PL-1")
def test_a_stream_is_published_once_per_checkpoint(
    spark: "SparkSession", network: LocalNetwork, tmp_path: Path
) -> None:
    """A query that is started again goes on; another one must not use its directory."""
    (tmp_path / "in").mkdir()

    def run(checkpoint: str, **options: str) -> None:
        query = (
            spark.readStream.schema("n INT")
            .json(str(tmp_path / "in"))
            .writeStream.format("sterna")
            .option("brokers", network.url("B1"))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def work() -> None:
        (tmp_path / "in" / "1.json").write_text('{"n": 1}\n{"n": 2}')
        run("one")
        (tmp_path / "in" / "2.json").write_text('{"n": 3}')
        run("one")
        with pytest.raises(Exception, match="belongs to the query") as caught:
            run("two", staging=str(tmp_path / "one" / "sterna"))
        assert "a directory of its own" in (reason(caught.value) or "")

    events = told(network, work)

    assert [event.attributes["n"] for event in events] == [1, 2, 3]
    assert len({event.publisher for event in events}) == 1
