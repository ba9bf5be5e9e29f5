"""Virtual clients on their own, and replicators whose brokers come and go."""

import msgspec
import pytest

from sterna.core.inputs import MemoryShort
from sterna.core.keeping import Reader, Writer
from sterna.core.presubscribing.facts import VirtualEnded
from sterna.core.presubscribing.messages import VirtualRoute, VirtualWanted
from sterna.core.presubscribing.replicator import Presubscribing
from sterna.core.presubscribing.virtual import Virtual, restored
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.script import Reconfigure
from tests.spec.test_cilia_presubscribing import at_brokers, town, virtual

pytestmark = pytest.mark.spec("PA-1")

RED = Filter("light = 'red'")


def event(seq: int, publisher: str = "lights") -> Event:
    return Event(publisher=publisher, seq=seq, time_us=seq, attributes={"light": "red"})


def begun(past: list[Event], meanwhile: list[Event]) -> list[tuple[str, int]]:
    """What a virtual client has, if events came while it was searching."""
    made = Virtual("car", VirtualRoute("car/1", "center", RED, 10))
    made.add(meanwhile, 10, 10_000)
    assert made.answer(RED, 10, None) is None
    made.begin(past, 10, 10_000)
    return [(each.publisher, each.seq) for each in made.events]


def test_what_came_during_the_search_follows_what_it_found() -> None:
    assert begun([event(1), event(2)], [event(2), event(3)]) == [
        ("lights", 1),
        ("lights", 2),
        ("lights", 3),
    ]


def test_without_a_past_it_begins_when_all_brokers_know_it() -> None:
    """Between two events that came before, there may have been another."""
    assert begun([], [event(1), event(3)]) == []


def test_what_it_had_to_drop_during_the_search_leaves_no_gap() -> None:
    """Two of three lights have news; there is room for one event."""
    made = Virtual("car", VirtualRoute("car/1", "center", RED, 1))
    made.add([event(4), event(9, "other")], 1, 10_000)

    made.begin([event(1)], 1, 10_000)

    assert list(made.events) == []  # Between 1 and what follows there was 4.
    assert made.answer(RED, 1, None) is None


def test_what_it_does_not_have_may_be_later_than_what_it_has() -> None:
    """Another light has news during the search, which finds nothing of that light."""
    made = Virtual("car", VirtualRoute("car/1", "center", RED, 10))
    made.add([event(6, "other")], 10, 10_000)
    made.begin([event(5)], 10, 10_000)
    assert made.answer(RED, 1, None) is None

    made.add([event(7)], 10, 10_000)

    found = made.answer(RED, 1, None)
    assert found is not None
    assert [each.seq for each in found] == [7]
    assert made.answer(RED, 2, None) is None
    assert made.answer(RED, 10, None) is None


def test_it_is_bounded_by_bytes_too() -> None:
    made = Virtual("car", VirtualRoute("car/1", "center", RED, 10))
    made.begin([], 10, 250)

    made.add([event(1), event(2), event(3), event(4)], 10, 250)

    assert [each.seq for each in made.events] == [2, 3, 4]
    assert made.answer(RED, 10, None) is None  # Others may have more.
    found = made.answer(RED, 2, None)
    assert found is not None
    assert [each.seq for each in found] == [3, 4]


def test_it_keeps_the_latest_events_whenever_they_came() -> None:
    """Of two lights, the news of one are on their way for longer."""
    made = Virtual("car", VirtualRoute("car/1", "center", RED, 2))
    made.begin([], 2, 10_000)

    made.add([event(8), event(3, "other"), event(5, "other"), event(9)], 2, 10_000)

    found = made.answer(RED, 2, None)
    assert found is not None
    assert [each.seq for each in found] == [8, 9]


def test_a_clock_that_was_set_back_changes_no_order() -> None:
    """The events of a publisher stay together, also after a restart in between."""
    made = Virtual("car", VirtualRoute("car/1", "center", RED, 3))
    made.begin([], 3, 10_000)
    slow = Event(publisher="lights", seq=10, time_us=2, attributes={"light": "red"})
    writer = Writer()
    made.add([event(9), event(7, "other")], 3, 10_000)
    kept = made.keep(writer)
    made = restored(kept, Reader(writer.events, writer.messages))

    made.add([slow], 3, 10_000)

    assert [each.seq for each in made.events] == [7, 9, 10]
    made.add([event(8, "other")], 3, 10_000)
    assert [each.seq for each in made.events] == [8, 9, 10]


def test_what_has_become_of_its_events_survives_a_restart() -> None:
    """Four came, two of them twice; the client got two, of which one is there no longer."""
    made = Virtual("car", VirtualRoute("car/1", "center", RED, 2))
    made.add([event(2), event(3)], 2, 10_000)
    made.begin([event(1), event(2), event(3)], 2, 10_000)
    made.hand_over([event(2), event(3)])
    made.add([event(4)], 2, 10_000)
    writer = Writer()
    kept = made.keep(writer)

    again = restored(kept, Reader(writer.events, writer.messages))

    assert again.ended("B2", 9) == VirtualEnded(
        at="B2",
        time=9,
        client="car",
        subscription="car/1",
        place="center",
        came=6,
        repeated=2,
        handed=2,
        dropped=1,
        unused=1,
    )


def test_when_memory_is_short_it_keeps_nothing() -> None:
    run = town()
    run.broker("B2").handle(MemoryShort(away_bytes_max=0, spilled_bytes=0), run.now)

    assert list(virtual(run, "B2")["center"].events) == []
    run.move("car", "center").attach("car", "B2").settle()
    assert run.recalled("car") == ["lights#1", "lights#2"]  # By a search.


def test_messages_may_overtake_each_other() -> None:
    """They look for another way if a link is gone."""
    run = town()
    part = run.broker("B2").part("presubscribing")
    assert isinstance(part, Presubscribing)
    old = VirtualWanted(to="B2", sender="B3", client="car", number=0)

    part.on_virtual_wanted(old, "B3", run.now)

    assert virtual(run, "B2")["center"].owners == {"B3": None}


def test_a_broker_that_is_gone_wants_nothing() -> None:
    run = town(linger_us=1_000_000)

    run.broker("B2").forget("B3", run.now)
    run.wait(2_000_000)

    assert at_brokers(run)["B2"] == []


def test_a_broker_that_begins_late_hears_what_is_wanted() -> None:
    run = town()
    settings = run.broker("B2").settings
    without = msgspec.structs.replace(
        settings, protocols=("overlay", "post", "past", "search"), options={}
    )

    run.simulation.do(Reconfigure(broker="B2", settings=without))
    run.settle()
    assert run.broker("B2").part("presubscribing") is None
    run.simulation.do(Reconfigure(broker="B2", settings=settings))
    run.settle()

    assert at_brokers(run)["B2"] == ["center"]


def test_a_broker_that_is_back_hears_what_is_wanted() -> None:
    run = town()
    part = run.broker("B3").part("presubscribing")
    assert isinstance(part, Presubscribing)
    before = part.keep(Writer())

    gone = msgspec.structs.replace(before, brokers=["B1", "B3"])
    part.restore(gone, Reader([], []))
    part.overlay_changed(run.now)

    assert part.keep(Writer()).number > before.number
    assert part.keep(Writer()).brokers == ["B1", "B2", "B3"]
