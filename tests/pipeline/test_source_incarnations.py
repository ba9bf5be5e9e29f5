"""Another journal of the same name is another one: nothing of it is taken for read."""

import json
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.journal import Journal, rows_of
from sterna.journal.rows import schema_of
from sterna.journal.segments import (
    END,
    batch_message,
    file_name,
    finished_path,
    schema_message,
)
from sterna.net import blocking, remote
from sterna.net.local import LocalNetwork
from sterna.net.observer import Observer, ask
from sterna.pipeline.declared.folder import TableFolder
from sterna.pipeline.declared.run import run
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source import SternaSource, reason
from sterna.pipeline.source.options import Offset
from sterna.pipeline.tables import read as read_table
from tests.net.live import network_in
from tests.pipeline import recorded as r
from tests.pipeline.recorded import accepted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spec("PL-1")

ALL = ReadAllAvailable()


def write(directory: Path, *positions: int, log_end: int | None = None, shift: int = 0) -> None:
    """Facts of B1; those with a shift are about other events."""
    journal = Journal(directory, "B1", log_end=log_end)
    for position in positions:
        journal.record(position, [accepted("B1", position + shift, count=1)])
    journal.close()


def write_as_before(directory: Path, *positions: int) -> None:
    """As an earlier release did, which knew no incarnations."""
    directory.mkdir(exist_ok=True)
    path = directory / file_name("B1", positions[0], 5)
    batch = rows_of([(n, 0, accepted("B1", n, count=1)) for n in positions])
    path.write_bytes(schema_message(schema_of("B1", 0)) + batch_message(batch, 1) + END)
    path.rename(finished_path(path))


def follow(stream: DataSourceStreamReader, start: Any, limit: Any = ALL) -> tuple[list[int], Any]:
    """What a trigger reads, as the numbers of events, and where the next one starts."""
    end = _stored(stream.latestOffset(start, limit))
    return numbers(stream, start, end), end


def numbers(stream: DataSourceStreamReader, start: Any, end: Any) -> list[int]:
    return [row["seq"] // 100 for row in r.rows_in(stream, stream.partitions(start, end))]


def _stored(offset: Any) -> Any:
    """An offset as it comes back from a checkpoint."""
    return json.loads(json.dumps(offset))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Positions 1 to 9 of B1."""
    write(tmp_path / "B1", *range(1, 10))
    return tmp_path / "B1"


def rebuilt(directory: Path, *positions: int) -> None:
    shutil.rmtree(directory)
    write(directory, *positions, shift=1000)


# ---- Journals in directories.


def test_a_journal_that_was_begun_anew_is_an_error(journal: Path) -> None:
    """Also when it has grown beyond what was read of the one before."""
    found, offset = follow(r.stream_reader(journal), {})
    assert found == [*range(1, 10)]
    assert offset["B1"]["position"] == 10
    rebuilt(journal, *range(1, 16))

    with pytest.raises(PipelineError) as error:
        r.stream_reader(journal).latestOffset(offset, ALL)

    sentence = str(error.value)
    assert f"the journal of B1 in {journal} was begun anew at 2" in sentence
    assert "up to position 10," in sentence
    assert sentence.endswith(
        "; set failOnDataLoss=false to go on with the new one from its beginning, or start with "
        "another checkpoint"
    )


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(4)], ids=["all", "some"])
@pytest.mark.parametrize("count", [5, 15])
def test_without_the_check_it_is_read_from_its_beginning(
    journal: Path, caplog: pytest.LogCaptureFixture, limit: Any, count: int
) -> None:
    """Shorter or longer than what was read before; the log says what is missing."""
    _, offset = follow(r.stream_reader(journal), {})
    rebuilt(journal, *range(1, count + 1))
    lossy = r.stream_reader(journal, failOnDataLoss=False)
    found: list[int] = []
    with caplog.at_level(logging.WARNING, "sterna.pipeline"):
        while True:
            some, following = follow(lossy, offset, limit)
            found += some
            if following == offset:
                break
            offset = following

    assert found == [1000 + n for n in range(1, count + 1)]
    (said,) = {each.getMessage() for each in caplog.records}
    assert "what that one had besides is lost; going on with the new one" in said
    write(journal, count + 1, shift=1000)
    assert follow(r.stream_reader(journal), offset)[0] == [1001 + count]


def test_a_trigger_that_was_under_way_is_not_read_from_another_journal(journal: Path) -> None:
    """Its checkpoint says how far it goes, in a journal that is gone."""
    stream = r.stream_reader(journal)
    _, start = follow(stream, {}, ReadMaxRows(4))
    end = stream.latestOffset(start, ALL)
    rebuilt(journal, *range(1, 16))

    with pytest.raises(PipelineError, match="was begun anew"):
        r.stream_reader(journal).partitions(start, end)
    lossy = r.stream_reader(journal, failOnDataLoss=False)
    assert numbers(lossy, start, end) == []
    assert follow(lossy, end)[0] == [1000 + n for n in range(1, 16)]


def test_a_journal_that_stays_goes_on(journal: Path) -> None:
    """Over restarts, and when its first files are removed."""
    stream = r.stream_reader(journal)
    _, offset = follow(stream, {})
    write(journal, 10)
    next(journal.glob("*-00000000000000000001-*")).unlink()

    assert follow(r.stream_reader(journal), offset)[0] == [10]


def test_checkpoints_of_earlier_releases_go_on(journal: Path) -> None:
    """They know positions only: the first incarnation that is seen is taken for theirs."""
    found, offset = follow(r.stream_reader(journal), {"B1": 4})
    assert found == [*range(4, 10)]
    write(journal, 10)
    found, offset = follow(r.stream_reader(journal), offset)
    assert found == [10]
    rebuilt(journal, *range(1, 16))
    with pytest.raises(PipelineError, match="was begun anew"):
        follow(r.stream_reader(journal), offset)

    # All that can be noticed without an incarnation is that positions went back.
    with pytest.raises(PipelineError, match="it has lost facts or is another one"):
        follow(r.stream_reader(journal), {"B1": 17})
    lossy = r.stream_reader(journal, failOnDataLoss=False)
    assert follow(lossy, {"B1": 17})[0] == [1000 + n for n in range(1, 16)]


def test_journals_of_earlier_releases_go_on(tmp_path: Path) -> None:
    """Files that do not say their incarnation, and later ones that do, are one journal."""
    write_as_before(tmp_path, 1, 2, 3)
    found, offset = follow(r.stream_reader(tmp_path), {})
    assert (found, offset) == ([1, 2, 3], {"B1": 4})

    write(tmp_path, 4, 5)

    assert follow(r.stream_reader(tmp_path), offset)[0] == [4, 5]
    assert follow(r.stream_reader(tmp_path), {})[0] == [1, 2, 3, 4, 5]
    found, offset = follow(r.stream_reader(tmp_path), {}, ReadMaxRows(3))
    assert found + follow(r.stream_reader(tmp_path), offset)[0] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("count", [2, 8])
def test_positions_that_are_used_again_are_read_again(journal: Path, count: int) -> None:
    """A broker whose log was damaged counts from an earlier position on, in the same directory."""
    _, offset = follow(r.stream_reader(journal), {})
    again = range(5, 5 + count)
    write(journal, *again, log_end=4, shift=1000)

    with pytest.raises(PipelineError, match="was begun anew"):
        follow(r.stream_reader(journal), offset)
    lossy = r.stream_reader(journal, failOnDataLoss=False)
    assert follow(lossy, offset)[0] == [1000 + n for n in again]
    # Who starts now gets everything, once.
    everything = [*range(1, 10), *(1000 + n for n in again)]
    for limit in (ALL, ReadMaxRows(3)):
        found: list[int] = []
        stream = r.stream_reader(journal, startingOffsets="earliest")
        offset = _stored(stream.initialOffset())
        while (step := follow(stream, offset, limit))[1] != offset:
            found, offset = found + step[0], step[1]
        assert sorted(found) == everything
    batch = [row["seq"] // 100 for row in r.read(journal)]
    assert sorted(batch) == everything


# ---- Starts.


@pytest.mark.parametrize("lossy", [False, True])
def test_a_start_beyond_the_end_is_an_error(journal: Path, *, lossy: bool) -> None:
    """It is a mistake in any case, for a query of each kind; the end itself is none."""
    options = {"startingOffsets": '{"B1": 11}', "failOnDataLoss": not lossy}
    sentence = (
        "startingOffsets of B1 is 11, which is beyond the end of its journal, 10: give a position "
        "up to that, or -1 for the end"
    )
    with pytest.raises(PipelineError) as error:
        r.read(journal, **options)
    assert str(error.value) == sentence
    with pytest.raises(PipelineError) as error:
        r.stream_reader(journal, **options).initialOffset()
    assert str(error.value) == sentence

    assert r.read(journal, startingOffsets='{"B1": 10}') == []


def test_offsets_of_a_checkpoint_can_be_given(journal: Path) -> None:
    """With the incarnation that they are of; those of another journal are refused."""
    _, offset = follow(r.stream_reader(journal), {}, ReadMaxRows(4))
    given = json.dumps(offset)
    assert [row["position"] for row in r.read(journal, startingOffsets=given)] == [*range(4, 10)]
    rebuilt(journal, *range(1, 16))

    with pytest.raises(PipelineError, match="was begun anew: give positions of this one"):
        r.read(journal, startingOffsets=given)


def test_a_batch_that_ends_before_it_starts_is_empty(tmp_path: Path) -> None:
    """Whether the incarnation is known or not."""
    write_as_before(tmp_path, 1, 2, 3)

    assert r.read(tmp_path, startingOffsets='{"B1": 3}', endingOffsets='{"B1": 2}') == []


@pytest.mark.spec("PL-2")
@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ('v1\n{"conf":{}}\n{"B1": 4}', {"B1": Offset(4)}),
        ('v1\n{}\n{"B1": {"incarnation": 7, "position": 4}}', {"B1": Offset(4, 7)}),
        ("", {}),
        ("v1\n-", {}),
        ('v1\n{}\n{"B1": "elsewhere"}', {}),
    ],
    ids=["earlier release", "now", "empty", "no source", "unknown"],
)
def test_a_run_knows_how_far_its_tables_have_come(
    tmp_path: Path, content: str, wanted: dict[str, Offset]
) -> None:
    """From the last file of Spark; what it does not understand is left to the source."""
    tables = TableFolder(tmp_path)
    assert tables.reached("events") == {}
    logs = tables.checkpoint("events") / "offsets"
    logs.mkdir(parents=True)
    (logs / "9").write_text('v1\n{}\n{"B1": 1}', encoding="utf-8")
    (logs / ".10.crc").touch()
    (logs / "10").write_text(content, encoding="utf-8")

    assert tables.reached("events") == wanted


# ---- Brokers.


def over(url: str, **options: Any) -> DataSourceStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    source = SternaSource(CaseInsensitiveDict({"brokers": url, "table": "events", **texts}))
    return source.streamReader(source.schema())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    directory = tmp_path_factory.mktemp("broker")
    with network_in(directory, 1, journal={"enabled": True}) as network:
        yield network


def publish(broker: LocalNetwork, client: str, count: int) -> None:
    with blocking.connect(broker.url("B1"), client=client) as publisher:
        publisher.publish_all({"number": number} for number in range(count))


def rebuild(broker: LocalNetwork) -> None:
    """Have the broker begin with nothing."""
    broker.kill("B1")
    for name in ("log", "journal"):
        shutil.rmtree(broker.data("B1") / name)
    broker.restart("B1")


def publishers(stream: DataSourceStreamReader, start: Any, end: Any) -> list[str]:
    return [row["publisher"] for row in r.rows_in(stream, stream.partitions(start, end))]


def test_a_broker_that_was_rebuilt_has_another_journal(broker: LocalNetwork) -> None:
    """Its positions are beyond those that were read of the one before, and nothing is skipped."""
    url = broker.url("B1")
    publish(broker, "before", 3)
    stream = over(url)
    offset = _stored(stream.latestOffset({}, ALL))
    assert publishers(stream, {}, offset) == ["before"] * 3
    (task,) = stream.partitions({}, offset)
    broker.end("B1")
    broker.restart("B1")
    assert stream.latestOffset(offset, ALL)["B1"]["incarnation"] == offset["B1"]["incarnation"]

    rebuild(broker)
    while remote.extent(url).end <= offset["B1"]["position"]:
        publish(broker, "after", 1)

    with pytest.raises(PipelineError, match=f"the journal of B1 in {url} was begun anew at"):
        stream.latestOffset(offset, ALL)
    with pytest.raises(PipelineError, match="its journal was begun anew"):
        list(stream.read(task))  # It was planned before.
    lossy = over(url, failOnDataLoss=False)
    end = _stored(lossy.latestOffset(offset, ALL))
    found = publishers(lossy, offset, end)
    assert set(found) == {"after"}
    assert len(found) == len(publishers(over(url), {}, end))


def test_a_broker_that_is_down_is_waited_for(broker: LocalNetwork) -> None:
    """By streams that have begun, between triggers and in tasks; and not for ever."""
    url = broker.url("B1")
    stream = over(url, brokerTimeout="30s")
    start = _stored(over(url, startingOffsets="latest").initialOffset())
    publish(broker, "waiting", 3)
    end = stream.latestOffset(start, ALL)
    (task,) = stream.partitions(start, end)
    broker.end("B1")
    assert stream.reportLatestOffset() is None

    with pytest.raises(PipelineError) as error:
        over(url, brokerTimeout="300ms").latestOffset(start, ALL)
    assert str(error.value).startswith(f"no broker answers at {url}")
    assert str(error.value).endswith("(waited for 0.3 s; to wait longer, set brokerTimeout)")
    with pytest.raises(PipelineError, match=r"waited for 0\.2 s"):
        list(over(url, brokerTimeout="200ms").read(_impatient(task)))
    began = monotonic()
    with pytest.raises(PipelineError, match="to wait for brokers, set brokerTimeout, such as 2m"):
        over(url).initialOffset()
    batch = SternaSource(CaseInsensitiveDict({"brokers": url}))
    batch_reader = batch.reader(batch.schema())
    with pytest.raises(PipelineError, match="to wait for brokers"):
        batch_reader.partitions()
    assert monotonic() - began < 5

    with ThreadPoolExecutor(2) as threads:
        reached = threads.submit(stream.latestOffset, start, ALL)
        rows = threads.submit(r.rows_in, stream, [task])
        sleep(0.3)
        assert not reached.done()
        assert not rows.done()
        broker.restart("B1")
        assert reached.result(30)["B1"]["position"] >= end["B1"]["position"]
        assert [row["publisher"] for row in rows.result(30)] == ["waiting"] * 3


def _impatient(task: Any) -> Any:
    """The same task, for a query with less time."""
    return type(task)([replace(piece, patience_s=0.2) for piece in task.value])


def test_older_readers_and_older_brokers(
    broker: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release 0.1 takes exactly three values for an extent, and gives no more."""
    answer = ask(broker.url("B1"), "journal")
    assert set(answer) == {"node", "start", "end"}

    monkeypatch.setattr(Observer, "ask", lambda *_, **__: answer)
    there = remote.extent(broker.url("B1"))
    assert (there.incarnation, there.own_start) == (None, there.start)


# ---- In Spark.


def test_spark_waits_for_a_broker_and_stops_at_a_rebuilt_one(
    spark: "SparkSession", broker: LocalNetwork, tmp_path: Path
) -> None:
    """A stream goes on after a restart; after a rebuild it says so, or begins anew."""

    def start(**options: Any) -> Any:
        rows = spark.readStream.format("sterna").options(brokers=broker.url("B1"), **options)
        query = rows.load().writeStream.format("parquet")
        return query.option("checkpointLocation", checkpoint).start(out)

    def found(query: Any, count: int) -> list[str]:
        _until(lambda: sum(each.numInputRows for each in query.recentProgress) >= count)
        query.stop()
        return sorted(row.publisher for row in spark.read.parquet(out).collect())

    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    query = start()
    _until(lambda: query.lastProgress is not None)
    broker.kill("B1")
    sleep(0.5)
    assert query.isActive
    broker.restart("B1")
    publish(broker, "restarted", 4)
    assert found(query, 4) == ["restarted"] * 4

    url = broker.url("B1")
    before = remote.extent(url)
    rebuild(broker)
    while remote.extent(url).end <= before.end:
        publish(broker, "rebuilt", 1)
    wanted = publishers(over(url), {}, over(url).latestOffset({}, ALL))

    with pytest.raises(PySparkException) as error:
        start().awaitTermination()
    assert f"the journal of B1 in {url} was begun anew" in str(reason(error.value))
    lossy = start(failOnDataLoss=False)
    assert found(lossy, len(wanted)) == sorted(["restarted"] * 4 + wanted)


def _until(condition: Any, limit_s: float = 60.0) -> None:
    deadline = monotonic() + limit_s
    while not condition():
        assert monotonic() < deadline
        sleep(0.05)


@pytest.mark.spec("PL-2")
def test_an_archive_is_of_one_journal(spark: "SparkSession", tmp_path: Path) -> None:
    """A run over a broker that was rebuilt stops, and with --lossy has all of the new journal."""
    journals, tables = tmp_path / "journals", tmp_path / "tables"

    def archived(**options: Any) -> int | None:
        return run(spark, journals, tables, only=["events"], **options).tables["events"].new

    write(journals / "B1", *range(1, 11))
    assert archived() == 10
    rebuilt(journals / "B1", *range(1, 16))

    command = ["pipeline", "run", str(journals), "--out", str(tables), "--only", "events"]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 2
    told = " ".join(answer.stderr.split())
    assert f"the journal of B1 in {journals} was begun anew at" in told
    assert told.endswith(
        "use --lossy to go on with the new one from its beginning, or archive it in another folder "
        "with --out"
    )
    assert archived(fail_on_data_loss=False) == 15
    assert read_table(spark, tables, "events").count() == 25
