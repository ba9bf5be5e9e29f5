"""Where places are drawn: as cells of a grid, at their positions, or around a circle."""

import math
import re
from dataclasses import dataclass

import h3

from sterna.pipeline.report.gathering import Rows

Point = tuple[float, float]

_SQUARE = re.compile(r"(-?\d+),(-?\d+)")


@dataclass(frozen=True, kw_only=True)
class MapPlan:
    """Positions of places, and their outlines if they are cells."""

    points: dict[str, Point]
    outlines: dict[str, list[Point]]
    aspect: float
    """How much longer a degree of latitude is than one of longitude."""
    are_named: bool
    """Whether names mean something to people; those of cells do not."""

    @classmethod
    def of(cls, places: list[str], where: Rows) -> "MapPlan":
        """The plan of places, the positions of some of which may be given."""
        if all(h3.is_valid_cell(place) for place in places):
            return cls._of_hexagons(places)
        if all(_SQUARE.fullmatch(place) for place in places):
            return cls._of_squares(places)
        known = {row["place"]: (row["longitude"], row["latitude"]) for row in where}
        if all(place in known for place in places):
            points = {place: known[place] for place in places}
            return cls(points=points, outlines={}, aspect=_aspect(points), are_named=True)
        return cls._around_a_circle(places)

    @classmethod
    def _of_hexagons(cls, places: list[str]) -> "MapPlan":
        outlines = {
            place: [(longitude, latitude) for latitude, longitude in h3.cell_to_boundary(place)]
            for place in places
        }
        points = {
            place: (longitude, latitude)
            for place in places
            for latitude, longitude in [h3.cell_to_latlng(place)]
        }
        return cls(points=points, outlines=outlines, aspect=_aspect(points), are_named=False)

    @classmethod
    def _of_squares(cls, places: list[str]) -> "MapPlan":
        corners = {place: tuple(map(int, place.split(","))) for place in places}
        outlines = {
            place: [(float(x + a), float(y + b)) for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))]
            for place, (x, y) in corners.items()
        }
        points = {place: (x + 0.5, y + 0.5) for place, (x, y) in corners.items()}
        return cls(points=points, outlines=outlines, aspect=1.0, are_named=False)

    @classmethod
    def _around_a_circle(cls, places: list[str]) -> "MapPlan":
        turn = 2 * math.pi / max(len(places), 1)
        points = {
            place: (math.sin(number * turn), math.cos(number * turn))
            for number, place in enumerate(sorted(places))
        }
        return cls(points=points, outlines={}, aspect=1.0, are_named=True)


def _aspect(points: dict[str, Point]) -> float:
    latitudes = [latitude for _, latitude in points.values()]
    middle = sum(latitudes) / max(len(latitudes), 1)
    return 1 / max(math.cos(math.radians(middle)), 0.05)
