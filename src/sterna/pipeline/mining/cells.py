"""Positions become places: hexagons of the globe or squares of a plane."""

from collections.abc import Iterable, Iterator
from functools import partial

import h3
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.


def in_hexagons(positions: DataFrame, resolution: int) -> DataFrame:
    """Replace `latitude` and `longitude` by `place`: the id of their H3 cell."""
    rest = [name for name in positions.columns if name not in {"latitude", "longitude"}]
    table = positions.select(*rest, F.lit("").alias("place")).schema
    return positions.mapInArrow(partial(_hexagons, resolution=resolution), table)


def in_squares(positions: DataFrame, metres: float) -> DataFrame:
    """Replace `x` and `y` by `place`: column and row of their square, as `3,-1`."""
    square = F.concat_ws(",", *(F.floor(F.col(name) / metres) for name in ("x", "y")))
    return positions.withColumn("place", square).drop("x", "y")


def _hexagons(batches: Iterable[pa.RecordBatch], resolution: int) -> Iterator[pa.RecordBatch]:
    locate = h3.latlng_to_cell
    for batch in batches:
        pairs = zip(batch["latitude"].to_pylist(), batch["longitude"].to_pylist(), strict=True)
        cells = pa.array([locate(*pair, resolution) for pair in pairs], pa.string())
        rest = batch.drop_columns(["latitude", "longitude"])
        yield rest.append_column("place", cells)
