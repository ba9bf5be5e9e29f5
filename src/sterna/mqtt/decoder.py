"""Bytes become packets."""

from functools import lru_cache
from typing import NoReturn

from sterna.mqtt.bodies import CheckFilter, protocol_version, read_connect, readers
from sterna.mqtt.packets import (
    Acknowledgement,
    MqttError,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Role,
    Version,
)
from sterna.mqtt.reading import (
    CACHED_BYTES_MAX,
    breach,
    malformed,
    read_publish_properties,
    read_varint,
    text_of,
    too_short,
)
from sterna.mqtt.topics import why_no_topic_filter, why_no_topic_name

PACKET_BYTES_MAX = 268_435_460
"""How long a packet can be, with its fixed header."""

_CONNECT = 0x10
_ACKNOWLEDGEMENTS: dict[int, type[Acknowledgement]] = {
    0x40: Puback,
    0x50: Pubrec,
    0x62: Pubrel,
    0x70: Pubcomp,
}
_NAMES = (
    *("packet 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP"),
    *("SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT"),
    "AUTH",
)
_FLAGS = {6: 2, 8: 2, 10: 2}
"""The flags of the fixed header that are not 0, by kind of packet."""


def end_of(data: bytes, count: int) -> int:
    """Where the first so many packets end, all of which are complete."""
    at = 0
    for _ in range(count):
        length, body = _long_length(data, at + 1, len(data), is_5=False)
        at = body + length
    return at


class Decoder:
    """Reads what the other end of one connection sends.

    A server learns the version from CONNECT, which must be the first packet and comes once. A
    client says which version it speaks.
    """

    __slots__ = (
        *("_check_filter", "_failure", "_readers", "_rest", "_wanted"),
        *("maximum_packet_size", "role", "taken", "version"),
    )

    def __init__(
        self,
        role: Role = Role.SERVER,
        version: Version | None = None,
        *,
        maximum_packet_size: int = PACKET_BYTES_MAX,
        check_filter: CheckFilter = why_no_topic_filter,
    ) -> None:
        if role is Role.CLIENT and version is None:
            raise ValueError("a client knows which version it speaks: say which one")
        self.role = role
        self.version = version
        """None until CONNECT has come. After a CONNECT that cannot be read: how to answer it."""
        self.maximum_packet_size = maximum_packet_size
        """In bytes, with the fixed header. A longer packet is refused once its header is here."""
        self.taken = b""
        """The bytes of the packets that `feed` has returned last."""
        self._check_filter = check_filter
        self._rest = bytearray()
        self._wanted = 0
        """How many bytes there must be before looking at them again can help."""
        self._failure: tuple[ReasonCode, str] | None = None
        self._readers = readers(version, self._sender, check_filter) if version else {}

    @property
    def unfinished_bytes(self) -> int:
        """How many bytes have come of a packet that is not complete."""
        return len(self._rest)

    @property
    def _sender(self) -> Role:
        return Role.CLIENT if self.role is Role.SERVER else Role.SERVER

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that are complete with these bytes.

        MqttError if one is malformed or breaks the protocol: its `before` are the packets that came
        before it and are not returned yet. Whatever is fed after that raises the same error.
        """
        if self._failure is not None:
            raise MqttError(*self._failure)
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._wanted:
                self.taken = b""
                return []
            data = bytes(rest)
            rest.clear()
        packets: list[Packet] = []
        try:
            at = self._read(data, packets)
        except (MqttError, IndexError) as error:
            found = too_short() if isinstance(error, IndexError) else error
            self._failure = found.reason_code, str(found)
            found.before = packets
            self.taken = data[: end_of(data, len(packets))]
            raise found from None
        self.taken = data
        if at < len(data):
            rest += data[at:]
            self.taken = data[:at]
        return packets

    def _read(self, data: bytes, packets: list[Packet]) -> int:  # noqa: PLR0915 - a call costs.
        """Reads all packets that are complete; returns where they end.

        This is the innermost loop of a broker: it reads PUBLISH and short acknowledgements itself.
        """
        at, end = 0, len(data)
        version, limit = self.version, self.maximum_packet_size
        is_5 = version is Version.V5
        while end - at > 1:
            first, length, body = data[at], data[at + 1], at + 2
            if length > 0x7F:
                if body < end and 0 < data[body] < 0x80:
                    length, body = length & 0x7F | data[body] << 7, body + 1
                else:
                    length, body = _long_length(data, at + 1, end, is_5=is_5)
                    if length < 0:
                        self._wanted = end - at + 1
                        return at
            stop = body + length
            if stop - at > limit:
                raise MqttError(
                    ReasonCode.PACKET_TOO_LARGE,
                    f"a packet has {stop - at} bytes, allowed are {limit}",
                )
            if stop > end:
                if first & 0xF0 != 0x30 or version is None:
                    self._check(first)
                self._wanted = stop - at
                return at
            if first & 0xF0 == 0x30 and version is not None:
                qos = first >> 1 & 3
                place = body + 2
                if place > stop:
                    raise too_short()
                place += data[body] << 8 | data[body + 1]
                if place > stop:
                    raise too_short()
                topic = _topic(data[body + 2 : place])
                packet_id = 0
                if qos:
                    place += 2
                    if place > stop:
                        raise too_short()
                    packet_id = data[place - 2] << 8 | data[place - 1]
                    if qos == 3 or not packet_id:
                        raise _bad_publish(qos)
                elif first & 8:
                    raise malformed("PUBLISH with QoS 0 says that it is sent again")
                if is_5:
                    if place == stop:
                        raise too_short()
                    if data[place]:
                        packets.append(self._publish(first, topic, packet_id, data[place:stop]))
                        at = stop
                        continue
                    place += 1
                if not topic:
                    raise _no_topic(version)
                packets.append(
                    Publish(topic, data[place:stop], qos, first & 1 == 1, first & 8 == 8, packet_id)
                )
            elif length == 2 and first in _ACKNOWLEDGEMENTS and version is not None:
                packet_id = data[body] << 8 | data[body + 1]
                if not packet_id:
                    raise breach("a packet identifier is 0")
                packets.append(_ACKNOWLEDGEMENTS[first](packet_id))
            elif version is None:
                self._check(first)
                version = self._connect(data[at:stop], data[body:stop], packets)
                is_5 = version is Version.V5
            else:
                self._check(first)
                packets.append(self._readers[first](data[body:stop]))
            at = stop
        self._wanted = 2
        return at

    def _connect(self, packet: bytes, body: bytes, packets: list[Packet]) -> Version:
        version, is_readable = protocol_version(body)
        self.version = version
        if version is None or not is_readable:
            raise MqttError(
                ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
                "the client speaks neither MQTT 3.1.1 nor MQTT 5.0",
            )
        if packet[1] > 0x7F:
            _long_length(packet, 1, len(packet), is_5=version is Version.V5)
        packets.append(read_connect(body, version))
        self._readers = readers(version, self._sender, self._check_filter)
        return version

    def _publish(self, first: int, topic: str, packet_id: int, rest: bytes) -> Publish:
        """A PUBLISH with properties; `rest` begins with them."""
        length, at = rest[0], 1
        if length > 0x7F:
            length, at = read_varint(rest, 0)
        end = at + length
        if end > len(rest):
            raise too_short()
        found = Publish(
            *(topic, rest[end:], first >> 1 & 3, first & 1 == 1, first & 8 == 8, packet_id),
            *read_publish_properties(rest[at:end]),
        )
        if found.subscription_identifiers and self.role is Role.SERVER:
            raise breach("a client sends PUBLISH with a subscription identifier")
        if not topic and found.topic_alias is None:
            raise _no_topic(Version.V5)
        return found

    def _check(self, first: int) -> None:
        """Refuses a packet that must not come here by its first byte."""
        if self.version is None:
            if first != _CONNECT:
                raise breach(f"the first packet is {_NAMES[first >> 4]}, not CONNECT")
        elif first not in self._readers:
            self._refuse(first)

    def _refuse(self, first: int) -> NoReturn:
        kind = first >> 4
        if kind == 0 or (kind == 15 and self.version is Version.V311):
            raise malformed(f"MQTT {self.version} has no packet of type {kind}")
        if first & 0x0F != _FLAGS.get(kind, 0):
            raise malformed(f"{_NAMES[kind]} has the flags {first & 0x0F:04b}")
        if first == _CONNECT and self.role is Role.SERVER:
            raise breach("CONNECT comes a second time")
        raise breach(f"a {self._sender.value} must not send {_NAMES[kind]}")


def _long_length(data: bytes, start: int, end: int, *, is_5: bool) -> tuple[int, int]:
    """A remaining length of more than one byte, -1 if it is not complete; and where it ends."""
    length = shift = 0
    for at in range(start, min(start + 4, end)):
        byte = data[at]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte and is_5:
                raise malformed("the remaining length takes more bytes than it needs")
            return length, at + 1
        shift += 7
    if shift == 28:
        raise malformed("the remaining length takes more than four bytes")
    return -1, end


@lru_cache(maxsize=4096)
def _cached_topic(data: bytes) -> str:
    topic = text_of(data)
    if topic and (why := why_no_topic_name(topic)):
        raise malformed(why)
    return topic


def _topic(data: bytes) -> str:
    """A topic name from its bytes; it may be empty. Publishers use few topics again and again."""
    return _cached_topic(data) if len(data) <= CACHED_BYTES_MAX else _cached_topic.__wrapped__(data)


def _bad_publish(qos: int) -> MqttError:
    return malformed("PUBLISH has QoS 3") if qos == 3 else breach("a packet identifier is 0")


def _no_topic(version: Version) -> MqttError:
    if version is Version.V5:
        return breach("PUBLISH has neither a topic nor a topic alias")
    return malformed("PUBLISH has no topic")
