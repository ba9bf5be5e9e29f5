"""Reading tables that `sterna pipeline run` has written."""

from pathlib import Path
from typing import TYPE_CHECKING

from sterna.pipeline.errors import PipelineError
from sterna.pipeline.tables.schemas import GROWING, NAMES, VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: "SparkSession", tables: Path | str, name: str) -> "DataFrame":
    """A table of the archive."""
    if name not in NAMES:
        raise PipelineError(f"there is no table {name!r}; there are {', '.join(NAMES)}")
    path = Path(tables) / name
    if not path.is_dir():
        raise PipelineError(
            f"{tables} has no table {name}: make it with sterna pipeline run DIR --out {tables}"
        )
    schema = GROWING[name].schema if name in GROWING else VIEWS[name]
    return spark.read.schema(schema).parquet(str(path))
