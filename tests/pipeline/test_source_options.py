"""The options of the source, and the errors when something is wrong."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from sterna.journal import Journal
from sterna.model.event import Scalar
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source import reason
from sterna.pipeline.source.columns import attribute_columns
from sterna.pipeline.source.options import read_options
from tests.pipeline import recorded as r
from tests.pipeline.recorded import accepted

ORIGIN = {"path": "journals"}


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize(
    ("given", "stream", "sentence"),
    [
        (
            {"startingOfsets": "latest"},
            False,
            "format sterna has no option 'startingOfsets': did you mean startingOffsets?",
        ),
        ({"tabel": "x"}, True, "format sterna has no option 'tabel': did you mean table?"),
        ({"qqqqqqq": ""}, False, "format sterna has no option 'qqqqqqq': it knows path, brokers, "),
        ({"endingOffsets": "latest"}, True, "endingOffsets is for batch queries: a stream has no "),
        ({"endingTimestamp": "1"}, True, "endingTimestamp is for batch queries: a stream has no "),
        ({"maxOffsetsPerTrigger": "1"}, False, "maxOffsetsPerTrigger is for streams: a batch "),
        ({"table": "evnts"}, False, "table is 'evnts': give one of facts, events, deliveries, "),
        ({"badRecords": "x"}, False, "badRecords is 'x': give one of fail, skip, only"),
        ({"failOnDataLoss": "1"}, False, "failOnDataLoss is '1': give true or false"),
        ({"minPartitions": "0"}, False, "minPartitions is '0': give a whole number from 1 on"),
        ({"startingTimestamp": "now"}, False, "startingTimestamp is 'now': give milliseconds "),
        ({"startingOffsets": "first"}, True, "startingOffsets is 'first': give earliest or latest"),
        ({"startingOffsets": '{"a": 1.5}'}, True, "startingOffsets is '{\"a\": 1.5}': give "),
        ({"startingOffsets": '{"a": {"position": "1"}}'}, True, 'startingOffsets is \'{"a": {'),
        ({"startingOffsets": '{"a": {"incarnation": 1}}'}, True, 'startingOffsets is \'{"a": {'),
        ({"brokerTimeout": "5"}, True, "brokerTimeout is '5': a time is written 500ms, 30s, 5m"),
        ({"endingOffsets": "earliest"}, False, "endingOffsets is 'earliest': give latest or JSON"),
        ({"endingOffsets": '{"a": -2}'}, False, "endingOffsets is '{\"a\": -2}': give latest or "),
        ({"filter": "a = "}, False, "filter is 'a = ': "),
        ({"filter": "a = $b"}, False, "filter is 'a = $b': the filter depends on $b: "),
        ({"columns": "price float"}, False, "columns is 'price float': give names and types "),
        ({"columns": "a string, A string"}, False, "columns is 'a string, A string': a column "),
        ({"table": "facts", "filter": "a = 1"}, False, "filter is for table=events, not for facts"),
        ({"badRecords": "only", "columns": "a string"}, False, "columns is for table=events, not "),
        ({"brokers": "sterna://h:1"}, False, "say where to read: either a directory with journals"),
        (
            {"startingOffsets": "latest", "startingTimestamp": "1"},
            True,
            "startingOffsets and startingTimestamp say the same in two ways: give one",
        ),
        ({"path": "s3://x/y"}, False, "path is 's3://x/y': give a directory that the driver and "),
    ],
)
def test_wrong_options_are_told(given: dict[str, str], sentence: str, *, stream: bool) -> None:
    """One sentence that names the option and says what to give."""
    with pytest.raises(PipelineError) as error:
        read_options({**ORIGIN, **given}, stream=stream)

    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


@pytest.mark.spec("PL-1")
def test_somewhere_must_be_read() -> None:
    """Neither a directory nor brokers, or addresses that are none."""
    with pytest.raises(PipelineError, match=r"say where to read: .*load\(path\)"):
        read_options({}, stream=False)
    with pytest.raises(PipelineError, match="brokers is 'b1:7': give addresses such as sterna://"):
        read_options({"brokers": "b1:7"}, stream=False)


@pytest.mark.spec("PL-1")
def test_names_of_options_have_any_case() -> None:
    """As everywhere in Spark; a stream starts with what is new, a batch with what is old."""
    options = read_options({"PATH": "file:///x", "failondataloss": "FALSE"}, stream=True)

    assert (options.path, options.fail_on_data_loss) == ("/x", False)
    assert options.starting_offsets == "latest"
    assert read_options(ORIGIN, stream=False).starting_offsets == "earliest"


@pytest.mark.spec("PL-1")
def test_directories_without_journals_are_told(tmp_path: Path) -> None:
    """A directory that is missing, one that is empty, and a journal that is in two of them."""
    with pytest.raises(PipelineError, match="nothing is not there: give the directory"):
        r.read(tmp_path / "nothing")
    with pytest.raises(PipelineError, match="has no journal"):
        r.read(tmp_path)
    with pytest.raises(PipelineError, match="has no journal"):
        r.stream_reader(tmp_path).initialOffset()
    for place in ("a", "b"):
        journal = Journal(tmp_path / place, "B1")
        journal.record(1, [accepted("B1", 1)])
        journal.close()
    with pytest.raises(PipelineError, match=r"the journal of B1 is in .*/a and in .*/b"):
        r.read(tmp_path)
    assert len(r.read(tmp_path / "a")) == 3
    (file,) = (tmp_path / "a").iterdir()
    assert len(r.read(file)) == 3


@pytest.mark.spec("PL-1")
def test_columns_are_chosen_by_a_schema(tmp_path: Path) -> None:
    """Columns that nobody asks for are not made; others than the table's are refused."""
    journal = Journal(tmp_path, "B1")
    journal.record(1, [accepted("B1", 1, count=1, price=2.5)])
    journal.close()
    source = r.source(tmp_path, columns="price double, `a-b` string")
    full = source.schema()

    def chosen(*names: str) -> StructType:
        return StructType([full[name] for name in names])

    reader = source.reader(chosen("price", "seq", "a-b"))
    (row,) = r.rows_in(reader, reader.partitions())
    assert row == {"price": 2.5, "seq": 101, "a-b": None}
    with pytest.raises(PipelineError, match="table events has no column 'cost'; it has pub"):
        source.reader(StructType().add("cost", "double"))
    with pytest.raises(PipelineError, match="columns names 'seq', which table events has already"):
        r.source(tmp_path, columns="seq bigint").schema()
    with pytest.raises(PipelineError, match="column seq is bigint, not int: leave out the schema"):
        source.reader(StructType().add("seq", "integer"))


@pytest.mark.spec("PL-1")
def test_attributes_become_columns_exactly(tmp_path: Path) -> None:
    """An attribute of another type is null; a double holds the integers that it can hold."""
    values: list[Scalar] = [True, 1, 2**53 + 1, 0.5, "x", -(2**63)]
    journal = Journal(tmp_path, "B1")
    for number, value in enumerate(values):
        journal.record(number, [accepted("B1", number, count=1, v=value)])
    journal.close()
    wanted = {
        "boolean": [True, None, None, None, None, None],
        "long": [None, 1, 2**53 + 1, None, None, -(2**63)],
        "double": [None, 1.0, None, 0.5, None, -(2.0**63)],
        "string": [None, None, None, None, "x", None],
    }
    for kind, column in wanted.items():
        assert [row["v"] for row in r.read(tmp_path, columns=f"v {kind}")] == column
    assert [c.name for c in attribute_columns(" a string ,`b ``c` LONG")] == ["a", "b `c"]


@pytest.mark.spec("PL-1")
def test_our_sentence_is_found_in_what_spark_says() -> None:
    """Spark hands on tracebacks as text; the last line of ours is the sentence."""
    trace = "…\nsterna.pipeline.errors.PipelineError: the disk is full; make room\n\nJVM stacktrace"

    assert reason(AnalysisException(trace)) == "the disk is full; make room"
    assert reason(PipelineError("so")) == "so"
    assert reason(ValueError("PipelineError: no")) is None
