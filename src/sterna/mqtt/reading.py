"""Reads the parts of packets: texts, numbers, properties.

Whatever is behind the end of the bytes raises IndexError, or is found to be too short: the decoder
makes one error of both.
"""

from typing import Any

from sterna.mqtt.packets import MqttError, Packet, Publish, ReasonCode
from sterna.mqtt.properties import ALLOWED, Kind, Property
from sterna.mqtt.topics import why_no_topic_name


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


def read_properties(kind: type[Packet], body: bytes, at: int) -> tuple[dict[str, Any], int]:
    """The properties of a packet by field, and where they end."""
    length = body[at]
    at += 1
    if not length:
        return {}, at
    if length >= 0x80:
        length, at = read_varint(body, at - 1)
    end = at + length
    if end > len(body):
        raise too_short()
    allowed = ALLOWED[kind]
    found: dict[str, Any] = {}
    identifiers: list[int] = []
    pairs: list[tuple[str, str]] = []
    try:
        # What follows the properties must not be taken for one of them.
        while at < end:
            rule = allowed.get(body[at])
            if rule is None:
                raise malformed(f"{kind.__name__} has no property {body[at]:#04x}")
            field, form = rule.field, rule.kind
            at += 1
            if form is Kind.PAIR:
                name, at = read_text(body, at, end)
                value, at = read_text(body, at, end)
                pairs.append((name, value))
                continue
            if form is Kind.VARINT and kind is Publish:
                number, at = read_varint(body, at)
                identifiers.append(_checked(rule, number))
                continue
            if field in found:
                raise breach(f"{kind.__name__} has the property {field} twice")
            found[field], at = _read_value(rule, body, at, end)
    except IndexError:
        raise too_short() from None
    if at != end:
        raise malformed(f"the properties of {kind.__name__} have another length than announced")
    if pairs:
        found["user_properties"] = tuple(pairs)
    if identifiers:
        found["subscription_identifiers"] = tuple(identifiers)
    return found, at


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
    match rule.kind:
        case Kind.FLAG | Kind.BIT:
            number = body[at]
            if number > 1:
                raise breach(f"the property {rule.field} is neither 0 nor 1")
            return (number == 1 if rule.kind is Kind.FLAG else number), at + 1
        case Kind.INT16:
            return _checked(rule, read_int16(body, at)), at + 2
        case Kind.INT32:
            return _checked(rule, read_int16(body, at) << 16 | read_int16(body, at + 2)), at + 4
        case Kind.VARINT:
            number, at = read_varint(body, at)
            return _checked(rule, number), at
        case Kind.BINARY:
            return read_binary(body, at, end)
        case _:
            text, at = read_text(body, at, end)
            if rule.kind is Kind.TOPIC and (why := why_no_topic_name(text)):
                raise malformed(f"the property {rule.field}: {why}")
            return text, at
