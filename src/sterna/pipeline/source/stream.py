"""Streams: the new facts of each trigger, each position once, continued from the checkpoint."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source import offsets
from sterna.pipeline.source.options import Offset, ReadOptions, decoded, encoded
from sterna.pipeline.source.origins import Extents
from sterna.pipeline.source.query import Query
from sterna.pipeline.source.reading import Task, origin_of, read


class SternaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads journals while they are written."""

    def __init__(self, options: ReadOptions, query: Query) -> None:
        self._options = options
        self._query = query
        self._origin = origin_of(options, live=True)
        self._wants_now = False
        """Whether the query only wants what is there when it starts."""
        self._target: Extents | None = None
        """What was there when such a query started."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below.
        """Where a new query begins."""
        extents = self._extents(self._options.patience_s(has_begun=False))
        return encoded(offsets.starts(self._options, self._origin, extents))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a trigger reads."""
        count = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember how far the journals reach; if a broker is away, when the query goes on."""
        self._wants_now = True
        with suppress(PipelineError):
            self._extents(patience_s=0.0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next trigger reads."""
        begin = decoded(start)
        extents = self._extents(self._options.patience_s(has_begun=True))
        offsets.check_same(begin, extents, self._options)
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return encoded(offsets.limited(begin, extents, count))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the journals reach, for the progress of the query; None if brokers are away."""
        try:
            extents = self._origin.extents()
        except PipelineError:
            return None
        return encoded({n: Offset(there.end, there.incarnation) for n, there in extents.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What each task of a trigger reads."""
        extents = self._origin.extents(self._options.patience_s(has_begun=True))
        spans = offsets.spans(decoded(start), decoded(end), extents, self._options)
        return [Task(p) for p in self._origin.tasks(spans, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return read(partition, self._query)

    def _extents(self, patience_s: float) -> Extents:
        if self._target is not None:
            return self._target
        extents = self._origin.extents(patience_s)
        if self._wants_now:
            self._target = extents
        return extents
