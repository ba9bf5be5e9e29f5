"""Bytes become packets."""

from sterna.mqtt.packets import Packet, Role, Version


class Decoder:
    """Reads what the other end of one connection sends.

    A server learns the version from CONNECT, which must be the first packet and comes once. A
    client says which version it speaks.
    """

    def __init__(
        self,
        role: Role = Role.SERVER,
        version: Version | None = None,
        *,
        maximum_packet_size: int = 268_435_460,
    ) -> None:
        self.role = role
        self.version = version
        """None until CONNECT has come. After a CONNECT that cannot be read: how to answer it."""
        self.maximum_packet_size = maximum_packet_size
        """In bytes, with the fixed header. A longer packet is refused once its header is here."""

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that are complete with these bytes.

        MqttError if one is malformed or breaks the protocol: its `before` are the packets of these
        bytes that came earlier. After that, nothing more may be fed.
        """
        raise NotImplementedError
