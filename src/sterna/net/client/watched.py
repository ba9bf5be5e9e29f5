"""A subscription of a client that several brokers serve: the events of all its sessions, merged."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Self

from sterna.core.facts import Delivered
from sterna.core.inputs import Input, TimePassed
from sterna.core.names import NEVER
from sterna.core.replication.facts import CameLate, GaveUp
from sterna.core.replication.inputs import EventsArrived, SessionJoined, SessionLost
from sterna.core.replication.merging import Merging
from sterna.core.terms.messages import Terms
from sterna.errors import ClosedError, SternaError
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.client.handles import Subscription
from sterna.net.client.sessions import Session
from sterna.net.client.waiting import time_limit

if TYPE_CHECKING:
    from sterna.net.client.watching import WatchingClient

log = logging.getLogger("sterna.client")

QUEUE_EVENTS_MAX = 10_000
"""When more events wait in a subscription, its sessions stop reading until they are taken."""


class WatchedSubscription:
    """The events that match a filter, merged from all sessions: `async for event in subscription`.

    It ends with `close()`, with its client, or when an `async with` around it is left.
    """

    def __init__(
        self, owner: "WatchingClient", name: str, where: Filter, terms: Terms, merging: Merging
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
        self._parts_changed = asyncio.Event()
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
                self._owner._outlet.check()
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
        """Wait until every broker that matters knows the subscription of each session.

        If a session is lost meanwhile, the one that takes its place counts. TimedOutError,
        UnconfirmedError and ClosedError are those of `Subscription.ready`.
        """
        async with time_limit(timeout, "not every broker that matters knows the subscription"):
            known: dict[_Part, None] = {}
            while not self._parts or not {*self._parts.values()} <= {*known}:
                if self._is_over:
                    self._owner._outlet.check()
                    raise ClosedError(f"the subscription {self.name!r} is closed")
                await self._next_known(known)
        return self

    async def _next_known(self, known: "dict[_Part, None]") -> None:
        """Wait until brokers know another part, or there are others."""
        self._parts_changed.clear()
        for part in [*self._parts.values()]:
            if part not in known:
                try:
                    await part.subscription.ready()
                except ClosedError:  # Its session has ended, or this subscription.
                    break
                known[part] = None
                return
        await self._parts_changed.wait()

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

    def _join(self, session: Session) -> None:
        self._give(SessionJoined(session=session.name))
        self._begin(session)

    def _begin(self, session: Session) -> None:
        subscription = session.client.subscribe(
            self.where, name=self.name, keep=self._terms.keep or None
        )
        reading = self._owner._run(self._read(session.name, subscription))
        part = self._parts[session.name] = _Part(subscription, reading)
        part.learning = self._owner._run(self._learn(part))
        self._parts_changed.set()

    async def _learn(self, part: "_Part") -> None:
        """Note when a session would get whatever is published then."""
        with contextlib.suppress(SternaError):
            await part.subscription.ready()
            part.known_since = asyncio.get_running_loop().time()

    def _covers(self, session: Session, lost: Session) -> bool:
        """Whether a session brings all events that a lost one may not have brought."""
        ours, theirs = self._parts[session.name], self._parts[lost.name]
        return ours.known_since <= lost.lost_at or theirs.known_since == inf

    def _leave(self, session: Session) -> None:
        part = self._parts.pop(session.name)
        part.stop()
        self._parts_changed.set()
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
        self._parts_changed.set()


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


def _now_us(time: Callable[[], float]) -> int:
    return int(time() * 1e6)
