"""Batch queries: everything between two offsets, read once."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from sterna.pipeline.source import offsets
from sterna.pipeline.source.options import ReadOptions
from sterna.pipeline.source.pushdown import Pushed
from sterna.pipeline.source.query import Query
from sterna.pipeline.source.reading import Task, origin_of, read


class SternaReader(DataSourceReader):
    """Reads journals as they are when the query is planned."""

    def __init__(self, options: ReadOptions, query: Query) -> None:
        self._options = options
        self._query = query
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name.
        """Take predicates that can be asked of facts; the rest is returned, and Spark checks it.

        Only if the user wants it: where one DataFrame is used twice in a query, Spark 4.3 gives the
        predicates of one use to the other.
        """
        if not self._options.push_down:
            return filters
        self._pushed = Pushed.of(filters, self._query)
        self._query = replace(
            self._query,
            conditions=self._pushed.conditions,
            tests=(*self._query.tests, *self._pushed.tests),
        )
        return self._pushed.rest

    def partitions(self) -> list[InputPartition]:
        """The partitions: what each task reads."""
        options = self._options
        origin = origin_of(options, live=False)
        extents = origin.extents(options.patience_s(has_begun=False))
        start, end = (of(options, origin, extents) for of in (offsets.starts, offsets.ends))
        end = {node: until for node, until in end.items() if start[node].position < until.position}
        spans = offsets.spans(start, end, extents, options)
        wanted = self._pushed.narrowed(spans)
        return [Task(pieces) for pieces in origin.tasks(wanted, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return read(partition, self._query)
