"""Which packet may carry which reason code, and what 3.1.1 has instead."""

from sterna.mqtt.packets import (
    Auth,
    Connack,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    ReasonCode,
    Role,
    Suback,
    Unsuback,
)


def _codes(*values: int) -> dict[int, ReasonCode]:
    return {value: ReasonCode(value) for value in values}


_RECEIVED = _codes(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_RELEASED = _codes(0x00, 0x92)

ALLOWED: dict[type[Packet], dict[int, ReasonCode]] = {
    Connack: _codes(
        *(0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F)
    ),
    Puback: _RECEIVED,
    Pubrec: _RECEIVED,
    Pubrel: _RELEASED,
    Pubcomp: _RELEASED,
    Suback: _codes(0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),
    Unsuback: _codes(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),
}
"""The reason codes of each packet of MQTT 5.0, by their numbers."""

ALLOWED_FROM: dict[Role, dict[type[Packet], dict[int, ReasonCode]]] = {
    Role.CLIENT: {
        Disconnect: _codes(0x00, 0x04, *range(0x80, 0x84), 0x90, *range(0x93, 0x9A)),
        Auth: _codes(0x18, 0x19),
    },
    Role.SERVER: {
        Disconnect: _codes(
            *(0x00, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0x91)),
            *range(0x93, 0xA3),
        ),
        Auth: _codes(0x00, 0x18),
    },
}
"""The reason codes of the packets where they depend on who sends them."""

SUBACK_311 = _codes(0x00, 0x01, 0x02, 0x80)
"""The return codes of SUBACK in MQTT 3.1.1."""

CONNACK_311 = {
    0: ReasonCode.SUCCESS,
    1: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    2: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    3: ReasonCode.SERVER_UNAVAILABLE,
    4: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    5: ReasonCode.NOT_AUTHORIZED,
}
"""What the return codes of CONNACK in MQTT 3.1.1 mean."""

CONNACK_TO_311 = {reason: code for code, reason in CONNACK_311.items()} | {
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.USE_ANOTHER_SERVER: 3,
    ReasonCode.SERVER_MOVED: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
    ReasonCode.BANNED: 5,
    ReasonCode.BAD_AUTHENTICATION_METHOD: 5,
}
"""The return code of MQTT 3.1.1 that says the same. Without one, nothing is sent."""
