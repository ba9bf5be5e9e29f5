"""Messages on their way to a device: what waits, and what it has not acknowledged.

(MQTT 5.0, 4.3, 4.4, 4.6 and 4.9.)
"""

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from sterna.core.names import NEVER, Time
from sterna.core.sizes import Load
from sterna.devices.frames import Deliveries, Delivery
from sterna.devices.kept import Outgoing, Share
from sterna.devices.retained import SECOND_US
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import Packet, Puback, Pubcomp, Pubrec, Pubrel, ReasonCode, Version

IDS_MAX = 65_535

INFLIGHT_BYTES_MAX = 4 * 2**20
"""About so many bytes are sent before some of it is acknowledged, unless it is one message."""

EXACTLY_ONCE = 2


class Outbound:
    """What goes to one device. Packets gather in an `outbox`."""

    def __init__(self, ended: Callable[[Share, bool], None]) -> None:
        """`ended` is called when a message of a group is done (True), or is for another member."""
        self.receive_maximum = IDS_MAX
        self.maximum_packet_size: int | None = None
        self.pending: deque[Outgoing] = deque()
        """What waits to be sent."""
        self.inflight: dict[int, Outgoing | None] = {}
        """What was sent and is not acknowledged; None if it is, and PUBCOMP has not come."""
        self.next_id = 1
        self._inflight_bytes = 0
        self._ended = ended

    @property
    def load(self) -> Load:
        """How much there is."""
        pending = sum(message.size for message in self.pending)
        return Load(len(self.inflight) + len(self.pending), self._inflight_bytes + pending)

    # ---- Sending

    def flush(
        self, outbox: list[Packet | Delivery | Deliveries], version: Version, now: Time
    ) -> None:
        """Send what can be sent now."""
        pending, inflight = self.pending, self.inflight
        takes_all, receive_maximum = self.maximum_packet_size is None, self.receive_maximum
        while pending:
            message = pending[0]
            if message.qos and (
                self._inflight_bytes >= INFLIGHT_BYTES_MAX or len(inflight) >= receive_maximum
            ):
                break  # The device has to acknowledge something first.
            pending.popleft()
            if message.until <= now or not (takes_all or self._fits(message, version)):
                self._done(message)
                continue
            packet_id = 0
            if message.qos:
                packet_id = self._free_id()
                inflight[packet_id] = message
                self._inflight_bytes += message.size
            else:
                self._done(message)
            outbox.append(delivery_of(message, packet_id, now))

    def send_again(self, outbox: list[Packet | Delivery | Deliveries], now: Time) -> None:
        """Send what was sent over an earlier connection and not acknowledged, in its order."""
        for packet_id, message in self.inflight.items():
            if message is None:
                outbox.append(Pubrel(packet_id))
            else:
                outbox.append(delivery_of(message, packet_id, now, dup=True))

    def _free_id(self) -> int:
        packet_id, inflight = self.next_id, self.inflight
        while packet_id in inflight:
            packet_id = packet_id % IDS_MAX + 1
        self.next_id = packet_id % IDS_MAX + 1
        return packet_id

    def _fits(self, message: Outgoing, version: Version) -> bool:
        """Whether the device takes a message of that size; else it is as if it had been sent."""
        if self.maximum_packet_size is None:
            return True
        whole = replace(
            message.publish,
            qos=message.qos,
            packet_id=IDS_MAX if message.qos else 0,
            subscription_identifiers=message.identifiers,
        )
        return len(encode(whole, version)) <= self.maximum_packet_size

    # ---- Acknowledgements

    def on_puback(self, packet: Puback) -> None:
        """The device has a message with QoS 1."""
        packet_id, inflight = packet.packet_id, self.inflight
        message = inflight.get(packet_id)
        if message is not None and message.qos == 1:
            del inflight[packet_id]
            self._inflight_bytes -= message.size
            if message.share is not None:
                self._done(message)

    def on_pubrec(self, packet: Pubrec) -> Pubrel | str | None:
        """The device has a message with QoS 2, or refuses it: the answer, or what is wrong."""
        packet_id = packet.packet_id
        if packet_id not in self.inflight:
            return Pubrel(packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        message = self.inflight[packet_id]
        if message is not None and message.qos != EXACTLY_ONCE:
            return f"PUBREC for {packet_id}, which has QoS 1"
        self._done(message)
        self._drop(packet_id, keeps_id=not packet.reason_code.is_failure)
        return None if packet.reason_code.is_failure else Pubrel(packet_id)

    def on_pubcomp(self, packet: Pubcomp) -> None:
        """The packet identifier is free."""
        if self.inflight.get(packet.packet_id, self) is None:
            del self.inflight[packet.packet_id]

    def _drop(self, packet_id: int, *, keeps_id: bool = False) -> None:
        """Forget a message; its packet identifier may keep its place in the order."""
        message = self.inflight[packet_id]
        if message is not None:
            self._inflight_bytes -= message.size
        if keeps_id:
            self.inflight[packet_id] = None
        else:
            del self.inflight[packet_id]

    def _done(self, message: Outgoing | None) -> None:
        """The device has a message, or nobody wants it."""
        if message is not None and message.share is not None:
            self._ended(message.share, True)  # noqa: FBT003 - it is the second of two.

    # ---- Shared subscriptions

    def give_back(self) -> None:
        """Have other members get what the device has not acknowledged.

        With QoS 2 it may have it already: nobody else gets that. (MQTT 5.0, 4.8.2)
        """
        pending, self.pending = self.pending, deque()
        for message in pending:
            if message.share is None:
                self.pending.append(message)
            else:
                self._ended(message.share, False)  # noqa: FBT003
        for packet_id, sent in list(self.inflight.items()):
            if sent is not None and sent.share is not None and sent.qos == 1:
                self._ended(sent.share, False)  # noqa: FBT003
                self._drop(packet_id)

    def give_up(self) -> None:
        """The session ends: nobody else gets what the device may have."""
        self.give_back()
        for message in self.inflight.values():
            self._done(message)

    # ---- Snapshots

    def restore(
        self, inflight: list[tuple[int, Outgoing | None]], pending: list[Outgoing], next_id: int
    ) -> None:
        """Go on with what was kept."""
        self.inflight, self.pending, self.next_id = dict(inflight), deque(pending), next_id
        self._inflight_bytes = sum(each.size for _, each in inflight if each is not None)


def delivery_of(message: Outgoing, packet_id: int, now: Time, *, dup: bool = False) -> Delivery:
    """A message as it goes to the device now."""
    publish = message.publish
    if message.until != NEVER:  # What is left of its time.
        left_s = max(1, -((now - message.until) // SECOND_US))
        if left_s != publish.message_expiry_s:
            publish = replace(publish, message_expiry_s=left_s)
    return Delivery(publish, message.qos, packet_id, message.retain, dup, message.identifiers)
