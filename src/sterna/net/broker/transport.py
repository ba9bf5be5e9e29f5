"""How peers reach a broker, and how it reaches its neighbours: where TLS or WebSockets go in."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from sterna.net.address import Address
from sterna.net.client import transport as dialling

WAITING_MAX = 1024
"""How many connections the system queues before the broker accepts them."""


class Listening(Protocol):
    """An address where connections are accepted."""

    @property
    def address(self) -> Address:
        """The address, with the port that was chosen if any free one would do."""
        ...

    def close(self) -> None:
        """Accept no more connections; those that are up stay so."""
        ...


class Transport(dialling.Transport, Protocol):
    """Accepts and opens connections.

    It decides how bytes travel, and does not look into them. Whatever asyncio or another library
    offers as a transport for an asyncio protocol can go in here: TLS, a WebSocket, a Unix socket.
    """

    async def listen(self, address: Address, make: Callable[[], asyncio.Protocol]) -> Listening:
        """Accept connections, each with a protocol from `make`; OSError if that fails."""
        ...


class Tcp(dialling.Tcp):
    """Plain TCP."""

    async def listen(self, address: Address, make: Callable[[], asyncio.Protocol]) -> Listening:
        """Listen at a host and a port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(make, address.host, address.port, backlog=WAITING_MAX)
        return TcpListening(address.host, server)


class TcpListening:
    """A server of the event loop, as an address where connections are accepted."""

    def __init__(self, host: str, server: asyncio.Server) -> None:
        self.address = Address(host, server.sockets[0].getsockname()[1])
        self._server = server

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()
