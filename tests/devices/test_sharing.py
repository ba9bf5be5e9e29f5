"""Shared subscriptions: each message goes to one member, wherever the members are."""

import random
from collections import Counter

import pytest

from sterna.mqtt.packets import Connack, Puback, ReasonCode, Suback, Version
from tests.devices.world import Phone, World
from tests.scale import CAMPAIGN

pytestmark = pytest.mark.spec("LV-4")

SHARE = "$share/group/x/#"


def members_of(world: World, *at: str, qos: int = 1) -> list[Phone]:
    found = [
        Phone(world, f"m{number}").connect(broker).subscribe(SHARE, qos=qos)
        for number, broker in enumerate(at)
    ]
    world.run()
    return found


def received(members: list[Phone]) -> list[str]:
    return sorted(each for member in members for each in member.received)


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member(brokers: int, qos: int) -> None:
    """They take turns; who subscribes without sharing gets all."""
    world = World(brokers)
    last = f"b{brokers}"
    members = members_of(world, "b1", last, "b1", qos=qos)
    other = Phone(world, "other").connect("b1").subscribe("x/#")
    publisher = Phone(world, "publisher").connect(last)
    world.run()
    for number in range(30):
        publisher.publish(f"x/{number}", f"{number:02}")
    world.run()

    assert received(members) == [f"{number:02}" for number in range(30)]
    assert [len(member.received) for member in members] == [10, 10, 10]
    assert len(other.received) == 30
    connack = members[0].packets[0]
    assert isinstance(connack, Connack)
    assert connack.shared_subscription_available


def test_groups_are_apart() -> None:
    """By their names, their topic filters, and their filters for the content."""
    world = World(1)
    phones = [
        Phone(world, f"m{number}").connect("b1").subscribe(share, user_properties=more)
        for number, (share, more) in enumerate(
            [
                ("$share/a/x", ()),
                ("$share/b/x", ()),
                ("$share/a/+", ()),
                ("$share/a/x", (("where", "n > 1"),)),
            ]
        )
    ]
    world.run()
    publisher = Phone(world, "publisher").connect("b1")
    for number in range(3):
        publisher.publish("x", str(number), user_properties=(("n", str(number)),))
    world.run()

    assert [phone.received for phone in phones] == [["0", "1", "2"]] * 3 + [["2"]]


def test_another_member_gets_what_a_lost_one_has_not_acknowledged() -> None:
    world = World(2)
    lost, other = members_of(world, "b1", "b2")
    lost.answers = False
    publisher = Phone(world, "publisher").connect("b2")
    for number in range(10):
        publisher.publish("x/1", str(number), 1)
    world.run()
    assert len(lost.received) == 5
    lost.lose()
    world.run()

    assert sorted(other.received) == [str(number) for number in range(10)]


def test_nobody_else_gets_what_a_member_may_have_with_qos_2() -> None:
    """It gets it when it is back, once. (MQTT 5.0, 4.8.2-4)"""
    world = World(2)
    away, other = members_of(world, "b1", "b2", qos=2)
    away.answers = False
    publisher = Phone(world, "publisher").connect("b2")
    for number in range(10):
        publisher.publish("x/1", str(number))
    world.run()
    away.lose()
    world.run()
    assert len(other.received) == 5
    away.answers = True
    away.connect("b2")
    world.run()

    assert received([away, other]) == [str(number) for number in range(10)]


def test_nobody_else_gets_what_a_member_had_whose_session_ends() -> None:
    """Neither what it may have with QoS 2, nor what it has refused. (MQTT 5.0, 4.8.2-5 and 6)"""
    world = World(2)
    ends, other = members_of(world, "b1", "b2", qos=2)
    refuses = Phone(world, "refuses").connect("b1").subscribe(SHARE, qos=1)
    world.run()
    ends.answers = refuses.answers = False
    publisher = Phone(world, "publisher").connect("b2")
    for number in range(9):
        publisher.publish("x/1", str(number))
    world.run()
    assert [len(each.received) for each in (ends, other, refuses)] == [3, 3, 3]
    for packet in list(refuses.messages):
        refuses.say(Puback(packet.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    ends.connect("b1", clean=True)
    refuses.lose()
    world.run()

    assert len(other.received) == 3
    (group,) = (group for b in world.names for group in world.devices_at(b).groups.values())
    assert group.group.load.events == 0


def test_messages_wait_while_no_member_is_connected() -> None:
    """For the first one that is back, wherever that is."""
    world = World(3)
    one, other = members_of(world, "b1", "b2")
    one.lose()
    other.lose()
    world.run()
    publisher = Phone(world, "publisher").connect("b3")
    for number in range(5):
        publisher.publish("x/1", str(number), 1)
    world.run()
    assert received([one, other]) == []
    other.connect("b3")
    world.run()

    assert other.received == [str(number) for number in range(5)]


def test_a_group_ends_with_its_last_member() -> None:
    world = World(2)
    one, other = members_of(world, "b1", "b2")
    one.unsubscribe(SHARE)
    other.connect("b2", clean=True)
    world.run()
    assert not any(world.devices_at(broker).groups for broker in world.names)
    Phone(world, "publisher").connect("b1").publish("x/1", "1")
    world.run()
    assert received([one, other]) == []

    one.subscribe(SHARE)
    world.run()
    Phone(world, "later").connect("b2").publish("x/1", "2")
    world.run()
    assert received([one, other]) == ["2"]


def test_two_members_at_the_same_moment_make_one_group() -> None:
    world = World(4)
    members = [Phone(world, f"m{n}").connect(f"b{n + 1}") for n in range(4)]
    world.run()
    for member in members:
        member.subscribe(SHARE, qos=1)
    world.run()
    assert sum(len(world.devices_at(broker).groups) for broker in world.names) == 1
    publisher = Phone(world, "publisher").connect("b1")
    for number in range(20):
        publisher.publish("x/1", f"{number:02}", 1)
    world.run()

    assert received(members) == [f"{number:02}" for number in range(20)]
    assert all(member.received for member in members)


def test_a_group_goes_on_after_a_restart_of_its_broker() -> None:
    """Although none of its members is there."""
    world = World(2)
    (first,) = members_of(world, "b1")
    other = Phone(world, "other").connect("b2").subscribe(SHARE, qos=1)
    world.run()
    assert world.devices_at("b1").groups
    first.unsubscribe(SHARE)
    world.run()
    world.kill("b1")
    world.restart("b1")
    world.run()
    Phone(world, "publisher").connect("b2").publish("x/1", "1")
    world.run()

    assert other.received == ["1"]


def test_a_slow_member_does_not_hold_up_the_others() -> None:
    world = World(1)
    slow, other = members_of(world, "b1", "b1")
    slow.answers = False
    publisher = Phone(world, "publisher").connect("b1")
    for number in range(1000):
        publisher.publish("x/1", str(number), 1)
    world.run()

    assert len(slow.received) == 200
    assert len(other.received) == 800
    slow.say(*(Puback(number) for number in range(1, 11)))
    assert slow.broker


def test_3_1_1_has_no_shared_subscriptions() -> None:
    """There, it is a topic filter like any other."""
    world = World(1)
    phone = Phone(world, "old", version=Version.V311).connect("b1").subscribe(SHARE)
    Phone(world, "publisher").connect("b1").publish("x/1", "1").publish("$share/group/x/1", "2")
    world.run()
    assert [packet for packet in phone.packets if isinstance(packet, Suback)]
    assert phone.received == ["2"]


@pytest.mark.parametrize("block", range(5))
def test_members_that_come_and_go(block: int) -> None:
    """QoS 1 at least once, QoS 2 exactly once by one of them, with moves, cuts and kills."""
    for seed in range(block * 20 * CAMPAIGN, (block + 1) * 20 * CAMPAIGN):
        try:
            run_members(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def run_members(seed: int) -> None:
    """One random run."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret.
    world = World(rng.randint(1, 4))
    qos = rng.randint(1, 2)
    at = [rng.choice(world.names) for _ in range(rng.randint(1, 4))]
    members = members_of(world, *at, qos=qos)
    publisher = Phone(world, "publisher").connect(rng.choice(world.names))
    world.run()
    sent = 0
    for _ in range(rng.randint(5, 40)):
        member = rng.choice(members)
        match rng.randrange(10):
            case 0 | 1 | 2 | 3:
                for _ in range(rng.choice((1, 5))):
                    publisher.publish("x/1", f"{sent:03}", qos)
                    sent += 1
            case 4:
                member.connect(rng.choice(world.names))
            case 5:
                if member.broker:
                    member.lose()
            case 6:
                member.answers = not member.answers
            case 7:
                name = rng.choice(world.names)
                if name not in world.down:
                    world.kill(name)
                    world.restart(name)
            case 8:
                world.snapshot(rng.choice(world.names))
            case _:
                publisher.connect(rng.choice(world.names))
        for _ in range(rng.choice((0, 1, 3, 100))):
            world.step()
    for _ in range(3):
        for phone in (publisher, *members):
            phone.answers = True
            if not phone.broker or rng.random() < 0.3:
                phone.connect(rng.choice(world.names))
        world.wait(6)
    counts = Counter(each for member in members for each in member.received)
    assert sorted(counts) == [f"{number:03}" for number in range(sent)]
    if qos == 2:
        assert set(counts.values()) <= {1}, {k: v for k, v in counts.items() if v > 1}
    assert publisher.is_done
