"""Moving subscriptions follow their clients, whichever brokers have places already."""

import pytest

from sterna.core.location.options import PlacesOptions
from sterna.core.overlay.members import OVERLAY, Members
from sterna.core.settings import Settings
from sterna.sim.script import Drop, Reconfigure
from sterna.sim.topology import line
from tests.sim.overlay import Overlay

PLACES = Settings(places=PlacesOptions(edges=(("a", "b"), ("b", "c")), dwell_us=10_000_000))
SECOND = 1_000_000


def configure(run: Overlay, settings: Settings, *brokers: str) -> None:
    """Give some brokers and their clients other settings."""
    for broker in brokers:
        run.simulation.do(Reconfigure(broker=broker, settings=settings, tells=True))


@pytest.mark.spec("LV-9", "LM-3")
def test_places_begin_while_a_link_is_down() -> None:
    """The neighbour is told of moving subscriptions when the link is back."""
    run = Overlay(line(2), {"sub": "B1", "pub": "B2"}).fault(Drop(a="B1", b="B2", us=SECOND))

    configure(run, PLACES, "B1", "B2")
    run.wait(3 * SECOND).move("sub", "a").subscribe("sub", "room IN myloc").settle()
    run.publish("pub", room="a").settle()

    assert run.received("sub") == ["pub#1"]


@pytest.mark.spec("LV-9")
def test_a_broker_learns_the_overlay_over_a_link_that_was_down() -> None:
    """Also if it begins to ask for it while the link is down."""
    run = Overlay(line(3), {}).fault(Drop(a="B1", b="B2", us=SECOND))

    configure(run, Settings(protocols=(OVERLAY.name,)), "B1", "B2", "B3")
    run.wait(3 * SECOND).settle()

    for broker in ("B1", "B2", "B3"):
        members = run.broker(broker).part(OVERLAY.name)
        assert isinstance(members, Members)
        assert members.brokers() == ["B1", "B2", "B3"]
