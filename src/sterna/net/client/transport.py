"""How a client reaches a broker; other kinds of connections, such as TLS, plug in here."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from sterna.net.address import Address
from sterna.net.connection import Connection


class Transport(Protocol):
    """Opens connections to brokers.

    It decides how bytes travel, and does not know what they mean. Whatever asyncio or another
    library offers as a transport for an asyncio protocol can be used: TLS, a WebSocket, a Unix
    socket. Pass it to `connect(…, transport=…)`.
    """

    async def dial(self, address: Address, make: Callable[[], Connection]) -> Connection:
        """Connect a protocol from `make` to an address; OSError if nobody answers there."""
        ...


class Tcp:
    """Plain TCP."""

    async def dial(self, address: Address, make: Callable[[], Connection]) -> Connection:
        """Connect to a host and a port."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(make, address.host, address.port)
        return connection
