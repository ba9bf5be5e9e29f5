"""A proxy between two nodes that breaks, slows down and silences their connections."""

import asyncio
import random
from contextlib import suppress
from typing import Self

from sterna.net.address import Address

READ_BYTES = 65_536


class Proxy:
    """Passes bytes between the peers that connect to it and a broker, well or badly."""

    def __init__(self, target: Address, rng: random.Random) -> None:
        self.target = target
        self.address = Address("", 0)
        self.is_shut = False
        """Whether new connections are turned away."""
        self.delay_s = 0.0
        """Up to so long a piece of what comes is held back."""
        self.gate: asyncio.Event | None = None
        """New connections are led on only when this is set."""
        self.waiting = 0
        """How many connections wait for a gate."""
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], Wire] = {}

    @property
    def url(self) -> str:
        return self.address.url

    async def start(self, port: int = 0) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.drop()
        while self._connections:
            await asyncio.wait(self._connections)

    @property
    def count(self) -> int:
        """How many connections are led on."""
        return len(self._connections)

    def drop(self) -> None:
        """Break all connections; bytes on their way are lost."""
        for wire in self._connections.values():
            wire.drop()

    def silence(self) -> None:
        """Nothing more comes through the connections there are, and neither end is told."""
        for wire in self._connections.values():
            wire.is_silent = True

    def freeze(self) -> None:
        """Nothing more is taken from the connections there are, and neither end is told."""
        for wire in self._connections.values():
            wire.is_frozen.set()

    def heal(self) -> None:
        """Let new connections work as they should; silent ones stay so."""
        self.is_shut, self.delay_s = False, 0.0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.is_shut:
            writer.transport.abort()
            return
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
            self.waiting -= 1
        try:
            there = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        wire = self._connections[task] = Wire(self, self._rng, writer, there[1])
        try:
            await asyncio.gather(wire.carry(reader, there[1]), wire.carry(there[0], writer))
        finally:
            del self._connections[task]


class Wire:
    """One connection through a proxy."""

    def __init__(self, proxy: Proxy, rng: random.Random, *ends: asyncio.StreamWriter) -> None:
        self.is_silent = False
        self.is_frozen = asyncio.Event()
        self._proxy = proxy
        self._rng = rng
        self._ends = ends

    def drop(self) -> None:
        for end in self._ends:
            end.transport.abort()

    async def carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        """One direction, in pieces of random lengths."""
        with suppress(OSError):
            while data := await source.read(READ_BYTES):
                if self.is_frozen.is_set():
                    await to.wait_closed()
                if self._proxy.delay_s:
                    cut = self._rng.randrange(len(data) + 1)
                    await asyncio.sleep(self._rng.uniform(0, self._proxy.delay_s))
                    self._pass(data[:cut], to)
                    await asyncio.sleep(self._rng.uniform(0, self._proxy.delay_s))
                    data = data[cut:]
                self._pass(data, to)
                await to.drain()
        if not self.is_silent:
            for end in self._ends:
                end.close()

    def _pass(self, data: bytes, to: asyncio.StreamWriter) -> None:
        if not self.is_silent:
            to.write(data)
