"""A client that several brokers serve at once: if one dies for good, the others go on."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from sterna.core.replication.merging import Merging
from sterna.core.replication.options import MergingOptions
from sterna.errors import ClosedError, SternaError
from sterna.model.filters import Filter
from sterna.net.client.api import CLOSE_S, CONNECT_S, Client
from sterna.net.client.checking import checked_filter, checked_terms
from sterna.net.client.connections import Change
from sterna.net.client.displays import Displays
from sterna.net.client.handles import Advertisement, Receipt
from sterna.net.client.outlet import Outlet
from sterna.net.client.sessions import LOST_S, Audience, Session, Sessions
from sterna.net.client.transport import Tcp, Transport
from sterna.net.client.watched import WatchedSubscription


class WatchingClient:
    """A client with several sessions, each at a broker of its own. `connect` with
    `watch` makes it.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        brokers: int,
        options: MergingOptions,
        client: str | None = None,
        journal: str | Path | None = None,
        timeout: float | None = CONNECT_S,
        transport: Transport | None = None,
    ) -> None:
        """The arguments are those of `connect`; `brokers` is its `watch`."""
        if isinstance(brokers, bool) or not isinstance(brokers, int):
            raise TypeError(f"watch is a number of brokers, such as 2, not {brokers!r}")
        if brokers < 1:
            raise ValueError(f"at least one broker must watch, not {brokers}")
        self.name = client or f"client-{uuid4().hex[:12]}"
        self._options = options
        self._timeout = timeout
        self._subscriptions: dict[str, WatchedSubscription] = {}
        self._displays = Displays(None if journal is None else Path(journal), self.name)

        def make(name: str, url: str, limit_s: float) -> Client:
            return Client([url], client=name, journal=journal, timeout=limit_s, transport=transport)

        self._sessions = Sessions(
            self.name,
            urls,
            brokers,
            make=make,
            audience=Audience(opened=self._opened, lost=self._lost, covers=self._covers),
            transport=transport or Tcp(),
            timeout=timeout,
        )
        self._outlet = Outlet(
            lambda: Client(
                self._sessions.urls,
                client=self.name,
                journal=journal,
                timeout=timeout,
                transport=transport,
            ),
            others_answer=lambda: bool(self.brokers),
            failed=self._failed,
        )
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._ending: asyncio.Task[None] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<WatchingClient {self.name!r} at {', '.join(self.brokers) or 'no broker'}>"

    # ---- Opening and closing

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._start().__await__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _start(self) -> None:
        self._check()
        if self.sessions:
            return  # It was awaited before it is entered.
        try:
            self._displays.open(self._journal_failed)
            await self._outlet.client._start()
            if self._outlet.client._driver.seeks:
                raise SternaError(
                    "in a network of devices alone, one broker serves a client: connect it without "
                    "`watch`"
                )
            await self._sessions.start()
        except BaseException:
            await self.close(timeout=0)
            raise

    async def close(self, *, timeout: float | None = CLOSE_S) -> None:
        """Send what is left to send, and end; the network forgets the client."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        for subscription in list(self._subscriptions.values()):
            subscription._end()
        try:
            await asyncio.gather(self._outlet.close(timeout), self._sessions.close(timeout))
        finally:
            await self._displays.close()

    def _failed(self) -> None:
        """Nothing goes on if another program has taken the name, or the journal has failed."""
        if not self._is_closed:
            self._is_closed = True
            for subscription in list(self._subscriptions.values()):
                subscription._end()
            self._ending = asyncio.create_task(self.close())

    def _journal_failed(self, error: Exception) -> None:
        self._outlet.client._driver.failed(error)

    # ---- State

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that watch now."""
        return self._sessions.brokers

    @property
    def sessions(self) -> tuple[str, ...]:
        """The names of the sessions, which are those of their clients in the network."""
        return tuple(self._sessions.open)

    def on_connection(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call a function with each `Connected` and `Lost` of each session, in the event loop.

        It begins with `Connected` for each that is connected now. The returned function ends it.
        """
        return self._sessions.on_connection(callback)

    # ---- What an application does

    def subscribe(
        self, where: str | Filter, *, name: str | None = None, keep: str | None = None
    ) -> WatchedSubscription:
        """Subscribe to all events that match a filter, at all brokers that watch.

        With `keep`, each of these brokers keeps less while the client is away; as in
        `Client.subscribe`.
        """
        self._check()
        filter_ = checked_filter(where)
        name = name or str(filter_)
        if name in self._subscriptions:
            raise ValueError(f"{self.name} has a subscription {name!r} already; close it first")
        terms = checked_terms(order="strict", keep=keep)
        merging = Merging(self.name, self._options, self.sessions)
        subscription = WatchedSubscription(self, name, filter_, terms, merging)
        self._subscriptions[name] = subscription
        self._displays.began(name, self._options.filtering)
        for session in self._sessions.open.values():
            subscription._begin(session)
        return subscription

    def publish(
        self,
        /,
        attributes: Mapping[str, object] | None = None,
        payload: bytes = b"",
        **more: object,
    ) -> Receipt:
        """Publish an event once, over a connection of its own; as `Client.publish`.

        If the broker of that connection is lost for good, it goes on at another one. What the lost
        one had not confirmed may be published or not: waiting for it raises a NotConnectedError.
        """
        return self._outlet.client.publish(attributes, payload, **more)

    async def publish_all(
        self,
        events: Iterable[Mapping[str, object] | tuple[Mapping[str, object], bytes]],
        *,
        window: int = 20_000,
        timeout: float | None = None,
    ) -> int:
        """Publish many events and wait until all are accepted; as `Client.publish_all`."""
        return await self._outlet.client.publish_all(events, window=window, timeout=timeout)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until a broker has accepted all events; as `Client.drain`.

        NotConnectedError if some are not certain, because their broker was lost for good.
        """
        await self._outlet.drain(timeout)

    def advertise(self, where: str | Filter, *, name: str | None = None) -> Advertisement:
        """Announce what this client will publish; as `Client.advertise`."""
        return self._outlet.advertise(self._outlet.client.advertise(where, name=name))

    # ---- The connections

    async def attach(self, *urls: str, timeout: float | None = None) -> None:
        """Connect again after `detach`, or go to other brokers.

        Given addresses replace those that the client had. Sessions that are at none of them roam to
        one, and their new broker fetches what waits for them. They go one after the other, so that
        another one watches meanwhile. A session whose broker does not answer is replaced, if
        another one brings what it has missed. NotConnectedError if a session finds no broker;
        `timeout` is for each broker that it tries, and its default is that of `connect`.
        """
        self._check()
        limit_s = self._timeout if timeout is None else timeout
        given = self._sessions.take(urls)
        going = self._run(self._outlet.go_to(given, limit_s))
        await self._sessions.attach(limit_s)
        await asyncio.wait({going}, timeout=LOST_S)

    async def detach(self, *, timeout: float | None = None) -> None:
        """Disconnect. The brokers keep events for the client meanwhile."""
        self._check()
        await asyncio.gather(self._outlet.detach(timeout), self._sessions.detach(timeout))

    # ---- The sessions

    def _opened(self, session: Session) -> None:
        """Another session watches from now on."""
        self._displays.watches(session.name)
        for subscription in self._subscriptions.values():
            subscription._join(session)

    def _lost(self, session: Session) -> None:
        """A session brings nothing any more."""
        for subscription in self._subscriptions.values():
            subscription._leave(session)

    def _covers(self, session: Session, lost: Session) -> bool:
        """Whether a session brings all events that a lost one may not have brought."""
        return all(each._covers(session, lost) for each in self._subscriptions.values())

    def _check(self) -> None:
        self._outlet.check()
        if self._is_closed:
            raise ClosedError(f"{self.name} is closed")

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task
