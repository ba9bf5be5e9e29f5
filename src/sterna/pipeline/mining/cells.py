"""Positions become places: hexagons of the globe or squares of a plane."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import h3
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

Point = tuple[float, float]


def in_hexagons(positions: DataFrame, resolution: int, margin: float = 0.0) -> DataFrame:
    """Replace `latitude` and `longitude` by `place`: the id of their H3 cell.

    With a margin, a client is in a cell until it is farther outside than this part of the cell's
    width. Then positions have `client` and `time` or `arrived`, and maybe `recording`.
    """
    if margin:
        return _settled(positions, Cells(*_HEXAGON_COLUMNS, hexagons_of(resolution), margin))
    rest = [name for name in positions.columns if name not in _HEXAGON_COLUMNS]
    table = positions.select(*rest, F.lit("").alias("place")).schema
    return positions.mapInArrow(partial(_hexagons, resolution=resolution), table)


def in_squares(positions: DataFrame, metres: float, margin: float = 0.0) -> DataFrame:
    """Replace `x` and `y` by `place`: column and row of their square, as `3,-1`.

    The margin is that of `in_hexagons`.
    """
    if margin:
        return _settled(positions, Cells("x", "y", squares_of(metres), margin))
    square = F.concat_ws(",", *(F.floor(F.col(name) / metres) for name in ("x", "y")))
    return positions.withColumn("place", square).drop("x", "y")


_HEXAGON_COLUMNS = ("latitude", "longitude")


def _hexagons(batches: Iterable[pa.RecordBatch], resolution: int) -> Iterator[pa.RecordBatch]:
    locate = h3.latlng_to_cell
    for batch in batches:
        pairs = zip(batch["latitude"].to_pylist(), batch["longitude"].to_pylist(), strict=True)
        cells = pa.array([locate(*pair, resolution) for pair in pairs], pa.string())
        rest = batch.drop_columns(list(_HEXAGON_COLUMNS))
        yield rest.append_column("place", cells)


@dataclass(frozen=True)
class Shape:
    """What a kind of cells is: where a position belongs, and where a cell is."""

    locate: Callable[[float, float], str]
    centre: Callable[[str], Point]
    towards: Callable[[Point, Point, float], Point]
    """The point on the way from the first point to the second, after this part of it."""


@dataclass(frozen=True)
class Cells:
    """Cells that clients leave only with a margin, and the columns of positions."""

    first: str
    second: str
    shape: Shape
    margin: float

    def settled(self, points: Sequence[Point]) -> list[str]:
        """The cell at each point of a way, without the ways out that end within the margin.

        Once a way is beyond the margin, it has left with the first point outside the cell: so cells
        that it only touches count, unless it had come back from there before.
        """
        cells = [self.shape.locate(*point) for point in points]
        here, centre, last = "", (0.0, 0.0), -1
        touched: set[str] = set()
        at = 0
        while at < len(cells):
            if cells[at] == here:
                touched.update(cells[last + 1 : at])
                cells[last + 1 : at] = [here] * (at - last - 1)
                last = at
            elif last < 0 or not self._has(here, centre, points[at]):
                flapped = touched - {cells[at]}
                first = next(n for n in range(last + 1, at + 1) if cells[n] not in flapped)
                cells[last + 1 : first] = [here] * (first - last - 1)
                last = at = first
                here, centre, touched = cells[at], self.shape.centre(cells[at]), set()
            at += 1
        cells[last + 1 :] = [here] * (len(cells) - last - 1)
        return cells

    def _has(self, cell: str, centre: Point, point: Point) -> bool:
        """Whether the cell, enlarged by the margin on all sides, has a point.

        It does if the cell itself has the point when that is drawn nearer to the centre.
        """
        near = self.shape.towards(centre, point, 1 / (1 + 2 * self.margin))
        return self.shape.locate(*near) == cell


def _settled(positions: DataFrame, cells: Cells) -> DataFrame:
    rest = [name for name in positions.columns if name not in {cells.first, cells.second}]
    table = positions.select(*rest, F.lit("").alias("place")).schema
    moment = "time" if "time" in rest else "arrived"

    def settle(way: pa.Table) -> pa.Table:
        names = (moment, cells.first, cells.second)
        way = way.sort_by([(name, "ascending") for name in names])
        points = zip(way[cells.first].to_pylist(), way[cells.second].to_pylist(), strict=True)
        places = pa.array(cells.settled(list(points)), pa.string())
        return way.select(rest).append_column("place", places)

    # Each recording is a way of its own.
    keys = [name for name in ("client", "recording") if name in rest]
    return positions.groupBy(*keys).applyInArrow(settle, table)


def hexagons_of(resolution: int) -> Shape:
    return Shape(
        locate=partial(_hexagon, resolution=resolution),
        centre=h3.cell_to_latlng,
        towards=_towards_on_globe,
    )


def _hexagon(latitude: float, longitude: float, resolution: int) -> str:
    return str(h3.latlng_to_cell(latitude, longitude, resolution))


def _towards_on_globe(centre: Point, point: Point, part: float) -> Point:
    east = (point[1] - centre[1] + 540) % 360 - 180  # The short way, across the date line, too.
    longitude = centre[1] + east * part
    return centre[0] + (point[0] - centre[0]) * part, (longitude + 540) % 360 - 180


def squares_of(metres: float) -> Shape:
    return Shape(
        locate=partial(_square, metres=metres),
        centre=partial(_middle, metres=metres),
        towards=_towards_on_plane,
    )


def _square(x: float, y: float, metres: float) -> str:
    return f"{math.floor(x / metres)},{math.floor(y / metres)}"


def _middle(square: str, metres: float) -> Point:
    column, row = map(int, square.split(","))
    return (column + 0.5) * metres, (row + 0.5) * metres


def _towards_on_plane(centre: Point, point: Point, part: float) -> Point:
    return (
        centre[0] + (point[0] - centre[0]) * part,
        centre[1] + (point[1] - centre[1]) * part,
    )
