"""What a blocking client returns to its application; any thread may use it."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from sterna.core.names import LocalProtocolError
from sterna.errors import ClosedError, SternaError
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.net.blocking.thread import acquired, left
from sterna.net.client import connections, handles
from sterna.net.client.connections import Change
from sterna.net.client.waiting import timed_out

if TYPE_CHECKING:
    from sterna.net.blocking.running import Running
    from sterna.net.client.watched import WatchedSubscription

    AnyClient = Running[Any]

log = logging.getLogger("sterna.client")


class Receipt:
    """What `publish` returns. `wait` waits until a broker has accepted the event."""

    __slots__ = ("_client", "_problem", "_receipt")

    def __init__(self, client: "AnyClient") -> None:
        self._client = client
        self._receipt: handles.Receipt | None = None
        self._problem: Exception | None = None

    def __repr__(self) -> str:
        if self._receipt is not None:
            return repr(self._receipt)
        problem = "waits for a broker" if self._problem is None else str(self._problem)
        return f"<Receipt of {self._client.name}: {problem}>"

    def wait(self, timeout: float | None = None) -> EventId:
        """Wait until a broker has accepted the event, and return the identity of the event.

        TimedOutError after `timeout` seconds.
        """
        return self._client._wait(self._accepted, timeout, self._client._unaccepted("the event"))

    async def _accepted(self) -> EventId:
        if self._problem is not None:
            raise self._problem
        if self._receipt is None:
            raise ClosedError("the client was closed before this event was sent")
        return await self._receipt


class Subscription:
    """The events that match a filter: `for event in subscription`.

    It ends with `close()`, with its client, or when a `with` around it is left. Several threads may
    share one: each event goes to one of them.
    """

    def __init__(
        self,
        client: "AnyClient",
        subscription: "handles.Subscription | WatchedSubscription",
        *,
        takes_ahead: bool,
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._takes_ahead = takes_ahead
        """Whether taking an event from the client does not acknowledge the one before."""
        self._taken: deque[Event] = deque()
        self._fetching = threading.Lock()
        self._is_over = False

    def __repr__(self) -> str:
        return handles.told(self, self._client.name, is_over=self._subscription._is_over)

    @property
    def name(self) -> str:
        """The name that it was given; the default is the text of the filter."""
        return self._subscription.name

    @property
    def where(self) -> Filter:
        """The filter of the subscription."""
        return self._subscription.where

    @property
    def waiting(self) -> int:
        """How many events have arrived and were not taken yet."""
        return len(self._taken) + self._subscription.waiting

    def ready(self, timeout: float | None = None) -> Self:
        """Wait until every broker that matters knows the subscription, and return it.

        Matching events that are published after that, anywhere, will be delivered. A broker matters
        if matching events can come from it: in networks that route by advertisements, if one that
        overlaps the filter has reached the brokers on the way. This waits for brokers that are
        down. TimedOutError after `timeout` seconds; UnconfirmedError if a broker on the way cannot
        be asked; ClosedError if the subscription ends.
        """
        self._client._wait(lambda: self._subscription.ready(timeout))
        return self

    def get(self, timeout: float | None = None) -> Event:
        """Wait for the next event.

        TimedOutError if none arrives in `timeout` seconds, ClosedError if none can arrive any more.
        """
        try:
            return self._next(timeout)
        except StopIteration:
            raise ClosedError(f"the subscription {self.name!r} is closed") from None

    def take(self) -> list[Event]:
        """Return all events that have arrived, without waiting."""
        with self._fetching:
            self._client._wait(self._fetch_all)
            return [self._taken.popleft() for _ in range(len(self._taken))]

    def acknowledge(self, event: Event) -> None:
        """Acknowledge an event and all that came before it.

        This is for subscriptions with `acknowledge="manual"`. In a client with a `state`, events
        that were not acknowledged are delivered again after a restart. A second acknowledgement of
        an event does nothing.
        """
        subscription = self._subscription
        if not isinstance(subscription, handles.Subscription):
            raise LocalProtocolError("what several brokers bring is not acknowledged by hand")
        self._client._do(lambda: subscription.acknowledge(event))

    def close(self) -> None:
        """Unsubscribe. Events that have arrived can still be taken."""
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
        # What is taken from the client is put here at once: a caller that is interrupted or times
        # out loses nothing.
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
    """Announces what the application will publish, until `close()`."""

    def __init__(self, client: "AnyClient", advertisement: handles.Advertisement) -> None:
        self._client = client
        self._advertisement = advertisement

    def __repr__(self) -> str:
        return repr(self._advertisement)

    @property
    def name(self) -> str:
        """The name that it was given; the default is the text of the filter."""
        return self._advertisement.name

    @property
    def where(self) -> Filter:
        """The filter of the advertisement."""
        return self._advertisement.where

    def close(self) -> None:
        """Withdraw the advertisement."""
        self._client._close_quietly(self._advertisement.close)


class Connections:
    """Changes of a client's connection: `for change in client.connections()`.

    It begins with `Connected` if the client is connected, and ends with the client or with
    `close()`.
    """

    def __init__(self, client: "AnyClient", changes: connections.Connections) -> None:
        self._client = client
        self._changes = changes

    def get(self, timeout: float | None = None) -> Change:
        """Wait for the next change.

        TimedOutError if there is none after `timeout` seconds, ClosedError at the end.
        """
        return self._client._wait(lambda: self._changes.get(timeout))

    def close(self) -> None:
        """End the iteration once all changes so far are read."""
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
        call_each(changes, callback)


def call_each(changes: Iterator[Change], callback: Callable[[Change], object]) -> None:
    for change in changes:
        try:
            callback(change)
        except Exception:
            log.exception("a callback for changes of the connection failed")
