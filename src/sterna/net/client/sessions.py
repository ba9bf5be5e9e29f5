"""The sessions of a client that several brokers serve: where they are, and what follows a loss."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sterna.core.replication.inputs import SessionId
from sterna.errors import NotConnectedError, SternaError
from sterna.net.address import Address
from sterna.net.client.api import CONNECT_S, Client
from sterna.net.client.connections import Change, Connected, Lost, call
from sterna.net.client.independence import Place, Taken, most_independent, place_of
from sterna.net.client.transport import Transport

log = logging.getLogger("sterna.client")

LOST_S = 0.4
"""A session that has had no connection for so long is replaced by one at another broker, if a
session that is connected brings all that this one may have missed."""

ALONE_S = 10.0
"""If none does, it is replaced when another broker has answered for so long, and its own has not:
that one may have what nobody else has."""

RETRY_S = 0.5
"""After this, brokers are tried again for a session that found none."""

FAREWELLS_MAX = 16
"""So many sessions that were given up wait for their brokers, to have them forgotten there."""


class Session:
    """One of the clients, and since when it is not connected."""

    def __init__(self, name: SessionId, url: str, client: Client) -> None:
        self.name = name
        self.url = url
        self.client = client
        self.lost_at = inf
        """Since when there is no connection; infinite while there is one."""
        self.is_moving = False
        """Whether it is on its way to another broker, because the application wants that."""
        self.waiting: asyncio.Task[None] | None = None
        """Waits whether it is connected again; else another one takes its place."""

    async def go(self, url: str, limit_s: float | None) -> None:
        """Be at this broker; NotConnectedError if it does not answer."""
        self.url = url
        self.is_moving = True
        try:
            await self.client._go_to([url], limit_s)
        finally:
            self.is_moving = False

    def stop_waiting(self) -> None:
        """It is not replaced for now."""
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None


@dataclass(frozen=True, kw_only=True)
class Audience:
    """Who learns which sessions there are, and knows what each of them has to bring."""

    opened: Callable[[Session], None]
    """Another session watches from now on."""
    lost: Callable[[Session], None]
    """A session brings nothing any more."""
    covers: Callable[[Session, Session], bool]
    """Whether a session brings all events that another one, a lost one, may not have brought."""


class Sessions:
    """As many sessions as are wanted, each at a broker of its own."""

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        wanted: int,
        *,
        make: Callable[[SessionId, str, float], Client],
        audience: Audience,
        transport: Transport,
        timeout: float | None,
    ) -> None:
        """`make` makes the client of a session, from its name, an address and a time limit."""
        self.urls = checked_urls(urls, wanted)
        self.open: dict[SessionId, Session] = {}
        self._name = name
        self._wanted = wanted
        self._make = make
        self._audience = audience
        self._transport = transport
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._opening: Session | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._filling: asyncio.Task[None] | None = None
        """Opens sessions until there are enough."""
        self._farewells: dict[asyncio.Task[None], None] = {}
        self._callbacks: dict[Callable[[Change], object], None] = {}
        self._is_away = False
        """Whether the application has detached."""
        self._is_closed = False

    # ---- For the application

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that watch now."""
        found = (session.client for session in self.open.values())
        return tuple(each.broker for each in found if each.is_connected and each.broker)

    async def start(self) -> None:
        """Open all; NotConnectedError if not enough brokers answer in time."""
        loop = asyncio.get_running_loop()
        deadline = inf if self._timeout is None else loop.time() + self._timeout
        while len(self.open) < self._wanted:
            if not await self._open_one(deadline - loop.time()):
                again = await self._again()
                is_vain = len(again) + len(self.open) == len(self.urls)
                if is_vain or loop.time() + RETRY_S > deadline:
                    raise self._too_few(again)
                await asyncio.sleep(RETRY_S)

    def take(self, urls: Sequence[str]) -> list[str]:
        """Have these addresses instead, if there are any; return those that it has now."""
        if urls:
            self.urls = checked_urls(urls, self._wanted)
        return [*self.urls]

    async def attach(self, limit_s: float | None) -> None:
        """Be connected at these addresses; the last error if a session is not."""
        self._is_away = False
        sessions = [*self.open.values()]
        answers = await self._places([session.url for session in sessions])
        problem: NotConnectedError | None = None
        # Those that are connected soon may have what the others miss.
        for place, session in sorted(zip(answers, sessions, strict=True), key=lambda x: not x[0]):
            try:
                await self._take_along(session, limit_s, answers=place is not None)
            except NotConnectedError as error:
                problem = error
        for session in self.open.values():
            self._look_after(session)
        filling = self._fill()
        if filling is not None:
            await asyncio.wait({filling}, timeout=limit_s)
        if problem is None and len(self.open) < self._wanted:
            problem = self._too_few(await self._again())
        if problem is not None:
            raise problem

    async def detach(self, timeout: float | None) -> None:
        """Disconnect all. None is replaced meanwhile."""
        self._is_away = True
        if self._filling is not None:
            self._filling.cancel()
            self._filling = None
        for session in self.open.values():
            session.stop_waiting()
        clients = [session.client for session in self.open.values()]
        await asyncio.gather(*(client.detach(timeout=timeout) for client in clients))

    async def close(self, timeout: float | None) -> None:
        """End all."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        clients = [session.client for session in self.open.values()]
        try:
            await asyncio.gather(*(client.close(timeout=timeout) for client in clients))
        finally:
            await asyncio.gather(*tasks, return_exceptions=True)

    def on_connection(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call a function with each change at each session; the returned function ends that."""
        for each in self.open.values():
            each.client.on_connection(callback)()  # With what it is now.
        self._callbacks[callback] = None

        def remove() -> None:
            self._callbacks.pop(callback, None)

        return remove

    # ---- Opening

    async def _open_one(self, limit_s: float) -> bool:
        """Open a session at a broker that has none, if one answers; whether it is open."""
        problem: SternaError | None = None
        for url in await self._free():
            if self._is_taken(url) or url not in self.urls:
                continue  # Meanwhile.
            self.urls.remove(url)
            self.urls.append(url)  # The next time, others come first.
            name = f"{self._name}~{next(self._numbers)}"
            client = self._make(name, url, max(0.0, min(limit_s, CONNECT_S)))
            session = self._opening = Session(name, url, client)
            try:
                await client._start()
            except NotConnectedError:
                continue
            except SternaError as error:
                problem = error
                continue
            finally:
                self._opening = None
            self._opened(session)
            return True
        if problem is not None:
            raise problem
        return False

    def _opened(self, session: Session) -> None:
        self.open[session.name] = session
        self._audience.opened(session)

        def changed(change: Change) -> None:
            self._changed(session, change)
            for callback in [*self._callbacks]:
                call(callback, change)

        session.client.on_connection(changed)
        if not session.client.is_connected:  # It was lost again before anybody knew of it.
            self._not_connected(session)

    def _is_taken(self, url: str) -> bool:
        return any(session.url == url for session in self._all)

    @property
    def _all(self) -> list[Session]:
        return [*self.open.values(), *([] if self._opening is None else [self._opening])]

    async def _free(self, *, but: Session | None = None) -> list[str]:
        """The addresses at which brokers without a session answer, the best first.

        Those are best that share least with the other sessions: first a host, then brokers whose
        death cuts off both.
        """
        free = [url for url in self.urls if not self._is_taken(url)]
        places = dict(zip(free, await self._places(free), strict=True))
        others = [session for session in self._all if session is not but]
        taken = [Taken(Address.from_url(each.url).host, each.client.broker) for each in others]
        return most_independent(places, taken)

    async def _places(self, urls: Sequence[str]) -> list[Place | None]:
        """Where the brokers of these addresses are in their network, as far as they answer."""
        return await asyncio.gather(*(place_of(url, self._transport) for url in urls))

    async def _again(self) -> list[str]:
        """The addresses at which a broker answers that has a session at another one."""
        free = [url for url in self.urls if not self._is_taken(url)]
        brokers = {session.client.broker for session in self.open.values()}
        return [
            f"{url} is {place.broker} again"
            for url, place in zip(free, await self._places(free), strict=True)
            if place is not None and place.broker in brokers
        ]

    def _too_few(self, again: Sequence[str]) -> NotConnectedError:
        found = f"{len(self.open)} of {len(self.urls)} answer"
        advice = f"{'; '.join(again)}: give others" if again else "start more brokers"
        return NotConnectedError(
            f"{self._name} wants {self._wanted} brokers to watch, and {found}; {advice}",
            brokers=tuple(self.urls),
        )

    # ---- Losing

    def _changed(self, session: Session, change: Change) -> None:
        if isinstance(change, Connected):
            session.lost_at = inf
            session.stop_waiting()
        elif isinstance(change, Lost):
            self._not_connected(session)

    def _not_connected(self, session: Session) -> None:
        session.lost_at = asyncio.get_running_loop().time()
        self._look_after(session)

    def _look_after(self, session: Session) -> None:
        """If there is no connection, wait for one, but not for ever."""
        is_meant = self._is_away or self._is_closed or session.is_moving
        if session.lost_at < inf and session.waiting is None and not is_meant:
            session.waiting = self._run(self._wait_for(session))

    async def _wait_for(self, session: Session) -> None:
        """Replace a session that is lost, unless it may bring what no other one brings.

        A client that is cut off from all brokers loses all its sessions. If it replaced them, it
        would not get what waits for them.
        """
        loop = asyncio.get_running_loop()
        await asyncio.sleep(LOST_S)
        answers_since = inf
        while (
            self.open.get(session.name) is session
            and session.client.is_on_its_way
            and not self._is_covered(session)
        ):
            free = [url for url in self.urls if not self._is_taken(url)]
            if any(await self._places(free)):
                answers_since = min(answers_since, loop.time())
                if loop.time() - answers_since >= ALONE_S:
                    break
            else:
                answers_since = inf
            await asyncio.sleep(LOST_S)
        self._lose(session)

    def _is_covered(self, lost: Session) -> bool:
        """Whether a session is connected that brings all that a lost one may have missed."""
        return any(
            other.client.is_connected and self._audience.covers(other, lost)
            for other in self.open.values()
            if other is not lost
        )

    def _lose(self, session: Session) -> None:
        """A session is given up: another takes its place."""
        if self.open.pop(session.name, None) is None:
            return
        self._audience.lost(session)
        farewell = self._run(session.client._leave_when_back())
        self._farewells[farewell] = None
        farewell.add_done_callback(lambda done: self._farewells.pop(done, None))
        if len(self._farewells) > FAREWELLS_MAX:
            next(iter(self._farewells)).cancel()
        self._fill()

    def _fill(self) -> asyncio.Task[None] | None:
        """Open sessions until there are enough."""
        if self._filling is None or self._filling.done():
            is_short = len(self.open) < self._wanted and not self._is_away
            self._filling = self._run(self._open_all()) if is_short else None
        return self._filling

    async def _open_all(self) -> None:
        said = ""
        while len(self.open) < self._wanted:
            problem = "no other broker answers"
            try:
                if await self._open_one(CONNECT_S):
                    continue
            except SternaError as error:
                problem = str(error)
            if problem != said:
                log.warning("%s has %d sessions: %s", self._name, len(self.open), problem)
                said = problem
            await asyncio.sleep(RETRY_S)

    # ---- Going elsewhere

    async def _take_along(self, session: Session, limit_s: float | None, *, answers: bool) -> None:
        """Have a session be at one of the addresses, if possible where it is."""
        stays = session.url in self.urls
        if stays and session.client.is_connected:
            return
        if not answers and self._is_covered(session):
            self._lose(session)  # A broker that does not answer can hand over nothing.
            return
        here = [session.url] if stays else []
        free = await self._free(but=session)
        for url in (*here, *free) if answers else (*free, *here):
            if self.open.get(session.name) is not session:
                return  # It was lost, and another one takes its place.
            if url != session.url and self._is_taken(url):
                continue
            with contextlib.suppress(NotConnectedError):
                await session.go(url, limit_s)
                return
        raise NotConnectedError(
            f"the session {session.name} finds no broker at {', '.join(self.urls)}; is one "
            "running (`sterna up`)?",
            brokers=tuple(self.urls),
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task


def checked_urls(urls: Sequence[str], wanted: int) -> list[str]:
    """The addresses, each once; ValueError if they are too few."""
    found = [*dict.fromkeys(Address.from_url(url).url for url in urls)]
    if len(found) < wanted:
        raise ValueError(
            f"{wanted} brokers are to watch, and {len(found)} addresses are given; give the "
            "addresses of more brokers"
        )
    return found
