"""A SUBSCRIBE that gives a topic filter another filter for the content loses nothing.

(MQTT-3.8.4-4 of 5.0, MQTT-3.8.4-3 of 3.1.1)
"""

import random

import pytest

from tests.devices.test_session import deliveries
from tests.devices.world import Phone, World
from tests.scale import seeds

pytestmark = pytest.mark.spec("LV-4", "LV-11")


def subscribe(phone: Phone, where: str, qos: int = 2, **more: int) -> None:
    phone.subscribe("x", qos=qos, user_properties=(("where", where),) if where else (), **more)


def publish(phone: Phone, number: int) -> None:
    properties = (("n", str(number)), ("k", str(number % 5)))
    phone.publish("x", str(number), user_properties=properties)


def wanted_by(world: World, broker: str) -> list[str]:
    """The filters of the client inside the broker."""
    client = world.devices_at(broker).devices["mqtt:ann"].client
    return [str(each) for each in client.subscriptions.values()]


def test_what_a_slow_device_has_not_taken_comes() -> None:
    """As the new subscription wants it: its QoS, its identifier."""
    world = World(1)
    ann = Phone(world, "ann").connect("b1", receive_maximum=1)
    bob = Phone(world, "bob").connect("b1")
    subscribe(ann, "n < 5")
    world.run()
    ann.answers = False
    for number in range(7):
        publish(bob, number)
    world.run()
    subscribe(ann, "n > 5", qos=1, subscription_identifier=9)
    for number in range(4, 8):
        publish(bob, number)
    world.run()
    ann.answers = True
    world.run()
    publish(bob, 1)
    publish(bob, 9)
    world.run()
    assert ann.received == ["0", "1", "2", "3", "4", "4", "6", "7", "9"]
    assert [each.qos for each in deliveries(ann)][2:] == [1] * 7
    assert [each.identifiers for each in deliveries(ann)][2:] == [(9,)] * 7
    assert len(wanted_by(world, "b1")) == 1


def test_what_is_on_its_way_between_brokers_comes() -> None:
    world = World(3)
    ann, bob = Phone(world, "ann").connect("b3"), Phone(world, "bob").connect("b1")
    subscribe(ann, "n = 1")
    world.run()
    publish(bob, 1)  # It has not left the first broker.
    subscribe(ann, "n = 2")
    world.run()
    assert ann.received == ["1"]
    publish(bob, 1)
    publish(bob, 2)
    world.run()
    assert ann.received == ["1", "2"]
    assert len(wanted_by(world, "b3")) == 1


def test_it_waits_for_brokers_that_cannot_be_reached() -> None:
    """What was published there before they knew better comes, also when it changes once more."""
    world = World(2)
    ann, bob = Phone(world, "ann").connect("b2"), Phone(world, "bob").connect("b1")
    subscribe(ann, "n = 1")
    world.run()
    world.cut("b1", "b2")
    publish(bob, 1)
    subscribe(ann, "n = 2")
    subscribe(ann, "n = 3")
    world.run()
    assert len(wanted_by(world, "b2")) == 3
    world.snapshot("b2")
    world.kill("b2")
    world.restart("b2")
    ann.connect("b2")
    world.run()
    assert ann.received == ["1"]
    for number in range(1, 4):
        publish(bob, number)
    world.run()
    assert ann.received == ["1", "3"]
    assert len(wanted_by(world, "b2")) == 1


def test_unsubscribing_ends_all_of_it() -> None:
    world = World(2)
    ann, bob = Phone(world, "ann").connect("b2"), Phone(world, "bob").connect("b1")
    subscribe(ann, "n = 1")
    world.run()
    world.cut("b1", "b2")
    subscribe(ann, "n = 2")
    ann.unsubscribe("x")
    world.run()
    assert wanted_by(world, "b2") == []
    world.join("b1", "b2")
    publish(bob, 1)
    world.run()
    assert ann.received == []


@pytest.mark.parametrize("seed", seeds(40))
def test_nothing_is_lost_and_nothing_comes_twice(seed: int) -> None:
    """Filters change while messages are on their way, and devices are slow, away, or elsewhere."""
    rng = random.Random(f"replacing {seed}")  # noqa: S311 - reproducible, not secret.
    world = World(3)
    ann = Phone(world, "ann").connect("b1", receive_maximum=2)
    writers = [Phone(world, f"w{n}").connect(f"b{n}") for n in range(1, 4)]
    low, number, expected, possible = 0, 0, set(), set()
    subscribe(ann, f"k >= {low}")
    world.run()
    for _ in range(12):
        ann.answers = rng.random() < 0.5
        before = low
        for _ in range(rng.randrange(6)):
            number += 1
            publish(rng.choice(writers), number)
            if number % 5 >= before:
                expected.add(str(number))
            if rng.random() < 0.3:
                world.step()
        if rng.random() < 0.4:
            ann.lose()
        if not ann.broker:
            ann.connect(rng.choice(world.names), receive_maximum=2)
            while ann.connack is None and world.step():
                pass
        for _ in range(rng.randrange(3)):
            low = rng.randrange(5)
            subscribe(ann, f"k >= {low}")
        for _ in range(rng.randrange(4)):
            number += 1
            publish(rng.choice(writers), number)
            possible.add(str(number))
            if number % 5 >= low and low == before:
                expected.add(str(number))
        ann.answers = True
        world.run()
        assert expected <= set(ann.received) <= expected | possible
        assert len(ann.received) == len(set(ann.received))
        possible |= expected
    assert len(wanted_by(world, ann.broker)) == 1
