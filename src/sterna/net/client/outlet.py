"""How a client that several brokers serve publishes, also when its broker for that dies."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf

from sterna.core.inputs import Advertise
from sterna.errors import NotConnectedError, SternaError
from sterna.net.client.api import Client
from sterna.net.client.connections import Change, Connected, Lost
from sterna.net.client.handles import Advertisement
from sterna.net.client.sessions import ALONE_S, LOST_S, RETRY_S

log = logging.getLogger("sterna.client")


class Outlet:
    """Publishes under the name of the application, over a connection of its own.

    A client that publishes waits for its last broker when it comes to another one: that broker may
    have events that it has accepted and not passed on, and events have an order. If it is gone for
    good, the client begins another life, which does not wait.
    """

    def __init__(
        self,
        make: Callable[[], Client],
        *,
        others_answer: Callable[[], bool],
        failed: Callable[[], None],
    ) -> None:
        """`make` makes a client; `others_answer` says whether other brokers can be reached.

        `failed` is called if the client cannot go on.
        """
        self._make = make
        self._others_answer = others_answer
        self._failed = failed
        self._advertisements: list[Advertisement] = []
        self._waiting: asyncio.Task[None] | None = None
        """Waits whether the client is connected again; else it begins another life."""
        self._lost: NotConnectedError | None = None
        """Why events may not have been published, if the application has not been told yet."""
        self.client = self._made()

    def _made(self) -> Client:
        client = self._make()
        client._life.at_end(lambda: self._ended(client))
        client.on_connection(lambda change: self._changed(client, change))
        return client

    # ---- For the application

    def advertise(self, advertisement: Advertisement) -> Advertisement:
        """Announce it in another life as well."""
        self._advertisements.append(advertisement)
        return advertisement

    async def drain(self, timeout: float | None) -> None:
        """Wait until all events are accepted; NotConnectedError if that of some is not certain."""
        try:
            await self.client.drain(timeout)
        finally:
            lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    def check(self) -> None:
        """Raise the error with which publishing has ended, if it has."""
        life = self.client._life
        if life.failure is not None:
            life.check()

    async def go_to(self, urls: Sequence[str], limit_s: float | None) -> None:
        """Be at one of these addresses, which is done in the background if it takes longer."""
        try:
            await self.client._go_to(urls, limit_s)
        except NotConnectedError as error:
            log.warning("%s cannot publish: %s", self.client.name, error)
            self._wait()

    async def detach(self, timeout: float | None) -> None:
        """Disconnect."""
        self._stop_waiting()
        await self.client.detach(timeout=timeout)

    async def close(self, timeout: float | None) -> None:
        """Send what is left to send, and end."""
        waiting = self._waiting
        self._stop_waiting()
        if waiting is not None:
            await asyncio.wait({waiting})
        await self.client.close(timeout=timeout)

    # ---- Another life

    def _changed(self, client: Client, change: Change) -> None:
        if client is not self.client:
            return
        if isinstance(change, Connected):
            self._stop_waiting()
        elif isinstance(change, Lost):
            self._wait()

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._wait_for_connection())

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    async def _wait_for_connection(self) -> None:
        loop = asyncio.get_running_loop()
        answers_since = inf
        await asyncio.sleep(LOST_S)
        while self.client.is_on_its_way:
            answers_since = min(answers_since, loop.time()) if self._others_answer() else inf
            if loop.time() - answers_since >= ALONE_S:
                try:
                    await self._begin_anew()
                except SternaError as error:
                    self.client._life.fail(error)
                answers_since = inf
            else:
                await asyncio.sleep(LOST_S)
        self._waiting = None

    async def _begin_anew(self) -> None:
        """Go on as another life of the client, which knows nothing of the broker that was lost."""
        old = self.client
        advertised = {*old._driver.node.advertisements}
        lost = NotConnectedError(
            f"{old.name} has lost the broker that it published at: what that one has not confirmed "
            "may be published or not; publish it again if twice is better than never",
            brokers=tuple(address.url for address in old._addresses),
        )
        await old.detach()  # It takes events until the next life has begun.
        await old._driver.stop_recording()
        client = await self._connected()
        self._advertisements = [each for each in self._advertisements if each.name in advertised]
        for each in self._advertisements:
            each._driver = client._driver
            client._give(Advertise(advertisement=each.name, filter=each.where))
        if old._publications.last > old._driver.accepted:
            self._lost = lost
        self.client = client
        old._life.fail(lost)
        await old._close(0)

    async def _connected(self) -> Client:
        while True:
            client = self._made()
            try:
                await client._start()
            except NotConnectedError as error:
                log.warning("%s cannot publish: %s", client.name, error)
                await asyncio.sleep(RETRY_S)
            else:
                return client

    def _ended(self, client: Client) -> None:
        if client is self.client and client._life.failure is not None:
            self._failed()
