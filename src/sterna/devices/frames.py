"""What a broker sends to a device."""

import msgspec

from sterna.core.link import Frame
from sterna.mqtt.packets import Packet, Publish


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A PUBLISH to one device: the message may go to many, and is encoded once."""

    publish: Publish
    qos: int = 0
    packet_id: int = 0
    retain: bool = False
    dup: bool = False
    identifiers: tuple[int, ...] = ()
    """The subscription identifiers."""


class Deliveries(msgspec.Struct, frozen=True):
    """Several with QoS 0 that go to many devices just so: they are encoded once."""

    each: tuple[Delivery, ...]


class Packets(Frame, frozen=True):
    """All that goes to a device in one turn."""

    parts: tuple[Packet | Delivery | Deliveries, ...]

    @property
    def packets(self) -> list[Packet | Delivery]:
        """One after the other."""
        found: list[Packet | Delivery] = []
        for part in self.parts:
            if isinstance(part, Deliveries):
                found += part.each
            else:
                found.append(part)
        return found
