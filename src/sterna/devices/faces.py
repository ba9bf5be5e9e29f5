"""The two faces of an event: as an event with attributes, and as an MQTT message.

The topic is the attribute `topic`, and the payload is the payload. A user property is an attribute
of its name: a JSON number becomes an integer or a float, `true` and `false` become a boolean, and
anything else is text. What MQTT has besides is in attributes whose names begin with `mqtt.`.
"""

import re
from collections.abc import Mapping
from math import isfinite

import msgspec

from sterna.devices.options import Face
from sterna.model.event import INT_MAX, INT_MIN, Event, Scalar
from sterna.mqtt.packets import Publish, UserProperties, Will

TOPIC = "topic"
OWN = "mqtt."
"""The names of attributes that only MQTT knows begin with it."""
QOS = "mqtt.qos"
"""The QoS of a message; an event that has none was not published by MQTT."""
RETAIN = "mqtt.retain"
TEXT = "mqtt.text"
EXPIRY = "mqtt.expiry_s"
CONTENT_TYPE = "mqtt.content_type"
RESPONSE_TOPIC = "mqtt.response_topic"
CORRELATION = "mqtt.correlation"
"""The correlation data, in hexadecimal."""
PROPERTIES = "mqtt.properties"
"""All user properties as JSON, if the attributes alone do not tell how they were written."""

TEXT_BYTES_MAX = 65_535
"""No text in MQTT is longer."""

JSON = "application/json"

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def value_of(text: str) -> Scalar:
    """The value of a user property."""
    if text in {"true", "false"}:
        return text == "true"
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    if found[1] is None and found[2] is None and len(text) <= 20:
        number = int(text)
        if INT_MIN <= number <= INT_MAX:
            return number
    value = float(text)
    return value if isfinite(value) else text


def text_of(value: Scalar) -> str:
    """An attribute as a user property."""
    if type(value) is bool:
        return "true" if value else "false"
    return value if type(value) is str else repr(value)


def attributes_of(message: Publish | Will, topic: str) -> dict[str, Scalar]:
    """The attributes of a message."""
    found: dict[str, Scalar] = {TOPIC: topic, QOS: message.qos}
    if message.retain:
        found[RETAIN] = True
    if message.payload_is_text:
        found[TEXT] = True
    if message.message_expiry_s is not None:
        found[EXPIRY] = message.message_expiry_s
    if message.content_type is not None:
        found[CONTENT_TYPE] = message.content_type
    if message.response_topic is not None:
        found[RESPONSE_TOPIC] = message.response_topic
    if message.correlation_data is not None:
        found[CORRELATION] = message.correlation_data.hex()
    if message.user_properties:
        _add_properties(found, message.user_properties)
    return found


def _add_properties(found: dict[str, Scalar], properties: UserProperties) -> None:
    is_exact = True
    for name, text in properties:
        if not name or name in found or name.startswith(OWN):
            is_exact = False
            continue
        value = found[name] = value_of(text)
        is_exact = is_exact and text_of(value) == text
    if not is_exact:
        found[PROPERTIES] = msgspec.json.encode(properties).decode()


def publish_of(
    event: Event, *, topic: Scalar | None = None, face: Face = Face.EVENT
) -> Publish | None:
    """An event as a message; None if it has no topic by which MQTT could name it.

    `topic` is for an event without one, and `face` for one that was not published by MQTT.
    """
    attributes = event.attributes
    topic = attributes.get(TOPIC, topic)
    if type(topic) is not str or not topic or not _is_sendable(topic) or _has_wildcard(topic):
        return None
    if QOS not in attributes:
        return _publish_of_native(topic, event, face)
    plain = len(attributes) == 2
    if plain:
        return Publish(topic, event.payload, _qos(attributes))
    correlation = attributes.get(CORRELATION)
    expiry = attributes.get(EXPIRY)
    return Publish(
        topic,
        event.payload,
        _qos(attributes),
        retain=attributes.get(RETAIN) is True,
        payload_is_text=attributes.get(TEXT) is True,
        message_expiry_s=expiry if type(expiry) is int and 0 <= expiry < 2**32 else None,
        response_topic=_text(attributes, RESPONSE_TOPIC),
        correlation_data=None if correlation is None else _bytes(correlation),
        content_type=_text(attributes, CONTENT_TYPE),
        user_properties=_properties(attributes),
    )


def _publish_of_native(topic: str, event: Event, face: Face) -> Publish:
    """An event that was not published by MQTT. Without a payload, that is its attributes."""
    properties = _properties(event.attributes)
    if face is Face.EVENT and (event.payload or not properties):
        return Publish(topic, event.payload, 2, user_properties=properties)
    rest = {name: value for name, value in event.attributes.items() if name != TOPIC}
    return Publish(
        topic,
        msgspec.json.encode(rest),
        2,
        payload_is_text=True,
        content_type=JSON,
        user_properties=properties,
    )


def _qos(attributes: Mapping[str, Scalar]) -> int:
    qos = attributes[QOS]
    return qos if type(qos) is int and 0 <= qos <= 2 else 2


def _properties(attributes: Mapping[str, Scalar]) -> UserProperties:
    written = attributes.get(PROPERTIES)
    if type(written) is str:
        try:
            found = msgspec.json.decode(written, type=tuple[tuple[str, str], ...])
        except (msgspec.MsgspecError, UnicodeError):
            found = ()
    else:
        found = tuple(
            (name, text_of(value))
            for name, value in attributes.items()
            if name != TOPIC and not name.startswith(OWN)
        )
    return tuple(each for each in found if _is_sendable(each[0]) and _is_sendable(each[1]))


def _text(attributes: Mapping[str, Scalar], name: str) -> str | None:
    value = attributes.get(name)
    return value if type(value) is str and _is_sendable(value) else None


def _bytes(text: Scalar) -> bytes | None:
    try:
        found = bytes.fromhex(text) if type(text) is str else None
    except ValueError:
        return None
    return found if found is None or len(found) <= TEXT_BYTES_MAX else None


def _has_wildcard(topic: str) -> bool:
    return "+" in topic or "#" in topic


def _is_sendable(text: str) -> bool:
    """Whether MQTT can carry a text."""
    if "\0" in text:
        return False
    return len(text) <= TEXT_BYTES_MAX // 4 or len(text.encode()) <= TEXT_BYTES_MAX
