"""Looks for a broker: dials one address after the other, and notices when a broker is gone."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.errors import SternaError
from sterna.net.address import Address
from sterna.net.client.life import Life
from sterna.net.client.transport import Transport
from sterna.net.connection import Connection
from sterna.net.dialing import waits
from sterna.wire.frames import Ping

if TYPE_CHECKING:
    from sterna.net.client.keeper import Keeper

log = logging.getLogger("sterna.client")

FRAME_BYTES_MAX = 2**30
"""A client trusts its broker: what was kept for it may arrive in one frame."""

DIAL_S = 5.0
"""How long it may take to establish a connection."""

HEARTBEAT_S = 5.0
"""The client sends a ping to a broker from which it received nothing for this long."""

HEARTBEAT_ALONE_S = 1.0
"""Among devices alone, it does so sooner: they are out of reach now and then, and connections may
not survive that."""

SILENCES_MAX = 3
"""After this many pings in a row without an answer, the client disconnects."""


class Search:
    """Keeps one connection, to any of a list of addresses, from `start` to `stop`."""

    def __init__(self, keeper: "Keeper", life: Life, transport: Transport) -> None:
        self.addresses: Sequence[Address] = ()
        self._keeper = keeper
        self._life = life
        self._transport = transport
        self._silences = 0
        """For how many periods in a row the broker has sent nothing."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_on(self) -> bool:
        """Whether it keeps a connection, or tries to."""
        return self._task is not None

    def start(self) -> None:
        """Look for a broker, and again whenever the connection is lost."""
        if self._task is None:
            self._task = asyncio.create_task(self._stay_connected(self.addresses))
            self._task.add_done_callback(self._ended)

    def look(self, address: Address) -> None:
        """Look for a broker at an address, and nowhere else."""
        if not self.is_on or [*self.addresses] != [address]:
            self.stop()
            self.addresses = [address]
            self.start()

    def stop(self) -> None:
        """Stop looking. An established connection is left as it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("%s cannot connect", self._life.name, exc_info=error)
            self._life.fail(SternaError(f"{self._life.name} cannot connect: {error!r}"))

    async def _stay_connected(self, addresses: Sequence[Address]) -> None:
        await self._wait_for_previous_end()
        keeper = self._keeper
        waiting = waits()
        place = 0
        while True:
            connection = await self._dial(addresses[place % len(addresses)])
            if connection is not None:
                was_welcome = False
                while keeper.connection is connection:
                    was_welcome = was_welcome or keeper.is_welcome
                    await self._change_or_silence(connection)
                if was_welcome:
                    waiting = waits()
                    await asyncio.sleep(0)
                    continue  # At once, and first to the same broker: it has the events.
            place += 1
            if place % len(addresses) == 0 or connection is not None:
                await asyncio.sleep(next(waiting))

    async def _wait_for_previous_end(self) -> None:
        while self._keeper.connection is not None:
            await self._life.change()

    async def _dial(self, address: Address) -> Connection | None:
        try:
            async with asyncio.timeout(DIAL_S):
                connection = await self._transport.dial(
                    address, lambda: Connection(self._keeper, FRAME_BYTES_MAX)
                )
        except OSError:  # A TimeoutError is one, too.
            return None
        if connection.is_over:
            return None
        self._silences = 0
        self._keeper.dialled(connection, address)
        return connection

    async def _change_or_silence(self, connection: Connection) -> None:
        """Wait for a change; hang up if the broker is silent for too long."""
        try:
            async with asyncio.timeout(
                HEARTBEAT_ALONE_S if self._keeper.is_listening else HEARTBEAT_S
            ):
                await self._life.change()
                return
        except TimeoutError:
            pass
        keeper = self._keeper
        # A paused client reads nothing, but has to show the broker that it is there.
        if connection.heard or keeper.is_paused:
            self._silences = 0
        else:
            self._silences += 1
        if self._silences > SILENCES_MAX:
            log.warning("%s is silent; %s looks for a broker again", keeper.broker, self._life.name)
            keeper.abort("the broker was silent for too long")
        elif keeper.is_paused or not connection.heard:
            connection.say(Ping())
        connection.heard = False
