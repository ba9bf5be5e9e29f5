"""Clients that come back with an old state, after a later life of the same name without it.

The network has only the later life in its memory. What that life had asked for, and what was kept
for it, is not for the earlier one; and the earlier one is told that the network had forgotten it.
"""

import pytest

from sterna.core import facts
from sterna.core.client import Client
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, LinkDown
from sterna.core.location.options import PlacesOptions
from sterna.core.names import NodeId
from sterna.sim.script import LiveAgain
from sterna.sim.topology import line
from tests.sim.overlay import Overlay

HOUSE = PlacesOptions(edges=(("attic", "hall"), ("hall", "yard"), ("yard", "street")))


EACH = [
    Handover.RELOCATION,
    Handover.STANDARD,
    Handover.LOGGING,
    Handover.PREFETCHING,
    Handover.HOME,
]


@pytest.fixture(params=EACH)
def overlay(request: pytest.FixtureRequest) -> Overlay:
    return Overlay(
        line(2),
        {"ann": "B1", "pat": "B2"},
        handover=HandoverOptions(protocol=request.param),
        places=HOUSE,
        locations={"ann": "attic"},
    )


def live_again(run: Overlay, broker: str = "B1") -> Client:
    """Ann's program starts without its state; what it had before is returned."""
    state = run.client("ann")
    run.simulation.do(LiveAgain(client="ann", broker=broker))
    run.settle().move("ann", "yard")
    return state


def go_back(run: Overlay, state: Client, broker: NodeId) -> Overlay:
    """Ann's program is killed, and starts with a state that it had before."""
    network = run.simulation.network
    host, link = network.hosts["ann"], run.client("ann").link
    if link is not None and host.pipes[link].connection.is_wanted:
        host.pipes[link].connection.is_wanted = False
        network._burden(host.pipes[link].connection)
    host.node = state
    host._restarted()
    for known in list(state.peers):
        if state.is_connected(known):
            network._turn(host, LinkDown(link=known))
    network._turn(host, Attach(broker=broker))
    return run


def numbers(run: Overlay, kind: type[facts.Delivered | facts.Stray | facts.Purged]) -> list[int]:
    """The numbers of the events in the facts of a kind."""
    stated = [fact for fact in run.facts.all if isinstance(fact, kind)]
    return [event.seq for fact in stated for event in fact.events]


@pytest.mark.spec("PM-4", "LV-2")
@pytest.mark.parametrize("broker", ["B1", "B2"])
def test_what_a_later_life_had_asked_for_ends(overlay: Overlay, broker: str) -> None:
    """Ann's earlier life has never had a moving subscription, so it has none to announce."""
    run = overlay.subscribe("ann", "x > 0").settle()
    state = live_again(run)
    run.subscribe("ann", "y > 0", "2").subscribe("ann", "room IN myloc", "3").settle()

    go_back(run, state, broker).settle()
    run.publish("pat", y=1).publish("pat", room="yard").publish("pat", x=1).settle()

    assert numbers(run, facts.Delivered) == [3]
    assert numbers(run, facts.Stray) == []
    assert len(run.facts_of(facts.Forgotten)) == 1


@pytest.mark.spec("PM-4", "LV-2")
@pytest.mark.parametrize("broker", ["B1", "B2"])
def test_what_was_kept_for_a_later_life_is_not_for_an_earlier_one(
    overlay: Overlay, broker: str
) -> None:
    """Ann's earlier life has a moving subscription of the same name, and was never in the yard."""
    run = overlay.subscribe("ann", "room IN myloc").settle()
    state = live_again(run)
    run.subscribe("ann", "room IN myloc").subscribe("ann", "y > 0", "2").settle()
    run.detach("ann").settle().publish("pat", room="yard").publish("pat", y=1).settle()

    go_back(run, state, broker).settle()
    assert numbers(run, facts.Delivered) == numbers(run, facts.Stray) == []
    assert len(run.facts_of(facts.Forgotten)) == 1

    run.publish("pat", room="attic").settle()
    assert numbers(run, facts.Delivered) == [3]


@pytest.mark.spec("PM-4", "LV-2")
@pytest.mark.parametrize("broker", ["B1", "B2"])
def test_a_later_life_that_has_moved_leaves_nothing_to_an_earlier_one(
    overlay: Overlay, broker: str
) -> None:
    run = overlay.subscribe("ann", "x > 0").settle()
    state = live_again(run)
    run.subscribe("ann", "y > 0", "2").settle().detach("ann").settle().attach("ann", "B2").settle()

    go_back(run, state, broker).settle()
    run.publish("pat", y=1).publish("pat", x=1).settle()

    assert numbers(run, facts.Delivered) == [2]
    assert numbers(run, facts.Stray) == []
    assert len(run.facts_of(facts.Forgotten)) == 1


@pytest.mark.spec("PM-4", "LV-2")
def test_what_waited_while_a_later_life_published_is_discarded_and_that_is_told(
    overlay: Overlay,
) -> None:
    """Subscribers would take it for events that they have had; what follows arrives."""
    run = overlay.subscribe("pat", "x > 0").settle()
    run.detach("ann").settle().publish("ann", x=1).publish("ann", x=2)
    state = live_again(run)
    run.publish("ann", x=3).settle()
    assert run.client("ann").accepted > state.published

    go_back(run, state, "B1").settle()
    run.publish("ann", x=4).settle()

    assert numbers(run, facts.Purged) == [1, 2]
    assert len(numbers(run, facts.Delivered)) == 2


@pytest.mark.spec("PM-4", "LV-2")
@pytest.mark.parametrize("broker", ["B1", "B2"])
def test_what_waited_while_a_later_life_published_nothing_arrives(
    overlay: Overlay, broker: str
) -> None:
    run = overlay.subscribe("pat", "x > 0").settle()
    run.detach("ann").settle().publish("ann", x=1).publish("ann", x=2)
    state = live_again(run)

    go_back(run.settle(), state, broker).settle()

    assert numbers(run, facts.Delivered) == [1, 2]
    assert numbers(run, facts.Purged) == []
