"""Takes a client from one broker to another, also when nobody waits for that any more."""

import asyncio
from collections.abc import Sequence

from sterna.errors import NotConnectedError
from sterna.net.address import Address
from sterna.net.client.keeper import Keeper
from sterna.net.client.life import Life


class Travel:
    """The way to the broker that the application asked for last."""

    def __init__(self, life: Life, keeper: Keeper) -> None:
        self._life = life
        self._keeper = keeper
        self._leaving: asyncio.Task[None] | None = None

    async def arrive(
        self,
        addresses: Sequence[Address],
        limit_s: float | None,
        *,
        wanted: Address | None = None,
        goes_on: bool = True,
    ) -> None:
        """Connect to one of these addresses, and wait until a broker accepts and delivers events.

        If one is `wanted`, the client leaves its broker first. NotConnectedError if it is elsewhere
        then, or nowhere after so many seconds; it keeps trying in the background, and the error
        says so if the client `goes_on`.
        """
        self.stop()
        if wanted is None:
            self._keeper.keep(addresses)
        else:
            self._leaving = asyncio.create_task(self._leave_for(addresses))
        try:
            async with asyncio.timeout(limit_s):
                if self._leaving is not None:
                    await asyncio.wait({self._leaving})  # It goes on if this call is cancelled.
                await self._keeper.welcome()
        except TimeoutError:
            await self._keeper.hurry()
            tried = tuple(address.url for address in addresses)
            problem = f"no broker answers at {', '.join(tried)}; is one running (`sterna up`)?"
            if goes_on:
                problem += f" {self._life.name} keeps trying until it is detached or closed"
            raise NotConnectedError(problem, brokers=tried) from None
        if wanted is not None and self._keeper.address != wanted:
            raise NotConnectedError(
                f"{self._life.name} cannot attach to {wanted.url}, and is at {self._keeper.broker} "
                f"({self._keeper.address.url}) instead; is a broker running there?",
                brokers=(wanted.url,),
                instead=self._keeper.broker,
            )

    def stop(self) -> None:
        """Go nowhere else: the application wants something else now, or the client has ended."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    async def _leave_for(self, addresses: Sequence[Address]) -> None:
        await self._keeper.let_go()
        self._keeper.keep(addresses)
