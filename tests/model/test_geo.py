"""`near` and `within`: right to the metre, and the same in every engine."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna import Filter
from sterna.model import geo
from tests.scale import examples

pytestmark = pytest.mark.spec("MOD-2", "MOD-6")

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)


def distance(a: geo.Point, b: geo.Point) -> float:
    """The great-circle distance by the vector formula, which is exact at all distances."""
    (lat1, lon1), (lat2, lon2) = ((math.radians(x), math.radians(y)) for x, y in (a, b))
    dlon = lon2 - lon1
    across = math.hypot(
        math.cos(lat2) * math.sin(dlon),
        math.cos(lat1) * math.sin(lat2) - math.sin(lat1) * math.cos(lat2) * math.cos(dlon),
    )
    along = math.sin(lat1) * math.sin(lat2) + math.cos(lat1) * math.cos(lat2) * math.cos(dlon)
    return geo.EARTH_RADIUS_M * math.atan2(across, along)


@given(st.tuples(latitudes, longitudes), st.tuples(latitudes, longitudes))
@examples(1_000)
def test_near_is_right_to_the_centimetre(centre: geo.Point, point: geo.Point) -> None:
    metres = distance(centre, point)
    if metres > 20_000_000:  # At the antipode centimetres are below the resolution of floats.
        return

    def near(radius: float) -> bool:
        text = f"near(lat, lon, {centre[0]!r}, {centre[1]!r}, {radius!r})"
        return Filter(text).matches({"lat": point[0], "lon": point[1]})

    assert near(metres * (1 + 1e-9) + 0.01)
    if metres > 0.02:
        assert not near(metres * (1 - 1e-9) - 0.01)


def test_near_across_the_antimeridian_and_the_pole() -> None:
    assert Filter("near(lat, lon, 0, 179.999, 500)").matches({"lat": 0, "lon": -179.999})
    assert Filter("near(lat, lon, 89.999, 0, 500)").matches({"lat": 89.999, "lon": 180})
    assert Filter("near(lat, lon, 52, 13, 30000000)").matches({"lat": -52, "lon": -167})


def test_a_box_may_cross_the_antimeridian() -> None:
    fiji = Filter("within(lat, lon, -20, 176, -15, -178)")

    assert fiji.matches({"lat": -17, "lon": 178})
    assert fiji.matches({"lat": -17, "lon": -179})
    assert not fiji.matches({"lat": -17, "lon": 0})
    assert fiji.matches({"lat": -20, "lon": 176})


def test_a_polygon() -> None:
    triangle = Filter("within(lat, lon, 0, 0, 10, 0, 0, 10)")

    assert triangle.matches({"lat": 2, "lon": 2})
    assert not triangle.matches({"lat": 6, "lon": 6})
    assert not triangle.matches({"lat": -1, "lon": 2})


@given(st.lists(st.tuples(st.floats(-80, 80), st.floats(-170, 170)), min_size=3, max_size=6))
@examples(300)
def test_a_polygon_and_its_complement_share_every_point(corners: list[geo.Point]) -> None:
    listed = ", ".join(f"{lat!r}, {lon!r}" for lat, lon in corners)
    inside = Filter(f"within(lat, lon, {listed})")
    for lat, lon in [*corners, (0.0, 0.0), (89.0, 0.0)]:
        event = {"lat": lat, "lon": lon}
        assert inside.matches(event) != (~inside).matches(event)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"lat": 52.5},
        {"lat": "52.5", "lon": 13.4},
        {"lat": math.nan, "lon": 13.4},
        {"lat": 91, "lon": 13.4},
        {"lat": math.inf, "lon": 13.4},
        {"lat": True, "lon": 13.4},
    ],
)
def test_what_is_no_position_is_unknown(event: dict[str, float]) -> None:
    assert Filter("near(lat, lon, 52.5, 13.4, 1e7)").verdict(event) is None
    assert Filter("within(lat, lon, 0, 0, 0, 20, 60, 20, 60, 0)").verdict(event) is None
