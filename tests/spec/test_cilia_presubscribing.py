"""Cilia et al. 2003, section 4: virtual clients at the next places, message by message."""

from typing import Any

import h3
import msgspec
import pytest

from sterna.core.handover.options import HandoverOptions
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.location.options import PlacesOptions
from sterna.core.location.steps import StepRule
from sterna.core.mobility import MobilityOptions
from sterna.core.presubscribing.replicator import Presubscribing
from sterna.core.presubscribing.virtual import Virtual
from sterna.core.settings import Settings
from sterna.model.location import HexGrid
from sterna.sim.script import Crash
from sterna.sim.topology import line
from tests.goldens import assert_golden
from tests.mobility import model_of
from tests.sim.overlay import RELOCATION, Overlay

pytestmark = pytest.mark.spec("PA-1")

ROAD = PlacesOptions(
    edges=(("north", "center"), ("center", "south"), ("center", "east")), rule=StepRule.SUB_UNSUB
)
SERVES = {"north": "B3", "center": "B2", "south": "B3", "east": "B1"}


def town(
    *,
    search: Search = Search.COMPLETE,
    handover: HandoverOptions = RELOCATION,
    mobility: MobilityOptions | None = None,
    **options: Any,
) -> Overlay:
    """The lights are at B1; the car is in the north, which B3 serves, and has subscribed."""
    run = Overlay(
        line(3),
        {"car": "B3", "lights": "B1"},
        places=ROAD,
        locations={"car": "north"},
        protocols=("overlay", "post", "past", "search", "presubscribing"),
        handover=handover,
        mobility=mobility,
        history=HistoryOptions(search=search),
        options={"presubscribing": {"serves": SERVES, **options}},
        crashing=["B2"],
    )
    for street in SERVES:
        run.publish("lights", street=street, light="red").settle()
    return run.subscribe("car", "street IN myloc", past=1).settle()


def virtual(run: Overlay, broker: str) -> dict[str, Virtual]:
    """The virtual clients of a broker by their places."""
    part = run.broker(broker).part("presubscribing")
    assert isinstance(part, Presubscribing)
    return {each.route.place: each for each in part.virtual.values()}


def at_brokers(run: Overlay) -> dict[str, list[str]]:
    return {broker: sorted(virtual(run, broker)) for broker in ("B1", "B2", "B3")}


def test_a_virtual_client_is_there_before_its_client() -> None:
    run = town()
    assert at_brokers(run) == {"B1": [], "B2": ["center"], "B3": []}
    run.publish("lights", street="center", light="green").settle()
    first = len(run.trace.lines)

    run.move("car", "center").attach("car", "B2").settle()

    assert run.recalled("car") == ["lights#1", "lights#5"]
    assert at_brokers(run) == {"B1": ["east"], "B2": [], "B3": ["north", "south"]}
    assert_golden(
        "cilia-virtual-client.txt", "".join(f"{line}\n" for line in run.trace.lines[first:])
    )


def test_what_was_kept_comes_before_what_follows() -> None:
    run = town()
    run.publish("lights", street="center", light="green").settle()

    run.move("car", "center").attach("car", "B2")
    run.wait(6_000).publish("lights", street="center", light="amber").settle()

    assert run.recalled("car")[1:] == ["lights#5"]
    assert run.received("car") == ["lights#6"]


@pytest.mark.spec("PA-4")
def test_without_a_virtual_client_a_search_finds_it() -> None:
    """Nobody has foreseen that the car jumps to the south."""
    run = town()

    run.move("car", "south").settle()

    assert run.recalled("car") == ["lights#1", "lights#3"]


def test_without_a_search_there_is_what_was_kept() -> None:
    run = town(search=Search.NONE)
    run.publish("lights", street="center", light="green").settle()

    run.move("car", "center").attach("car", "B2").settle()

    assert run.recalled("car") == ["lights#5"]


def test_a_car_that_leaves_or_wants_no_more_has_no_virtual_clients() -> None:
    run = town().unsubscribe("car").settle()

    assert at_brokers(run) == {"B1": [], "B2": [], "B3": []}


def test_a_car_that_is_forgotten_has_no_virtual_clients() -> None:
    run = town(handover=HandoverOptions(protocol="relocation", away_max_us=1_000_000))
    run.detach("car").settle()
    assert at_brokers(run)["B2"] == ["center"]  # It may come back there.

    run.wait(60_000_000).settle()

    assert at_brokers(run) == {"B1": [], "B2": [], "B3": []}


def test_it_stays_for_a_while() -> None:
    """A car that comes right back finds what it had."""
    run = town(linger_us=1_000_000)
    begun = virtual(run, "B2")["center"]
    run.move("car", "south").wait(500_000).move("car", "north").settle()
    assert virtual(run, "B2")["center"] is begun


def test_it_lasts_when_its_broker_is_killed() -> None:
    run = town()
    run.publish("lights", street="center", light="green").settle()

    run.fault(Crash(broker="B2", us=50_000)).settle()

    assert [e.id.seq for e in virtual(run, "B2")["center"].events] == [5]
    run.move("car", "center").attach("car", "B2").settle()
    assert run.recalled("car")[1:] == ["lights#5"]


# ---- Limits


def test_a_car_has_as_many_virtual_clients_as_it_may() -> None:
    run = town(places_max=2)

    run.move("car", "center").settle()

    assert at_brokers(run) == {"B1": ["east"], "B2": [], "B3": ["north"]}


def test_a_broker_has_as_many_virtual_clients_as_it_may() -> None:
    run = town(virtual_max=1)

    run.move("car", "center").settle()

    assert at_brokers(run) == {"B1": ["east"], "B2": [], "B3": ["north"]}


def test_a_client_has_as_many_virtual_clients_at_a_broker_as_it_may() -> None:
    run = town(client_max=1)
    run.subscribe("car", "street IN myloc AND light = 'red'", name="2", past=1).settle()

    run.move("car", "center").settle()

    assert at_brokers(run) == {"B1": ["east"], "B2": [], "B3": ["north"]}
    assert list(run.broker("B1").hosted()) == ["car"]
    assert run.broker("B1").kept("car").events == 1


def test_a_virtual_client_keeps_as_many_events_as_it_may() -> None:
    """Those that a client asks for, and no more than the settings say."""
    run = town(events_max=2).unsubscribe("car").settle()
    run.subscribe("car", "street IN myloc", name="2", past=5).settle()
    for light in ("green", "amber", "red"):
        run.publish("lights", street="center", light=light).settle()

    kept = virtual(run, "B2")["center"]

    assert [event.seq for event in kept.events] == [6, 7]
    run.move("car", "center").attach("car", "B2").settle()
    assert run.recalled("car")[-5:] == [f"lights#{seq}" for seq in (1, 2, 5, 6, 7)]  # By a search.


def test_places_that_are_not_probable_have_none() -> None:
    run = town(probability_min=0.5)

    run.move("car", "center").settle()

    assert at_brokers(run) == {"B1": [], "B2": [], "B3": []}


def test_a_model_says_which_places_are_probable() -> None:
    model = model_of({("center", "south"): 9, ("center", "east"): 1})
    run = town(mobility=MobilityOptions(model=model.to_bytes()), probability_min=0.5)
    assert at_brokers(run)["B2"] == ["center"]  # It knows nothing of the north.

    run.move("car", "center").settle()

    assert at_brokers(run) == {"B1": [], "B2": [], "B3": ["south"]}


@pytest.mark.parametrize("is_mined", [False, True], ids=["grid", "mined"])
def test_a_coarse_cell_stands_for_all_that_are_in_it(is_mined: bool) -> None:
    """The car may go to the six cells around; of those in the same coarse one, one is B1's."""
    grid = HexGrid(9)
    at = grid.locate(48.8584, 2.2945)
    around = sorted(grid.ploc(at, 1) - {at})
    mined = tuple((at, cell) for cell in around)
    coarse = {cell: h3.cell_to_parent(cell, 7) for cell in around}
    own = next(cell for cell in around if coarse[cell] == coarse[around[0]])
    run = Overlay(
        line(3),
        {"car": "B3"},
        places=PlacesOptions(edges=mined) if is_mined else PlacesOptions(h3_resolution=9),
        locations={"car": at},
        protocols=("overlay", "post", "past", "search", "presubscribing"),
        handover=RELOCATION,
        options={"presubscribing": {"serves": {coarse[own]: "B2", own: "B1"}}},
    )

    run.subscribe("car", "cell IN myloc", past=1).settle()

    inside = [cell for cell in around if coarse[cell] == coarse[own] and cell != own]
    outside = [cell for cell in around if coarse[cell] != coarse[own]]
    assert at_brokers(run) == {"B1": [own], "B2": inside, "B3": outside}
    assert inside


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"servs": {}}, "servs"),
        ({"places_max": 0}, "places_max"),
        ({"client_max": -1}, "client_max"),
        ({"probability_min": 2.0}, "probability_min"),
        ({"linger_us": -1}, "linger_us"),
    ],
)
def test_options_that_make_no_sense_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=told):
        Presubscribing.make(Settings(options={"presubscribing": options}))
