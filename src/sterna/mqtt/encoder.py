"""Packets become bytes."""

from collections.abc import Callable
from typing import Any

import msgspec

from sterna.mqtt.packets import (
    Acknowledgement,
    Auth,
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
    Unsuback,
    Unsubscribe,
    Version,
)
from sterna.mqtt.reasons import CONNACK_TO_311
from sterna.mqtt.writing import (
    BYTES,
    behind_length,
    binary,
    framed,
    int16,
    message_properties,
    own_properties,
    packet_id_of,
    properties_of,
    text_of,
    topic_filter_of,
    topic_of,
    varint,
)

Explained = Acknowledgement | Connack | Suback | Unsuback | Disconnect | Auth
"""The packets whose reason string and user properties only help to find out what is wrong."""

_ACKNOWLEDGEMENTS = {Puback: 0x40, Pubrec: 0x50, Pubrel: 0x62, Pubcomp: 0x70}


def encode(packet: Packet, version: Version) -> bytes:
    """A packet as bytes. 3.1.1 leaves out what it does not have: properties, most reason codes.

    Empty if 3.1.1 has no such packet, or no such reason in it: the connection is closed without.
    ValueError if it cannot be sent: a text over 65,535 bytes or with U+0000, a packet identifier
    out of range, a topic name with wildcards, and the like.
    """
    return _ENCODERS[type(packet)](packet, version)


def encode_within(packet: Packet, version: Version, limit: int | None) -> bytes | None:
    """A packet in at most so many bytes: user properties and a reason string that explain a result
    are left out if it is longer with them. None if it is too long even so.
    """
    data = encode(packet, version)
    if limit is None or len(data) <= limit:
        return data
    if isinstance(packet, Explained):
        for left_out in ({"user_properties": ()}, {"user_properties": (), "reason_string": None}):
            data = encode(msgspec.structs.replace(packet, **left_out), version)
            if len(data) <= limit:
                return data
    return None


class EncodedPublish:
    """An application message that is encoded once and sent to many."""

    __slots__ = ("_is_5", "_kept", "_payload", "_properties", "_topic")

    def __init__(self, publish: Publish, version: Version) -> None:
        """Each receiver has its own packet identifier, `dup`, `qos`, `retain`, topic alias and
        subscription identifiers: those of the packet are ignored.
        """
        self._is_5 = version is Version.V5
        self._topic = topic_of(publish.topic)
        self._properties = message_properties(publish) if self._is_5 else b""
        self._payload = publish.payload
        self._kept: dict[object, tuple[bytes, bytes]] = {}

    def to(
        self,
        qos: int = 0,
        packet_id: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        subscription_identifiers: tuple[int, ...] = (),
        topic_alias: int = 0,
        with_topic: bool = True,
    ) -> bytes:
        """The packet for one receiver; cheap if only the packet identifier differs.

        Without its topic, the topic alias must stand for it.
        """
        first = 0x30 | dup << 3 | qos << 1 | retain
        key: object = first
        if subscription_identifiers or topic_alias:
            key = (first, subscription_identifiers, topic_alias, with_topic)
        parts = self._kept.get(key)
        if parts is None:
            topic = self._topic if with_topic or not topic_alias else b"\0\0"
            parts = self._parts(first, topic, subscription_identifiers, topic_alias)
            self._kept[key] = parts
        if not qos:
            return parts[0]
        return parts[0] + packet_id_of(packet_id) + parts[1]

    def _parts(
        self, first: int, topic: bytes, identifiers: tuple[int, ...], topic_alias: int
    ) -> tuple[bytes, bytes]:
        """What comes before the packet identifier and what after it; all in one with QoS 0."""
        if first & 6 == 6:
            raise ValueError("there is no QoS 3")
        properties = b""
        if self._is_5:
            own = own_properties(identifiers, topic_alias or None)
            properties = behind_length(self._properties + own)
        tail = properties + self._payload
        has_id = first & 6 != 0
        head = bytes((first,)) + varint(len(topic) + 2 * has_id + len(tail)) + topic
        return (head, tail) if has_id else (head + tail, b"")


def _connect(packet: Connect, version: Version) -> bytes:
    if packet.version is not version:
        raise ValueError("a CONNECT is sent in the version that it names")
    will = packet.will
    flags = packet.clean_start << 1
    payload = [text_of(packet.client_id)]
    if will is not None:
        if not 0 <= will.qos <= 2:
            raise ValueError(f"the QoS of a will is {will.qos}")
        flags |= 4 | will.qos << 3 | will.retain << 5
        payload += [properties_of(will, version), topic_of(will.topic), binary(will.payload)]
    if packet.user_name is not None:
        flags |= 0x80
        payload.append(text_of(packet.user_name))
    if packet.password is not None:
        if packet.user_name is None and version is Version.V311:
            raise ValueError("MQTT 3.1.1 has no password without a user name")
        flags |= 0x40
        payload.append(binary(packet.password))
    return framed(
        *(0x10, b"\0\4MQTT", bytes((version, flags)), int16(packet.keep_alive_s)),
        *(properties_of(packet, version), *payload),
    )


def _connack(packet: Connack, version: Version) -> bytes:
    code: int = packet.reason_code
    if version is Version.V311:
        if packet.reason_code not in CONNACK_TO_311:
            return b""
        code = CONNACK_TO_311[packet.reason_code]
    return framed(0x20, bytes((packet.session_present, code)), properties_of(packet, version))


def _publish(packet: Publish, version: Version) -> bytes:
    qos, topic, payload, is_5 = packet.qos, packet.topic, packet.payload, version is Version.V5
    if not 0 <= qos <= 2 or (packet.dup and not qos):
        raise ValueError("PUBLISH has a QoS of 0, 1 or 2; and says that it is sent again from 1 on")
    name = topic_of(topic) if topic or packet.topic_alias is None else b"\0\0"
    packet_id = packet_id_of(packet.packet_id) if qos else b""
    properties = b""
    if is_5:
        properties = message_properties(packet)
        if packet.subscription_identifiers or packet.topic_alias is not None:
            properties += own_properties(packet.subscription_identifiers, packet.topic_alias)
        properties = behind_length(properties) if properties else b"\0"
    elif not topic:
        raise ValueError("PUBLISH has no topic, and MQTT 3.1.1 has no topic aliases")
    length = varint(len(name) + len(packet_id) + len(properties) + len(payload))
    first = BYTES[0x30 | packet.dup << 3 | qos << 1 | packet.retain]
    return b"".join((first, length, name, packet_id, properties, payload))


def _acknowledgement(packet: Acknowledgement, version: Version) -> bytes:
    first, packet_id = _ACKNOWLEDGEMENTS[type(packet)], packet_id_of(packet.packet_id)
    if version is Version.V311:
        return bytes((first, 2)) + packet_id
    properties = packet.reason_string is not None or packet.user_properties
    if not properties:
        if packet.reason_code is ReasonCode.SUCCESS:
            return bytes((first, 2)) + packet_id
        return bytes((first, 3)) + packet_id + bytes((packet.reason_code,))
    return framed(first, packet_id, bytes((packet.reason_code,)), properties_of(packet, version))


def _subscribe(packet: Subscribe, version: Version) -> bytes:
    if not packet.requests:
        raise ValueError("SUBSCRIBE has no topic filter")
    payload = []
    for request in packet.requests:
        options = request.qos
        if not 0 <= options <= 2:
            raise ValueError(f"a subscription has QoS {options}")
        if version is Version.V5:
            options |= request.no_local << 2 | request.retain_as_published << 3
            options |= request.retain_handling << 4
        payload.append(topic_filter_of(request.topic_filter, version) + bytes((options,)))
    return framed(0x82, packet_id_of(packet.packet_id), properties_of(packet, version), *payload)


def _suback(packet: Suback, version: Version) -> bytes:
    codes = packet.reason_codes
    if version is Version.V311:
        codes = tuple([ReasonCode(min(code, 0x80)) for code in codes])
    return framed(
        0x90, packet_id_of(packet.packet_id), properties_of(packet, version), bytes(codes)
    )


def _unsubscribe(packet: Unsubscribe, version: Version) -> bytes:
    if not packet.topic_filters:
        raise ValueError("UNSUBSCRIBE has no topic filter")
    payload = [topic_filter_of(topic_filter, version) for topic_filter in packet.topic_filters]
    return framed(0xA2, packet_id_of(packet.packet_id), properties_of(packet, version), *payload)


def _unsuback(packet: Unsuback, version: Version) -> bytes:
    codes = bytes(packet.reason_codes) if version is Version.V5 else b""
    return framed(0xB0, packet_id_of(packet.packet_id), properties_of(packet, version), codes)


def _pingreq(_packet: Pingreq, _version: Version) -> bytes:
    return b"\xc0\0"


def _pingresp(_packet: Pingresp, _version: Version) -> bytes:
    return b"\xd0\0"


def _disconnect(packet: Disconnect, version: Version) -> bytes:
    reason_code = packet.reason_code
    if version is Version.V311:
        return b"" if reason_code else b"\xe0\0"
    return _short(0xE0, packet, reason_code)


def _auth(packet: Auth, version: Version) -> bytes:
    return b"" if version is Version.V311 else _short(0xF0, packet, packet.reason_code)


def _short(first: int, packet: Packet, reason_code: ReasonCode) -> bytes:
    """A packet that ends with its reason code, or before it, if nothing follows."""
    properties = properties_of(packet, Version.V5)
    if properties == b"\0":
        return framed(first, bytes((reason_code,)) if reason_code else b"")
    return framed(first, bytes((reason_code,)), properties)


_ENCODERS: dict[type[Packet], Callable[[Any, Version], bytes]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _acknowledgement,
    Pubrec: _acknowledgement,
    Pubrel: _acknowledgement,
    Pubcomp: _acknowledgement,
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: _pingreq,
    Pingresp: _pingresp,
    Disconnect: _disconnect,
    Auth: _auth,
}
