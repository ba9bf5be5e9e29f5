"""DO-2, PA-1, PL-4: who asks where a client goes next gets an answer, whatever is known."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model.location import HexGrid, LocationSpace, MovementGraph
from sterna.model.mobility import Document, MobilityModel, Prediction
from sterna.model.prediction import ModelPredictor, Predictor, UniformPredictor, predictor
from tests.model.test_mobility import CELLS, CLIENTS, documents, small, times
from tests.scale import examples

pytestmark = pytest.mark.spec("PL-4")

HOUSE = MovementGraph(
    [("kitchen", "hall"), ("hall", "study"), ("hall", "stairs"), ("hall", "hall")]
)

places = st.sampled_from([*CELLS, "elsewhere"])
histories = st.lists(places, max_size=3)
counts = st.integers(0, 6)


def named(found: Sequence[Prediction]) -> list[str]:
    return [place for place, _ in found]


# ---- From nothing, a graph, a model


def test_from_nothing_nothing_is_predicted() -> None:
    assert predictor(None).next("hall", ["kitchen"], 7, client="ann") == ()


def test_from_a_graph_each_neighbour_is_as_probable() -> None:
    """The place itself is none, even where an edge leads back to it."""
    third = 1 / 3

    assert predictor(HOUSE).next("hall") == (
        Prediction("kitchen", third),
        Prediction("stairs", third),
        Prediction("study", third),
    )
    assert predictor(HOUSE).next("kitchen") == (Prediction("hall", 1.0),)
    assert predictor(HOUSE).next("attic") == ()
    assert predictor(HOUSE).next("hall", count=2) == predictor(HOUSE).next("hall")[:2]


def test_a_grid_is_as_good_as_a_graph() -> None:
    grid = HexGrid(9)
    here = grid.locate(52.5, 13.3)
    found = predictor(grid).next(here)

    assert set(named(found)) == grid.ploc(here, 1) - {here}
    assert {rng for _, rng in found} == {1 / 6}
    assert predictor(grid).next("kitchen") == ()


def test_from_a_model_as_the_model_says() -> None:
    model = small()

    assert named(predictor(model).next("hall")) == ["study", "kitchen"]
    assert named(predictor(model).next("hall", client="bob", count=1)) == ["kitchen"]


@given(documents(), places, histories, st.none() | times, st.sampled_from([None, *CLIENTS]), counts)
@examples(200)
def test_a_prediction_is_what_the_model_holds_most_probable(
    document: Document,
    place: str,
    history: list[str],
    at: int | None,
    client: str | None,
    count: int,
) -> None:
    """Of all other places, with the last of the history as the place before."""
    model = MobilityModel(document)
    previous = history[-1] if history else None
    others = model.probabilities(place, client, previous, at)
    others.pop(place, None)

    found = ModelPredictor(model).next(place, history, at, client=client, count=count)

    expected = sorted(others.items(), key=lambda each: (-each[1], each[0]))[:count]
    assert [rng for _, rng in found] == pytest.approx([rng for _, rng in expected])
    assert dict(found) == pytest.approx({name: others[name] for name in named(found)})


# ---- What all have in common


@given(
    st.none()
    | documents().map(MobilityModel)
    | st.lists(st.tuples(places, places)).map(MovementGraph),
    places,
    histories,
    st.none() | times,
    counts,
)
@examples(200)
def test_a_prediction_is_a_ranking_of_other_places(
    known: MobilityModel | LocationSpace | None,
    place: str,
    history: list[str],
    at: int | None,
    count: int,
) -> None:
    asked: Predictor = predictor(known)
    found = asked.next(place, history, at, count=count)

    assert len(found) <= count
    assert found == tuple(sorted(found, key=lambda each: (-each.probability, each.place)))
    assert len(set(named(found))) == len(found)
    assert place not in named(found)
    assert all(0 < rng <= 1 for _, rng in found)
    assert sum(rng for _, rng in found) <= 1 + 1e-9
    assert asked.next(place, history, at, count=count) == found
    assert asked.next(place, history, at, count=count + 1)[:count] == found


@given(st.permutations([("a", name) for name in "bcdef"]))
def test_a_graph_is_told_in_any_order(edges: list[tuple[str, str]]) -> None:
    assert named(UniformPredictor(MovementGraph(edges)).next("a")) == list("bcdef")
