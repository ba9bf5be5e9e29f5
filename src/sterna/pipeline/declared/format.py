"""Tables that grow as formats of Spark, which reads them in batches and writes them in streams.

Spark's own file sink cannot partition what a declarative pipeline writes, and readers have to know
its log. Spark hands no options to the writer of a table, so each table is a format of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sterna.pipeline.declared.files import StagedBatch, TableFiles
from sterna.pipeline.tables.schemas import GrowingTable

TASK_BYTES = 32 * 2**20
"""About how many bytes of the files a task reads."""


def format_name(table: GrowingTable) -> str:
    """The name of the table for `format`."""
    return f"sterna_{table.name}"


def table_format(table: GrowingTable, files: TableFiles) -> type[DataSource]:
    """The format of a table that is in these files."""

    class TableFormat(DataSource):
        """What Spark creates for every query."""

        @classmethod
        def name(cls) -> str:
            return format_name(table)

        def schema(self) -> StructType:
            return table.schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return TableReader(files, schema)

        def streamWriter(self, schema: StructType, overwrite: bool) -> "TableWriter":  # noqa: ARG002, FBT001, N802
            return TableWriter(files)

    return TableFormat


class TableReader(DataSourceReader):
    """Reads the files of a table."""

    def __init__(self, files: TableFiles, schema: StructType) -> None:
        self._files = files
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Adjacent files, about the same size for each task."""
        parts: list[InputPartition] = []
        paths: list[Path] = []
        size_bytes = 0
        for path in self._files.parts():
            paths.append(path)
            size_bytes += path.stat().st_size
            if size_bytes >= TASK_BYTES:
                parts.append(InputPartition(paths))
                paths, size_bytes = [], 0
        return [*parts, InputPartition(paths)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for path in partition.value:
            yield from self._files.read(path, schema)


@dataclass
class Written(WriterCommitMessage):
    """What a task has written."""

    staged: StagedBatch


class TableWriter(DataSourceStreamArrowWriter):
    """Adds each batch of a stream once."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: write its rows."""
        return Written(self._files.stage(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when all tasks are done."""
        self._files.commit(batchId, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when a task has failed for good, or the commit has."""
        self._files.discard(batchId, _staged(messages))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedBatch]:
    return [message.staged for message in messages if isinstance(message, Written)]
