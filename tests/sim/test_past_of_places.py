"""The past of a place: a subscription with `myloc` begins anew wherever the client is. (Cilia, 5.1)

A car that turns into a street has the state of its traffic light at once, not at the next change.
"""

import pytest

from sterna.core import facts
from sterna.core.history.options import HistoryOptions
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.sim.topology import line
from tests.sim.overlay import RELOCATION, Overlay

pytestmark = pytest.mark.spec("PA-2")

STREETS = PlacesOptions(
    edges=(("north", "center"), ("center", "south")), dwell=Dwell.FIXED, dwell_us=1_000_000
)


def town(**more: object) -> Overlay:
    """The lights of the town are at B1, and the car at B3."""
    run = Overlay(
        line(3),
        {"car": "B3", "lights": "B1"},
        places=STREETS,
        locations={"car": "north"},
        protocols=("past", "search"),
        handover=RELOCATION,
        history=HistoryOptions(**more),  # type: ignore[arg-type]
    )
    for street in ("north", "center", "south"):
        for light in ("green", "red"):
            run.publish("lights", street=street, light=light).settle()
    return run


def test_each_place_begins_with_its_own_past() -> None:
    """Events 1 and 2 are about the north, 3 and 4 about the center, 5 and 6 about the south."""
    run = town().subscribe("car", "street IN myloc", past=1).settle()
    assert run.recalled("car") == ["lights#2"]

    for street, number in (("center", 4), ("south", 6), ("center", 4)):
        run.move("car", street).settle()
        assert run.recalled("car")[-1] == f"lights#{number}"
    assert len(run.recalled("car")) == 4

    run.publish("lights", street="center", light="green").publish(
        "lights", street="north", light="red"
    )
    run.settle()
    assert run.received("car") == ["lights#7"]
    assert run.outcome().findings == []


def test_what_is_published_while_the_past_is_searched_follows_it() -> None:
    run = town().subscribe("car", "street IN myloc", past=2).settle()

    run.move("car", "center").publish("lights", street="center", light="green").settle()

    events = [
        (type(fact).__name__, event.seq)
        for fact in run.facts.all
        if isinstance(fact, facts.Recalled | facts.Delivered) and fact.at == "car"
        for event in fact.events
    ]
    assert events[-2:] == [("Recalled", 4), ("Delivered", 7)]  # The latest two, in order.


def test_who_moves_on_gets_nothing_of_where_it_was() -> None:
    """The answer for the center comes when the car is in the south."""
    run = town().subscribe("car", "street IN myloc", past=1).settle()

    run.move("car", "center").wait(1_000).move("car", "south").settle()

    assert run.recalled("car") == ["lights#2", "lights#6"]


@pytest.mark.spec("PA-3")
def test_how_far_back_counts_from_each_move() -> None:
    run = town().subscribe("car", "street IN myloc", since_us=0).settle()
    assert run.recalled("car") == ["lights#1", "lights#2"]

    run.wait(1_000_000).move("car", "center").settle()
    assert run.recalled("car")[2:] == []  # As long ago as it asked for, there was nothing yet.


def test_a_car_that_comes_to_another_broker_meanwhile_gets_its_past_there() -> None:
    run = town().subscribe("car", "street IN myloc", past=1).settle()

    run.move("car", "center").detach("car").attach("car", "B2").settle()

    assert run.recalled("car") == ["lights#2", "lights#4"]
    run.publish("lights", street="center", light="green").settle()
    assert run.received("car") == ["lights#7"]


def test_a_subscription_that_ends_asks_for_no_more() -> None:
    run = town().subscribe("car", "street IN myloc", past=1).settle().unsubscribe("car").settle()

    run.move("car", "center").settle()

    assert run.recalled("car") == ["lights#2"]
