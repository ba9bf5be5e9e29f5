"""What both specifications call malformed or a protocol error is refused, with its reason code."""

import pytest

from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import (
    Connect,
    MqttError,
    Packet,
    Publish,
    ReasonCode,
    Role,
    SubscriptionRequest,
    Version,
    Will,
)
from sterna.mqtt.topics import shared, why_no_topic_filter, why_no_topic_name

MALFORMED = ReasonCode.MALFORMED_PACKET
BREACH = ReasonCode.PROTOCOL_ERROR

V311, V5 = Version.V311, Version.V5


def text(data: str | bytes) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return len(data).to_bytes(2, "big") + data


def packet(first: int, *parts: bytes) -> bytes:
    """A packet of fewer than 16,384 bytes."""
    body = b"".join(parts)
    length = (
        bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 0x7F | 0x80, len(body) >> 7))
    )
    return bytes((first,)) + length + body


def properties(*parts: bytes) -> bytes:
    data = b"".join(parts)
    return bytes((len(data),)) + data


def connect(
    version: int, flags: int, *payload: bytes, name: str = "MQTT", with_: bytes = b"\0"
) -> bytes:
    """A CONNECT with a keep-alive of 60 s, with properties if it is one of MQTT 5.0."""
    head = text(name) + bytes((version, flags, 0, 60))
    return packet(0x10, head, with_ if version == 5 else b"", *payload)


def from_client(version: Version, stream: bytes) -> list[Packet]:
    """What a server reads behind a CONNECT."""
    decoder = Decoder()
    decoder.feed(encode(Connect(version=version, client_id="c"), version))
    return decoder.feed(stream)


def from_server(version: Version, stream: bytes) -> list[Packet]:
    return Decoder(Role.CLIENT, version).feed(stream)


def reason_of_connect(stream: bytes) -> ReasonCode | None:
    try:
        assert Decoder().feed(stream)
    except MqttError as error:
        return error.reason_code
    return None


def reason_of(version: Version, stream: bytes, sender: Role = Role.CLIENT) -> ReasonCode | None:
    """Why a packet after CONNECT is refused; None if it is not."""
    try:
        found = (from_client if sender is Role.CLIENT else from_server)(version, stream)
    except MqttError as error:
        return error.reason_code
    assert len(found) == 1
    return None


# ---- 1.5: data


ILL_FORMED = [
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
]
"""Bytes that are never UTF-8, a surrogate among them."""


def with_text(data: bytes) -> dict[str, bytes]:
    """A packet for each place where a text can be."""
    pair = b"\x26" + text(data) + text("v")
    value = b"\x26" + text("n") + text(data)
    return {
        "topic": packet(0x30, text(data), b"\0"),
        "topic filter": packet(0x82, b"\0\1", b"\0", text(data), b"\0"),
        "topic filter to end": packet(0xA2, b"\0\1", b"\0", text(data)),
        "name of a user property": packet(0x30, text("t"), properties(pair)),
        "value of a user property": packet(0x30, text("t"), properties(value)),
        "content type": packet(0x30, text("t"), properties(b"\x03" + text(data))),
        "response topic": packet(0x30, text("t"), properties(b"\x08" + text(data))),
        "reason string": packet(0x40, b"\0\1\0", properties(b"\x1f" + text(data))),
    }


def connects_with_text(version: Version, data: bytes) -> dict[str, bytes]:
    return {
        "client id": connect(version, 2, text(data)),
        "will topic": connect(
            version, 6, text("c"), b"\0" if version is V5 else b"", text(data), text("payload")
        ),
        "user name": connect(version, 0x82, text("c"), text(data)),
    }


@pytest.mark.parametrize("data", ILL_FORMED)
def test_text_that_is_not_utf8_is_refused(data: bytes) -> None:
    for place, stream in with_text(data).items():
        assert reason_of(V5, stream) is MALFORMED, place
    for version in Version:
        for place, stream in connects_with_text(version, data).items():
            assert reason_of_connect(stream) is MALFORMED, place
    assert reason_of(V311, packet(0x30, text(data))) is MALFORMED
    assert reason_of(V311, packet(0x82, b"\0\1", text(data), b"\0")) is MALFORMED


def test_text_with_u_0000_is_refused() -> None:
    for place, stream in with_text(b"a\0b").items():
        assert reason_of(V5, stream) is MALFORMED, place
    for version in Version:
        for place, stream in connects_with_text(version, b"a\0b").items():
            assert reason_of_connect(stream) is MALFORMED, place
    assert reason_of(V311, packet(0x30, text(b"a\0b"))) is MALFORMED
    assert reason_of(V311, packet(0x82, b"\0\1", text(b"a\0b"), b"\0")) is MALFORMED


@pytest.mark.parametrize("version", Version)
def test_the_byte_order_mark_is_a_character(version: Version) -> None:
    stream = encode(Publish("\ufeffa\ufeff"), version)
    assert b"\xef\xbb\xbfa\xef\xbb\xbf" in stream

    assert from_client(version, stream) == [Publish("\ufeffa\ufeff")]


@pytest.mark.parametrize("version", Version)
def test_noncharacters_and_controls_are_passed_on(version: Version) -> None:
    """Both specifications advise against them, and leave it to the receiver."""
    topic = "a\x01\x7f\x9f\ufffe\U0010ffff"

    assert from_client(version, encode(Publish(topic), version)) == [Publish(topic)]


@pytest.mark.parametrize(
    ("version", "stream", "reason"),
    [
        (V5, b"\x30\x84\x00\x00\x01t\x00", MALFORMED),
        (V5, b"\x30\x84\x80\x00\x00\x01t\x00", MALFORMED),
        (V311, b"\x30\x83\x00\x00\x01t", None),
        (V5, b"\x30\xff\xff\xff\xff", MALFORMED),
        (V311, b"\x30\xff\xff\xff\xff", MALFORMED),
        (V5, packet(0x30, text("t"), b"\x82\0", b"\1\1"), MALFORMED),
        (V5, packet(0x30, text("t"), b"\xff\xff\xff\xff\x01"), MALFORMED),
        (V5, packet(0x82, b"\0\1", b"\3\x0b\x81\x00", text("t"), b"\0"), MALFORMED),
        (
            V5,
            packet(0x82, b"\0\1", b"\6\x0b\xff\xff\xff\xff\x01", text("t")),
            MALFORMED,
        ),
    ],
)
def test_numbers_take_four_bytes_at_most_and_in_5_no_more_than_needed(
    version: Version, stream: bytes, reason: ReasonCode | None
) -> None:
    assert reason_of(version, stream) is reason


def test_the_length_of_connect_takes_no_more_bytes_than_needed_in_5() -> None:
    for version, reason in ((V5, MALFORMED), (V311, None)):
        stream = connect(version, 2, text("c"))
        padded = stream[:1] + bytes((stream[1] | 0x80, 0)) + stream[2:]

        assert reason_of_connect(padded) is reason


# ---- 2: fixed header, packet identifier, properties


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("sender", Role)
def test_reserved_flags_of_the_fixed_header_are_refused(version: Version, sender: Role) -> None:
    for first in range(256):
        kind, flags = first >> 4, first & 0x0F
        if kind in {1, 3} or flags == {6: 2, 8: 2, 10: 2}.get(kind, 0):
            continue
        assert reason_of(version, bytes((first, 0)), sender) is MALFORMED, hex(first)
    for flags in range(1, 16):
        with pytest.raises(MqttError):
            Decoder().feed(bytes((0x10 | flags, 0)))


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    "stream",
    [
        packet(0x32, text("t"), b"\0\0", b"\0"),
        packet(0x34, text("t"), b"\0\0", b"\0"),
        packet(0x40, b"\0\0"),
        packet(0x50, b"\0\0"),
        packet(0x62, b"\0\0"),
        packet(0x70, b"\0\0"),
        packet(0x82, b"\0\0", b"\0", text("t"), b"\0"),
        packet(0xA2, b"\0\0", b"\0", text("t")),
    ],
)
def test_packet_identifier_0_is_refused(version: Version, stream: bytes) -> None:
    assert reason_of(version, stream) is BREACH


def test_a_publish_with_qos_0_has_no_packet_identifier() -> None:
    for version, without in ((V311, b""), (V5, b"\0")):
        stream = encode(Publish("t", b"\0\7"), version)

        assert stream == packet(0x30, text("t"), without, b"\0\7")
        assert from_client(version, stream) == [Publish("t", b"\0\7")]


def test_a_packet_without_properties_says_so() -> None:
    assert encode(Publish("t"), V5) == packet(0x30, text("t"), b"\0")
    assert reason_of(V5, packet(0x30, text("t"))) is MALFORMED
    assert reason_of(V5, packet(0x82, b"\0\1")) is MALFORMED


ONE_OF_EACH = {
    0x01: b"\1",
    0x02: b"\0\0\0\1",
    0x03: text("x"),
    0x08: text("x"),
    0x09: text("x"),
    0x0B: b"\1",
    0x11: b"\0\0\0\1",
    0x12: text("x"),
    0x13: b"\0\1",
    0x15: text("x"),
    0x16: text("x"),
    0x17: b"\1",
    0x18: b"\0\0\0\1",
    0x19: b"\1",
    0x1A: text("x"),
    0x1C: text("x"),
    0x1F: text("x"),
    0x21: b"\0\1",
    0x22: b"\0\1",
    0x23: b"\0\1",
    0x24: b"\1",
    0x25: b"\1",
    0x26: text("n") + text("v"),
    0x27: b"\0\0\0\1",
    0x28: b"\1",
    0x29: b"\1",
    0x2A: b"\1",
}
"""A property of each kind, as table 2-4 of the specification lists them."""

WITH_PROPERTIES = {
    "PUBLISH": (Role.SERVER, 0x30, text("t"), b"", {1, 2, 3, 8, 9, 0x0B, 0x23, 0x26}),
    "PUBLISH of a client": (Role.CLIENT, 0x30, text("t"), b"", {1, 2, 3, 8, 9, 0x23, 0x26}),
    "CONNACK": (
        *(Role.SERVER, 0x20, b"\0\0", b""),
        {0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, *range(0x21, 0x23), *range(0x24, 0x2B)},
    ),
    "PUBACK": (Role.CLIENT, 0x40, b"\0\1\0", b"", {0x1F, 0x26}),
    "PUBREC": (Role.CLIENT, 0x50, b"\0\1\0", b"", {0x1F, 0x26}),
    "PUBREL": (Role.CLIENT, 0x62, b"\0\1\0", b"", {0x1F, 0x26}),
    "PUBCOMP": (Role.CLIENT, 0x70, b"\0\1\0", b"", {0x1F, 0x26}),
    "SUBSCRIBE": (Role.CLIENT, 0x82, b"\0\1", text("t") + b"\0", {0x0B, 0x26}),
    "SUBACK": (Role.SERVER, 0x90, b"\0\1", b"\0", {0x1F, 0x26}),
    "UNSUBSCRIBE": (Role.CLIENT, 0xA2, b"\0\1", text("t"), {0x26}),
    "UNSUBACK": (Role.SERVER, 0xB0, b"\0\1", b"\0", {0x1F, 0x26}),
    "DISCONNECT": (Role.CLIENT, 0xE0, b"\0", b"", {0x11, 0x1F, 0x26}),
    "DISCONNECT of a server": (Role.SERVER, 0xE0, b"\0", b"", {0x1C, 0x1F, 0x26}),
    "AUTH": (Role.CLIENT, 0xF0, b"\x18", b"", {0x15, 0x16, 0x1F, 0x26}),
}
"""Who sends it, its first byte, what is before and behind the properties, and which it may have."""


@pytest.mark.parametrize("name", WITH_PROPERTIES)
def test_each_packet_has_only_its_properties(name: str) -> None:
    sender, first, before, behind, allowed = WITH_PROPERTIES[name]
    method = b"\x15" + text("m")
    for id_ in range(256):
        value = ONE_OF_EACH.get(id_, b"\0\0\0\0")
        own = bytes((id_,)) + value
        if name == "AUTH" and id_ != 0x15:
            own += method
        stream = packet(first, before, properties(own), behind)

        assert (reason_of(V5, stream, sender) is None) == (id_ in allowed), hex(id_)


@pytest.mark.parametrize("name", WITH_PROPERTIES)
def test_a_property_comes_once_but_for_user_properties(name: str) -> None:
    sender, first, before, behind, allowed = WITH_PROPERTIES[name]
    for id_ in sorted(allowed):
        twice = (bytes((id_,)) + ONE_OF_EACH[id_]) * 2
        if name == "AUTH" and id_ != 0x15:
            twice += b"\x15" + text("m")
        may_repeat = id_ == 0x26 or (id_ == 0x0B and name == "PUBLISH")
        stream = packet(first, before, properties(twice), behind)

        assert reason_of(V5, stream, sender) is (None if may_repeat else BREACH), hex(id_)


def test_connect_and_will_have_only_their_properties_and_once() -> None:
    of_connect = {0x11, 0x15, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27}
    of_will = {1, 2, 3, 8, 9, 0x18, 0x26}
    for id_, value in ONE_OF_EACH.items():
        own = bytes((id_,)) + value
        if id_ != 0x16:  # It needs the authentication method.
            stream = connect(5, 2, text("c"), with_=properties(own))
            assert (reason_of_connect(stream) is None) == (id_ in of_connect), hex(id_)
        stream = connect(5, 6, text("c"), properties(own), text("w"), text("payload"))
        assert (reason_of_connect(stream) is None) == (id_ in of_will), hex(id_)
        if id_ in of_connect - {0x26}:
            stream = connect(5, 2, text("c"), with_=properties(own, own))
            assert reason_of_connect(stream) is BREACH, hex(id_)
        if id_ in of_will - {0x26}:
            stream = connect(5, 6, text("c"), properties(own, own), text("w"), text("payload"))
            assert reason_of_connect(stream) is BREACH, hex(id_)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (b"\x21\0\0", BREACH),
        (b"\x27\0\0\0\0", BREACH),
        (b"\x17\2", BREACH),
        (b"\x19\2", BREACH),
        (b"\x16" + text("data"), BREACH),
        (b"\x16" + text("data") + b"\x15" + text("method"), None),
        (b"\x11\0\0\0", MALFORMED),
        (b"\x15\0\5m", MALFORMED),
    ],
)
def test_a_property_of_connect_has_a_value_that_is_allowed(
    own: bytes, reason: ReasonCode | None
) -> None:
    assert reason_of_connect(connect(5, 2, text("c"), with_=properties(own))) is reason


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (b"\x23\0\0", ReasonCode.TOPIC_ALIAS_INVALID),
        (b"\x01\2", BREACH),
        (b"\x0b\0", BREACH),
        (b"\x08" + text("a/+"), MALFORMED),
        (b"\x08" + text("#"), MALFORMED),
        (b"\x02\0\0\0", MALFORMED),
        (b"\x26" + text("n"), MALFORMED),
        (b"\x26" + text("n") + b"\0\5v", MALFORMED),
        (b"\x03\0\5x", MALFORMED),
    ],
)
def test_a_property_of_publish_has_a_value_that_is_allowed(own: bytes, reason: ReasonCode) -> None:
    stream = packet(0x30, text("t"), properties(own), b"\0" * 20)

    assert reason_of(V5, stream, Role.SERVER) is reason


# ---- 3.1: CONNECT


@pytest.mark.parametrize("version", Version)
def test_the_first_packet_is_connect(version: Version) -> None:
    for stream in (
        packet(0xC0),
        encode(Publish("t"), version),
        packet(0x40, b"\0\1"),
        packet(0xF0),
    ):
        assert reason_of_connect(stream) is BREACH
        with pytest.raises(MqttError):
            Decoder().feed(stream[:2])


@pytest.mark.parametrize("version", Version)
def test_connect_comes_once(version: Version) -> None:
    assert reason_of(version, connect(version, 2, text("c"))) is BREACH


@pytest.mark.parametrize(
    ("name", "level", "answer"),
    [
        ("MQTT", 3, V311),
        ("MQIsdp", 3, V311),
        ("MQTT", 0x84, V311),
        ("MQTT", 6, V5),
        ("MQTT", 0x85, V5),
        ("mqtt", 4, None),
        ("MQTTX", 5, None),
    ],
)
def test_another_version_is_refused_so_that_its_client_can_read_it(
    name: str, level: int, answer: Version | None
) -> None:
    decoder = Decoder()

    with pytest.raises(MqttError) as caught:
        decoder.feed(connect(level, 2, text("c"), name=name))

    assert caught.value.reason_code is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert decoder.version is answer


@pytest.mark.parametrize("version", Version)
def test_the_reserved_flag_of_connect_is_refused(version: Version) -> None:
    assert reason_of_connect(connect(version, 3, text("c"))) is MALFORMED


@pytest.mark.parametrize("version", Version)
def test_flags_of_a_will_come_with_a_will(version: Version) -> None:
    before = b"\0" if version is V5 else b""
    will = (before, text("w"), text("payload"))
    for flags in (0x0A, 0x12, 0x22, 0x3A):
        assert reason_of_connect(connect(version, flags, text("c"))) is MALFORMED
        assert reason_of_connect(connect(version, flags, text("c"), *will)) is MALFORMED
    assert reason_of_connect(connect(version, 0x1E, text("c"), *will)) is MALFORMED
    for qos in range(3):
        for retain in (False, True):
            stream = connect(version, 6 | qos << 3 | retain << 5, text("c"), *will)
            assert Decoder().feed(stream)[0] == Connect(
                version=version,
                client_id="c",
                keep_alive_s=60,
                will=Will("w", b"payload", qos, retain),
            )


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (0x06, 0),
        (0x06, 1),
        (0x82, 0),
        (0xC2, 1),
        (0x02, 1),
        (0x82, 2),
    ],
)
def test_the_payload_of_connect_is_what_its_flags_say(
    version: Version, flags: int, fields: int
) -> None:
    before = b"\0" if version is V5 and flags & 4 else b""
    stream = connect(version, flags, text("c"), before, *([text("xy")] * fields))

    assert reason_of_connect(stream) is MALFORMED


def test_a_password_needs_a_user_name_in_3_1_1_only() -> None:
    assert reason_of_connect(connect(4, 0x42, text("c"), text("secret"))) is MALFORMED
    assert reason_of_connect(connect(5, 0x42, text("c"), text("secret"))) is None


@pytest.mark.parametrize("version", Version)
def test_connect_has_a_client_identifier(version: Version) -> None:
    assert reason_of_connect(connect(version, 2)) is MALFORMED


def test_a_session_that_is_kept_needs_a_client_identifier_in_3_1_1() -> None:
    assert reason_of_connect(connect(4, 2, text(""))) is None
    assert reason_of_connect(connect(5, 0, text(""))) is None
    rejected = reason_of_connect(connect(4, 0, text("")))

    assert rejected is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


# ---- 3.2 to 3.15: the other packets


@pytest.mark.parametrize("version", Version)
def test_qos_3_and_a_repeated_publish_with_qos_0_are_refused(version: Version) -> None:
    none = b"\0" if version is V5 else b""
    assert reason_of(version, packet(0x36, text("t"), b"\0\1", none)) is MALFORMED
    assert reason_of(version, packet(0x3E, text("t"), b"\0\1", none)) is MALFORMED
    assert reason_of(version, packet(0x38, text("t"), none)) is MALFORMED
    assert reason_of(version, packet(0x3A, text("t"), b"\0\1", none)) is None


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("topic", ["+", "#", "a/+/b", "a/#", "a+b", "a#"])
def test_a_topic_name_has_no_wildcards(version: Version, topic: str) -> None:
    none = b"\0" if version is V5 else b""
    assert why_no_topic_name(topic)
    assert reason_of(version, packet(0x30, text(topic), none)) is MALFORMED
    will = (none, text(topic), text("payload"))
    assert reason_of_connect(connect(version, 6, text("c"), *will)) is MALFORMED


def test_a_publish_has_a_topic_or_an_alias() -> None:
    assert reason_of(V311, packet(0x30, text(""))) is MALFORMED
    assert reason_of(V5, packet(0x30, text(""), b"\0")) is BREACH
    assert reason_of(V5, packet(0x30, text(""), properties(b"\x01\1"))) is BREACH
    assert reason_of(V5, packet(0x30, text(""), properties(b"\x23\0\1"))) is None
    assert reason_of_connect(connect(4, 6, text("c"), text(""), text(""))) is MALFORMED


FILTERS = ["a", "/", "#", "+", "/#", "+/+", "a//b", "a/#", "+/a/#", " ", "$SYS/#", "a/+/"]
NO_FILTERS = ["", "a#", "#/a", "a/#/b", "##", "+a", "a+", "a/b+/c", "++", "/##"]


@pytest.mark.parametrize("version", Version)
def test_wildcards_stand_alone_in_their_level(version: Version) -> None:
    none = b"\0" if version is V5 else b""
    for topic_filter, reason in [
        *((found, None) for found in FILTERS),
        *((found, MALFORMED) for found in NO_FILTERS),
    ]:
        subscribe = packet(0x82, b"\0\1", none, text(topic_filter), b"\0")
        unsubscribe = packet(0xA2, b"\0\1", none, text(topic_filter))
        assert reason_of(version, subscribe) is reason, topic_filter
        assert reason_of(version, unsubscribe) is reason, topic_filter


def test_a_shared_subscription_has_a_name_and_a_filter() -> None:
    for good in ("$share/g/a", "$share/g/#", "$share/g//", "$share/g/+/a", "$share/$queue/a"):
        assert why_no_topic_filter(good) is None
        assert shared(good) == (good.split("/")[1], good.split("/", 2)[2])
    for bad in (
        "$share/",
        "$share//a",
        "$share/g",
        "$share/g/",
        "$share/+/a",
        "$share/#",
        "$share/g#/a",
    ):
        assert why_no_topic_filter(bad), bad
        assert reason_of(V5, packet(0x82, b"\0\1\0", text(bad), b"\0")) is MALFORMED, bad
    assert shared("$shared/g/a") is None
    assert shared("$share/g/") is None
    assert reason_of(V311, packet(0x82, b"\0\1", text("$share/g"), b"\0")) is None


@pytest.mark.parametrize(
    ("version", "options", "reason"),
    [
        (V311, 2, None),
        (V311, 3, MALFORMED),
        *((V311, 1 << bit, MALFORMED) for bit in range(2, 8)),
        (V5, 0x2E, None),
        (V5, 3, BREACH),
        (V5, 0x30, BREACH),
        (V5, 0x40, MALFORMED),
        (V5, 0x80, MALFORMED),
    ],
)
def test_the_options_of_a_subscription(
    version: Version, options: int, reason: ReasonCode | None
) -> None:
    none = b"\0" if version is V5 else b""
    stream = packet(0x82, b"\0\1", none, text("t"), bytes((options,)))

    assert reason_of(version, stream) is reason


def test_no_local_is_not_for_shared_subscriptions() -> None:
    assert reason_of(V5, packet(0x82, b"\0\1\0", text("$share/g/t"), b"\4")) is BREACH
    assert reason_of(V5, packet(0x82, b"\0\1\0", text("$share/g/t"), b"\2")) is None


@pytest.mark.parametrize("version", Version)
def test_subscribe_and_unsubscribe_have_a_topic_filter(version: Version) -> None:
    none = b"\0" if version is V5 else b""
    assert reason_of(version, packet(0x82, b"\0\1", none)) is BREACH
    assert reason_of(version, packet(0xA2, b"\0\1", none)) is BREACH
    assert reason_of(version, packet(0x82, b"\0\1", none, text("t"))) is MALFORMED


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("first", [0x20, 0x90, 0xB0, 0xD0])
def test_a_client_does_not_send_what_servers_send(version: Version, first: int) -> None:
    assert reason_of(version, packet(first, b"\0\1\0\0")) is BREACH


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("first", [0x10, 0x82, 0xA2, 0xC0])
def test_a_server_does_not_send_what_clients_send(version: Version, first: int) -> None:
    assert reason_of(version, packet(first, b"\0\1\0\0"), Role.SERVER) is BREACH


def test_in_3_1_1_there_is_no_auth_and_servers_do_not_send_disconnect() -> None:
    assert reason_of(V311, packet(0xF0)) is MALFORMED
    assert reason_of(V311, packet(0xE0), Role.SERVER) is BREACH
    assert reason_of(V311, packet(0xE0)) is None


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    ("sender", "stream"),
    [
        (Role.CLIENT, packet(0xC0, b"\0")),
        (Role.SERVER, packet(0xD0, b"\0")),
        (Role.CLIENT, packet(0x40, b"\0")),
        (Role.CLIENT, packet(0x40)),
        (Role.CLIENT, packet(0x30)),
        (Role.CLIENT, packet(0x30, b"\0")),
        (Role.CLIENT, packet(0x30, b"\0\3t")),
        (Role.CLIENT, packet(0x32, text("t"))),
        (Role.CLIENT, packet(0x32, text("t"), b"\1")),
        (Role.CLIENT, packet(0x82, b"\0\1")),
        (Role.CLIENT, packet(0xE0, b"\0\0\0")),
        (Role.SERVER, packet(0x20, b"\0")),
        (Role.SERVER, packet(0x20, b"\0\0\0\0")),
        (Role.SERVER, packet(0x90, b"\0")),
    ],
)
def test_a_packet_has_the_length_of_its_content(
    version: Version, sender: Role, stream: bytes
) -> None:
    """Another packet behind it does not lend its bytes."""
    if version is V311 and stream == packet(0x82, b"\0\1"):
        assert reason_of(version, stream, sender) is BREACH
        return
    assert reason_of(version, stream, sender) is MALFORMED
    assert reason_of(version, stream + packet(0x40, b"\0\1") * 9, sender) is MALFORMED


@pytest.mark.parametrize("stream", [packet(0x40, b"\0\1\0"), packet(0x62, b"\0\1\0\0")])
def test_acknowledgements_of_3_1_1_have_no_reason(stream: bytes) -> None:
    assert reason_of(V311, stream) is MALFORMED
    assert reason_of(V5, stream) is None


REASONS = {
    0x20: {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, *range(0x9A, 0x9E), 0x9F},
    0x40: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    0x50: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    0x62: {0x00, 0x92},
    0x70: {0x00, 0x92},
    0x90: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    0xB0: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    0xE0: {
        *(0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90),
        *range(0x93, 0xA3),
    },
    0xF0: {0x00, 0x18},
}
"""The reason codes that a server may send, by the first byte of the packet."""

REASONS_OF_CLIENTS = {
    0xE0: {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A)},
    0xF0: {0x18, 0x19},
}


@pytest.mark.parametrize("first", REASONS)
def test_each_packet_has_only_its_reason_codes(first: int) -> None:
    for code in range(256):
        own, method = bytes((code,)), properties(b"\x15" + text("m"))
        body = {
            0x20: b"\0" + own + b"\0",
            0x90: b"\0\1\0" + own,
            0xB0: b"\0\1\0" + own,
            0xE0: own,
            0xF0: own + method,
        }.get(first, b"\0\1" + own)
        reason = None if code in REASONS[first] else BREACH
        assert reason_of(V5, packet(first, body), Role.SERVER) is reason, hex(code)
        if first in REASONS_OF_CLIENTS:
            reason = None if code in REASONS_OF_CLIENTS[first] else BREACH
            assert reason_of(V5, packet(first, body)) is reason, hex(code)


def test_the_return_codes_of_3_1_1() -> None:
    for code in range(256):
        connack = reason_of(V311, packet(0x20, b"\0", bytes((code,))), Role.SERVER)
        assert connack is (None if code < 6 else BREACH)
        suback = reason_of(V311, packet(0x90, b"\0\1", bytes((code,))), Role.SERVER)
        assert suback is (None if code in {0, 1, 2, 0x80} else BREACH)


@pytest.mark.parametrize("version", Version)
def test_the_flags_of_connack(version: Version) -> None:
    none = b"\0" if version is V5 else b""
    assert reason_of(version, packet(0x20, b"\2\0", none), Role.SERVER) is MALFORMED
    assert reason_of(version, packet(0x20, b"\1\0", none), Role.SERVER) is None
    refused = b"\x87" if version is V5 else b"\5"
    assert reason_of(version, packet(0x20, b"\1", refused, none), Role.SERVER) is BREACH


def test_auth_has_a_method() -> None:
    assert reason_of(V5, packet(0xF0, b"\x18\0")) is BREACH
    assert reason_of(V5, packet(0xF0, b"\x18")) is BREACH
    assert reason_of(V5, packet(0xF0), Role.SERVER) is None


def test_a_server_may_have_its_own_rules_for_topic_filters() -> None:
    decoder = Decoder(check_filter=lambda text, _version: None if "?" in text else "no expression")
    decoder.feed(connect(5, 2, text("c")))

    found = decoder.feed(packet(0x82, b"\0\1\0", text("a/#?price > 1+1"), b"\1"))
    assert found[0].requests == (SubscriptionRequest("a/#?price > 1+1", 1),)  # type: ignore[attr-defined]
    with pytest.raises(MqttError, match="no expression"):
        decoder.feed(packet(0x82, b"\0\1\0", text("a"), b"\1"))
