"""Brokers change how they hand clients over, one after the other, and no client is cut off."""

from collections.abc import Iterable

import pytest

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.roaming import NEWS_US
from sterna.core.settings import Settings
from sterna.sim.script import Drop, Reconfigure
from sterna.sim.topology import line
from tests.sim.overlay import RELOCATION, Overlay

LINE = ("B1", "B2", "B3")
NONE = HandoverOptions()
NAIVE = HandoverOptions(protocol=Handover.NAIVE)


def change(
    run: Overlay, brokers: Iterable[str], handover: HandoverOptions, *, tells: bool = True
) -> Overlay:
    """Change the handover of some brokers at once."""
    for broker in brokers:
        step = Reconfigure(broker=broker, settings=Settings(handover=handover), tells=tells)
        run.simulation.do(step)
    return run


def roaming() -> Overlay:
    """Ann is at B3, Bob at B1, and both have got one event of Pat, who is at B1."""
    run = Overlay(line(3), {"ann": "B3", "bob": "B1", "pat": "B1"}, handover=RELOCATION)
    run.subscribe("ann", "x > 0").subscribe("bob", "x > 0").settle()
    return run.publish("pat", x=1).settle()


def waiting() -> Overlay:
    """Ann has come to B1, and waits for what was kept at B3, which cannot be reached."""
    run = roaming().detach("ann").settle()
    run.fault(Drop(a="B2", b="B3", us=5_000_000))
    return run.attach("ann", "B1").wait(100_000)


# ---- Clients are not handed over any more


@pytest.mark.spec("LV-9", "LV-6")
@pytest.mark.parametrize("handover", [NONE, NAIVE], ids=["none", "naive"])
@pytest.mark.parametrize("broker", ["B3", "B2"], ids=["the old broker", "a broker on the way"])
def test_a_client_does_not_wait_for_a_broker_that_hands_nothing_over(
    broker: str, handover: HandoverOptions
) -> None:
    """It gets no replay, and live events from then on."""
    run = roaming().detach("ann").settle()
    change(run, [broker], handover).wait(1_000_000)
    run.attach("ann", "B1").settle()

    run.publish("pat", x=2).settle()
    assert run.received("ann") == ["pat#1", "pat#2"]
    assert run.relocation("B1").is_settled


@pytest.mark.spec("LV-9")
def test_the_old_broker_drops_a_client_that_is_elsewhere() -> None:
    run = roaming().detach("ann").settle()
    change(run, ["B3"], NONE).wait(1_000_000)
    assert "ann" in run.broker("B3").peers
    run.attach("ann", "B1").settle()

    assert "ann" not in run.broker("B3").peers
    assert "ann" not in run.table("B3")


@pytest.mark.spec("LV-9")
def test_a_client_gets_what_came_while_it_waited() -> None:
    """All brokers have changed before the replay comes."""
    run = change(waiting(), LINE, NONE)
    run.publish("pat", x=2).wait(NEWS_US).settle()

    assert run.received("ann") == ["pat#1", "pat#2"]
    for broker in LINE:
        assert run.broker(broker).part("relocation") is None


@pytest.mark.spec("LV-9")
def test_a_request_that_waits_for_a_link_is_sent_before_relocation_ends() -> None:
    """B2 has nothing else left to do."""
    run = change(waiting(), ["B2"], NONE)
    run.publish("pat", x=2).wait(NEWS_US).settle()

    assert run.received("ann") == ["pat#1", "pat#2"]
    assert run.broker("B2").part("relocation") is None


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("us", range(0, 5_000, 500))
def test_a_client_that_arrives_is_received_whatever_its_broker_has_become(us: int) -> None:
    """It does not know yet that clients are not handed over there."""
    run = roaming().attach("ann", "B1").wait(us)
    change(run, ["B1"], NONE, tells=False).settle()

    run.publish("pat", x=2).publish("ann", x=1).settle()
    assert run.received("ann")[-2:] == ["pat#2", "ann#1"]
