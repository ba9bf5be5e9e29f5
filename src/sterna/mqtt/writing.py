"""Writes the parts of packets: texts, numbers, properties; ValueError if one cannot be sent."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from sterna.mqtt.packets import Packet, Publish, Version
from sterna.mqtt.properties import ALLOWED, Kind, Property
from sterna.mqtt.topics import TEXT_BYTES_MAX, why_no_topic_filter, why_no_topic_name

BYTES = tuple([bytes((number,)) for number in range(256)])
"""Each byte by its number."""

LENGTH_MAX = 268_435_455
"""How long a packet is at most behind its fixed header."""

_DEFAULTS = {kind: {f.name: f.default for f in msgspec.structs.fields(kind)} for kind in ALLOWED}
_WITH_DEFAULTS = {
    kind: [(id_, rule, _DEFAULTS[kind][rule.field]) for id_, rule in rules.items()]
    for kind, rules in ALLOWED.items()
    if kind is not Publish
}
"""The properties of each packet with what is not sent, because it is what their absence means."""


def varint(number: int) -> bytes:
    if 0 <= number < 0x80:
        return BYTES[number]
    if not 0 <= number <= LENGTH_MAX:
        raise ValueError(f"a length or an identifier is {number}, over {LENGTH_MAX}")
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def int16(number: int) -> bytes:
    return number_of(number, 2)


def number_of(number: int, size: int) -> bytes:
    try:
        return number.to_bytes(size, "big")
    except OverflowError:
        raise ValueError(f"{number} does not fit in {size} bytes") from None


def packet_id_of(number: int) -> bytes:
    if not 0 < number < 65536:
        raise ValueError(f"a packet identifier is {number}, not from 1 to 65535")
    return number.to_bytes(2, "big")


def binary(data: bytes) -> bytes:
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError(f"a text or binary field has {len(data)} bytes, over {TEXT_BYTES_MAX}")
    return len(data).to_bytes(2, "big") + data


def text_of(text: str) -> bytes:
    if "\0" in text:
        raise ValueError("a text contains U+0000, which MQTT forbids")
    return binary(text.encode())


@lru_cache(maxsize=4096)
def _cached_topic(topic: str) -> bytes:
    if why := why_no_topic_name(topic):
        raise ValueError(why)
    return text_of(topic)


def topic_of(topic: str) -> bytes:
    return _cached_topic(topic) if len(topic) < 256 else _cached_topic.__wrapped__(topic)


def behind_length(data: bytes) -> bytes:
    return varint(len(data)) + data


def framed(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return BYTES[first] + varint(len(body)) + body


def _value(rule: Property, value: Any) -> bytes:
    match rule.kind:
        case Kind.FLAG | Kind.BIT:
            return b"\1" if value else b"\0"
        case Kind.INT16 | Kind.INT32:
            if value < rule.least:
                raise ValueError(f"the property {rule.field} is {value}")
            return number_of(value, 2 if rule.kind is Kind.INT16 else 4)
        case Kind.VARINT:
            if value < rule.least:
                raise ValueError(f"the property {rule.field} is {value}")
            return varint(value)
        case Kind.BINARY:
            return binary(value)
        case Kind.TOPIC:
            return topic_of(value)
        case _:
            return text_of(value)


def topic_filter_of(topic_filter: str, version: Version) -> bytes:
    if why := why_no_topic_filter(topic_filter, version):
        raise ValueError(why)
    return text_of(topic_filter)


def _user_properties(pairs: Sequence[tuple[str, str]]) -> list[bytes]:
    return [b"\x26" + text_of(name) + text_of(value) for name, value in pairs]


def properties_of(packet: Packet, version: Version) -> bytes:
    """All properties of a packet behind their length; nothing in 3.1.1."""
    if version is Version.V311:
        return b""
    found = []
    for id_, rule, default in _WITH_DEFAULTS[type(packet)]:
        value = getattr(packet, rule.field)
        if value != default:
            found += (
                _user_properties(value)
                if rule.kind is Kind.PAIR
                else [bytes((id_,)) + _value(rule, value)]
            )
    return behind_length(b"".join(found))


def message_properties(publish: Publish) -> bytes:
    """The properties of a PUBLISH that are the same for all receivers, without a length."""
    if not (
        publish.user_properties
        or publish.message_expiry_s is not None
        or publish.payload_is_text
        or publish.response_topic is not None
        or publish.correlation_data is not None
        or publish.content_type is not None
    ):
        return b""
    found = []
    if publish.payload_is_text:
        found.append(b"\1\1")
    if publish.message_expiry_s is not None:
        found.append(b"\2" + number_of(publish.message_expiry_s, 4))
    if publish.content_type is not None:
        found.append(b"\3" + text_of(publish.content_type))
    if publish.response_topic is not None:
        found.append(b"\x08" + topic_of(publish.response_topic))
    if publish.correlation_data is not None:
        found.append(b"\x09" + binary(publish.correlation_data))
    if publish.user_properties:
        found += _user_properties(publish.user_properties)
    return b"".join(found)


def own_properties(identifiers: Sequence[int], topic_alias: int | None) -> bytes:
    """The properties of a PUBLISH that each receiver has its own of, without a length."""
    found = []
    for identifier in identifiers:
        if identifier < 1:
            raise ValueError(f"a subscription identifier is {identifier}")
        found.append(b"\x0b" + varint(identifier))
    if topic_alias is not None:
        if topic_alias < 1:
            raise ValueError(f"a topic alias is {topic_alias}")
        found.append(b"\x23" + int16(topic_alias))
    return b"".join(found)
