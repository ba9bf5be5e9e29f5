"""The garbage collector stops a broker only briefly, however much the broker keeps."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from sterna.model.filters import Filter
from sterna.net.collector import YOUNG_OBJECTS, YOUNG_SEARCHES, spare_the_collector


class Thing:
    """Something that can refer to itself."""

    def __init__(self) -> None:
        self.itself: Thing | None = None


@pytest.fixture
def spared() -> Iterator[None]:
    """The collector of a broker, for a while."""
    thresholds, callbacks = gc.get_threshold(), [*gc.callbacks]
    spare_the_collector()
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


@pytest.mark.usefixtures("spared")
def test_no_search_looks_at_what_has_been_kept_for_long() -> None:
    """Neither the first nor the last of many objects makes a search longer."""
    seen: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

    gc.callbacks.insert(0, look)
    kept = [[number] for number in range(40 * YOUNG_OBJECTS)]

    assert len(seen) > 30
    assert max(seen) < 3 * YOUNG_OBJECTS * YOUNG_SEARCHES
    assert len(kept) == 40 * YOUNG_OBJECTS


@pytest.mark.usefixtures("spared")
def test_young_cycles_are_freed() -> None:
    thing = Thing()
    thing.itself = thing
    alive = weakref.ref(thing)
    del thing

    kept = [[number] for number in range(3 * YOUNG_OBJECTS)]

    assert alive() is None
    assert kept


def test_a_filter_that_is_dropped_needs_no_search() -> None:
    """Clients come and go all the time, and their filters with them."""
    assert Filter("n > 0 AND text = 'x'").matches({"n": 1, "text": "x"})  # The grammar is made.
    gc.collect()
    gc.disable()
    try:
        for number in range(100):
            assert Filter(f"n > {number} AND text = 'x'").matches({"n": 1_000, "text": "x"})
        assert gc.collect() < 10
    finally:
        gc.enable()
