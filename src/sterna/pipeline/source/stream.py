"""Streams: the new facts of each trigger, each position once, continued from the checkpoint."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sterna.pipeline.source import offsets
from sterna.pipeline.source.options import ReadOptions
from sterna.pipeline.source.origins import Spans
from sterna.pipeline.source.query import Query
from sterna.pipeline.source.reading import Task, origin_of, read


class SternaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads journals while they are written."""

    def __init__(self, options: ReadOptions, query: Query) -> None:
        self._options = options
        self._query = query
        self._origin = origin_of(options, live=True)
        self._target: Spans | None = None
        """The end of a query that only wants what is there now."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names, here and below.
        """Where a new query begins."""
        return offsets.starts(self._options, self._origin, self._origin.extents())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a trigger reads."""
        count = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember how far the journals reach."""
        self._target = self._origin.extents()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """How far the next trigger reads."""
        extents = self._origin.extents() if self._target is None else self._target
        offsets.check_not_back(start, extents, self._options)
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offsets.limited(start, extents, count)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """How far the journals reach, for the progress of the query."""
        return {node: span.end for node, span in self._origin.extents().items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """What each task of a trigger reads."""
        spans = offsets.spans(start, end, self._origin.extents(), self._options)
        return [Task(p) for p in self._origin.tasks(spans, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return read(partition, self._query)
