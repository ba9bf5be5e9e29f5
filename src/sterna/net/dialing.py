"""Connecting to a broker, and again when the connection is lost, after ever longer waits."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sterna.core.names import NodeId
from sterna.net.address import Address

if TYPE_CHECKING:
    from sterna.net.broker.native import NativeDoor, NativeSession
    from sterna.net.broker.sessions import Sessions

log = logging.getLogger("sterna.broker")

FRAME_BYTES_MAX = 2**30
"""Other brokers are trusted: a replay is one frame, however long."""

FIRST_WAIT_S = 0.05
LAST_WAIT_S = 5.0

IN_REACH_WAIT_S = 0.4
"""The longest wait for a broker that was just heard."""

IN_REACH_DIAL_S = 3.0
"""So long it may take to reach that; the network may take it for lost meanwhile."""


def waits(last_s: float = LAST_WAIT_S) -> Iterator[float]:
    """The waits between tries in seconds: each about twice as long, with random jitter."""
    wait_s = FIRST_WAIT_S
    while True:
        yield wait_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret.
        wait_s = min(2 * wait_s, last_s)


class Dialler:
    """Keeps a broker connected to a neighbour."""

    def __init__(
        self,
        door: "NativeDoor",
        sessions: "Sessions",
        where: Callable[[], Address | None],
        expected: NodeId = "",
    ) -> None:
        """Connect to where a neighbour is: always the same address, or where it was heard last.

        `expected` is its name, if it is to be no other broker.
        """
        self.neighbour = expected
        """The name of the broker there, once the handshake is finished."""
        self._where = where
        self._expected = expected
        self._door = door
        self._links = sessions.links
        self._task = asyncio.create_task(self._keep_connected())

    def stop(self) -> None:
        """Try no more."""
        self._task.cancel()

    async def _keep_connected(self) -> None:
        last_s = IN_REACH_WAIT_S if self._expected else LAST_WAIT_S
        waiting = waits(last_s)
        complained = False
        while True:
            address = self._where()
            if self.neighbour not in self._links and address:  # It may have connected to us.
                connection = await self._connect(address)
                if connection is not None:
                    complained = False
                    lasted = await self._stay(connection)
                    if lasted:
                        waiting = waits(last_s)
                elif not complained:
                    complained = True
                    level = logging.DEBUG if self._expected else logging.WARNING
                    log.log(level, "cannot reach %s; trying again and again", address.url)
            await asyncio.sleep(next(waiting))

    async def _connect(self, address: Address) -> "NativeSession | None":
        door = self._door
        try:
            session = door.dialled_session(self._expected)
            async with asyncio.timeout(IN_REACH_DIAL_S if self._expected else None):
                await door.transport.dial(address, lambda: session)
        except OSError:
            return None
        session.peer = address.url
        session.say(replace(door.hello(), settings=None))
        return session

    async def _stay(self, connection: "NativeSession") -> bool:
        """Wait until a connection is over; return whether its handshake was finished."""
        found = False
        while not connection.is_over:
            if self._links.get(connection.peer) is connection:
                self.neighbour, found = connection.peer, True
            await connection.changed.wait()
            connection.changed.clear()
        return found
