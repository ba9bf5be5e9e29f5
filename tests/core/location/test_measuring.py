"""How far neighbours are, as nodes find out."""

import pytest

from sterna.core.assembly import make_broker
from sterna.core.inputs import Subscribe
from sterna.core.location.measuring import TRIPS_MAX, Measuring
from sterna.core.location.messages import Probed
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.names import LinkId, Peer
from sterna.core.settings import Settings
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Drop, LinkModel, Pause, Reconfigure, Script, Wait
from sterna.sim.topology import line
from tests.scale import soon
from tests.sim.overlay import Overlay
from tests.sim.watching import moving_at

PLACES = PlacesOptions(
    edges=(("a", "b"), ("b", "c"), ("c", "d")), dwell=Dwell.FIXED, dwell_us=10_000_000
)


def pair(link: LinkModel | None = None) -> Overlay:
    return Overlay(line(2), {"ann": "B1"}, link=link, places=PLACES, locations={"ann": "a"})


@pytest.mark.spec("LM-1")
def test_before_anything_is_measured_a_client_may_be_anywhere() -> None:
    """What is not known yet must not make anyone miss an event."""
    script = Script(
        topology=line(2), clients={"ann": "B1"}, steps=(), places=PLACES, locations={"ann": "a"}
    )
    simulation = Simulation(script)
    simulation.do(
        Do(client="ann", what=Subscribe(subscription="1", filter=Filter("room IN myloc")))
    )
    seen: list[str] = []
    broker = simulation.network.hosts["B2"].node
    while simulation.network.kernel.now < 100_000:
        simulation.do(Wait(us=500))
        entered = broker.router.subscriptions.entered("B1").values()  # type: ignore[attr-defined]
        seen += [str(filter_) for filter_ in entered if str(filter_) not in seen]

    assert seen == ["room IS NOT NULL", "room IN ('a', 'b')"]


@pytest.mark.spec("LM-4")
def test_a_round_trip_is_rounded_up() -> None:
    overlay = pair(LinkModel(latency_us=1_234))

    assert moving_at(overlay.broker("B1")).delay_us("B2") == 3_000


@pytest.mark.spec("LM-4")
def test_the_time_that_a_link_was_down_does_not_count() -> None:
    overlay = pair(LinkModel(latency_us=20_000)).subscribe("ann", "room IN myloc").settle()
    now_us = overlay.simulation.network.kernel.now
    overlay.wait(1_010_000 - now_us)  # Probes are on their way since 1,000 ms.
    overlay.fault(Drop(a="B1", b="B2", us=700_000)).wait(900_000).settle()

    assert moving_at(overlay.broker("B1")).delay_us("B2") == 40_000


@pytest.mark.spec("LM-4")
def test_the_longest_of_the_last_round_trips_counts() -> None:
    """A broker that does nothing for a while is as far away as that, until it is forgotten."""
    overlay = pair(LinkModel(latency_us=5_000)).subscribe("ann", "room IN myloc").settle()
    moving = moving_at(overlay.broker("B1"))
    now_us = overlay.simulation.network.kernel.now
    overlay.wait(999_000 - now_us).fault(Pause(broker="B2", us=56_000)).wait(500_000)
    assert moving.delay_us("B2") == 60_000

    overlay.wait(7_000_000)
    assert moving.delay_us("B2") == 60_000
    overlay.wait(2_000_000)
    assert moving.delay_us("B2") == 10_000


@pytest.mark.spec("LM-4")
def test_small_changes_for_the_better_are_none() -> None:
    """So a link that is a little faster now and then causes no messages."""
    overlay = pair(LinkModel(latency_us=100_000, jitter_us=5_000))
    overlay.subscribe("ann", "room IN myloc").settle().wait(60_000_000)
    told = overlay.sent("MovingChange", "B1 → B2")
    delay_us = moving_at(overlay.broker("B1")).delay_us("B2")

    overlay.wait(300_000_000)

    assert delay_us is not None
    assert 200_000 < delay_us <= 210_000
    assert overlay.sent("MovingChange", "B1 → B2") <= told + 4


@pytest.mark.spec("LM-4")
def test_a_neighbour_without_places_is_not_waited_for() -> None:
    """It never answers; as soon as it has places, it does."""
    overlay = pair(LinkModel(latency_us=5_000))
    overlay.simulation.do(Reconfigure(broker="B2", settings=Settings()))
    overlay.subscribe("ann", "room IN myloc").wait(60_000_000)
    moving = moving_at(overlay.broker("B1"))
    assert len(moving.keep_measured().sent) == 1 + TRIPS_MAX

    overlay.simulation.do(Reconfigure(broker="B2", settings=Settings(places=PLACES)))
    overlay.wait(20_000)

    assert moving.keep_measured().sent == {}
    assert moving.delay_us("B2") == 10_000


@pytest.mark.spec("LM-4")
def test_a_round_trip_may_take_longer_than_many_probes() -> None:
    """The first probe is waited for, however many follow it."""
    overlay = pair(LinkModel(latency_us=15_000_000, jitter_us=0))
    overlay.subscribe("ann", "room IN myloc").wait(100_000_000)

    assert moving_at(overlay.broker("B1")).delay_us("B2") == 30_000_000


@pytest.mark.spec("LM-4")
def test_what_a_probe_costs_does_not_depend_on_how_many_links_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = make_broker("B1", Settings(places=PLACES))
    moving = moving_at(broker)
    sent: list[tuple[LinkId, int]] = []
    monkeypatch.setattr(broker, "send", lambda link, probe, _now: sent.append((link, probe.number)))
    broker.peers = {f"B{number}": Peer.BROKER for number in range(2, 30_000)}
    with soon(10):
        for link in broker.peers:
            Measuring.link_up(moving, link, 0)
        for link, number in sent:
            moving.on_probed(Probed(number=number), link, 5_000)
        for link, _ in sent:
            Measuring.link_down(moving, link, 5_000)

    assert moving.keep_measured().sent == {}
    assert moving.delay_us("B7") == 5_000
