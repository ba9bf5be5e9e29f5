"""Moving subscriptions follow their clients, whichever brokers have places already."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.location.moving import MOVING, Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.location.steps import StepRule
from sterna.core.overlay.members import OVERLAY, Members
from sterna.core.settings import Settings
from sterna.sim.script import Drop, Reconfigure
from sterna.sim.topology import line
from tests.scale import examples
from tests.sim.overlay import RELOCATION, Overlay

HOUSE = PlacesOptions(edges=(("a", "b"), ("b", "c")), dwell_us=10_000_000)
PLACES, NO_PLACES = Settings(places=HOUSE), Settings()
SECOND = 1_000_000
RULES = pytest.mark.parametrize("rule", StepRule)


def by(rule: StepRule) -> Settings:
    """Settings with a house, where brokers count steps in some way."""
    return Settings(places=msgspec.structs.replace(HOUSE, rule=rule))


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


# ---- Broker by broker


@pytest.mark.spec("LV-9", "LM-3")
@RULES
def test_places_are_introduced_broker_by_broker(rule: StepRule) -> None:
    """Once all brokers have places, a subscription from before works like any other."""
    run = Overlay(line(3), {"sub": "B1", "pub": "B3"})
    configure(run, by(rule), "B1")
    run.move("sub", "a").subscribe("sub", "room IN myloc").settle()

    for broker in ("B3", "B2"):
        configure(run, by(rule), broker)
        run.settle()
    run.publish("pub", room="a").settle()

    assert run.received("sub") == ["pub#1"]


@pytest.mark.spec("LV-9", "LM-3")
@RULES
def test_a_broker_without_places_gets_them_back(rule: StepRule) -> None:
    """What it was sent in the meantime, and has ignored, is sent again."""
    places = by(rule)
    run = Overlay(line(2), {"sub": "B1", "pub": "B2"}, places=places.places, locations={"sub": "a"})
    configure(run, NO_PLACES, "B2")
    run.subscribe("sub", "room IN myloc").settle()

    configure(run, places, "B2")
    run.settle().publish("pub", room="a").settle()

    assert run.received("sub") == ["pub#1"]


@pytest.mark.spec("LV-9", "LM-3")
@RULES
@pytest.mark.parametrize("tells", [True, False])
def test_a_client_goes_to_a_broker_that_gets_places_later(rule: StepRule, *, tells: bool) -> None:
    """The client announces its subscriptions again, also if it knew the places before."""
    places = by(rule)
    run = Overlay(line(2), {"sub": "B1", "pub": "B1"}, handover=RELOCATION)
    with_handover = msgspec.structs.replace(places, handover=RELOCATION)
    configure(run, with_handover, "B1")
    run.move("sub", "a").subscribe("sub", "room IN myloc").settle()
    run.attach("sub", "B2").settle()

    run.simulation.do(Reconfigure(broker="B2", settings=with_handover, tells=tells))
    run.settle().publish("pub", room="a").settle()

    assert run.received("sub") == ["pub#1"]


@pytest.mark.spec("LV-9", "LM-3")
@examples(60, long=10)
@given(st.sampled_from(StepRule), st.integers(0, 2**32))
def test_places_come_and_go_while_clients_walk(rule: StepRule, seed: int) -> None:
    """When all brokers have places, each knows exactly what its neighbours have announced to it."""
    rng = random.Random(f"comes and goes {seed}")  # noqa: S311 - reproducible.
    brokers = ("B1", "B2", "B3")
    places = by(rule)
    clients = {"ann": "B1", "bob": "B2", "eve": "B3"}
    run = Overlay(
        line(3), clients, places=places.places, locations=dict.fromkeys(clients, "a"), seed=seed
    )
    wanting = set[str]()
    for _ in range(30):
        client = rng.choice(list(clients))
        match rng.randrange(5):
            case 0 | 1:
                configure(run, rng.choice((places, NO_PLACES)), rng.choice(brokers))
            case 2 if client in wanting:
                run.unsubscribe(client)
                wanting.remove(client)
            case 2 if run.client(client).part(MOVING.name) is not None:
                run.move(client, rng.choice("abc")).subscribe(client, "room IN myloc")
                wanting.add(client)
            case 3 if client in wanting:
                run.move(client, rng.choice("abc"))
            case _:
                run.wait(rng.choice((1, 1_000, SECOND)))

    configure(run, places, *brokers)
    run.settle()

    for broker in brokers:
        for neighbour in set(run.broker(broker).peers) & set(brokers):
            known = moving(run, broker).table.get(neighbour, {})
            assert known == moving(run, neighbour).announced(broker)
    run.publish("eve", room="a").publish("eve", room="b").publish("eve", room="c").settle()
    assert run.outcome().findings == []
    assert all(len(run.received(client)) == (client in wanting) for client in clients)


def moving(run: Overlay, broker: str) -> Moving:
    """A broker's part in moving subscriptions."""
    part = run.broker(broker).part(MOVING.name)
    assert isinstance(part, Moving)
    return part
