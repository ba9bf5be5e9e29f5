"""Statements of MQTT about single packets, and topics that belong to the brokers."""

import pytest

from sterna.mqtt.packets import (
    Connack,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Version,
    Will,
)
from tests.devices.test_session import deliveries, last, pair
from tests.devices.world import Phone, World

pytestmark = pytest.mark.spec("LV-4")

RESERVED = ["$SYS/broker/uptime", "$SYS", "$sterna/x", "$sterna/location/x"]


@pytest.mark.parametrize("topic", RESERVED)
def test_a_device_cannot_publish_for_the_brokers(topic: str) -> None:
    world, ann, bob = pair()
    ann.subscribe("$SYS/#", "$sterna/#", "#")
    bob.say(*(Publish(topic, b"x", qos, retain=True, packet_id=qos) for qos in range(3)))
    bob.say(Publish("open", b"x", 1, packet_id=4), Publish("$other/x", b"x", 1, packet_id=5))
    world.run()
    found = {
        packet.packet_id: packet for packet in bob.packets if isinstance(packet, Puback | Pubrec)
    }
    assert found[1].reason_code is found[2].reason_code is ReasonCode.NOT_AUTHORIZED
    assert "$sterna/location" in str(found[1].reason_string)
    assert found[4].reason_code is found[5].reason_code is ReasonCode.SUCCESS
    assert [each.publish.topic for each in deliveries(ann)] == ["open"]
    assert not len(world.devices_at("b1").retained_messages)
    assert world.devices_at("b1").ignored == {"topic": 3}


def test_in_3_1_1_what_a_device_cannot_publish_is_acknowledged_and_dropped() -> None:
    world = World(1)
    ann = Phone(world, "ann").connect("b1").subscribe("$SYS/#", "x")
    old = Phone(world, "old", version=Version.V311).connect("b1", clean=True)
    for qos in range(3):
        old.publish("$SYS/x", str(qos), qos, retain=True)
    old.publish("x", "last")
    world.run()
    assert old.is_done
    assert ann.received == ["last"]


def test_an_identifier_is_free_again_after_a_refusal() -> None:
    """MQTT-4.3.3-9: after a PUBREC that refuses, the same identifier is a new message."""
    world, ann, bob = pair()
    ann.subscribe("x")
    bob.answers = False
    bob.say(Publish("$SYS/x", b"0", 2, packet_id=5))
    bob.say(Publish("x", b"1", 2, packet_id=5), Publish("x", b"1", 2, dup=True, packet_id=5))
    bob.say(Pubrel(5))
    world.run()
    codes = [packet.reason_code for packet in bob.packets if isinstance(packet, Pubrec)]
    assert codes == [ReasonCode.NOT_AUTHORIZED, ReasonCode.SUCCESS, ReasonCode.SUCCESS]
    assert last(bob, Pubcomp) == Pubcomp(5)
    assert ann.received == ["1"]


def test_an_exchange_goes_on_after_the_message_has_expired() -> None:
    """MQTT-4.3.3-13, for a message that nobody has got."""
    world, ann, bob = pair()
    ann.subscribe("x")
    world.run()
    ann.lose()
    bob.answers = False
    bob.say(Publish("x", b"1", 2, packet_id=5, message_expiry_s=2))
    world.wait(10)
    bob.say(Publish("x", b"1", 2, dup=True, packet_id=5, message_expiry_s=2), Pubrel(5))
    ann.connect("b1")
    world.run()
    assert [packet for packet in bob.packets if isinstance(packet, Pubrec)] == [Pubrec(5)] * 2
    assert last(bob, Pubcomp) == Pubcomp(5)
    assert ann.received == []


def test_each_copy_carries_the_identifier_of_its_subscription() -> None:
    """A message comes once for all subscriptions of its own, and once for a shared one."""
    world, ann, bob = pair()
    ann.subscribe("x", subscription_identifier=7)
    ann.subscribe("$share/g/x", subscription_identifier=3)
    ann.subscribe("+", subscription_identifier=9)
    world.run()
    bob.publish("x", "1", 1)
    world.run()
    assert sorted(sorted(each.identifiers) for each in deliveries(ann)) == [[3], [7, 9]]


@pytest.mark.parametrize("version", list(Version))
def test_a_retained_message_with_qos_0_replaces_the_one_before(version: Version) -> None:
    world = World(1)
    bob = Phone(world, "bob", version=version).connect("b1")
    bob.publish("x", "1", 2, retain=True)
    bob.publish("x", "2", 0, retain=True)
    world.run()
    ann = Phone(world, "ann").connect("b1").subscribe("x")
    world.run()
    assert ann.received == ["2"]


@pytest.mark.parametrize("version", list(Version))
def test_who_sends_more_than_can_be_processed_now_is_disconnected(version: Version) -> None:
    """What is not acknowledged is sent again, and nothing is lost."""
    world = World(2)
    ann = Phone(world, "ann").connect("b2").subscribe("x")
    bob = Phone(world, "bob", version=version).connect("b1", clean=False)
    world.run()
    bob.publish("x", "first")
    world.run()
    bob.connect("b2", clean=False)
    while bob.connack is None and world.step():
        pass
    world.cut("b1", "b2")  # The session is there, and its client may not publish yet.
    for number in range(10):
        bob.publish("x", f"{number}" * 900_000, 1)
    world.run()
    assert not bob.broker
    assert ann.received == ["first"]
    if version is Version.V5:
        assert last(bob, Disconnect).reason_code is ReasonCode.QUOTA_EXCEEDED

    world.join("b1", "b2")
    world.run()
    bob.connect("b2", clean=False)
    world.run()
    assert bob.is_done
    assert {each[0] for each in ann.received} == {"f", *map(str, range(10))}


@pytest.mark.parametrize(
    ("maximum", "asked", "told", "version"),
    [
        (0, 3600, None, Version.V5),
        (60, 30, None, Version.V5),
        (60, 60, None, Version.V5),
        (60, 61, 60, Version.V5),
        (60, 0, 60, Version.V5),
        (60, 3600, None, Version.V311),
    ],
)
def test_the_keep_alive_is_that_of_the_client_unless_it_is_told_another(
    maximum: int, asked: int, told: int | None, version: Version
) -> None:
    world = World(1, mqtt={"keep_alive_max_s": maximum})
    ann = Phone(world, "ann", version=version).connect("b1", clean=True, keep_alive_s=asked)
    assert last(ann, Connack).server_keep_alive_s == told


def test_there_is_a_limit_of_retained_messages() -> None:
    world = World(1, mqtt={"retained_max": 2})
    bob = Phone(world, "bob").connect("b1")
    for number, topic in enumerate(["a", "b", "a", "c"], 1):
        bob.say(Publish(topic, b"x", 1, retain=True, packet_id=number))
    codes = [packet.reason_code for packet in bob.packets if isinstance(packet, Puback)]
    assert codes == [ReasonCode.SUCCESS] * 3 + [ReasonCode.QUOTA_EXCEEDED]


@pytest.mark.parametrize(("moves", "expected"), [(True, []), (False, ["gone"])])
def test_the_will_of_a_device_that_was_sent_elsewhere_waits(
    moves: bool,
    expected: list[str],
) -> None:
    """Unless its session ends at once. A broker that has ended meanwhile publishes it later."""
    world = World(2)
    ann = Phone(world, "ann").connect("b1", will=Will("w", b"gone", 1))
    short = Phone(world, "short").connect("b1", expiry_s=0, will=Will("s", b"short", 1))
    bob = Phone(world, "bob").connect("b2").subscribe("w", "s")
    world.run()
    for phone in (ann, short):
        phone.lose(grace_s=10)
    world.run()
    assert bob.received == ["short"]
    if moves:
        ann.connect("b2")
    else:
        world.snapshot("b1")
        world.kill("b1")
        world.wait(20)
        world.restart("b1")
    world.wait(20)
    assert bob.received[1:] == expected
