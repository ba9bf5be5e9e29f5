"""A client that several brokers serve at once: if one dies for good, the others go on."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self
from uuid import uuid4

from sterna.core.inputs import Input, TimePassed
from sterna.core.names import NEVER
from sterna.core.replication.facts import CameLate, GaveUp
from sterna.core.replication.inputs import EventsArrived, SessionJoined, SessionLost
from sterna.core.replication.merging import Merging
from sterna.core.replication.options import MergingOptions
from sterna.errors import ClosedError, NotConnectedError, SternaError
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.address import Address
from sterna.net.client.api import CLOSE_S, CONNECT_S, Client
from sterna.net.client.checking import checked_filter
from sterna.net.client.connections import Change, Connected, Lost
from sterna.net.client.handles import Advertisement, Receipt, Subscription
from sterna.net.client.transport import Transport
from sterna.net.client.waiting import time_limit

log = logging.getLogger("sterna.client")

LOST_S = 0.4
"""A session that has had no connection for so long is replaced by one at another broker."""

RETRY_S = 0.5
"""After this, brokers are tried again for a session that found none."""

QUEUE_EVENTS_MAX = 10_000
"""When more events wait in a subscription, its sessions stop reading until they are taken."""


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
        timeout: float | None = CONNECT_S,
        transport: Transport | None = None,
    ) -> None:
        """The arguments are those of `connect`; `brokers` is its `watch`."""
        self._urls = [*dict.fromkeys(Address.from_url(url).url for url in urls)]
        if brokers < 1:
            raise ValueError(f"at least one broker must watch, not {brokers}")
        if len(self._urls) < brokers:
            raise ValueError(
                f"{brokers} brokers are to watch, and {len(self._urls)} addresses are given; give "
                "the addresses of more brokers"
            )
        self.name = client or f"client-{uuid4().hex[:12]}"
        self._options = options
        self._brokers = brokers
        self._timeout = timeout
        self._transport = transport
        self._numbers = itertools.count(1)
        self._sessions: dict[str, _Session] = {}
        self._subscriptions: dict[str, WatchedSubscription] = {}
        self._own = Client(self._urls, client=self.name, timeout=timeout, transport=transport)
        """Publishes under the client's own name, and goes to any broker by itself."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._callbacks: list[Callable[[Change], object]] = []
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<WatchingClient {self.name!r} at {', '.join(self.brokers) or 'no broker'}>"

    # ---- Opening and closing

    async def __aenter__(self) -> Self:
        try:
            await self._own._start()
            for _ in range(self._brokers):
                await self._open()
        except BaseException:
            await self.close(timeout=0)
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self, *, timeout: float | None = CLOSE_S) -> None:
        """Send what is left to send, and end; the network forgets the client."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        for subscription in list(self._subscriptions.values()):
            subscription._end()
        clients = [self._own, *(session.client for session in self._sessions.values())]
        await asyncio.gather(*(each.close(timeout=timeout) for each in clients))

    # ---- State

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that watch now."""
        found = (session.client for session in self._sessions.values())
        return tuple(each.broker for each in found if each.is_connected and each.broker)

    @property
    def sessions(self) -> tuple[str, ...]:
        """The names of the sessions, which are those of their clients in the network."""
        return tuple(self._sessions)

    def on_connection(self, callback: Callable[[Change], object]) -> None:
        """Call a function with each `Connected` and `Lost` of each session, in the event loop."""
        self._callbacks.append(callback)
        for session in self._sessions.values():
            session.client.on_connection(callback)

    # ---- What an application does

    def subscribe(self, where: str | Filter, *, name: str | None = None) -> "WatchedSubscription":
        """Subscribe to all events that match a filter, at all brokers that watch."""
        if self._is_closed:
            raise ClosedError(f"{self.name} is closed")
        filter_ = checked_filter(where)
        name = name or str(filter_)
        if name in self._subscriptions:
            raise ValueError(f"{self.name} has a subscription {name!r} already; close it first")
        merging = Merging(self.name, self._options, self.sessions)
        subscription = WatchedSubscription(self, name, filter_, merging)
        self._subscriptions[name] = subscription
        for session in self._sessions.values():
            subscription._begin(session)
        return subscription

    def publish(
        self,
        /,
        attributes: Mapping[str, object] | None = None,
        payload: bytes = b"",
        **more: object,
    ) -> Receipt:
        """Publish an event once, over a connection of its own; as `Client.publish`."""
        return self._own.publish(attributes, payload, **more)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until a broker has accepted all events; as `Client.drain`."""
        await self._own.drain(timeout)

    def advertise(self, where: str | Filter, *, name: str | None = None) -> Advertisement:
        """Announce what this client will publish; as `Client.advertise`."""
        return self._own.advertise(where, name=name)

    # ---- Sessions

    async def _open(self) -> None:
        """Open a session at a broker that has none; NotConnectedError if none answers."""
        for url in self._free():
            session = _Session(self, f"{self.name}~{next(self._numbers)}", url)
            self._sessions[session.name] = session  # Its broker is taken.
            try:
                await session.client._start()
            except NotConnectedError:
                del self._sessions[session.name]
                continue
            except BaseException:
                del self._sessions[session.name]
                raise
            session.begin()
            for subscription in list(self._subscriptions.values()):
                subscription._join(session)
            return
        raise NotConnectedError(
            f"{self.name} wants {self._brokers} brokers to watch, and "
            f"{len(self._sessions)} of {len(self._urls)} answer; start more brokers",
            brokers=tuple(self._urls),
        )

    def _free(self) -> Iterator[str]:
        """The addresses at which there is no session; those that were tried last come last."""
        for url in list(self._urls):
            if all(session.url != url for session in self._sessions.values()):
                self._urls.remove(url)
                self._urls.append(url)
                yield url

    def _lost(self, session: "_Session") -> None:
        """A session has had no connection for a while: another takes its place."""
        del self._sessions[session.name]
        for subscription in self._subscriptions.values():
            subscription._leave(session)
        self._run(session.client.close(timeout=0))
        self._run(self._replace())

    async def _replace(self) -> None:
        while len(self._sessions) < self._brokers:
            try:
                await self._open()
            except SternaError as error:
                log.warning("%s has %d sessions: %s", self.name, len(self._sessions), error)
                await asyncio.sleep(RETRY_S)

    def _run(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task


class _Session:
    """One of the clients, and whether it is connected."""

    def __init__(self, owner: WatchingClient, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.client = Client([url], client=name, timeout=owner._timeout, transport=owner._transport)
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        for callback in (self._changed, *self._owner._callbacks):
            self.client.on_connection(callback)

    def _changed(self, change: Change) -> None:
        if isinstance(change, Connected) and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif isinstance(change, Lost) and self._timer is None and not self._owner._is_closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOST_S, self._give_up)

    def _give_up(self) -> None:
        if self.name in self._owner._sessions and not self._owner._is_closed:
            self._owner._lost(self)


class WatchedSubscription:
    """The events that match a filter, merged from all sessions: `async for event in subscription`.

    It ends with `close()`, with its client, or when an `async with` around it is left.
    """

    def __init__(self, owner: WatchingClient, name: str, where: Filter, merging: Merging) -> None:
        self.name = name
        self.where = where
        self.gave_up = 0
        """How many events were held back for as long as possible, and then given."""
        self.late = 0
        """How many events were dropped because later ones of their publishers had been given."""
        self._owner = owner
        self._merging = merging
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._parts: dict[str, tuple[Subscription, asyncio.Task[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return (
            f"<WatchedSubscription {self.name!r} of {self._owner.name!r}, {self.waiting} waiting>"
        )

    @property
    def waiting(self) -> int:
        """How many events have arrived and were not taken yet."""
        return len(self._events)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_over:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        self._taken.set()
        return self._events.popleft()

    async def get(self, timeout: float | None = None) -> Event:
        """Wait for the next event.

        TimedOutError if none arrives in `timeout` seconds, ClosedError if none can arrive any more.
        """
        async with time_limit(timeout, "no event came"):
            try:
                return await anext(self)
            except StopAsyncIteration:
                raise ClosedError(f"the subscription {self.name!r} is closed") from None

    def take(self) -> list[Event]:
        """Return all events that have arrived, without waiting."""
        events = list(self._events)
        self._events.clear()
        self._taken.set()
        return events

    async def ready(self, timeout: float | None = None) -> Self:
        """Wait until every broker that matters knows the subscription of each session."""
        async with time_limit(timeout, "not every broker that matters knows the subscription"):
            await asyncio.gather(*(part.ready() for part, _ in list(self._parts.values())))
        return self

    async def close(self) -> None:
        """Unsubscribe. Events that have arrived can still be taken."""
        parts = [part for part, _ in self._parts.values()]
        self._end()
        for part in parts:
            await part.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    # ---- Sessions

    def _join(self, session: _Session) -> None:
        self._give(SessionJoined(session=session.name))
        self._begin(session)

    def _begin(self, session: _Session) -> None:
        part = session.client.subscribe(self.where, name=self.name)
        task = self._owner._run(self._read(session.name, part))
        self._parts[session.name] = part, task

    def _leave(self, session: _Session) -> None:
        part, task = self._parts.pop(session.name)
        task.cancel()
        self._merge(session.name, part.take())  # What it has brought by now counts.
        self._give(SessionLost(session=session.name))

    async def _read(self, session: str, part: Subscription) -> None:
        try:
            async for event in part:
                self._merge(session, [event, *part.take()])
                while len(self._events) > QUEUE_EVENTS_MAX:
                    self._taken.clear()
                    await self._taken.wait()
        except SternaError as error:  # Another session takes its place.
            log.warning("the session %s ends: %s", session, error)

    def _merge(self, session: str, events: Sequence[Event]) -> None:
        if events:
            names = ((self.name,),) * len(events)
            given = EventsArrived(session=session, events=tuple(events), subscriptions=names)
            self._give(given)

    def _give(self, given: Input) -> None:
        loop = asyncio.get_running_loop()
        merged = self._merging.handle(given, _now_us(loop.time))
        for action in merged.actions:
            self._events.extend(action.events)
            self._arrived.set()
        for fact in merged.facts:
            if isinstance(fact, GaveUp):
                self.gave_up += len(fact.events)
            elif isinstance(fact, CameLate):
                self.late += len(fact.events)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._merging.deadline != NEVER and not self._is_over:
            late_us = max(0, self._merging.deadline - _now_us(loop.time))
            self._timer = loop.call_later(late_us / 1e6, self._give, TimePassed())

    def _end(self) -> None:
        self._is_over = True
        self._owner._subscriptions.pop(self.name, None)
        for _, task in self._parts.values():
            task.cancel()
        self._parts.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._arrived.set()


def _now_us(time: Callable[[], float]) -> int:
    return int(time() * 1e6)
