"""A client that several brokers serve at once: if one dies for good, the others go on."""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from sterna.core.facts import Delivered
from sterna.core.inputs import Input, TimePassed
from sterna.core.names import NEVER
from sterna.core.replication.facts import CameLate, GaveUp
from sterna.core.replication.inputs import EventsArrived, SessionJoined, SessionLost
from sterna.core.replication.merging import Merging
from sterna.core.replication.options import MergingOptions
from sterna.core.terms.messages import Terms
from sterna.errors import ClosedError, NotConnectedError, SternaError
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.address import Address
from sterna.net.client.api import CLOSE_S, CONNECT_S, Client
from sterna.net.client.checking import checked_filter, checked_terms
from sterna.net.client.connections import Change, Connected, Lost
from sterna.net.client.displays import Displays
from sterna.net.client.handles import Advertisement, Receipt, Subscription
from sterna.net.client.independence import Place, place_of, shared
from sterna.net.client.transport import Tcp, Transport
from sterna.net.client.waiting import time_limit

log = logging.getLogger("sterna.client")

LOST_S = 0.4
"""A session that has had no connection for so long is replaced by one at another broker, if a
session that is connected brings all that this one may have missed."""

ALONE_S = 10.0
"""If none does, it is replaced when another broker has answered for so long, and its own has not:
that one may have what nobody else has."""

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
        journal: str | Path | None = None,
        timeout: float | None = CONNECT_S,
        transport: Transport | None = None,
    ) -> None:
        """The arguments are those of `connect`; `brokers` is its `watch`."""
        if brokers < 1:
            raise ValueError(f"at least one broker must watch, not {brokers}")
        self._urls = _checked_urls(urls, brokers)
        self.name = client or f"client-{uuid4().hex[:12]}"
        self._options = options
        self._brokers = brokers
        self._timeout = timeout
        self._transport = transport or Tcp()
        self._numbers = itertools.count(1)
        self._sessions: dict[str, _Session] = {}
        self._subscriptions: dict[str, WatchedSubscription] = {}
        self._journal = journal
        self._displays = Displays(None if journal is None else Path(journal), self.name)
        self._own = Client(
            self._urls, client=self.name, journal=journal, timeout=timeout, transport=transport
        )
        """Publishes under the client's own name, and goes to any broker by itself."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._callbacks: list[Callable[[Change], object]] = []
        self._is_away = False
        """Whether the application has detached, or is on its way."""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<WatchingClient {self.name!r} at {', '.join(self.brokers) or 'no broker'}>"

    # ---- Opening and closing

    async def __aenter__(self) -> Self:
        try:
            self._displays.open(self._own._driver.failed)
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
        try:
            await asyncio.gather(*(each.close(timeout=timeout) for each in clients))
        finally:
            await self._displays.close()

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

    def subscribe(
        self, where: str | Filter, *, name: str | None = None, keep: str | None = None
    ) -> "WatchedSubscription":
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

    # ---- The connections

    async def attach(self, *urls: str, timeout: float | None = None) -> None:
        """Connect again after `detach`, or go to other brokers.

        Given addresses replace those that the client had. Sessions that are at none of them roam to
        one, and their new broker fetches what waits for them. They go one after the other, so that
        another one watches meanwhile. NotConnectedError if a session finds no broker; `timeout`
        is for each broker that it tries, and its default is that of `connect`.
        """
        self._check()
        limit_s = self._timeout if timeout is None else timeout
        if urls:
            self._urls = _checked_urls(urls, self._brokers)
        try:
            await self._own._go_to(self._urls, limit_s)
            for session in list(self._sessions.values()):
                await self._take_along(session, limit_s)
        finally:
            self._is_away = False
            for session in self._sessions.values():
                session.look_after()

    async def detach(self, *, timeout: float | None = None) -> None:
        """Disconnect. The brokers keep events for the client meanwhile."""
        self._check()
        self._is_away = True
        clients = [self._own, *(session.client for session in self._sessions.values())]
        await asyncio.gather(*(each.detach(timeout=timeout) for each in clients))

    async def _take_along(self, session: "_Session", limit_s: float | None) -> None:
        """Have a session be at one of the addresses, if possible where it is."""
        stays = [session.url] if session.url in self._urls else []
        for url in (*stays, *await self._free(but=session)):
            if self._sessions.get(session.name) is not session:
                return  # It was lost, and another one takes its place.
            if url != session.url and self._is_taken(url):
                continue
            with contextlib.suppress(NotConnectedError):
                await session.go(url, limit_s)
                return
        raise NotConnectedError(
            f"the session {session.name} finds no broker at {', '.join(self._urls)}; is one "
            "running (`sterna up`)?",
            brokers=tuple(self._urls),
        )

    # ---- Sessions

    async def _open(self) -> None:
        """Open a session at a broker that has none; NotConnectedError if none answers."""
        for url in await self._free():
            if self._is_taken(url) or url not in self._urls:
                continue  # Meanwhile.
            self._urls.remove(url)
            self._urls.append(url)  # The next time, others come first.
            session = _Session(self, f"{self.name}~{next(self._numbers)}", url)
            self._sessions[session.name] = session
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

    def _is_taken(self, url: str) -> bool:
        return any(session.url == url for session in self._sessions.values())

    async def _free(self, *, but: "_Session | None" = None) -> list[str]:
        """The addresses at which there is no session, the best first.

        Those are best that share least with the other sessions: first a host, then brokers whose
        death cuts off both. Those that do not answer are last.
        """
        free = [url for url in self._urls if not self._is_taken(url)]
        others = [session for session in self._sessions.values() if session is not but]
        if not others or len(free) < 2:
            return free
        hosts = [Address.from_url(session.url).host for session in others]
        brokers = [session.client.broker for session in others]
        places = dict(zip(free, await self._places(free), strict=True))

        def cost(url: str) -> tuple[bool, int, int]:
            place = places[url]
            if place is None:
                return True, 0, 0
            common = sum(shared(place.links, each, place.broker) for each in brokers if each)
            return False, hosts.count(Address.from_url(url).host), common

        return sorted(free, key=cost)

    async def _places(self, urls: Sequence[str]) -> list[Place | None]:
        """Where the brokers of these addresses are in their network, as far as they answer."""
        return await asyncio.gather(*(place_of(url, self._transport) for url in urls))

    async def _wait_for(self, session: "_Session") -> None:
        """Replace a session that is lost, unless it may bring what no other one brings.

        A client that is cut off from all brokers loses all its sessions. If it replaced them, it
        would not get what waits for them.
        """
        loop = asyncio.get_running_loop()
        await asyncio.sleep(LOST_S)
        answers_since = inf
        while session.client.is_on_its_way and not self._is_covered(session):
            free = [url for url in self._urls if not self._is_taken(url)]
            if any(await self._places(free)):
                answers_since = min(answers_since, loop.time())
                if loop.time() - answers_since >= ALONE_S:
                    break
            else:
                answers_since = inf
            await asyncio.sleep(LOST_S)
        self._lose(session)

    def _is_covered(self, lost: "_Session") -> bool:
        """Whether a session is connected that brings all that a lost one may have missed."""
        return any(
            other.client.is_connected
            and all(each._covers(other, lost) for each in self._subscriptions.values())
            for other in self._sessions.values()
            if other is not lost
        )

    def _lose(self, session: "_Session") -> None:
        """A session is given up: another takes its place."""
        if self._sessions.pop(session.name, None) is None:
            return
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

    def _check(self) -> None:
        if self._is_closed:
            raise ClosedError(f"{self.name} is closed")

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
        self.client = Client(
            [url],
            client=name,
            journal=owner._journal,
            timeout=owner._timeout,
            transport=owner._transport,
        )
        self.lost_at = inf
        """Since when there is no connection; infinite while there is one."""
        self._owner = owner
        self._is_moving = False
        self._waiting: asyncio.Task[None] | None = None
        """Waits whether it is connected again; else another one takes its place."""

    def begin(self) -> None:
        self._owner._displays.watches(self.name)
        for callback in (self._changed, *self._owner._callbacks):
            self.client.on_connection(callback)

    async def go(self, url: str, limit_s: float | None) -> None:
        """Be at this broker; NotConnectedError if it does not answer."""
        self.url = url
        self._is_moving = True
        try:
            await self.client._go_to([url], limit_s)
        finally:
            self._is_moving = False

    def look_after(self) -> None:
        """If there is no connection, wait for one, but not for ever."""
        owner = self._owner
        is_meant = owner._is_away or owner._is_closed or self._is_moving
        if self.lost_at < inf and self._waiting is None and not is_meant:
            self._waiting = owner._run(owner._wait_for(self))

    def _changed(self, change: Change) -> None:
        if isinstance(change, Connected):
            self.lost_at = inf
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None
        elif isinstance(change, Lost):
            self.lost_at = asyncio.get_running_loop().time()
            self.look_after()


class WatchedSubscription:
    """The events that match a filter, merged from all sessions: `async for event in subscription`.

    It ends with `close()`, with its client, or when an `async with` around it is left.
    """

    def __init__(
        self, owner: WatchingClient, name: str, where: Filter, terms: Terms, merging: Merging
    ) -> None:
        self.name = name
        self.where = where
        self.gave_up = 0
        """How many events were held back for as long as possible, and then given."""
        self.late = 0
        """How many events were dropped because later ones of their publishers had been given."""
        self._owner = owner
        self._terms = terms
        self._merging = merging
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._parts: dict[str, _Part] = {}
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
            await asyncio.gather(*(part.subscription.ready() for part in [*self._parts.values()]))
        return self

    async def close(self) -> None:
        """Unsubscribe. Events that have arrived can still be taken."""
        parts = list(self._parts.values())
        self._end()
        for part in parts:
            await part.subscription.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    # ---- Sessions

    def _join(self, session: _Session) -> None:
        self._give(SessionJoined(session=session.name))
        self._begin(session)

    def _begin(self, session: _Session) -> None:
        subscription = session.client.subscribe(
            self.where, name=self.name, keep=self._terms.keep or None
        )
        reading = self._owner._run(self._read(session.name, subscription))
        part = self._parts[session.name] = _Part(subscription, reading)
        part.learning = self._owner._run(self._learn(part))

    async def _learn(self, part: "_Part") -> None:
        """Note when a session would get whatever is published then."""
        with contextlib.suppress(SternaError):
            await part.subscription.ready()
            part.known_since = asyncio.get_running_loop().time()

    def _covers(self, session: _Session, lost: _Session) -> bool:
        """Whether a session brings all events that a lost one may not have brought."""
        ours, theirs = self._parts[session.name], self._parts[lost.name]
        return ours.known_since <= lost.lost_at or theirs.known_since == inf

    def _leave(self, session: _Session) -> None:
        part = self._parts.pop(session.name)
        part.stop()
        self._merge(session.name, part.subscription.take())  # What it has brought by now counts.
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
        displays = self._owner._displays
        for fact in merged.facts:
            if isinstance(fact, Delivered):
                displays.displayed(self.name, [event.id for event in fact.events])
            elif isinstance(fact, GaveUp):
                self.gave_up += len(fact.events)
            elif isinstance(fact, CameLate):
                self.late += len(fact.events)
                displays.withheld(self.name, fact.events)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._merging.deadline != NEVER and not self._is_over:
            late_us = max(0, self._merging.deadline - _now_us(loop.time))
            self._timer = loop.call_later(late_us / 1e6, self._give, TimePassed())

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._owner._subscriptions.pop(self.name, None)
        for session, part in self._parts.items():
            part.stop()
            self._merge(session, part.subscription.take())  # What it has brought by now counts.
        displays = self._owner._displays
        displays.withheld(self.name, [each.event.id for each in self._merging.keep().held])
        displays.ended(self.name)
        self._parts.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._arrived.set()


class _Part:
    """What one session contributes to a subscription."""

    def __init__(self, subscription: Subscription, reading: asyncio.Task[None]) -> None:
        self.subscription = subscription
        self.reading = reading
        self.learning: asyncio.Task[None] | None = None
        self.known_since = inf
        """Since when every broker that matters knows the subscription, if that is confirmed."""

    def stop(self) -> None:
        self.reading.cancel()
        if self.learning is not None:
            self.learning.cancel()


def _checked_urls(urls: Sequence[str], brokers: int) -> list[str]:
    """The addresses, each once; ValueError if they are too few."""
    found = [*dict.fromkeys(Address.from_url(url).url for url in urls)]
    if len(found) < brokers:
        raise ValueError(
            f"{brokers} brokers are to watch, and {len(found)} addresses are given; give the "
            "addresses of more brokers"
        )
    return found


def _now_us(time: Callable[[], float]) -> int:
    return int(time() * 1e6)
