"""What a neighbour is told of many routes, held against the plain definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.location.messages import MovingRoute
from sterna.core.location.telling import Likeness, Telling
from sterna.model.filters import Filter
from sterna.model.location import MovementGraph
from tests.scale import examples

ROW = MovementGraph([(str(n), str(n + 1)) for n in range(9)])
FILTERS = (Filter("room IN myloc"), Filter("hall IN myloc"))

Known = dict[str, tuple[Filter, str]]
"""What a neighbour knows: the filter and the location under each name."""


def reached(known: list[tuple[Filter, str]], filter_: Filter, steps: int) -> set[str]:
    places = (ROW.ploc(at, steps) for each, at in known if each == filter_)
    return set[str]().union(*places)


@pytest.mark.spec("LM-4", "LM-5")
@given(data=st.data(), steps=st.integers(0, 3))
@examples(300)
def test_a_neighbour_asks_for_what_is_wanted_and_for_nothing_else(
    data: st.DataObject, steps: int
) -> None:
    """And it is told only when that changes."""
    names = iter(range(1_000))
    telling = Telling(lambda: f"B1@{next(names)}")
    present: dict[str, tuple[Filter, str]] = {}
    known: Known = {}
    admitted = {*FILTERS}
    for _ in range(data.draw(st.integers(1, 15))):
        before = {f: reached(list(known.values()), f, steps) for f in FILTERS}
        for _ in range(data.draw(st.integers(1, 3))):
            client = data.draw(st.sampled_from("abcdef"))
            filter_ = data.draw(st.sampled_from((*FILTERS, None)))
            if filter_ is None:
                present.pop(client, None)
                telling.drop(("link", client))
                continue
            at = data.draw(st.sampled_from(ROW.locations))
            present[client] = filter_, at
            route = MovingRoute(id=client, filter=filter_, at=at, dwell_us=1, delay_us=1)
            telling.put(("link", client), route, Likeness(filter_, 1, 1), ROW.ploc(at, steps))
        if not data.draw(st.integers(0, 5)):
            admitted ^= {FILTERS[1]}
            telling.look_again()

        added, removed = telling.difference(admitted.__contains__)
        for id_ in removed:
            del known[id_]
        known |= {route.id: (route.filter, route.at) for route in added}

        wanted = {
            f: reached(list(present.values()), f, steps) if f in admitted else set()
            for f in FILTERS
        }
        assert {f: reached(list(known.values()), f, steps) for f in FILTERS} == wanted
        assert before != wanted or not (added or removed)
        assert telling.is_empty == (not known)
        assert telling.difference(admitted.__contains__) == ([], [])


def test_a_location_that_is_left_and_not_needed_goes_with_the_next_word() -> None:
    telling = Telling(iter(("1", "2", "3")).__next__)

    def put(client: str, at: str, *reach: str) -> tuple[list[str], list[str]]:
        route = MovingRoute(id=client, filter=FILTERS[0], at=at, dwell_us=1, delay_us=1)
        telling.put(("link", client), route, Likeness(FILTERS[0], 1, 1), frozenset((at, *reach)))
        added, removed = telling.difference(lambda _: True)
        return [f"{route.id}: {route.at}" for route in added], removed

    assert put("ann", "a", "b") == (["1: a"], [])
    assert put("ann", "b", "a", "c") == (["1: b"], []), "under the same name: ann has moved"
    assert put("bob", "c", "d") == (["2: c"], [])
    assert put("ann", "a", "b") == ([], []), "b is as good, for c is wanted"
    assert put("bob", "d", "c") == ([], []), "c is as good"
