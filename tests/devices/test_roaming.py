"""Sessions follow their devices from broker to broker."""

import pytest

from sterna.mqtt.packets import Connack, Disconnect, ReasonCode, Will
from tests.devices.world import Phone, World


@pytest.mark.spec("LV-4")
def test_a_session_travels_with_its_device() -> None:
    """What waited, what was not acknowledged, and what is published meanwhile come in order."""
    world = World(3)
    ann, bob = Phone(world, "ann").connect("b1"), Phone(world, "bob").connect("b3")
    ann.subscribe("x/#")
    world.run()
    bob.publish("x/1", "1")
    world.run()
    ann.answers = False
    bob.publish("x/1", "2")
    world.run()
    ann.lose()
    bob.publish("x/1", "3")
    world.run()

    ann.answers = True
    ann.connect("b2")
    bob.publish("x/1", "4")
    world.run()

    assert ann.is_present
    assert ann.received == ["1", "2", "3", "4"]
    assert not world.devices_at("b1").devices
    assert list(world.devices_at("b2").devices) == [ann.name]
    assert world.brokers["b1"].peers.keys() == {"b2"}


@pytest.mark.spec("LV-4")
def test_a_connection_elsewhere_takes_over() -> None:
    """The other one is told 0x8E, and the will is not published."""
    world = World(2)
    ann = Phone(world, "ann").connect("b1", will=Will("gone", b"ann"))
    bob = Phone(world, "bob").connect("b2").subscribe("gone")
    world.run()
    again = Phone(world, "ann").connect("b2")
    world.run()

    assert again.is_present
    assert [p for p in ann.packets if isinstance(p, Disconnect)][-1].reason_code == (
        ReasonCode.SESSION_TAKEN_OVER
    )
    assert not ann.broker
    assert again.broker == "b2"
    assert not bob.received


@pytest.mark.spec("LV-4")
def test_what_a_device_publishes_while_its_session_travels() -> None:
    world = World(3)
    ann, bob = Phone(world, "ann").connect("b1"), Phone(world, "bob").connect("b3")
    bob.subscribe("x")
    world.run()
    for number in range(3):
        ann.publish("x", str(number))
    ann.lose()
    ann.connect("b2")
    for number in range(3, 6):
        ann.publish("x", str(number))
    world.run()
    ann.vanish()
    ann.publish("x", "6").connect("b3")
    world.run()

    assert bob.received == [str(number) for number in range(7)]
    assert ann.is_done


@pytest.mark.spec("LV-4")
def test_a_session_that_cannot_be_reached() -> None:
    """The device is refused after a while, and gets its session when the broker is back."""
    world = World(3)
    ann = Phone(world, "ann").connect("b1").subscribe("x")
    bob = Phone(world, "bob").connect("b3")
    world.run()
    ann.lose()
    bob.publish("x", "1")
    world.run()
    world.kill("b1")
    ann.connect("b2")
    world.wait(4)
    assert ann.broker
    world.wait(2)
    assert not ann.broker
    refusal = ann.packets[-1]
    assert getattr(refusal, "reason_code", None) == ReasonCode.SERVER_UNAVAILABLE

    world.restart("b1")
    ann.connect("b2")
    bob.publish("x", "2")
    world.run()

    assert ann.is_present
    assert ann.received == ["1", "2"]


@pytest.mark.spec("LV-4")
def test_a_session_that_is_lost_for_long() -> None:
    """After a minute the device gets a new one; the old one is given up when it turns up."""
    world = World(3)
    ann = Phone(world, "ann").connect("b1").subscribe("x")
    world.run()
    ann.lose()
    world.kill("b1")
    for _ in range(13):
        if not ann.broker:
            ann.connect("b2")
        world.wait(5)
    assert ann.broker
    assert not ann.is_present
    ann.subscribe("y")
    world.restart("b1")
    world.run()
    Phone(world, "bob").connect("b1").publish("x", "1").publish("y", "2")
    world.run()

    assert ann.received == ["2"]
    assert ann.broker == "b2"
    assert not [name for name in world.devices_at("b1").devices if name == ann.name]


@pytest.mark.spec("LV-4")
def test_clean_start_elsewhere_ends_the_old_session() -> None:
    world = World(2)
    ann = Phone(world, "ann").connect("b1").subscribe("x")
    world.run()
    again = Phone(world, "ann").connect("b2", clean=True).subscribe("y")
    world.run()
    Phone(world, "bob").connect("b1").publish("x", "1").publish("y", "2")
    world.run()

    assert not again.is_present
    assert again.received == ["2"]
    assert not ann.broker
    assert "mqtt:ann" not in world.devices_at("b1").devices


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("clean", [False, True])
def test_two_brokers_at_the_same_moment(clean: bool) -> None:
    """Exactly one of them holds the session in the end, whether there was one before or not."""
    world = World(4)
    if not clean:
        Phone(world, "ann").connect("b4").subscribe("x")
        world.run()
    one, other = Phone(world, "ann"), Phone(world, "ann")
    one.connect("b1", clean=clean)
    other.connect("b3", clean=clean)
    world.run()

    assert sorted([bool(one.broker), bool(other.broker)]) == [False, True]
    holders = [b for b in world.names if "mqtt:ann" in world.devices_at(b).devices]
    assert holders == [one.broker or other.broker]
    winner = one if one.broker else other
    if not clean:
        assert winner.is_present
    winner.subscribe("z")
    world.run()
    Phone(world, "bob").connect("b2").publish("z", "1")
    world.run()
    assert winner.received == ["1"]


@pytest.mark.spec("LV-4")
def test_nothing_is_acknowledged_before_it_can_be_published() -> None:
    """While what the old broker has kept is on its way, the device's messages wait with it."""
    world = World(3)
    ann, bob = Phone(world, "ann").connect("b1"), Phone(world, "bob").connect("b3").subscribe("x")
    world.run()
    ann.lose()
    ann.connect("b2")
    while not any(isinstance(packet, Connack) for packet in ann.packets[1:]):
        world.step()
    world.cut("b1", "b2")
    ann.publish("x", "1", 1).publish("x", "2", 2)
    world.run()
    was_done = ann.is_done
    assert bob.received == []

    world.join("b1", "b2")
    world.run()
    assert (was_done, ann.is_done) == (False, True)
    assert bob.received == ["1", "2"]


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("reconnects", [False, True])
def test_what_waits_to_be_published_counts_as_not_acknowledged(
    count: int,
    reconnects: bool,
) -> None:
    """A device may send receive maximum messages with QoS 1 or 2, and again once they are done."""
    world = World(3, mqtt={"receive_maximum": 2})
    ann, bob = Phone(world, "ann").connect("b1"), Phone(world, "bob").connect("b3").subscribe("x")
    world.run()
    ann.lose()
    ann.connect("b2")
    while not any(isinstance(packet, Connack) for packet in ann.packets[1:]):
        world.step()
    world.cut("b1", "b2")
    ann.publish("x", "0", 0).publish("x", "1", 1)
    if reconnects:
        ann.lose()
        ann.connect("b2")  # It sends again what is not acknowledged.
        world.run()
    ann.publish("x", "2", 1)
    if count == 3:
        ann.publish("x", "3", 2)
    world.run()
    refused = [packet for packet in ann.packets if isinstance(packet, Disconnect)]
    codes = [packet.reason_code for packet in refused]
    assert codes == ([ReasonCode.RECEIVE_MAXIMUM_EXCEEDED] if count == 3 else [])
    if count == 2:
        world.join("b1", "b2")
        world.run()
        ann.publish("x", "4", 1).publish("x", "5", 1)
        world.run()
        assert not any(isinstance(packet, Disconnect) for packet in ann.packets)
        assert ann.is_done
        assert bob.received == ["0", "1", *(["1"] if reconnects else []), "2", "4", "5"]


@pytest.mark.spec("LV-4")
def test_a_session_that_comes_too_late_is_given_up() -> None:
    """The device has got another one meanwhile, which goes on."""
    world = World(3)
    ann = Phone(world, "ann").connect("b1").subscribe("x")
    world.run()
    ann.lose()
    ann.connect("b3")
    while ann.name in world.devices_at("b1").devices:
        world.step()
    world.cut("b2", "b3")
    for _ in range(14):
        if not ann.broker:
            ann.connect("b3")
        world.wait(5)
    assert ann.broker
    assert not ann.is_present
    ann.subscribe("y")
    world.join("b2", "b3")
    world.run()
    Phone(world, "bob").connect("b1").publish("x", "1").publish("y", "2")
    world.run()

    assert ann.broker == "b3"
    assert ann.received == ["2"]


@pytest.mark.spec("LV-4")
def test_a_broker_that_joins_learns_of_sessions_and_retained_messages() -> None:
    world = World(2, joined=False)
    ann = Phone(world, "ann").connect("b1").subscribe("x")
    ann.publish("kept", "1", retain=True)
    world.run()
    world.join("b1", "b2")
    world.run()
    reader = Phone(world, "reader").connect("b2").subscribe("kept")
    ann.connect("b2")
    world.run()

    assert reader.received == ["1"]
    assert ann.is_present


@pytest.mark.spec("LV-4")
def test_a_session_that_has_ended_is_not_looked_for() -> None:
    """All brokers know that it has: the device is welcome elsewhere at once."""
    world = World(2)
    ann = Phone(world, "ann").connect("b1", expiry_s=0)
    world.run()
    ann.lose()
    world.run()
    world.kill("b1")
    ann.connect("b2")
    world.run()

    assert ann.connack is not None
    assert not ann.is_present
