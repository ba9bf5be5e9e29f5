"""How a broker hosts devices."""

from enum import StrEnum

import msgspec

from sterna.mqtt.packets import Connect, Version

PROTOCOL = "mqtt"
"""The name of the protocol by which brokers host devices and hand them over."""

NEVER_S = 0xFFFF_FFFF
"""The session expiry interval of a session that does not expire."""


class Face(StrEnum):
    """What MQTT subscribers get as the payload of an event that a native client published."""

    EVENT = "event"
    """Its payload; if it has none, its attributes as a JSON object."""
    JSON = "json"
    """Its attributes as a JSON object, and not its payload."""


class Lift(msgspec.Struct, frozen=True, kw_only=True):
    """In which messages the members of a JSON object are attributes, and how much of it."""

    topics: str
    """The topic filter of these messages."""
    bytes_max: int = 16 * 2**10
    """A longer payload is left alone."""
    attributes_max: int = 64
    """So is one with more attributes."""
    depth_max: int = 1
    """How deep in the object: with 2, `{"at": {"lat": 1}}` has an attribute `at.lat`."""


class DeviceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker hosts devices."""

    receive_maximum: int = 1_000
    """How many messages with QoS 1 or 2 a device may send before they are acknowledged."""
    inflight_max: int = 1_000
    """How many messages with QoS 1 or 2 are sent to a device before it acknowledges them."""
    maximum_packet_size: int = 2**20
    topic_aliases: int = 64
    """How many topic aliases a device may use."""
    keep_alive_max_s: int = 0
    """How long a device may say that it will be silent; 0: as long as it says."""
    session_expiry_max_s: int = NEVER_S
    """How long a session lasts at most after its connection has ended."""
    retained_max: int = 100_000
    """For how many topics messages are retained."""
    search_s: float = 5.0
    """How long a device waits for its session from another broker."""
    give_up_s: float = 60.0
    """So long a device asks for a session that cannot be reached; then it gets a new one."""
    journal: bool = False
    """Whether what happens at the clients inside is stated as facts of the broker."""
    lift: tuple[Lift, ...] = ()
    """Which payloads become attributes; the first rule that fits a topic holds."""
    topic: str = ""
    """The template for topics of events without one; empty: they do not reach devices."""
    payload: Face = Face.EVENT
    """What devices get as the payload of native events."""

    def keep_alive_s(self, connect: Connect) -> int:
        """The keep alive of a connection, 0 for none. 3.1.1 cannot be told another one."""
        asked_s, max_s = connect.keep_alive_s, self.keep_alive_max_s
        is_long = max_s and not 0 < asked_s <= max_s
        return max_s if is_long and connect.version is Version.V5 else asked_s
