"""Publishing a DataFrame through brokers, exactly once.

    query = (
        counts.writeStream.format("sterna")
        .option("brokers", "sterna://127.0.0.1:7461,sterna://127.0.0.1:7462")
        .option("client", "traffic-counts")
        .option("checkpointLocation", "/data/checkpoints/traffic-counts")
        .start()
    )

`outgoing` defines what becomes of the columns, `staging` how each row is published once. Tasks run
anywhere and report which files they have staged; a process at the driver publishes these.
"""

import difflib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sterna.model.filters import Filter, FilterError
from sterna.net.address import Address, AddressError
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.outgoing import attributes_of, rows
from sterna.pipeline.source.publisher import Publisher
from sterna.pipeline.source.staged import StagedFile
from sterna.pipeline.source.staging import Connect, Staging

_STREAM = "stream"


@dataclass(frozen=True)
class StagedEvents(WriterCommitMessage):
    """The files that a task has staged, and its query."""

    files: tuple[StagedFile, ...]
    query: str


@dataclass(frozen=True)
class WriteOptions:
    """The options of a writer."""

    brokers: tuple[str, ...]
    client: str | None
    staging: Path
    advertise: str | None
    transaction: str | None

    @classmethod
    def read(cls, options: Mapping[str, str], *, is_stream: bool) -> "WriteOptions":
        """Read the options of `option(…)`, whatever the case of their names; check them all."""
        given = {name.lower(): value for name, value in options.items()}
        known = ["brokers", "client", "staging", "advertise"]
        known.append("checkpointLocation" if is_stream else "transaction")
        _reject_unknown(given, known, ignored={"queryname"} if is_stream else set())
        for name, value in given.items():
            if not value.strip():
                raise PipelineError(f"the option {name} is empty; leave it out, or give it a value")
        brokers = tuple(url.strip() for url in given.get("brokers", "").split(",") if url.strip())
        if not brokers:
            raise PipelineError(
                "there is no broker to publish through; set the option brokers, such as "
                "sterna://127.0.0.1:7461"
            )
        try:
            for url in brokers:
                Address.from_url(url)
            if "advertise" in given:
                Filter(given["advertise"])
        except (AddressError, FilterError) as error:
            raise PipelineError(" ".join(str(error).split())) from None
        return cls(
            brokers=brokers,
            client=given.get("client"),
            staging=(_for_stream(given) if is_stream else _for_batch(given)).absolute(),
            advertise=given.get("advertise"),
            transaction=given.get("transaction"),
        )

    def publisher(self, *, remembers: bool) -> Connect:
        """A function that connects the publisher; if it `remembers`, with its state on disk."""
        state = self.staging / "client" if remembers else None
        return lambda name: Publisher(
            self.brokers, client=name, state=state, advertise=self.advertise
        )


class SternaStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the micro-batches of a streaming query, each once per checkpoint."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = WriteOptions.read(options, is_stream=True)
        self._schema = schema
        attributes_of(schema)
        self._staging = Staging(self._options.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedEvents:
        files = self._staging.stage(rows(iterator, self._schema), job=_STREAM)
        return StagedEvents(files, _query())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name.
        queries = {each.query for each in _staged(messages)}
        if not queries:
            return  # No task has run, so there is no row.
        self._staging.commit(
            batchId,
            _files(messages),
            self._options.publisher(remembers=True),
            owner=f"the query {queries.pop()}",
            client=self._options.client,
            job=_STREAM,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._staging.abort(job=_STREAM)


class SternaWriter(DataSourceArrowWriter):
    """Publishes a DataFrame as a whole, or nothing of it if the job fails before.

    With a `transaction` that is once, however often the job is run.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = WriteOptions.read(options, is_stream=False)
        self._schema = schema
        attributes_of(schema)
        self._staging = Staging(self._options.staging)
        name = self._options.transaction or uuid4().hex
        self._job = sha256(name.encode()).hexdigest()[:16]  # The next attempt sweeps up.

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedEvents:
        return StagedEvents(self._staging.stage(rows(iterator, self._schema), job=self._job), "")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        remembers = self._options.transaction is not None
        try:
            self._staging.commit(
                self._options.transaction or self._job,
                _files(messages),
                self._options.publisher(remembers=remembers),
                owner="transactions",
                client=self._options.client,
                job=self._job,
            )
        finally:
            self._clear()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        self._staging.abort(job=self._job)
        self._clear()

    def _clear(self) -> None:
        if self._options.transaction is None:  # It was made for this job.
            shutil.rmtree(self._staging.directory, ignore_errors=True)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedEvents]:
    return [each for each in messages if isinstance(each, StagedEvents)]


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """What was staged, in the order of the partitions."""
    return [file for each in _staged(messages) for file in each.files]


def _query() -> str:
    """The query that this task works for: the same for all runs from its checkpoint."""
    task = TaskContext.get()
    return (task and task.getLocalProperty("sql.streaming.queryId")) or "unknown"


def _for_stream(given: Mapping[str, str]) -> Path:
    """Where a query stages its events: in its checkpoint by default."""
    if "staging" in given:
        return Path(given["staging"])
    checkpoint = given.get("checkpointlocation", "")
    parts = urlsplit(checkpoint)
    if not parts.path or parts.scheme not in ("", "file"):
        raise PipelineError(
            "there is no place for events that are to be published; set the option "
            "checkpointLocation to a directory that is mounted on all machines, or the option "
            "staging to one"
        )
    return Path(unquote(parts.path) if parts.scheme else checkpoint) / "sterna"


def _for_batch(given: Mapping[str, str]) -> Path:
    """Where a job stages its events: in a directory of its own, unless there will be others."""
    if "transaction" not in given:
        above = given.get("staging", tempfile.gettempdir())
        return Path(above) / f"sterna-{uuid4().hex}"
    if "staging" not in given:
        raise PipelineError(
            "a transaction has to be remembered; set the option staging to a directory for that"
        )
    return Path(given["staging"])


def _reject_unknown(given: Mapping[str, str], known: Sequence[str], ignored: set[str]) -> None:
    names = {name.lower(): name for name in known}
    for name in given:
        if name not in names and name not in ignored:
            near = difflib.get_close_matches(name, names, 1, 0.5)
            raise PipelineError(
                f"writing to format sterna has no option {name!r}: "
                + (f"did you mean {names[near[0]]}?" if near else f"it knows {', '.join(known)}")
            )
