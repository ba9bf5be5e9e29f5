"""Reading tables that `sterna pipeline run` has written."""

from pathlib import Path
from typing import TYPE_CHECKING

from sterna.delta import files_of
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.tables.schemas import GROWING, NAMES, VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read(spark: "SparkSession", tables: Path | str, name: str) -> "DataFrame":
    """A table of the archive."""
    if name not in NAMES:
        raise PipelineError(f"there is no table {name!r}; there are {', '.join(NAMES)}")
    path = Path(tables) / name
    if not path.is_dir():
        raise PipelineError(
            f"{tables} has no table {name}: make it with sterna pipeline run DIR --out {tables}"
        )
    return read_files(spark, path, GROWING[name].schema if name in GROWING else VIEWS[name])


def read_files(
    spark: "SparkSession", path: Path, schema: "StructType | None" = None
) -> "DataFrame":
    """The table in a directory, which Spark itself reads: Python finds its files only.

    Columns that an older release did not write are null.
    """
    files = files_of(path)
    if not files:
        return spark.createDataFrame([], schema if schema is not None else "")
    reader = spark.read.option("basePath", str(path))
    if schema is not None:
        reader = reader.schema(schema)
    return reader.parquet(*map(str, files))
