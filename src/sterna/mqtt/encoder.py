"""Packets become bytes."""

from sterna.mqtt.packets import Packet, Publish, Version


def encode(packet: Packet, version: Version) -> bytes:
    """A packet as bytes. What 3.1.1 does not have is left out: properties, most reason codes.

    ValueError if it cannot be sent at all: a text over 65,535 bytes or with U+0000, a packet
    identifier out of range, a packet over 268,435,460 bytes, AUTH in 3.1.1.
    """
    raise NotImplementedError


class EncodedPublish:
    """An application message that is encoded once and sent to many."""

    def __init__(self, publish: Publish, version: Version) -> None:
        """Each receiver has its own packet identifier, `dup`, `qos`, `retain`, topic alias and
        subscription identifiers: those of the packet are ignored.
        """
        raise NotImplementedError

    def to(
        self,
        qos: int = 0,
        packet_id: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        subscription_identifiers: tuple[int, ...] = (),
        topic_alias: int = 0,
        with_topic: bool = True,
    ) -> bytes:
        """The packet for one receiver; cheap if only the packet identifier differs."""
        raise NotImplementedError
