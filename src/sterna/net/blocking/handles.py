"""What an application holds of what it has asked its client for, for any thread to use."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Self

from sterna.errors import ClosedError, SternaError
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.net.blocking.thread import acquired, left
from sterna.net.client import connections, handles
from sterna.net.client.connections import Change
from sterna.net.client.waiting import timed_out

if TYPE_CHECKING:
    from sterna.net.blocking.client import Client

log = logging.getLogger("sterna.client")


class Receipt:
    """What `publish` returns. To wait for it is to wait until a broker has the event for good."""

    __slots__ = ("_client", "_problem", "_receipt")

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._receipt: handles.Receipt | None = None
        self._problem: Exception | None = None

    def wait(self, timeout: float | None = None) -> EventId:
        """The identity of the event, once a broker has it; TimedOutError after so many seconds."""
        return self._client._wait(self._accepted, timeout, "no broker has accepted the event")

    async def _accepted(self) -> EventId:
        if self._problem is not None:
            raise self._problem
        if self._receipt is None:
            raise ClosedError("the client was closed before this event was on its way")
        return await self._receipt


class Subscription:
    """The events that match a filter, as they come: `for event in subscription`.

    It ends with `close()`, with its client, or when a `with` around it is left. Several threads may
    share one: each event goes to one of them.
    """

    def __init__(
        self, client: "Client", subscription: handles.Subscription, *, takes_ahead: bool
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._takes_ahead = takes_ahead
        """Whether taking an event from the client does not say that the one before is done."""
        self._taken: deque[Event] = deque()
        self._fetching = threading.Lock()
        self._is_over = False

    @property
    def name(self) -> str:
        """What it is called; the filter's text unless it was given a name."""
        return self._subscription.name

    @property
    def where(self) -> Filter:
        """What it subscribes to."""
        return self._subscription.where

    @property
    def waiting(self) -> int:
        """How many events are here and were not taken yet."""
        return len(self._taken) + self._subscription.waiting

    def ready(self, timeout: float | None = None) -> Self:
        """The subscription itself, once every broker that matters knows it.

        What is published anywhere after that and matches will be delivered. A broker matters if
        matching events can come from there: in networks that route by advertisements, if one that
        overlaps the filter has reached the brokers on the way. A broker that is down is waited for.
        TimedOutError after so many seconds; UnconfirmedError if a broker on the way cannot be
        asked; ClosedError if the subscription ends.
        """
        self._client._wait(lambda: self._subscription.ready(timeout))
        return self

    def get(self, timeout: float | None = None) -> Event:
        """The next event.

        TimedOutError if none comes in so many seconds, ClosedError if none can come any more.
        """
        try:
            return self._next(timeout)
        except StopIteration:
            raise ClosedError(f"the subscription {self.name!r} is closed") from None

    def take(self) -> list[Event]:
        """All events that are here now, without waiting."""
        with self._fetching:
            self._client._wait(self._fetch_all)
            return [self._taken.popleft() for _ in range(len(self._taken))]

    def acknowledge(self, event: Event) -> None:
        """Say that the application is done with an event, and with all that came before it.

        For a subscription with `acknowledge="manual"`. In a client with a `state`, what was not
        acknowledged comes again after a restart. To acknowledge an event again does nothing.
        """
        self._client._do(lambda: self._subscription.acknowledge(event))

    def close(self) -> None:
        """Unsubscribe. What is here already can still be taken."""
        self._client._close_quietly(self._subscription.close)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        return self._next(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _next(self, timeout: float | None) -> Event:
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            if not acquired(self._fetching, deadline):
                raise timed_out(timeout, "no event came")
            try:
                if self._taken:
                    return self._taken.popleft()
                if self._is_over:
                    raise StopIteration
                self._client._wait(self._fetch, left(deadline), "no event came")
            finally:
                self._fetching.release()

    async def _fetch(self) -> None:
        # What is taken from the client is put here at once: a caller that is interrupted or out of
        # time loses nothing.
        try:
            self._taken.append(await anext(self._subscription))
        except StopAsyncIteration:
            self._is_over = True
            return
        if self._takes_ahead:
            await self._fetch_all()

    async def _fetch_all(self) -> None:
        self._taken.extend(self._subscription.take())


class Advertisement:
    """What the application is going to publish; it ends with `close()`."""

    def __init__(self, client: "Client", advertisement: handles.Advertisement) -> None:
        self._client = client
        self._advertisement = advertisement

    @property
    def name(self) -> str:
        """What it is called; the filter's text unless it was given a name."""
        return self._advertisement.name

    @property
    def where(self) -> Filter:
        """What it advertises."""
        return self._advertisement.where

    def close(self) -> None:
        """Advertise it no more."""
        self._client._close_quietly(self._advertisement.close)


class Connections:
    """Changes of a client's connection, as they come: `for change in client.connections()`.

    It begins with `Connected` if the client is connected, and ends with the client or with
    `close()`.
    """

    def __init__(self, client: "Client", changes: connections.Connections) -> None:
        self._client = client
        self._changes = changes

    def get(self, timeout: float | None = None) -> Change:
        """The next change.

        TimedOutError if there is none in so many seconds, ClosedError at the end.
        """
        return self._client._wait(lambda: self._changes.get(timeout))

    def close(self) -> None:
        """End the iteration, once all that was told so far is read."""
        with suppress(ClosedError):
            self._client._do(self._changes.close)

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        try:
            return self.get()
        except ClosedError:
            raise StopIteration from None


def call(subscription: Subscription, callback: Callable[[Event], object]) -> None:
    try:
        for event in subscription:
            try:
                callback(event)
            except Exception:
                log.exception("the callback of subscription %r failed", subscription.name)
    except SternaError as error:
        log.warning("subscription %r ends: %s", subscription.name, error)


def call_all(changes: Connections, callback: Callable[[Change], object]) -> None:
    with suppress(SternaError):
        for change in changes:
            try:
                callback(change)
            except Exception:
                log.exception("a callback for changes of the connection failed")
