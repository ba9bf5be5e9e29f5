"""Messages from a device: each is published, with QoS 2 once, and acknowledged.

(MQTT 5.0, 3.3 and 4.3.)
"""

from msgspec.structs import replace

from sterna.core.names import Time
from sterna.core.sizes import Load
from sterna.devices.connection import Connection
from sterna.devices.faces import attributes_of
from sterna.devices.kept import MESSAGE_BYTES
from sterna.devices.lifting import lift
from sterna.devices.locating import TOPICS
from sterna.devices.port import Port, Publication
from sterna.devices.reserved import why_reserved
from sterna.mqtt.packets import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Version,
    Will,
)

WAITING_BYTES_MAX = 8 * 2**20
"""So many bytes of what a device publishes may wait until its client may publish."""


class Inbound:
    """What one device publishes."""

    def __init__(self, connection: Connection, port: Port) -> None:
        self.received: dict[int, None] = {}
        """The packet identifiers with QoS 2 that were received, and not released yet."""
        self.waiting: list[Publish] = []
        """What the device has published while its client may not publish."""
        self.aliases: dict[int, str] = {}
        """The topics for which the device uses numbers on its present connection."""
        self._connection = connection
        self._port = port
        self._waiting_bytes = 0
        self._waiting_ids: set[int] = set()
        """The packet identifiers of those with QoS 1 or 2, but of those that were received."""
        self._publications: list[Publication] = []

    def on_publish(self, packet: Publish, now: Time) -> None:
        """The device has sent a message."""
        named = self._with_topic(packet)
        if named is None:
            return
        if not self._port.may_publish or self.waiting:
            self._wait(named)
        else:
            self._accept(named, now)
        connection = self._connection
        receive_maximum = connection.options.receive_maximum
        if self._received_count > receive_maximum and connection.version is Version.V5:
            what = f"more than {receive_maximum} messages are not acknowledged"
            connection.refuse(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, what)

    def on_pubrel(self, packet: Pubrel, _now: Time) -> None:
        """The device will not send a message with QoS 2 again."""
        packet_id = packet.packet_id
        is_known = self.received.pop(packet_id, self) is None
        code = ReasonCode.SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._connection.outbox.append(Pubcomp(packet_id, code))

    def publish(self, now: Time) -> None:
        """Publish what has gathered, in its order."""
        if self._publications:
            publications, self._publications = self._publications, []
            self._port.publish(publications, now)

    def publish_waiting(self, now: Time) -> None:
        """Publish what has waited, if the client may now."""
        if self.waiting and self._port.may_publish:
            waiting, self.waiting, self._waiting_bytes = self.waiting, [], 0
            self._waiting_ids.clear()
            for packet in waiting:
                self._accept(packet, now)
            self.publish(now)

    def publish_will(self, will: Will, now: Time) -> None:
        """Publish the will."""
        self._port.publish([self._publication(will)], now)

    @property
    def load(self) -> Load:
        """How much waits."""
        return Load(len(self.waiting), self._waiting_bytes)

    def restore(self, received: list[int], waiting: list[Publish]) -> None:
        """Go on with what was kept."""
        self.received = dict.fromkeys(received)
        self.waiting = list(waiting)
        self._waiting_bytes = sum(map(_size, waiting))
        ids = {each.packet_id for each in waiting if each.qos}
        self._waiting_ids = ids.difference(self.received)

    # ---- Whether and as what

    def _with_topic(self, packet: Publish) -> Publish | None:
        """A message with its topic instead of the alias; None if there is none."""
        alias, connection = packet.topic_alias, self._connection
        if alias is None:
            return packet
        if not 0 < alias <= connection.options.topic_aliases:
            connection.refuse(ReasonCode.TOPIC_ALIAS_INVALID, f"there is no topic alias {alias}")
            return None
        if packet.topic:
            self.aliases[alias] = packet.topic
            return packet
        topic = self.aliases.get(alias)
        if topic is None:
            connection.refuse(ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} was not set")
            return None
        return replace(packet, topic=topic)

    def _wait(self, packet: Publish) -> None:
        """Have a message wait until the client may publish; it is not acknowledged before."""
        size = _size(packet)
        if self._waiting_bytes + size <= WAITING_BYTES_MAX:
            self.waiting.append(packet)
            self._waiting_bytes += size
            if packet.qos and packet.packet_id not in self.received:
                self._waiting_ids.add(packet.packet_id)
        elif packet.qos:
            why = "too much waits to be published while the session is on its way"
            self._connection.refuse(ReasonCode.QUOTA_EXCEEDED, why)

    @property
    def _received_count(self) -> int:
        """How many messages with QoS 1 or 2 the device counts as not acknowledged, at least."""
        return len(self.received) + len(self._waiting_ids)

    def _accept(self, packet: Publish, now: Time) -> None:
        """Publish a message, unless it was received already, and acknowledge it."""
        packet_id, outbox = packet.packet_id, self._connection.outbox
        is_known = packet.qos == 2 and packet_id in self.received
        refusal = None if is_known else self._why_not(packet, now)
        if refusal is not None:
            if packet.qos:
                kind = Pubrec if packet.qos == 2 else Puback
                outbox.append(kind(packet_id, refusal[0], self._connection.reason(refusal[1])))
            return
        if packet.qos == 2:
            outbox.append(Pubrec(packet_id))
            if packet_id in self.received:
                return
            self.received[packet_id] = None
        elif packet.qos:
            outbox.append(Puback(packet_id))
        self._publications.append(self._publication(packet))

    def _why_not(self, packet: Publish, now: Time) -> tuple[ReasonCode, str] | None:
        """Why a message is refused, if it is; if it tells where the device is, it is there now."""
        topic = packet.topic
        reserved = why_reserved(topic)
        if reserved is not None:
            self._port.ignored("topic")
            return ReasonCode.NOT_AUTHORIZED, reserved
        if packet.retain and packet.payload and not self._port.may_retain(topic):
            why = "too many retained messages (mqtt.retained_max)"
            return ReasonCode.QUOTA_EXCEEDED, why
        if topic.startswith(TOPICS):
            why = self._port.move(packet, now)
            if why:
                return ReasonCode.PAYLOAD_FORMAT_INVALID, why
        return None

    def _publication(self, message: Publish | Will) -> Publication:
        attributes = attributes_of(message, message.topic)
        rules = self._connection.options.lift
        if rules and not lift(attributes, message, rules):
            self._port.ignored("payload")
        return attributes, message.payload


def _size(packet: Publish) -> int:
    return MESSAGE_BYTES + len(packet.topic) + len(packet.payload)
