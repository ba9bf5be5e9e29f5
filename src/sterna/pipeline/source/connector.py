"""`format("sterna")`: journals and live brokers as tables, for batch queries and streams."""

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sterna.pipeline import schemas
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.options import BadRecords, ReadOptions, SourceTable, read_options
from sterna.pipeline.source.query import AttributeTest, Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    SourceTable.FACTS: schemas.FACTS,
    SourceTable.EVENTS: schemas.EVENTS,
    SourceTable.DELIVERIES: schemas.DELIVERIES,
    SourceTable.MOVEMENTS: schemas.MOVEMENTS,
    SourceTable.STATISTICS: schemas.STATISTICS,
}


def register(spark: "SparkSession") -> None:
    """Make `format("sterna")` known to a session, also to one of Spark Connect."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(SternaSource)


class SternaSource(DataSource):
    """What Spark creates for every query."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "sterna"

    def schema(self) -> StructType:
        """The columns of the table that the options name."""
        return _full_schema(read_options(self.options, stream=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for `spark.read`."""
        from sterna.pipeline.source.batch import SternaReader  # noqa: PLC0415 - for readers only.

        options = read_options(self.options, stream=False)
        return SternaReader(options, _query(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader for `spark.readStream`."""
        from sterna.pipeline.source.stream import SternaStreamReader  # noqa: PLC0415

        options = read_options(self.options, stream=True)
        return SternaStreamReader(options, _query(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """The writer for `DataFrame.write`."""
        from sterna.pipeline.source.writing import SternaWriter  # noqa: PLC0415

        _check_append(overwrite=overwrite)
        return SternaWriter(self.options, schema)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """The writer for `DataFrame.writeStream`."""
        from sterna.pipeline.source.writing import SternaStreamWriter  # noqa: PLC0415

        _check_append(overwrite=overwrite)
        return SternaStreamWriter(self.options, schema)


def _full_schema(options: ReadOptions) -> StructType:
    """All columns of the table."""
    if options.bad_records is BadRecords.ONLY:
        return schemas.BAD_RECORDS
    table = TABLES[options.table]
    names = {name.lower() for name in table.names}
    for column in options.columns:
        if column.name.lower() in names:
            raise PipelineError(
                f"columns names {column.name!r}, which table {options.table} has already: "
                "find that attribute in the column `attributes`"
            )
    return StructType(
        [*table.fields, *(StructField(column.name, column.type) for column in options.columns)]
    )


def _query(options: ReadOptions, schema: StructType) -> Query:
    full = {field.name: field for field in _full_schema(options).fields}
    for field in schema.fields:
        known = full.get(field.name)
        if known is None:
            raise PipelineError(
                f"table {options.table} has no column {field.name!r}; it has {', '.join(full)} "
                "(and attributes of events with the option `columns`)"
            )
        if known.dataType != field.dataType:
            raise PipelineError(
                f"column {field.name} is {known.dataType.simpleString()}, not "
                f"{field.dataType.simpleString()}: leave out the schema, or cast it afterwards"
            )
    return Query(
        table=options.table,
        schema=_arrow(schema),
        publications=options.publications,
        columns=options.columns,
        tests=() if options.filter is None else (AttributeTest(options.filter),),
        bad_records=options.bad_records,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _check_append(*, overwrite: bool) -> None:
    if overwrite:
        raise PipelineError("what was published cannot be overwritten: write with mode('append')")
