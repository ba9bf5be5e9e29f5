"""What happens at devices is stated as facts of clients, for the audit, if that is wanted."""

from itertools import pairwise

import pytest

from sterna.core.facts import (
    Delivered,
    Detached,
    Fact,
    Published,
    RecordBegun,
    Restarted,
    Subscribed,
    Unsubscribed,
)
from sterna.core.inputs import Configured
from sterna.net.config import BrokerConfig
from sterna.net.nodes import settings_of
from tests.devices.world import Phone, World

pytestmark = pytest.mark.spec("LV-4", "PL-5")

JOURNAL = {"journal": True}


def stated(world: World, name: str = "mqtt:ann") -> list[Fact]:
    """The facts of a device, in the order in which they were stated."""
    return [fact for fact in world.facts if fact.at == name]


def kinds(found: list[Fact]) -> list[type[Fact]]:
    interesting = (
        *(RecordBegun, Restarted, Subscribed, Unsubscribed, Published, Delivered, Detached),
    )
    return [type(fact) for fact in found if isinstance(fact, interesting)]


def test_what_a_device_does_is_stated() -> None:
    world = World(1, mqtt=JOURNAL)
    Phone(world, "ann").connect("b1").subscribe("x").publish("x", "1").unsubscribe("x").lose()
    world.run()
    expected = [RecordBegun, Subscribed, Published, Delivered, Unsubscribed, Detached]
    assert kinds(stated(world)) == expected


def test_nothing_is_stated_unless_it_is_wanted() -> None:
    world = World(1)
    ann = Phone(world, "ann").connect("b1").subscribe("x").publish("x", "1")
    world.run()
    assert ann.received == ["1"]
    assert stated(world) == []

    config = BrokerConfig.from_mapping({"name": "b1", "mqtt": JOURNAL})
    turn = world.brokers["b1"].handle(Configured(settings=settings_of(config)), world.now)
    world.facts += turn.facts
    assert kinds(stated(world)) == [RecordBegun, Subscribed]  # From here on it is complete.
    ann.publish("x", "2")
    world.run()
    assert kinds(stated(world))[2:] == [Published, Delivered]


def test_a_session_that_begins_anew_is_another_life() -> None:
    """It may get again what the one before got."""
    world = World(1, mqtt=JOURNAL)
    ann = Phone(world, "ann").connect("b1").subscribe("x")
    world.run()
    ann.connect("b1", clean=True)
    world.run()
    assert kinds(stated(world)) == [RecordBegun, Subscribed, Detached, Unsubscribed, RecordBegun]


def test_after_a_kill_its_client_was_restarted() -> None:
    world = World(1, mqtt=JOURNAL)
    Phone(world, "ann").connect("b1").subscribe("x")
    world.run()
    world.kill("b1")
    world.restart("b1")
    assert kinds(stated(world)) == [RecordBegun, Subscribed, Restarted, Detached]


def test_times_ascend_although_the_next_broker_has_a_slow_clock() -> None:
    """For the audit knows the order of what two brokers have stated by nothing else."""
    world = World(2, mqtt=JOURNAL)
    ann = Phone(world, "ann").connect("b1").subscribe("x")
    bob = Phone(world, "bob").connect("b1")
    world.run()
    bob.publish("x", "1")
    world.run()
    world.devices_at("b1").devices["mqtt:ann"].time += 3_600_000_000  # As if by another clock.
    bob.publish("x", "2")
    world.run()
    ann.connect("b2")
    for number in range(3, 6):
        bob.publish("x", str(number))
        world.run()
    world.snapshot("b2")
    world.kill("b2")
    world.restart("b2")
    ann.connect("b2")
    bob.publish("x", "6")
    world.run()

    assert ann.received == [str(number) for number in range(1, 7)]
    found = stated(world)
    assert len([fact for fact in found if isinstance(fact, Delivered)]) == 6
    assert all(a.time <= b.time for a, b in pairwise(found))
    delivered = [fact.time for fact in found if isinstance(fact, Delivered)]
    assert len(set(delivered)) == 6
    assert delivered[-1] > world.now
