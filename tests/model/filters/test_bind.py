"""Filters that depend on a client: context variables and `myloc`."""

import pickle
from collections.abc import Callable
from itertools import pairwise

import pytest

from sterna import Filter, FilterError, HexGrid, MovementGraph, UnboundError
from sterna.model.event import Scalar

STREETS = MovementGraph([("1st", "2nd"), ("2nd", "3rd"), ("3rd", "4th")])


@pytest.mark.spec("MOD-6")
def test_myloc_is_where_the_client_is() -> None:
    parking = Filter("service = 'parking' AND location IN myloc")

    here = parking.bind(location="2nd", space=STREETS)

    assert here == Filter("service = 'parking' AND location IN ('2nd')")
    assert here.matches({"service": "parking", "location": "2nd"})
    assert not here.matches({"service": "parking", "location": "3rd"})


@pytest.mark.spec("MOD-6")
def test_myloc_n_is_everything_at_most_n_steps_away() -> None:
    near = Filter("location IN myloc(2)").bind(location="1st", space=STREETS)

    assert near == Filter("location IN ('1st', '2nd', '3rd')")


@pytest.mark.spec("MOD-6")
def test_a_broker_far_away_adds_steps() -> None:
    """Fiege 5.1: broker B_i subscribes for ploc(x, q) with q growing along the path."""
    f = Filter("location IN myloc(1) AND price < 5")
    filters = [f.bind(location="1st", space=STREETS, steps=q) for q in range(4)]

    assert filters[0] == Filter("location IN ('1st', '2nd') AND price < 5")
    assert all(wide.covers(narrow) for narrow, wide in pairwise(filters))


@pytest.mark.spec("MOD-6")
def test_myloc_in_a_hexagonal_grid() -> None:
    grid = HexGrid(9)
    gate = grid.locate(52.5163, 13.3777)
    f = Filter("location IN myloc(1)").bind(location=gate, space=grid)

    assert f.matches({"location": gate})
    assert f.matches({"location": grid.locate(52.5170, 13.3800)})
    assert not f.matches({"location": grid.locate(52.52, 13.40)})


@pytest.mark.spec("MOD-2")
def test_context_variables_take_their_values() -> None:
    f = Filter("price < $budget AND -$x < y AND brand IN ($first, 'b') AND $on")
    values: dict[str, Scalar] = {"budget": 10, "x": -3, "first": "a", "on": True}

    assert f.variables == ("budget", "x", "first", "on")
    assert f.bind(values) == Filter("price < 10 AND 3 < y AND brand IN ('a', 'b') AND TRUE")


@pytest.mark.spec("MOD-2")
def test_a_moving_centre() -> None:
    f = Filter("near(lat, lon, $lat, $lon, 500)").bind({"lat": 52.5, "lon": 13.4})

    assert f.matches({"lat": 52.501, "lon": 13.4})
    assert not f.matches({"lat": 52.51, "lon": 13.4})


@pytest.mark.spec("MOD-2")
def test_binding_some_leaves_the_rest() -> None:
    half = Filter("price < $budget AND location IN myloc").bind({"budget": 10})

    assert half == Filter("price < 10 AND location IN myloc")
    assert not half.is_bound
    assert half.bind(location="1st", space=STREETS).is_bound


@pytest.mark.spec("MOD-3")
def test_a_filter_that_is_not_bound_says_what_is_missing() -> None:
    f = Filter("price < $budget AND location IN myloc(1)")
    uses: list[Callable[[], object]] = [
        lambda: f.matches({}),
        lambda: f.verdict({}),
        lambda: f.covers(Filter("TRUE")),
        lambda: Filter("TRUE").overlaps(f),
    ]
    for use in uses:
        with pytest.raises(UnboundError, match=r"\$budget, myloc"):
            use()


@pytest.mark.spec("MOD-3")
def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(FilterError, match=r"with \$x = 'text': \+ works on numbers"):
        Filter("a + $x > 1").bind({"x": "text"})
    with pytest.raises(FilterError, match="latitudes go from -90 to 90"):
        Filter("near(lat, lon, $lat, 0, 5)").bind({"lat": 100})
    with pytest.raises(UnboundError, match=r"\$x cannot be nan"):
        Filter("a > $x").bind({"x": float("nan")})
    with pytest.raises(TypeError, match=r"\$x"):
        Filter("a > $x").bind({"x": [1]})  # type: ignore[dict-item]
    with pytest.raises(UnboundError, match="give space"):
        Filter("location IN myloc").bind(location="1st")


def test_filters_combine() -> None:
    f, g = Filter("a = 1"), Filter("b = 2 OR c = 3")

    assert f & g == Filter("a = 1 AND (b = 2 OR c = 3)")
    assert f | g == Filter("a = 1 OR b = 2 OR c = 3")
    assert ~(f & g) == Filter("NOT (a = 1 AND (b = 2 OR c = 3))")
    assert ~~f == f


@pytest.mark.spec("MOD-3")
def test_combining_too_deeply_is_an_error() -> None:
    f, b, c = Filter("a = 1"), Filter("b = 1"), Filter("c = 1")
    for _ in range(30):
        f = (f & b) | c
    assert Filter(str(f)) == f

    with pytest.raises(ValueError, match="nested more than 64 deep"):
        _ = (((((f & b) | c) & b) | c) & b) | c


def test_filters_travel_by_pickle() -> None:
    f = Filter("price < 5 AND NOT name LIKE 'a%'")
    f.matches({})

    again = pickle.loads(pickle.dumps(f))  # noqa: S301 - made on this line.

    assert again == f
    assert again.matches({"price": 1, "name": "b"})
