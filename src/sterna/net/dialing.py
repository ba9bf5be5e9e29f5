"""Connecting to a broker, and again when the connection is lost, after ever longer waits."""

import asyncio
import logging
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sterna.net.address import Address

if TYPE_CHECKING:
    from sterna.net.broker.native import NativeDoor, NativeSession
    from sterna.net.broker.sessions import Sessions

log = logging.getLogger("sterna.broker")

FRAME_BYTES_MAX = 2**30
"""Other brokers are trusted: a replay is one frame, however long."""

FIRST_WAIT_S = 0.05
LAST_WAIT_S = 5.0


def waits() -> Iterator[float]:
    """The waits between tries in seconds: each about twice as long, with random jitter."""
    wait_s = FIRST_WAIT_S
    while True:
        yield wait_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret.
        wait_s = min(2 * wait_s, LAST_WAIT_S)


class Dialler:
    """Keeps a broker connected to a neighbour."""

    def __init__(self, door: "NativeDoor", sessions: "Sessions", address: Address) -> None:
        self.address = address
        self.neighbour = ""
        """The name of the broker there, once the handshake is finished."""
        self._door = door
        self._links = sessions.links
        self._task = asyncio.create_task(self._keep_connected())

    def stop(self) -> None:
        """Try no more."""
        self._task.cancel()

    async def _keep_connected(self) -> None:
        waiting = waits()
        complained = False
        while True:
            if self.neighbour not in self._links:  # It may have connected to us.
                connection = await self._connect()
                if connection is not None:
                    complained = False
                    lasted = await self._stay(connection)
                    if lasted:
                        waiting = waits()
                elif not complained:
                    complained = True
                    log.warning("cannot reach %s; trying again and again", self.address.url)
            await asyncio.sleep(next(waiting))

    async def _connect(self) -> "NativeSession | None":
        door = self._door
        try:
            session = door.dialled_session()
            await door.transport.dial(self.address, lambda: session)
        except OSError:
            return None
        session.peer = self.address.url
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
