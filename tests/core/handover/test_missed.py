"""The list of events that were discarded for a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.handover.missed import PUBLISHER_BYTES, Missed
from sterna.model.event import EventId
from sterna.model.ranges import INT_MAX
from tests.scale import examples

pytestmark = pytest.mark.spec("LV-6", "PM-3")

ids = st.builds(EventId, st.sampled_from("pqr"), st.integers(0, INT_MAX))


@examples(100)
@given(st.lists(ids), st.lists(ids))
def test_it_has_all_of_them_in_their_order(first: list[EventId], more: list[EventId]) -> None:
    missed = Missed(first)
    missed.add(more)
    assert bool(missed) == bool(first + more)
    assert list(missed) == first + more


def test_each_takes_little_memory() -> None:
    missed = Missed(EventId("p", seq) for seq in range(10_000))
    assert missed.memory_bytes == 120_000 + PUBLISHER_BYTES


def test_what_nobody_could_read_is_left_out() -> None:
    assert list(Missed([EventId("p", -1), EventId("p", 2**63), EventId("p", 1)])) == [("p", 1)]
