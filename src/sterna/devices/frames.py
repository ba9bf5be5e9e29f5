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


class Packets(Frame, frozen=True):
    """All that goes to a device in one turn."""

    packets: tuple[Packet | Delivery, ...]
