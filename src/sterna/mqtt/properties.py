"""The properties of MQTT 5.0: their types, and which packet may have which (section 2.2.2)."""

from enum import Enum
from typing import NamedTuple

from sterna.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Role,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)


class Kind(Enum):
    """How the value of a property is sent."""

    FLAG = "a byte that is 0 or 1"
    BIT = "a byte that is the number 0 or 1"
    INT16 = "two bytes"
    INT32 = "four bytes"
    VARINT = "one to four bytes"
    TEXT = "UTF-8 behind its length"
    TOPIC = "UTF-8 behind its length, a topic name"
    BINARY = "bytes behind their length"
    PAIR = "a name and a value, each UTF-8 behind its length"


class Property(NamedTuple):
    """One kind of property."""

    field: str
    """The field of the records that holds it."""
    kind: Kind
    least: int = 0
    """The least number that is allowed."""
    error: ReasonCode = ReasonCode.PROTOCOL_ERROR
    """What a number below `least` is answered with."""


PROPERTIES = {
    0x01: Property("payload_is_text", Kind.FLAG),
    0x02: Property("message_expiry_s", Kind.INT32),
    0x03: Property("content_type", Kind.TEXT),
    0x08: Property("response_topic", Kind.TOPIC),
    0x09: Property("correlation_data", Kind.BINARY),
    0x0B: Property("subscription_identifier", Kind.VARINT, least=1),
    0x11: Property("session_expiry_s", Kind.INT32),
    0x12: Property("assigned_client_id", Kind.TEXT),
    0x13: Property("server_keep_alive_s", Kind.INT16),
    0x15: Property("authentication_method", Kind.TEXT),
    0x16: Property("authentication_data", Kind.BINARY),
    0x17: Property("wants_problem_information", Kind.FLAG),
    0x18: Property("delay_s", Kind.INT32),
    0x19: Property("wants_response_information", Kind.FLAG),
    0x1A: Property("response_information", Kind.TEXT),
    0x1C: Property("server_reference", Kind.TEXT),
    0x1F: Property("reason_string", Kind.TEXT),
    0x21: Property("receive_maximum", Kind.INT16, least=1),
    0x22: Property("topic_alias_maximum", Kind.INT16),
    0x23: Property("topic_alias", Kind.INT16, 1, ReasonCode.TOPIC_ALIAS_INVALID),
    0x24: Property("maximum_qos", Kind.BIT),
    0x25: Property("retain_available", Kind.FLAG),
    0x26: Property("user_properties", Kind.PAIR),
    0x27: Property("maximum_packet_size", Kind.INT32, least=1),
    0x28: Property("wildcard_subscription_available", Kind.FLAG),
    0x29: Property("subscription_identifiers_available", Kind.FLAG),
    0x2A: Property("shared_subscription_available", Kind.FLAG),
}

_REASON = (0x1F, 0x26)
_MESSAGE = (0x01, 0x02, 0x03, 0x08, 0x09, 0x26)

_ALLOWED: dict[type[Packet], tuple[int, ...]] = {
    Connect: (0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27),
    Will: (*_MESSAGE, 0x18),
    Connack: (
        *(0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27),
        *(0x28, 0x29, 0x2A),
    ),
    Publish: (*_MESSAGE, 0x0B, 0x23),
    Puback: _REASON,
    Pubrec: _REASON,
    Pubrel: _REASON,
    Pubcomp: _REASON,
    Subscribe: (0x0B, 0x26),
    Suback: _REASON,
    Unsubscribe: (0x26,),
    Unsuback: _REASON,
    Disconnect: (0x11, 0x1C, *_REASON),
    Auth: (0x15, 0x16, *_REASON),
}

ALLOWED: dict[type[Packet], dict[int, Property]] = {
    kind: {id_: PROPERTIES[id_] for id_ in sorted(ids)} for kind, ids in _ALLOWED.items()
}
"""The properties that each packet may have, by their identifiers."""

FORBIDDEN: dict[Role, dict[type[Packet], tuple[str, ...]]] = {
    Role.CLIENT: {Publish: ("subscription_identifiers",), Disconnect: ("server_reference",)},
    Role.SERVER: {Disconnect: ("session_expiry_s",)},
}
"""What only the other end may send."""
