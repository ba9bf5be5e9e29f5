"""Which subscriptions of one client want an event."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.messages import Route
from sterna.core.routing.table import RoutingTable
from sterna.model.event import Event
from sterna.model.filters import Filter
from tests.scale import examples

FILTERS = [Filter(text) for text in ("n = 1", "n > 0", "n > 0 AND n < 3", "TRUE", "m = 'x'")]


@pytest.mark.spec("RT-1")
@examples(100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "retire", "ask"]),
            st.sampled_from(["a", "b"]),
            st.integers(0, 9),
            st.integers(0, len(FILTERS) - 1),
        ),
        max_size=40,
    )
)
def test_the_index_finds_the_routes_of_a_link(steps: list[tuple[str, str, int, int]]) -> None:
    table = RoutingTable()
    for do, link, number, which in steps:
        id_ = f"{link}/{number}"
        if do == "add" and id_ not in table.routes(link):
            table.add(link, id_, Route(f"{id_}/{which}", FILTERS[which]))
        elif do == "remove":
            table.remove(link, id_)
        elif do == "retire":
            table.retire(link, [id_, f"{link}/0"])
            table.sweep(which)
        for n in (0, 1, 2, 5) if do == "ask" else ():
            event = Event(publisher="p", seq=1, time_us=0, attributes={"n": n})
            wanting = [i for i, r in table.routes(link).items() if r.filter.matches({"n": n})]
            assert sorted(table.wanting(link, event)) == sorted(wanting)
