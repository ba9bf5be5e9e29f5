"""A codec that nobody here wrote as the second opinion: paho-mqtt reads what we write, and back."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
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
from sterna.mqtt.properties import ALLOWED
from sterna.mqtt.reading import read_properties
from sterna.mqtt.writing import properties_of
from tests.mqtt import strategies
from tests.scale import examples

NAMES = {
    "payload_is_text": "PayloadFormatIndicator",
    "message_expiry_s": "MessageExpiryInterval",
    "content_type": "ContentType",
    "response_topic": "ResponseTopic",
    "correlation_data": "CorrelationData",
    "subscription_identifier": "SubscriptionIdentifier",
    "subscription_identifiers": "SubscriptionIdentifier",
    "session_expiry_s": "SessionExpiryInterval",
    "assigned_client_id": "AssignedClientIdentifier",
    "server_keep_alive_s": "ServerKeepAlive",
    "authentication_method": "AuthenticationMethod",
    "authentication_data": "AuthenticationData",
    "wants_problem_information": "RequestProblemInformation",
    "delay_s": "WillDelayInterval",
    "wants_response_information": "RequestResponseInformation",
    "response_information": "ResponseInformation",
    "server_reference": "ServerReference",
    "reason_string": "ReasonString",
    "receive_maximum": "ReceiveMaximum",
    "topic_alias_maximum": "TopicAliasMaximum",
    "topic_alias": "TopicAlias",
    "maximum_qos": "MaximumQoS",
    "retain_available": "RetainAvailable",
    "user_properties": "UserProperty",
    "maximum_packet_size": "MaximumPacketSize",
    "wildcard_subscription_available": "WildcardSubscriptionAvailable",
    "subscription_identifiers_available": "SubscriptionIdentifierAvailable",
    "shared_subscription_available": "SharedSubscriptionAvailable",
}
"""What paho calls the properties."""


def said(packet: Packet) -> dict[str, Any]:
    """The properties of a packet as paho names and holds them."""
    fields = strategies.without_defaults(packet)
    return {NAMES[name]: _as_paho(name, value) for name, value in fields.items() if name in NAMES}


def _as_paho(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if name == "subscription_identifier":
        return [value]
    return int(value) if isinstance(value, bool) else value


def understood(properties: Properties | None) -> dict[str, Any]:
    """The properties that paho has read, by its names."""
    if properties is None:
        return {}
    found = {name: getattr(properties, name, None) for name in NAMES.values()}
    return {name: value for name, value in found.items() if value is not None}


def properties(packet_type: int, values: dict[str, Any]) -> Properties:
    found = Properties(packet_type)
    for name, value in values.items():
        setattr(found, name, value)
    return found


class Device(paho.Client):
    """A client of paho on one end of a pair of sockets; the other end is ours."""

    def __init__(self, version: Version, client_id: str) -> None:
        protocol = MQTTProtocolVersion(int(version))
        super().__init__(CallbackAPIVersion.VERSION2, client_id, protocol=protocol)
        self.version = version
        self.decoder = Decoder()
        self.happened: list[Any] = []
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(5)
        for name in ("connect", "disconnect", "message", "publish", "subscribe", "unsubscribe"):
            setattr(self, f"on_{name}", lambda _client, _data, *rest: self.happened.append(rest))

    def _create_socket(self) -> Any:
        return self.theirs

    def sent(self) -> list[Packet]:
        """What paho has sent, as we read it."""
        while self.want_write():
            self.loop_write()
        return self.decoder.feed(self.ours.recv(65536))

    def receive(self, packet: Packet) -> Any:
        """What paho makes of a packet of ours."""
        self.happened.clear()
        self.ours.sendall(encode(packet, self.version))
        assert self.loop_read() == paho.MQTT_ERR_SUCCESS
        return self.happened[0] if self.happened else None


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    found = Device(request.param, "car-17")
    yield found
    found.ours.close()
    found.theirs.close()


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("device", [Version.V5], indirect=True)
def test_paho_and_we_understand_each_other_in_5(device: Device) -> None:
    user = (("unit", "m"), ("unit", "s"))
    will = Will(
        *("gone", b"bye", 1, True, 30, True, 600, "text/plain", "answers", b"17", user),
    )
    device.username_pw_set("car", "secret")
    device.will_set("gone", b"bye", 1, True, properties(PacketTypes.WILLMESSAGE, said(will)))
    connect = Connect(
        client_id="car-17",
        clean_start=False,
        keep_alive_s=60,
        user_name="car",
        password=b"secret",
        will=will,
        session_expiry_s=3600,
        receive_maximum=10,
        maximum_packet_size=65536,
        topic_alias_maximum=8,
        wants_response_information=True,
        wants_problem_information=False,
        authentication_method="method",
        authentication_data=b"data",
        user_properties=user,
    )
    device.connect(
        "127.0.0.1", clean_start=False, properties=properties(PacketTypes.CONNECT, said(connect))
    )
    assert device.sent() == [connect]

    connack = Connack(
        session_present=True,
        session_expiry_s=60,
        receive_maximum=20,
        maximum_qos=1,
        retain_available=False,
        maximum_packet_size=100_000,
        assigned_client_id="auto-7",
        topic_alias_maximum=16,
        reason_string="welcome",
        wildcard_subscription_available=False,
        subscription_identifiers_available=False,
        shared_subscription_available=False,
        server_keep_alive_s=30,
        response_information="answers/",
        server_reference="other",
        authentication_method="method",
        authentication_data=b"data",
        user_properties=user,
    )
    flags, reason_code, found = device.receive(connack)
    assert (flags.session_present, reason_code.value) == (True, 0)
    assert understood(found) == said(connack)

    publish = Publish(
        *("fleet/17", b"payload", 1, True, False, 1, True, 60, 3, "answers", b"\0\1", "text/plain"),
        *((), user),
    )
    device.publish(
        *("fleet/17", b"payload", 1, True, properties(PacketTypes.PUBLISH, said(publish)))
    )
    assert device.sent() == [publish]
    _, reason_code, found = device.receive(
        Puback(1, ReasonCode.NO_MATCHING_SUBSCRIBERS, "nobody", user)
    )
    assert reason_code.value == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert understood(found) == {"ReasonString": "nobody", "UserProperty": list(user)}

    options = SubscribeOptions(2, noLocal=True, retainAsPublished=True, retainHandling=2)
    device.subscribe(
        [("fleet/+", options), ("$share/g/#", SubscribeOptions(1))],
        properties=properties(
            PacketTypes.SUBSCRIBE, {"SubscriptionIdentifier": 300, "UserProperty": user[0]}
        ),
    )
    requests = (
        SubscriptionRequest("fleet/+", 2, True, True, 2),
        SubscriptionRequest("$share/g/#", 1),
    )
    assert device.sent() == [Subscribe(2, requests, 300, user[:1])]
    suback = Suback(2, (ReasonCode.GRANTED_QOS_2, ReasonCode.QUOTA_EXCEEDED), "half", user)
    packet_id, reason_codes, found = device.receive(suback)
    assert (packet_id, [code.value for code in reason_codes]) == (2, list(suback.reason_codes))
    assert understood(found) == said(suback)

    device.unsubscribe(
        ["fleet/+", "#"], properties=properties(PacketTypes.UNSUBSCRIBE, {"UserProperty": user[0]})
    )
    assert device.sent() == [Unsubscribe(3, ("fleet/+", "#"), user[:1])]
    unsuback = Unsuback(
        3, (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED), "one was there", user
    )
    packet_id, reason_codes, found = device.receive(unsuback)
    assert (packet_id, [code.value for code in reason_codes]) == (3, list(unsuback.reason_codes))
    assert understood(found) == said(unsuback)

    device.disconnect(
        PahoReasonCode(PacketTypes.DISCONNECT, "Disconnect with will message"),
        properties(PacketTypes.DISCONNECT, {"SessionExpiryInterval": 5, "UserProperty": user[0]}),
    )
    assert device.sent() == [Disconnect(ReasonCode.DISCONNECT_WITH_WILL, 5, None, None, user[:1])]


@pytest.mark.parametrize("device", [Version.V5], indirect=True)
def test_paho_reads_why_it_is_disconnected(device: Device) -> None:
    device.connect("127.0.0.1")
    device.sent()
    device.receive(Connack())
    disconnect = Disconnect(ReasonCode.SERVER_MOVED, None, "go", "127.0.0.1:1", (("a", "b"),))

    device.happened.clear()
    device.ours.sendall(encode(disconnect, Version.V5))
    device.loop_read()

    _, reason_code, found = device.happened[0]
    assert reason_code.value == ReasonCode.SERVER_MOVED
    assert understood(found) == said(disconnect)


@pytest.mark.parametrize("device", [Version.V311], indirect=True)
def test_paho_and_we_understand_each_other_in_3_1_1(device: Device) -> None:
    device.username_pw_set("car", "secret")
    device.will_set("gone", b"bye", 2, True)
    device.connect("127.0.0.1", keepalive=10)
    assert device.sent() == [
        Connect(
            version=Version.V311,
            client_id="car-17",
            keep_alive_s=10,
            user_name="car",
            password=b"secret",
            will=Will("gone", b"bye", 2, True),
        )
    ]
    flags, reason_code, _ = device.receive(Connack(session_present=True))
    assert (flags.session_present, reason_code.value) == (True, 0)

    device.subscribe([("fleet/+", 2), ("#", 0)])
    requests = (SubscriptionRequest("fleet/+", 2), SubscriptionRequest("#"))
    assert device.sent() == [Subscribe(1, requests)]
    failure = ReasonCode.QUOTA_EXCEEDED
    _, reason_codes, _ = device.receive(Suback(1, (ReasonCode.GRANTED_QOS_2, failure)))
    assert [code.value for code in reason_codes] == [2, 0x80]

    device.unsubscribe("#")
    assert device.sent() == [Unsubscribe(2, ("#",))]
    assert device.receive(Unsuback(2))[0] == 2

    device.disconnect()
    assert device.sent() == [Disconnect()]


@pytest.mark.parametrize("device", Version, indirect=True)
def test_messages_go_both_ways_with_every_qos(device: Device) -> None:
    device.connect("127.0.0.1")
    device.sent()
    device.receive(Connack())
    device.publish("t", b"0")
    assert device.sent() == [Publish("t", b"0")]
    device.publish("t", b"2", 2)
    assert device.sent() == [Publish("t", b"2", 2, packet_id=2)]
    device.receive(Pubrec(2))
    assert device.sent() == [Pubrel(2)]
    assert device.receive(Pubcomp(2))[0] == 2

    received = []
    device.on_message = lambda _client, _data, message: received.append(message)
    device.receive(Publish("é/t", b"0", retain=True))
    device.receive(Publish("é/t", b"1", 1, packet_id=300))
    assert device.sent() == [Puback(300)]
    device.receive(Publish("é/t", b"2" * 300, 2, False, True, 301))
    assert device.sent() == [Pubrec(301)]
    device.receive(Pubrel(301))
    assert device.sent() == [Pubcomp(301)]

    assert [(found.topic, found.payload, found.qos, found.retain) for found in received] == [
        ("é/t", b"0", 0, True),
        ("é/t", b"1", 1, False),
        ("é/t", b"2" * 300, 2, False),
    ]
    device._send_pingreq()
    assert device.sent() == [Pingreq()]
    device.receive(Pingresp())


@pytest.mark.parametrize("code", sorted({0x84, 0x85, 0x88, 0x86, 0x87, 0x8A, 0x9D}))
def test_paho_reads_why_a_connection_is_refused(code: int) -> None:
    versions = [Version.V5] if code == 0x84 else list(Version)  # In 3.1.1 paho tries 3.1 then.
    for version in versions:
        device = Device(version, "car-17")
        device.connect("127.0.0.1")
        device.sent()
        device.ours.sendall(encode(Connack(reason_code=ReasonCode(code)), version))
        device.loop_read()
        reason_code = device.happened[0][1]
        device.ours.close()
        device.theirs.close()

        expected = code
        if version is Version.V311:  # The nearest of five return codes.
            expected = {0x8A: 0x87, 0x9D: 0x88}.get(code, code)
        assert reason_code.value == expected


REQUIRED: dict[type[Packet], dict[str, Any]] = {
    Will: {"topic": "t"},
    Publish: {"topic": "t"},
    Subscribe: {"packet_id": 1, "requests": ()},
    Unsubscribe: {"packet_id": 1, "topic_filters": ()},
    Suback: {"packet_id": 1, "reason_codes": ()},
    **{kind: {"packet_id": 1} for kind in (Puback, Pubrec, Pubrel, Pubcomp, Unsuback)},
}
"""What each record needs besides its properties."""


def written(packet: Packet) -> bytes:
    """The properties of a packet with their length in front."""
    if isinstance(packet, Publish):
        (head, tail) = encode(packet, Version.V5).split(b"\0\1t", 1)
        assert head[0] == 0x30
        return tail
    return properties_of(packet, Version.V5)


@given(data=st.data(), kind=st.sampled_from(sorted(ALLOWED, key=lambda found: found.__name__)))
@examples(200, long=2)
def test_properties_are_the_same_for_paho(data: st.DataObject, kind: type[Packet]) -> None:
    """Both ways: paho reads what we write, and we read what paho writes."""
    fields = data.draw(strategies.properties(kind, Version.V5))
    assume("\\ufeff" not in repr(fields))  # Paho refuses it, against MQTT-1.5.4-3.
    packet = kind(**REQUIRED.get(kind, {}), **fields)
    name = "WILLMESSAGE" if kind is Will else kind.__name__.upper()
    theirs = Properties(getattr(PacketTypes, name))

    theirs.unpack(written(packet))
    assert understood(theirs) == said(packet)

    block = properties(theirs.packetType, said(packet)).pack()
    found, end = read_properties(kind, block, 0)
    assert kind(**REQUIRED.get(kind, {}), **found) == packet
    assert end == len(block)
