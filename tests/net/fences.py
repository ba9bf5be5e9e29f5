"""Fences between brokers that make their own tree: they let links and datagrams through, or not.

A client that looks for a broker by itself is in reach of whom its device is: it has the candidates
of the broker there, and what it sends goes through the same fences.
"""

import asyncio
import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from itertools import permutations

from sterna.net.address import Address
from sterna.wire.datagrams import DATAGRAM_BYTES_MAX
from tests.net.proxy import Proxy

HOST = "127.0.0.1"
TRIES = 50

Pair = tuple[str, str]


class Gate(asyncio.DatagramProtocol):
    """One broker's way to another: at its address, that one is, for connections and datagrams."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.back: Gate
        """The way back, from which the other broker sees the datagrams come."""
        self.passed = 0
        self.takes_datagrams = True
        self._transport: asyncio.DatagramTransport
        self._clients: dict[tuple[str, int], socket.socket] = {}
        """The clients on this broker's device, each with an address that the other broker sees."""

    async def open(self) -> bool:
        """Listen; whether there is a port for connections and datagrams alike."""
        await self.proxy.start()
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: self, local_addr=(HOST, self.proxy.address.port)
            )
        except OSError:
            await self.proxy.stop()
            return False
        self._transport = transport
        return True

    async def close(self) -> None:
        for client in self._clients.values():
            asyncio.get_running_loop().remove_reader(client)
            client.close()
        self._transport.close()
        await self.proxy.stop()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self.takes_datagrams:
            return
        self.passed += 1
        if addr == self.back.proxy.target:
            self.back._transport.sendto(data, self.proxy.target)
        else:
            self._of_client(addr).sendto(data, self.proxy.target)

    def _of_client(self, addr: tuple[str, int]) -> socket.socket:
        """Where the other broker sees a client; what it answers there goes to the client."""
        found = self._clients.get(addr)
        if found is None:
            found = self._clients[addr] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            found.setblocking(False)
            found.bind((HOST, 0))
            asyncio.get_running_loop().add_reader(found, self._answered, found, addr)
        return found

    def _answered(self, source: socket.socket, client: tuple[str, int]) -> None:
        with suppress(OSError):  # Nobody is there, for now.
            data = source.recv(DATAGRAM_BYTES_MAX)
            if self.takes_datagrams:
                self._transport.sendto(data, client)


class Fences:
    """Between all brokers. `split` shuts those between two groups; `join` opens all."""

    def __init__(self, addresses: Mapping[str, Address], rng: random.Random) -> None:
        self._addresses = addresses
        self._rng = rng
        self._gates: dict[Pair, Gate] = {}

    async def open(self) -> None:
        for a, b in permutations(self._addresses, 2):
            for _ in range(TRIES):
                gate = Gate(Proxy(self._addresses[b], self._rng))
                if await gate.open():
                    self._gates[a, b] = gate
                    break
        for (a, b), gate in self._gates.items():
            gate.back = self._gates[b, a]

    async def close(self) -> None:
        for gate in self._gates.values():
            await gate.close()

    def candidates(self, broker: str) -> tuple[str, ...]:
        """The others, as this broker is to reach them."""
        return tuple(gate.proxy.url for (a, _), gate in self._gates.items() if a == broker)

    def split(self, part: set[str]) -> None:
        """Nothing passes between a part and the others; connections break, or just fall silent."""
        for (a, b), gate in self._gates.items():
            if (a in part) != (b in part):
                gate.proxy.is_shut, gate.takes_datagrams = True, False
                if self._rng.random() < 0.5:
                    gate.proxy.silence()
                else:
                    gate.proxy.drop()

    def join(self) -> None:
        """All is open; connections that are silent stay so."""
        for gate in self._gates.values():
            gate.proxy.heal()
            gate.takes_datagrams = True

    def refuse(self, a: str, b: str) -> None:
        """No connection passes between two brokers, and datagrams do."""
        for pair in ((a, b), (b, a)):
            self._gates[pair].proxy.is_shut = True

    @property
    def passed(self) -> int:
        """How many datagrams have passed."""
        return sum(gate.passed for gate in self._gates.values())
