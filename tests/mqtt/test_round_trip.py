"""What is encoded is decoded again, whole or in pieces, for both versions and both ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import EncodedPublish, encode, encode_within
from sterna.mqtt.packets import (
    Acknowledgement,
    Connack,
    Disconnect,
    MqttError,
    Packet,
    Puback,
    Publish,
    ReasonCode,
    Role,
    Suback,
    Version,
)
from tests.mqtt import strategies
from tests.scale import examples, soon

ends = st.sampled_from([(version, role) for version in Version for role in Role])


def decoder_for(version: Version, sender: Role) -> Decoder:
    """The other end: a server learns the version by itself."""
    return Decoder() if sender is Role.CLIENT else Decoder(Role.CLIENT, version)


@pytest.mark.spec("LV-4")
@given(data=st.data(), end=ends)
@examples(150, long=4)
def test_what_is_encoded_is_decoded_again(data: st.DataObject, end: tuple[Version, Role]) -> None:
    sent = data.draw(strategies.conversations(*end))

    received = decoder_for(*end).feed(b"".join(encode(packet, end[0]) for packet in sent))

    assert received == sent


@given(data=st.data(), end=ends)
@examples(80, long=2)
def test_pieces_give_the_same_as_the_whole(data: st.DataObject, end: tuple[Version, Role]) -> None:
    """Also MQTT-6.0.0-2: packets need not begin where frames of a WebSocket do."""
    sent = data.draw(strategies.conversations(*end))
    stream = b"".join(encode(packet, end[0]) for packet in sent)[:5000]
    size = data.draw(st.integers(1, 40))
    whole, pieces = decoder_for(*end), decoder_for(*end)

    received = [
        packet
        for at in range(0, len(stream), size)
        for packet in pieces.feed(stream[at : at + size])
    ]

    assert received == whole.feed(stream)


@given(data=st.data(), version=st.sampled_from(Version))
@examples(80, long=2)
def test_a_publish_that_is_encoded_once_reads_as_if_encoded_for_each(
    data: st.DataObject, version: Version
) -> None:
    publish = data.draw(strategies.publishes(version).filter(lambda found: bool(found.topic)))
    encoded = EncodedPublish(publish, version)
    for _ in range(2):
        alias = None if version is Version.V311 else data.draw(st.none() | st.integers(1, 65535))
        receiver = Publish(
            publish.topic if alias is None or data.draw(st.booleans()) else "",
            publish.payload,
            qos := data.draw(st.integers(0, 2)),
            data.draw(st.booleans()),
            qos > 0 and data.draw(st.booleans()),
            data.draw(strategies.ids) if qos else 0,
            publish.payload_is_text,
            publish.message_expiry_s,
            alias,
            publish.response_topic,
            publish.correlation_data,
            publish.content_type,
            () if version is Version.V311 else data.draw(st.sampled_from([(), (1,), (7, 300)])),
            publish.user_properties,
        )

        sent = encoded.to(
            receiver.qos,
            receiver.packet_id,
            retain=receiver.retain,
            dup=receiver.dup,
            subscription_identifiers=receiver.subscription_identifiers,
            topic_alias=receiver.topic_alias or 0,
            with_topic=bool(receiver.topic),
        )

        assert Decoder(Role.CLIENT, version).feed(sent) == [receiver]


def test_a_publish_with_qos_0_is_the_same_bytes_for_all() -> None:
    encoded = EncodedPublish(Publish("a/b", b"payload"), Version.V5)

    assert encoded.to() is encoded.to()


@given(data=st.data(), limit=st.integers(2, 200))
@examples(80, long=2)
def test_what_explains_is_left_out_if_the_packet_gets_too_long(
    data: st.DataObject, limit: int
) -> None:
    packet = data.draw(strategies.connacks(Version.V5) | strategies.acknowledgements(Version.V5))
    assert isinstance(packet, Connack | Acknowledgement)

    sent = encode_within(packet, Version.V5, limit)

    if sent is None:
        bare = encode(_without(packet, "user_properties", "reason_string"), Version.V5)
        assert len(bare) > limit
    else:
        assert len(sent) <= limit
        assert Decoder(Role.CLIENT, Version.V5).feed(sent)[0] in {
            packet,
            _without(packet, "user_properties"),
            _without(packet, "user_properties", "reason_string"),
        }


def _without(packet: Packet, *fields: str) -> Packet:
    said = strategies.without_defaults(packet)
    return type(packet)(**{name: said[name] for name in said if name not in fields})


@pytest.mark.parametrize("version", Version)
def test_a_long_packet_in_many_pieces_takes_linear_time(version: Version) -> None:
    packet = Publish("t", bytes(4_000_000))
    stream = encode(packet, version)
    decoder = Decoder(Role.CLIENT, version)

    with soon(4):
        received = [
            found
            for at in range(0, len(stream), 64)
            for found in decoder.feed(stream[at : at + 64])
        ]

    assert received == [packet]


def test_a_packet_is_refused_once_its_header_says_that_it_is_too_long() -> None:
    decoder = Decoder(Role.CLIENT, Version.V5, maximum_packet_size=100)
    fits = encode(Publish("t", bytes(94)), Version.V5)
    assert len(fits) == 100
    assert len(decoder.feed(fits)) == 1

    with pytest.raises(MqttError, match="101 bytes") as caught:
        decoder.feed(encode(Publish("t", bytes(95)), Version.V5)[:2])

    assert caught.value.reason_code is ReasonCode.PACKET_TOO_LARGE


def test_the_good_packets_before_a_bad_one_are_with_the_error() -> None:
    good = [Publish("a"), Puback(3)]
    stream = b"".join(encode(packet, Version.V5) for packet in good)
    decoder = Decoder(Role.CLIENT, Version.V5)

    with pytest.raises(MqttError) as caught:
        decoder.feed(stream + b"\x00\x00")
    with pytest.raises(MqttError) as again:
        decoder.feed(stream)

    assert caught.value.before == good
    assert again.value.before == []
    assert again.value.reason_code is caught.value.reason_code


@pytest.mark.parametrize(
    "packet",
    [
        Connack(reason_code=ReasonCode.MALFORMED_PACKET),
        Disconnect(ReasonCode.SERVER_SHUTTING_DOWN),
    ],
)
def test_what_version_3_1_1_cannot_say_is_not_sent(packet: Packet) -> None:
    assert encode(packet, Version.V311) == b""
    assert encode(packet, Version.V5)


def test_version_3_1_1_is_told_of_failures_by_one_code() -> None:
    codes = (ReasonCode.GRANTED_QOS_2, ReasonCode.QUOTA_EXCEEDED, ReasonCode.TOPIC_FILTER_INVALID)

    assert encode(Suback(7, codes), Version.V311) == b"\x90\5\0\7\2\x80\x80"
    assert encode(Suback(7, codes), Version.V5) == b"\x90\6\0\7\0\2\x97\x8f"


@pytest.mark.parametrize(
    ("packet", "says"),
    [
        (Publish("a/+"), "contains"),
        (Publish(""), "empty"),
        (Publish("a\0"), "U\\+0000"),
        (Publish("a\ud800"), "surrogates"),
        (Publish("x" * 65536), "65536 bytes"),
        (Publish("a", qos=1), "identifier is 0"),
        (Publish("a", qos=1, packet_id=65536), "identifier is 65536"),
        (Publish("a", qos=3, packet_id=1), "QoS"),
        (Publish("a", dup=True), "QoS"),
        (Publish("a", message_expiry_s=-1), "does not fit"),
        (Connack(reason_string="\0"), "U\\+0000"),
        (Connack(receive_maximum=0), "receive_maximum is 0"),
    ],
)
def test_what_must_not_be_sent_is_not_encoded(packet: Packet, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        encode(packet, Version.V5)
