"""Distances and areas on the globe, by arithmetic that gives the same bits in every engine.

Sines from a C library, a JVM and a compiled kernel may differ in the last bit, and then a point on
the rim of a circle would be inside for one engine and outside for the other. Here only + - * and
comparisons are used, in a fixed order: IEEE 754 makes them exact everywhere. The functions take
Python floats or Spark expressions alike.
"""

import math
from collections.abc import Sequence
from typing import Any

EARTH_RADIUS_M = 6_371_008.8
"""The mean radius of the Earth."""

_RADIANS = math.pi / 180
_TERMS = 16  # Enough for full precision up to pi: pi^33/33! < 1e-20.
_SINE = [(-1) ** n / math.factorial(2 * n + 1) for n in range(_TERMS)]
_COSINE = [(-1) ** n / math.factorial(2 * n) for n in range(_TERMS)]

Point = tuple[float, float]
"""Latitude and longitude in degrees."""


def haversine(lat: Any, lon: Any, centre: Point) -> Any:
    """A measure that grows with the great-circle distance; compare it with `haversine_limit`."""
    half_lat = _sine((lat - centre[0]) * (_RADIANS / 2))
    half_lon = _sine((lon - centre[1]) * (_RADIANS / 2))
    scale = _series(_COSINE, _square(lat * _RADIANS)) * math.cos(centre[0] * _RADIANS)
    return _square(half_lat) + scale * _square(half_lon)


def haversine_limit(metres: float) -> float:
    """The measure of points exactly so far away."""
    half_angle = metres / (2 * EARTH_RADIUS_M)
    # Beyond the antipode everything is near; the measure itself never exceeds 1 by more than noise.
    return math.sin(half_angle) ** 2 if half_angle < math.pi / 2 else 2.0


def latitude_reach(metres: float) -> float:
    """Degrees of latitude that a point so far away can differ by, with room for rounding."""
    return metres / EARTH_RADIUS_M / _RADIANS * (1 + 1e-9) + 1e-9


def edges(corners: Sequence[Point]) -> list[tuple[Point, Point, float]]:
    """The sides of a polygon that a ray along a parallel can cross, with their slopes.

    Sides so flat that the slope is infinite count as parallel.
    """
    sides = [
        (a, b, (b[1] - a[1]) / (b[0] - a[0]))
        for a, b in zip(corners, [*corners[1:], corners[0]], strict=True)
        if a[0] != b[0]
    ]
    return [side for side in sides if math.isfinite(side[2])]


def inside(sides: Sequence[tuple[Point, Point, float]], lat: float, lon: float) -> bool:
    """Whether the point is in the polygon: an odd number of its sides lies east of the point."""
    odd = False
    for a, b, slope in sides:
        if (a[0] > lat) != (b[0] > lat) and lon < slope * (lat - a[0]) + a[1]:
            odd = not odd
    return odd


def _sine(x: Any) -> Any:
    return x * _series(_SINE, _square(x))


def _square(x: Any) -> Any:
    return x * x


def _series(coefficients: Sequence[float], x: Any) -> Any:
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
