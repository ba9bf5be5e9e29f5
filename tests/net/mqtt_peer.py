"""A connection that speaks MQTT and says what it likes."""

import asyncio
from contextlib import suppress

from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import Packet, Role, Version
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S


class Peer:
    """A connection that says what it likes."""

    def __init__(self, version: Version = Version.V5) -> None:
        self.version = version
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self._decoder = Decoder(Role.CLIENT, version)
        self._heard: list[Packet] = []

    async def open(self, network: LocalNetwork, broker: str = "B1") -> "Peer":
        """Connect."""
        at = network.mqtt(broker)
        self.reader, self.writer = await asyncio.open_connection(at.host, at.port)
        return self

    async def say(self, *packets: Packet) -> "Peer":
        """Send packets."""
        await self.send(b"".join(encode(packet, self.version) for packet in packets))
        return self

    async def send(self, data: bytes) -> None:
        """Send bytes; the broker may have hung up."""
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def next(self) -> Packet:
        """The next packet that the broker sends."""
        async with asyncio.timeout(SETTLE_S):
            while not self._heard:
                data = await self.reader.read(65_536)
                if not data:
                    raise EOFError("the broker has hung up")
                self._heard += self._decoder.feed(data)
        return self._heard.pop(0)

    async def hear(self) -> list[Packet]:
        """All that the broker sends until it hangs up."""
        found, self._heard = self._heard, []
        async with asyncio.timeout(SETTLE_S):
            with suppress(ConnectionError):
                while data := await self.reader.read(65_536):
                    found += self._decoder.feed(data)
        self.writer.close()
        return found
