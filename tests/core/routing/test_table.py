"""The routing table, against asking every filter about every event."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.messages import Route
from sterna.core.routing.table import KeptTable, RoutingTable
from sterna.model.event import Event
from sterna.model.filters import Filter
from tests.scale import examples

FILTERS = [
    Filter(text)
    for text in (
        "a = 1",
        "a <= 2",
        "a IN (1, 3)",
        "b = 'x'",
        "a = 1 OR b = 'x'",
        "TRUE",
        "b IS NULL",
    )
]
LINKS = ("B1", "B2", "c")


@pytest.mark.spec("RT-1")
@examples(300)
@given(
    entered=st.lists(st.tuples(st.sampled_from(LINKS), st.sampled_from(FILTERS)), max_size=12),
    removed=st.sets(st.integers(0, 11)),
    values=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["x", "y", None])), min_size=1, max_size=40
    ),
)
def test_each_link_gets_what_it_wants_in_order(
    entered: list[tuple[str, Filter]],
    removed: set[int],
    values: list[tuple[int, str | None]],
) -> None:
    table = RoutingTable()
    for number, (link, filter_) in enumerate(entered):
        table.add(link, str(number), Route(f"r{number}", filter_))
    for number in sorted(removed & set(range(len(entered)))):
        table.remove(entered[number][0], str(number))
    events = [
        Event(
            publisher="p", seq=seq, time_us=0, attributes={"a": a} | ({} if b is None else {"b": b})
        )
        for seq, (a, b) in enumerate(values, 1)
    ]
    left = [each for number, each in enumerate(entered) if number not in removed]

    found = table.match(events)

    wanted = {
        link: tuple(
            event
            for event in events
            if any(at == link and filter_.matches(event.attributes) for at, filter_ in left)
        )
        for link in LINKS
    }
    assert found == {link: each for link, each in wanted.items() if each}


def test_links_that_want_the_same_get_the_same_tuple() -> None:
    """It is encoded once."""
    table = RoutingTable()
    for link in LINKS:
        table.add(link, "r", Route(link, Filter("a > 1")))
    events = [Event(publisher="p", seq=n, time_us=0, attributes={"a": n}) for n in (1, 2, 3)]

    first, second, third = table.match(events).values()

    assert first is second is third


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("filters", [FILTERS, [Filter(f"a < {n}") for n in range(2, 80)]])
def test_a_restored_table_gives_links_in_the_same_order(filters: list[Filter]) -> None:
    """Whatever came and went before, and however many filters there were then."""
    event = Event(publisher="p", seq=1, time_us=0, attributes={"a": 1, "b": "x"})
    other = Event(publisher="p", seq=2, time_us=0, attributes={"a": 5})
    for seed in range(20):
        rng = random.Random(seed)  # noqa: S311 - reproducible.
        table = RoutingTable()
        for number in range(300):
            link, id_ = f"c{rng.randrange(9)}", str(rng.randrange(30))
            if table.remove(link, id_) is None:
                route = Route(f"B#{number}", rng.choice(filters))
                table.add(link, id_, route)
                if rng.random() < 0.1:
                    table.withdraw(link, "moving")
                    table.enter(link, "moving", rng.choice(filters), route)
        restored = RoutingTable()
        restored.restore(table.keep())
        for events in ([event], [event, other]):
            assert list(restored.match(events).items()) == list(table.match(events).items())
        assert restored.keep() == table.keep()
        older = RoutingTable()  # From a snapshot that holds no order.
        older.restore(KeptTable(restored.keep().routes, restored.keep().entered))
        assert older.match([event, other]) == table.match([event, other])
