"""Reads the parts of packets: texts, numbers, properties.

Whatever is behind the end of the bytes raises IndexError, or is found to be too short: the decoder
makes one error of both.
"""

from functools import lru_cache
from typing import Any

import msgspec

from sterna.mqtt.packets import MqttError, Packet, Publish, ReasonCode
from sterna.mqtt.properties import ALLOWED, Kind, Property
from sterna.mqtt.topics import why_no_topic_name

CACHED_BYTES_MAX = 256
"""What is longer is decoded each time, so that no cache grows large."""

_PUBLISH_FIELDS = tuple(
    [(field.name, field.default) for field in msgspec.structs.fields(Publish)][6:]
)
"""The fields of PUBLISH that are properties, and what they are without."""

# Names of their own, because members of an enumeration take long to look up.
_FLAG, _INT16, _INT32, _VARINT = Kind.FLAG, Kind.INT16, Kind.INT32, Kind.VARINT
_TEXT, _TOPIC, _BINARY, _PAIR = Kind.TEXT, Kind.TOPIC, Kind.BINARY, Kind.PAIR

Fields = dict[str, Any]
"""What properties say, by the fields of the record of their packet."""


def malformed(what: str) -> MqttError:
    return MqttError(ReasonCode.MALFORMED_PACKET, what)


def breach(what: str) -> MqttError:
    return MqttError(ReasonCode.PROTOCOL_ERROR, what)


def too_short() -> MqttError:
    return malformed("a packet ends before what it announces")


def text_of(data: bytes) -> str:
    """A text from its bytes."""
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        raise malformed("a text is not UTF-8") from None
    if "\0" in text:
        raise malformed("a text contains U+0000")
    return text


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    """A number of one to four bytes, and where it ends."""
    value = body[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in (7, 14, 21):
        at += 1
        byte = body[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte:
                raise malformed("a number takes more bytes than it needs")
            return value, at + 1
    raise malformed("a number takes more than four bytes")


def read_properties(kind: type[Packet], body: bytes, at: int) -> tuple[Fields, int]:
    """The properties of a packet by field, and where they end."""
    length = body[at]
    if not length:
        return {}, at + 1
    length, at = read_varint(body, at)
    end = at + length
    if end > len(body):
        raise too_short()
    return fields_of(kind, body[at:end]), end


def fields_of(kind: type[Packet], block: bytes) -> Fields:
    """The properties of a packet by field, from the bytes behind their length."""
    allowed = ALLOWED[kind]
    found: Fields = {}
    identifiers: list[int] = []
    pairs: list[tuple[str, str]] = []
    at, end = 0, len(block)
    while at < end:
        rule = allowed.get(block[at])
        if rule is None:
            raise malformed(f"{kind.__name__} has no property {block[at]:#04x}")
        field, form, _, _ = rule
        at += 1
        if form is _PAIR:
            middle = at + 2 + (block[at] << 8 | block[at + 1])
            name = text_of(block[at + 2 : middle])
            at = middle + 2 + (block[middle] << 8 | block[middle + 1])
            pairs.append((name, text_of(block[middle + 2 : at])))
        elif form is _VARINT and kind is Publish:
            number, at = read_varint(block, at)
            identifiers.append(_checked(rule, number))
        elif field in found:
            raise breach(f"{kind.__name__} has the property {field} twice")
        else:
            found[field], at = _read_value(rule, block, at, end)
    if at > end:
        raise too_short()
    if pairs:
        found["user_properties"] = tuple(pairs)
    if identifiers:
        found["subscription_identifiers"] = tuple(identifiers)
    return found


def read_publish_properties(block: bytes) -> tuple[Any, ...]:
    """The properties of a PUBLISH in the order of its fields, from the bytes behind their length.

    Publishers send the same ones again and again.
    """
    if len(block) > CACHED_BYTES_MAX:
        return _cached_publish_properties.__wrapped__(block)
    return _cached_publish_properties(block)


@lru_cache(maxsize=1024)
def _cached_publish_properties(block: bytes) -> tuple[Any, ...]:
    fields = fields_of(Publish, block)
    return tuple([fields.get(name, default) for name, default in _PUBLISH_FIELDS])


def read_text(body: bytes, at: int, end: int) -> tuple[str, int]:
    start = at + 2
    at = start + (body[at] << 8 | body[at + 1])
    if at > end:
        raise too_short()
    return text_of(body[start:at]), at


def read_binary(body: bytes, at: int, end: int) -> tuple[bytes, int]:
    start = at + 2
    at = start + (body[at] << 8 | body[at + 1])
    if at > end:
        raise too_short()
    return body[start:at], at


def read_int16(body: bytes, at: int) -> int:
    return body[at] << 8 | body[at + 1]


def read_packet_id(body: bytes, at: int) -> int:
    number = body[at] << 8 | body[at + 1]
    if not number:
        raise breach("a packet identifier is 0")
    return number


def _checked(rule: Property, number: int) -> int:
    if number < rule.least:
        raise MqttError(rule.error, f"the property {rule.field} is {number}")
    return number


def _read_value(rule: Property, body: bytes, at: int, end: int) -> tuple[Any, int]:
    kind = rule.kind
    if kind is _TEXT:
        return read_text(body, at, end)
    if kind is _INT32:
        return _checked(rule, read_int16(body, at) << 16 | read_int16(body, at + 2)), at + 4
    if kind is _INT16:
        return _checked(rule, read_int16(body, at)), at + 2
    if kind is _BINARY:
        return read_binary(body, at, end)
    if kind is _TOPIC:
        topic, at = read_text(body, at, end)
        if why := why_no_topic_name(topic):
            raise malformed(f"the property {rule.field}: {why}")
        return topic, at
    if kind is _VARINT:
        number, at = read_varint(body, at)
        return _checked(rule, number), at
    number = body[at]
    if number > 1:
        raise breach(f"the property {rule.field} is neither 0 nor 1")
    return (number == 1 if kind is _FLAG else number), at + 1
