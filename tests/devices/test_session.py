"""What a server does with the packets of one device. (MQTT 5.0, 3 and 4)"""

from typing import Any

import pytest

from sterna.devices.filters import why_no_filter
from sterna.devices.frames import Delivery
from sterna.mqtt.packets import (
    Auth,
    Connack,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from tests.devices.world import Phone, World

pytestmark = pytest.mark.spec("LV-4")


def last(phone: Phone, kind: type[Any]) -> Any:
    """The last packet of a kind that a device got."""
    return [packet for packet in phone.packets if isinstance(packet, kind)][-1]


def deliveries(phone: Phone) -> list[Delivery]:
    return [packet for packet in phone.packets if isinstance(packet, Delivery)]


def pair(**more: Any) -> tuple[World, Phone, Phone]:
    world = World(1)
    return world, Phone(world, "ann").connect("b1", **more), Phone(world, "bob").connect("b1")


# ---- Connections and sessions


def test_session_present_and_expiry() -> None:
    world, ann, bob = pair(expiry_s=10)
    assert last(ann, Connack).session_present is False
    ann.subscribe("x")
    ann.lose()
    world.wait(9)
    bob.publish("x", "kept")
    ann.connect("b1", expiry_s=10)
    world.run()
    assert last(ann, Connack).session_present
    assert ann.received == ["kept"]

    ann.lose()
    world.wait(11)
    bob.publish("x", "lost")
    ann.connect("b1", expiry_s=10)
    world.run()
    assert not last(ann, Connack).session_present
    assert ann.received == ["kept"]


def test_a_session_that_is_not_to_last_ends_with_its_connection() -> None:
    world, ann, _ = pair(expiry_s=0)
    ann.subscribe("x")
    world.run()
    ann.lose()
    world.run()
    assert "mqtt:ann" not in world.brokers["b1"].peers
    ann.connect("b1", expiry_s=0)
    world.run()
    assert not ann.is_present


def test_clean_session_of_3_1_1() -> None:
    world = World(1)
    ann = Phone(world, "ann", version=Version.V311)
    ann.connect("b1", clean=False).subscribe("x")
    world.run()
    ann.lose()
    found = []
    for clean in (False, True, False):
        ann.connect("b1", clean=clean)
        found.append(ann.is_present)
        ann.lose()
    assert found == [True, False, False]


def test_clean_start_forgets_what_waits() -> None:
    world, ann, bob = pair()
    ann.subscribe("x")
    ann.lose()
    bob.publish("x", "1")
    world.run()
    ann.connect("b1", clean=True)
    bob.publish("x", "2")
    world.run()
    assert not ann.is_present
    assert ann.received == []


def test_disconnect_may_change_the_expiry_but_not_from_zero() -> None:
    world, ann, _ = pair(expiry_s=10)
    ann.say(Disconnect(session_expiry_s=0))
    assert not ann.broker
    ann.connect("b1", expiry_s=0)
    assert not ann.is_present
    ann.say(Disconnect(session_expiry_s=5))
    assert last(ann, Disconnect).reason_code == ReasonCode.PROTOCOL_ERROR
    del world


def test_the_expiry_is_bounded_by_what_the_broker_keeps() -> None:
    world = World(1, limits={"away_s": 100.0})
    ann = Phone(world, "ann").connect("b1")
    assert last(ann, Connack).session_expiry_s == 100


def test_a_session_that_is_not_to_last_is_taken_over() -> None:
    """The new connection has a session of its own, which works."""
    world, ann, bob = pair(expiry_s=0)
    ann.subscribe("x")
    world.run()
    again = Phone(world, "ann").connect("b1", expiry_s=0).subscribe("y")
    bob.publish("x", "1").publish("y", "2")
    again.publish("y", "3")
    world.run()
    assert not again.is_present
    assert again.received == ["2", "3"]
    assert ann.received == []


# ---- Quality of service


@pytest.mark.parametrize(("sent", "wanted"), [(0, 2), (1, 0), (2, 1), (2, 2)])
def test_the_lower_qos_counts(sent: int, wanted: int) -> None:
    world, ann, bob = pair()
    ann.subscribe("x", qos=wanted)
    bob.publish("x", "1", sent)
    world.run()
    assert [each.qos for each in deliveries(ann)] == [min(sent, wanted)]
    assert last(ann, Suback).reason_codes == (wanted,)


def test_what_is_not_acknowledged_is_sent_again_in_its_order() -> None:
    """With DUP, and PUBREL where PUBREC had come."""
    world, ann, bob = pair()
    ann.subscribe("x")
    world.run()
    ann.answers = False
    for number, qos in enumerate((2, 1, 2)):
        bob.publish("x", str(number), qos)
    world.run()
    first, second, third = deliveries(ann)
    ann.say(Pubrec(first.packet_id))
    ann.packets.clear()
    ann.connect("b1")

    connack, *again = ann.packets
    assert isinstance(connack, Connack)
    assert again[0] == Pubrel(first.packet_id)
    assert again[1:] == [
        Delivery(each.publish, each.qos, each.packet_id, dup=True) for each in (second, third)
    ]


def test_qos_2_is_published_once() -> None:
    world, ann, bob = pair()
    ann.subscribe("x")
    bob.answers = False
    for _ in range(3):
        bob.say(Publish("x", b"1", 2, packet_id=5))
    bob.say(Pubrel(5), Pubrel(5))
    bob.say(Publish("x", b"2", 2, packet_id=5))
    world.run()

    assert ann.received == ["1", "2"]
    codes = [packet.reason_code for packet in bob.packets if isinstance(packet, Pubcomp)]
    assert codes == [ReasonCode.SUCCESS, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND]


def test_receive_maximum_of_the_device() -> None:
    """No more is sent before it acknowledges; the rest waits, in order."""
    world, ann, bob = pair(receive_maximum=3)
    ann.subscribe("x")
    world.run()
    ann.answers = False
    for number in range(10):
        bob.publish("x", str(number), 1)
    world.run()
    assert len(deliveries(ann)) == 3
    ann.say(Puback(deliveries(ann)[0].packet_id))
    assert len(deliveries(ann)) == 4
    ann._to_say.pop(0)
    ann.answers = True
    world.run()
    assert ann.received == [str(number) for number in range(10)]


def test_few_large_messages_are_on_their_way() -> None:
    """So that a session that moves, and a snapshot, do not become too large."""
    world, ann, bob = pair()
    ann.subscribe("x")
    world.run()
    ann.answers = False
    for number in range(12):
        bob.publish("x", str(number) * 900_000, 1)
    world.run()
    assert len(deliveries(ann)) == 5
    ann.answers = True
    world.run()
    assert [each[0] for each in ann.received] == [str(number)[0] for number in range(12)]


def test_receive_maximum_of_the_broker() -> None:
    world = World(1, mqtt={"receive_maximum": 2})
    ann = Phone(world, "ann").connect("b1")
    assert last(ann, Connack).receive_maximum == 2
    ann.say(*(Publish("x", b"", 2, packet_id=n) for n in range(1, 4)))
    assert last(ann, Disconnect).reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    assert not ann.broker


def test_a_device_is_sent_no_larger_packets_than_it_takes() -> None:
    world, ann, bob = pair(maximum_packet_size=60)
    ann.subscribe("x")
    for payload in ("a", "b" * 100, "c"):
        bob.publish("x", payload)
    world.run()
    assert ann.received == ["a", "c"]


def test_message_expiry() -> None:
    """What has expired is not sent, and what has not says how much time is left."""
    world, ann, bob = pair()
    ann.subscribe("x")
    world.run()
    ann.lose()
    bob.publish("x", "short", message_expiry_s=5)
    bob.publish("x", "long", message_expiry_s=100)
    world.wait(10)
    ann.connect("b1")
    world.run()
    assert ann.received == ["long"]
    assert deliveries(ann)[0].publish.message_expiry_s == 90


# ---- Subscriptions


def test_unsubscribe() -> None:
    world, ann, bob = pair()
    ann.subscribe("x", "y").unsubscribe("x", "z")
    assert last(ann, Unsuback).reason_codes == (
        ReasonCode.SUCCESS,
        ReasonCode.NO_SUBSCRIPTION_EXISTED,
    )
    bob.publish("x", "1").publish("y", "2")
    world.run()
    assert ann.received == ["2"]


def test_overlapping_subscriptions_bring_a_message_once() -> None:
    """With the highest QoS, and the identifiers of all."""
    world, ann, bob = pair()
    ann.subscribe("x/#", qos=1, subscription_identifier=7)
    ann.subscribe("x/+", qos=2, subscription_identifier=9)
    ann.subscribe("+/1", qos=0)
    bob.publish("x/1", "1")
    world.run()
    (only,) = deliveries(ann)
    assert only.qos == 2
    assert sorted(only.identifiers) == [7, 9]


def test_a_subscription_that_is_made_again_replaces_the_old_one() -> None:
    world, ann, bob = pair()
    ann.subscribe("x", qos=2)
    ann.subscribe("x", qos=0)
    bob.publish("x", "1")
    world.run()
    assert [each.qos for each in deliveries(ann)] == [0]


def test_no_local() -> None:
    world, ann, bob = pair()
    ann.say(Subscribe(1, (SubscriptionRequest("x", 2, no_local=True),)))
    ann.publish("x", "own")
    bob.publish("x", "other")
    world.run()
    assert ann.received == ["other"]


def test_wildcards_do_not_match_topics_of_the_server() -> None:
    world, ann, bob = pair()
    ann.subscribe("#", "+/x")
    bob.publish("$own/x", "1").publish("a/x", "2")
    world.run()
    assert ann.received == ["2"]


def test_a_filter_that_is_none_is_refused_with_the_reason() -> None:
    _, ann, _ = pair()
    ann.subscribe("x", user_properties=(("where", "price <"),))
    suback = last(ann, Suback)
    assert suback.reason_codes == (ReasonCode.TOPIC_FILTER_INVALID,)
    assert "price <" in suback.reason_string


def test_another_filter_replaces_the_old_one_without_a_gap() -> None:
    world, ann, bob = pair()
    ann.subscribe("x", user_properties=(("where", "n > 1"),))
    bob.publish("x", "1", user_properties=(("n", "1"),))
    bob.publish("x", "2", user_properties=(("n", "2"),))
    world.run()
    ann.subscribe("x", user_properties=(("where", "n = 1"),))
    bob.publish("x", "3", user_properties=(("n", "1"),))
    bob.publish("x", "4", user_properties=(("n", "2"),))
    world.run()
    assert ann.received == ["2", "3"]


@pytest.mark.spec("LV-11")
@pytest.mark.parametrize("version", list(Version))
def test_a_filter_in_front_of_the_topics(version: Version) -> None:
    """For clients that can send no user properties; it may contain anything that filters do."""
    world, _, bob = pair()
    ann = Phone(world, "ann", version=version).connect("b1")
    ann.subscribe("$where(n * 2 > 2 AND name <> ')')/x/+")
    for number in range(3):
        bob.publish("x/1", str(number), user_properties=(("n", str(number)), ("name", "a")))
    bob.publish("x/1", "other", user_properties=(("n", "5"), ("name", ")")))
    bob.publish("x", "5", user_properties=(("n", "5"), ("name", "a")))
    world.run()
    assert ann.received == ["2"]


@pytest.mark.spec("LV-11")
@pytest.mark.parametrize("group", ["", "$share/g/"])
def test_a_filter_as_emqx_writes_it(group: str) -> None:
    """Behind the topic filter; all conditions have to be true, and what is missing is not."""
    world, ann, bob = pair()
    ann.subscribe(f"{group}+/1?unit=it's a=b&n>=2&flag=true")
    for number, unit, flag in (
        *(("1", "it's a=b", "true"), ("2", "it's a=b", "true"), ("10", "it's a=b", "true")),
        *(("3", "It's a=b", "true"), ("4", "it's a=b", "false"), ("many", "it's a=b", "true")),
    ):
        told = (("n", number), ("unit", unit), ("flag", flag))
        bob.publish("x/1", number, user_properties=told)
    bob.publish("x/1", "5", user_properties=(("n", "5"),))
    bob.publish(f"{group}x/1?n>=2", "6", user_properties=(("n", "6"),))
    world.run()
    assert ann.received == ["2", "10"]

    ann.unsubscribe(f"{group}+/1?unit=it's a=b&n>=2&flag=true")
    bob.publish("x/1", "7", user_properties=(("n", "7"), ("unit", "it's a=b"), ("flag", "true")))
    world.run()
    assert ann.received == ["2", "10"]
    assert last(ann, Unsuback).reason_codes == (ReasonCode.SUCCESS,)


@pytest.mark.spec("LV-11")
@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize(
    "topic", ["x?", "x?n", "x?n=", "x?=1", "x?n>many", "x?n=1&", "x?a!=1", "?n=1", "x?n=1/2"]
)
def test_a_question_mark_that_begins_no_filter_is_part_of_the_topic(
    version: Version, topic: str
) -> None:
    """In 3.1.1 it always is, as in EMQX."""
    world, _, bob = pair()
    ann = Phone(world, "ann", version=version).connect("b1")
    ann.subscribe(topic)
    bob.publish(topic, "as a topic")
    bob.publish("x", "by content", user_properties=(("n", "1/2"),))
    world.run()
    is_filter = topic == "x?n=1/2" and version is Version.V5
    assert ann.received == (["by content"] if is_filter else ["as a topic"])


@pytest.mark.spec("LV-11")
def test_a_filter_behind_a_wildcard_is_part_of_no_topic_filter_in_3_1_1() -> None:
    assert why_no_filter("x/#?n=1", Version.V5) is None
    assert why_no_filter("x/#?n", Version.V5) is not None
    assert why_no_filter("x/#?n=1", Version.V311) is not None


@pytest.mark.parametrize("text", ["$where(n > 1/x", "$where(n > 1)x", "$where(n > 1)/", "$where("])
def test_a_filter_in_front_that_is_not_closed(text: str) -> None:
    assert why_no_filter(text, Version.V5) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [("where", "n > "), ("where", "a = myloc"), ("keep", "everything"), ("past", "yesterday")],
)
def test_a_wish_that_cannot_be_granted(name: str, value: str) -> None:
    _, ann, _ = pair()
    ann.subscribe("x", user_properties=((name, value),))
    suback = last(ann, Suback)
    assert suback.reason_codes == (ReasonCode.TOPIC_FILTER_INVALID,)
    assert suback.reason_string


@pytest.mark.spec("LV-11", "PA-2")
@pytest.mark.parametrize(("past", "expected"), [("2", ["3", "4", "5"]), ("10s", ["4", "5"])])
def test_a_subscription_begins_in_the_past(past: str, expected: list[str]) -> None:
    """With the last events, or those of the last seconds; then what comes follows."""
    world = World(2)
    bob = Phone(world, "bob").connect("b1")
    for number in range(1, 4):
        bob.publish("x", str(number))
    world.wait(15)
    bob.publish("x", "4")
    world.run()
    ann = Phone(world, "ann").connect("b2").subscribe("x", user_properties=(("past", past),))
    world.wait(1)
    bob.publish("x", "5")
    world.run()
    assert ann.received == expected


@pytest.mark.spec("LV-11", "RE-3")
def test_a_policy_for_what_waits() -> None:
    """Only the last position of each car is kept while the device is away."""
    world, ann, bob = pair()
    ann.subscribe("cars/#", user_properties=(("keep", "last_per(car)"),))
    world.run()
    ann.lose()
    for number, car in enumerate("abab"):
        bob.publish(f"cars/{car}", f"{car}{number}", user_properties=(("car", car),))
    world.run()
    ann.connect("b1")
    world.run()
    assert sorted(ann.received) == ["a2", "b3"]


# ---- Topic aliases


def test_topic_aliases() -> None:
    world, ann, bob = pair()
    ann.subscribe("#")
    bob.say(Publish("x", b"1", topic_alias=1), Publish("", b"2", topic_alias=1))
    bob.say(Publish("y", b"3", topic_alias=1), Publish("", b"4", topic_alias=1))
    world.run()
    assert [(each.publish.topic, each.publish.payload) for each in deliveries(ann)] == [
        ("x", b"1"),
        ("x", b"2"),
        ("y", b"3"),
        ("y", b"4"),
    ]


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (Publish("x", topic_alias=65), ReasonCode.TOPIC_ALIAS_INVALID),
        (Publish("", topic_alias=3), ReasonCode.PROTOCOL_ERROR),
    ],
)
def test_wrong_topic_aliases(packet: Packet, code: ReasonCode) -> None:
    _, ann, _ = pair()
    ann.say(packet)
    assert last(ann, Disconnect).reason_code == code


def test_topic_aliases_end_with_the_connection() -> None:
    _, ann, _ = pair()
    ann.say(Publish("x", topic_alias=3))
    ann.connect("b1")
    ann.say(Publish("", topic_alias=3))
    assert last(ann, Disconnect).reason_code == ReasonCode.PROTOCOL_ERROR


# ---- Wills


def test_a_will_is_published_when_the_connection_breaks() -> None:
    world, ann, bob = pair(will=Will("gone", b"ann", 1))
    bob.subscribe("gone")
    ann.lose()
    world.run()
    assert bob.received == ["ann"]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (ReasonCode.NORMAL_DISCONNECTION, []),
        (ReasonCode.DISCONNECT_WITH_WILL, ["ann"]),
        (ReasonCode.UNSPECIFIED_ERROR, ["ann"]),
    ],
)
def test_disconnect_decides_about_the_will(reason: ReasonCode, expected: list[str]) -> None:
    world, ann, bob = pair(will=Will("gone", b"ann", 1))
    bob.subscribe("gone")
    ann.say(Disconnect(reason))
    world.wait(1)
    assert bob.received == expected


def test_a_will_waits_for_its_delay() -> None:
    """A device that is back in time has none published; one that is not has it published once."""
    world, ann, bob = pair(will=Will("gone", b"ann", delay_s=10))
    bob.subscribe("gone")
    ann.lose()
    world.wait(9)
    ann.connect("b1", will=Will("gone", b"ann", delay_s=10))
    world.wait(20)
    assert bob.received == []
    ann.lose()
    world.wait(9)
    assert bob.received == []
    world.wait(2)
    assert bob.received == ["ann"]
    ann.connect("b1")
    ann.lose()
    world.wait(100)
    assert bob.received == ["ann"]


def test_a_will_comes_no_later_than_the_end_of_the_session() -> None:
    world, ann, bob = pair(expiry_s=5, will=Will("gone", b"ann", delay_s=100))
    bob.subscribe("gone")
    ann.lose()
    world.wait(6)
    assert bob.received == ["ann"]


def test_a_will_survives_a_kill() -> None:
    world, ann, bob = pair(will=Will("gone", b"ann", delay_s=3))
    bob.subscribe("gone")
    world.run()
    world.kill("b1")
    world.restart("b1")
    world.wait(1)
    bob.connect("b1")
    world.wait(5)
    assert bob.received == ["ann"]
    del ann


def test_a_will_with_a_delay_is_not_published_when_the_device_is_elsewhere() -> None:
    world = World(2)
    ann = Phone(world, "ann").connect("b1", will=Will("gone", b"ann", delay_s=5))
    bob = Phone(world, "bob").connect("b2").subscribe("gone")
    world.run()
    ann.lose()
    world.wait(1)
    ann.connect("b2")
    world.wait(30)
    assert bob.received == []


# ---- Retained messages


def test_a_retained_message_is_found_wherever_it_was_published() -> None:
    world = World(3)
    Phone(world, "bob").connect("b3").publish("x/1", "old", retain=True).publish(
        "x/1", "new", retain=True
    ).publish("x/2", "two", retain=True).publish("x/2", "plain")
    world.run()
    ann = Phone(world, "ann").connect("b1").subscribe("x/+")
    world.run()
    assert sorted(ann.received) == ["new", "two"]
    assert all(each.retain for each in deliveries(ann))


def test_an_empty_message_clears_what_is_retained() -> None:
    world, ann, bob = pair()
    bob.publish("x", "1", retain=True).publish("x", "", retain=True)
    ann.subscribe("x")
    world.run()
    assert ann.received == []


def test_a_retained_message_comes_without_the_flag_unless_asked_for() -> None:
    world, ann, bob = pair()
    ann.subscribe("x")
    bob.say(Subscribe(9, (SubscriptionRequest("x", 1, retain_as_published=True),)))
    ann.publish("x", "1", retain=True)
    world.run()
    assert [each.retain for each in deliveries(ann)] == [False]
    assert [each.retain for each in deliveries(bob)] == [True]


@pytest.mark.parametrize(("handling", "expected"), [(0, 2), (1, 1), (2, 0)])
def test_retain_handling(handling: int, expected: int) -> None:
    world, ann, bob = pair()
    bob.publish("x", "1", retain=True)
    for _ in range(2):
        ann.say(Subscribe(9, (SubscriptionRequest("x", 1, retain_handling=handling),)))
    world.run()
    assert len(deliveries(ann)) == expected


def test_retained_messages_expire() -> None:
    world, ann, bob = pair()
    bob.publish("x", "1", retain=True, message_expiry_s=5)
    world.wait(6)
    ann.subscribe("x")
    world.run()
    assert ann.received == []


def test_retained_messages_are_filtered_by_content() -> None:
    world, ann, bob = pair()
    for number in range(3):
        properties = (("n", str(number)),)
        bob.publish(f"x/{number}", str(number), retain=True, user_properties=properties)
    ann.subscribe("x/+", user_properties=(("where", "n > 0"),))
    world.run()
    assert ann.received == ["1", "2"]


def test_brokers_that_meet_again_retain_the_same() -> None:
    """The last message counts, wherever it was published while the network was in parts."""
    world = World(2)
    ann, bob = Phone(world, "ann").connect("b1"), Phone(world, "bob").connect("b2")
    ann.publish("x", "1", retain=True)
    world.run()
    world.cut("b1", "b2")
    ann.publish("x", "2", retain=True)
    ann.publish("y", "", retain=True)
    world.run()
    bob.publish("x", "3", retain=True).publish("y", "4", retain=True)
    world.run()
    world.join("b1", "b2")
    world.run()
    for name in world.names:
        phone = Phone(world, f"at {name}").connect(name).subscribe("x", "y")
        world.run()
        assert phone.received == ["3", "4"]


def test_retained_messages_survive_a_kill() -> None:
    world, _, bob = pair()
    bob.publish("x", "1", retain=True)
    world.run()
    world.snapshot("b1")
    bob.publish("y", "2", retain=True)
    world.run()
    world.kill("b1")
    world.restart("b1")
    ann = Phone(world, "ann").connect("b1").subscribe("#")
    world.run()
    assert ann.received == ["1", "2"]


# ---- What a server must not take


def test_there_is_no_enhanced_authentication_half_way() -> None:
    world, ann, _ = pair()
    ann.say(Auth(ReasonCode.REAUTHENTICATE, authentication_method="x"))
    assert last(ann, Disconnect).reason_code == ReasonCode.PROTOCOL_ERROR
    del world


def test_what_is_in_transit_is_in_a_snapshot() -> None:
    """A broker goes on from a snapshot and the log behind it as the killed one would have."""
    world, ann, bob = pair(receive_maximum=1)
    ann.subscribe("x")
    world.run()
    ann.answers = False
    for number in range(10):
        bob.publish("x", str(number))
    world.run()
    assert ann.received == ["0"]
    world.snapshot("b1")
    ann.answers = True
    world.run()
    assert ann.received == [str(number) for number in range(10)]
    world.kill("b1")
    world.restart("b1")
    ann.connect("b1")
    world.run()
    assert ann.received == [str(number) for number in range(10)]


# ---- Statements of the specifications that nothing above shows


def test_answers_carry_the_identifier_of_what_they_answer() -> None:
    """One for each packet, with a code for each topic filter in their order."""
    _, ann, _ = pair()
    ann.say(Subscribe(7, (SubscriptionRequest("a", 1), SubscriptionRequest("b/#", 0))))
    ann.say(Unsubscribe(8, ("b", "a", "b")))
    ann.say(Publish("x", b"", 1, packet_id=9), Publish("x", b"", 2, packet_id=10), Pubrel(10))
    assert ann.packets[1:] == [
        Suback(7, (ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_0)),
        Unsuback(
            8,
            (
                ReasonCode.NO_SUBSCRIPTION_EXISTED,
                ReasonCode.SUCCESS,
                ReasonCode.NO_SUBSCRIPTION_EXISTED,
            ),
        ),
        Puback(9),
        Pubrec(10),
        Pubcomp(10),
    ]


def test_identifiers_are_unused_and_acknowledgements_free_them() -> None:
    world, ann, bob = pair()
    ann.subscribe("x")
    world.run()
    ann.answers = False
    for number in range(5):
        bob.publish("x", str(number), 1 + number % 2)
    world.run()
    ids = [each.packet_id for each in deliveries(ann)]
    assert len(set(ids)) == 5
    assert 0 not in ids
    assert not any(each.dup for each in deliveries(ann))


def test_after_an_acknowledgement_the_same_identifier_is_a_new_message() -> None:
    world, ann, bob = pair()
    ann.subscribe("x")
    bob.answers = False
    bob.say(Publish("x", b"1", 1, packet_id=5), Publish("x", b"2", 1, packet_id=5))
    bob.say(Publish("x", b"3", 2, packet_id=6), Pubrel(6), Publish("x", b"4", 2, packet_id=6))
    world.run()
    assert ann.received == ["1", "2", "3", "4"]


def test_nothing_but_a_reconnect_sends_again() -> None:
    """And a failure in PUBACK or PUBREC acknowledges, too."""
    world, ann, bob = pair()
    ann.subscribe("x")
    world.run()
    ann.answers = False
    for qos in (1, 2, 1):
        bob.publish("x", str(qos), qos)
    world.wait(3600)
    first, second, _ = deliveries(ann)
    assert len(deliveries(ann)) == 3
    ann.say(Puback(first.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    ann.say(Pubrec(second.packet_id, ReasonCode.QUOTA_EXCEEDED))
    ann.packets.clear()
    ann.connect("b1")
    assert [each.publish.payload for each in deliveries(ann)] == [b"1"]


def test_pubrec_of_the_unknown_is_answered() -> None:
    _, ann, _ = pair()
    ann.say(Pubrec(77))
    assert last(ann, Pubrel) == Pubrel(77, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)


def test_what_has_begun_is_completed_after_unsubscribing() -> None:
    world, ann, bob = pair()
    ann.subscribe("x")
    world.run()
    ann.answers = False
    bob.publish("x", "1")
    world.run()
    ann.unsubscribe("x")
    bob.publish("x", "2")
    world.run()
    ann.answers = True
    ann.connect("b1")
    world.run()
    assert ann.received == ["1"]
    assert [packet for packet in ann.packets if isinstance(packet, Pubrel)]


def test_what_was_sent_does_not_expire() -> None:
    world, ann, bob = pair()
    ann.subscribe("x")
    world.run()
    ann.answers = False
    bob.publish("x", "1", message_expiry_s=5)
    world.run()
    world.wait(10)
    ann.answers = True
    ann.connect("b1")
    world.run()
    assert ann.received == ["1"]
    assert [each.dup for each in deliveries(ann)] == [False, True]


def test_properties_reach_subscribers_unchanged() -> None:
    world, ann, bob = pair()
    ann.subscribe("x")
    properties = (("b", "2"), ("a", "01"), ("b", "3"))
    sent = Publish(
        "x", b"1", 1, packet_id=3, payload_is_text=True, response_topic="r/t",
        correlation_data=b"\0\xff", content_type="text/plain", user_properties=properties,
    )  # fmt: skip
    bob.say(sent)
    world.run()
    (only,) = deliveries(ann)
    assert only.publish == Publish(
        "x", b"1", 1, payload_is_text=True, response_topic="r/t",
        correlation_data=b"\0\xff", content_type="text/plain", user_properties=properties,
    )  # fmt: skip


def test_a_will_has_all_that_a_message_has() -> None:
    properties = (("b", "2"), ("a", "1"))
    will = Will("gone", b"ann", 1, retain=True, user_properties=properties, content_type="t")
    world, ann, bob = pair(will=will)
    bob.say(Subscribe(9, (SubscriptionRequest("gone", 1, retain_as_published=True),)))
    ann.lose()
    world.run()
    (only,) = deliveries(bob)
    assert only.publish.user_properties == properties
    assert only.publish.content_type == "t"
    assert only.retain
    later = Phone(world, "later").connect("b1").subscribe("gone")
    world.run()
    assert later.received == ["ann"]


def test_a_message_that_is_not_retained_leaves_what_is_retained_alone() -> None:
    world, ann, bob = pair()
    bob.publish("x", "1", retain=True).publish("x", "2")
    ann.subscribe("x")
    world.run()
    assert ann.received == ["1"]


def test_a_retained_message_comes_again_with_the_subscription() -> None:
    """Replacing a subscription loses nothing either."""
    world, ann, bob = pair()
    bob.publish("x", "1", retain=True)
    for number in range(2, 5):
        ann.subscribe("x")
        bob.publish("x", str(number))
    world.run()
    assert [each for each in ann.received if each != "1"] == ["2", "3", "4"]
    assert ann.received.count("1") == 3


def test_a_device_that_wants_no_reasons_gets_none() -> None:
    world, ann, bob = pair(wants_problem_information=False)
    for phone, wants in ((ann, False), (bob, True)):
        phone.subscribe("x", user_properties=(("where", "price < "),))
        phone.say(Publish("$SYS/x", b"", 1, packet_id=9), Publish("$SYS/x", b"", 2, packet_id=10))
        kinds = (Suback, Puback, Pubrec)
        assert all((last(phone, kind).reason_string is not None) is wants for kind in kinds)
    del world


def test_a_full_device_is_answered_nevertheless() -> None:
    """With nothing left of its receive maximum, other packets are processed as ever."""
    world, ann, bob = pair(receive_maximum=1)
    ann.subscribe("x")
    world.run()
    ann.answers = False
    for number in range(3):
        bob.publish("x", str(number), 1)
    world.run()
    ann.subscribe("y")
    ann.say(Publish("z", b"", 1, packet_id=100))
    assert last(ann, Puback) == Puback(100)
    assert len([packet for packet in ann.packets if isinstance(packet, Suback)]) == 2
    bob.publish("y", "at once", 0)
    world.run()
    assert len(deliveries(ann)) == 1


@pytest.mark.parametrize("version", list(Version))
def test_messages_wait_for_a_device_that_is_away(version: Version) -> None:
    world = World(1)
    ann = Phone(world, "ann", version=version).connect("b1", clean=False).subscribe("x")
    bob = Phone(world, "bob").connect("b1")
    world.run()
    ann.lose()
    for number in range(5):
        bob.publish("x", str(number))
    world.run()
    ann.connect("b1", clean=False)
    world.run()
    assert ann.received == [str(number) for number in range(5)]


def test_acknowledgements_have_the_order_of_what_they_acknowledge() -> None:
    _, ann, _ = pair()
    ann.answers = False
    ann.say(*(Publish("x", b"", 1 + number % 2, packet_id=number) for number in range(10, 20)))
    ann.say(*(Pubrec(number) for number in (3, 1, 2)))
    sent = [packet for packet in ann.packets if isinstance(packet, Puback | Pubrec | Pubrel)]
    assert [packet.packet_id for packet in sent] == [*range(10, 20), 3, 1, 2]


def test_without_a_will_none_is_published_and_what_is_retained_outlives_its_session() -> None:
    world, ann, bob = pair(expiry_s=0)
    bob.subscribe("#")
    ann.publish("x", "kept", retain=True)
    world.run()
    ann.lose()
    world.wait(10)
    assert "mqtt:ann" not in world.devices_at("b1").devices
    assert bob.received == ["kept"]
    later = Phone(world, "later").connect("b1").subscribe("x")
    world.run()
    assert later.received == ["kept"]
