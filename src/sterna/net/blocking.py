"""The client library for programs without asyncio: the same calls, each of which waits itself.

    with sterna.blocking.connect("sterna://127.0.0.1:7461", client="car-7") as client:
        for event in client.subscribe("service = 'parking' AND price < 3", past=10):
            ...

An event loop in a thread of its own does the work. All objects here may be used from any thread.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Self, TypeVar

from sterna.core.names import LocalProtocolError
from sterna.model.event import Event, EventId, Scalar, plain_attributes
from sterna.model.filters import Filter
from sterna.net import client as async_client
from sterna.net import handles
from sterna.net.errors import ClosedError, SternaError
from sterna.net.loop import new_event_loop

log = logging.getLogger("sterna.client")

Answer = TypeVar("Answer")

WINDOW_EVENTS = 8_000
"""With more events on their way to the broker, `publish` waits: less than what the client keeps
while there is no connection."""

_BATCH_EVENTS = 1_000
"""So many are handed to the event loop at a time, which has other things to do as well."""


def connect(
    *urls: str,
    client: str | None = None,
    state: str | Path | None = None,
    journal: str | Path | None = None,
    connect_s: float = 10.0,
) -> "Client":
    """Connect to a broker network, and wait until that is done.

    The arguments are those of `sterna.connect`. Close the client in the end, or use `with`.
    """
    return Client(
        lambda: async_client.connect(
            *urls, client=client, state=state, journal=journal, connect_s=connect_s
        ),
        has_state=state is not None,
    )


class Receipt:
    """What `publish` returns. To wait for it is to wait until a broker has the event for good."""

    __slots__ = ("_client", "_problem", "_receipt")

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._receipt: handles.Receipt | None = None
        self._problem: Exception | None = None

    def wait(self, timeout: float | None = None) -> EventId:
        """The identity of the event, once a broker has it; TimeoutError after so many seconds."""
        return self._client._wait(self._accepted, timeout)

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

    def __init__(self, client: "Client", subscription: handles.Subscription) -> None:
        self._client = client
        self._subscription = subscription
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

    def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError if none comes in so many seconds, ClosedError at the end."""
        try:
            return self._next(timeout)
        except StopIteration:
            raise ClosedError(f"the subscription {self.name!r} is closed") from None

    def take(self) -> list[Event]:
        """All events that are here now, without waiting."""
        with self._fetching:
            self._client._wait(self._fetch_all, None)
            return [self._taken.popleft() for _ in range(len(self._taken))]

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
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if not self._fetching.acquire(timeout=-1 if left is None else left):
                raise TimeoutError(f"no event in {timeout} s")
            try:
                if self._taken:
                    return self._taken.popleft()
                if self._is_over:
                    raise StopIteration
                left = None if deadline is None else max(0.0, deadline - monotonic())
                self._client._wait(self._fetch, left)
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
        if not self._client.has_state:
            # With a state, what is taken counts as done: only what is asked for may be taken.
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


class Client:
    """A client at work; made by `connect`."""

    def __init__(self, make: Callable[[], async_client.Client], *, has_state: bool) -> None:
        self.has_state = has_state
        """Whether it goes on after a restart where it was."""
        self._outgoing: deque[tuple[Mapping[str, Scalar], bytes, Receipt]] = deque()
        self._publishing = threading.Lock()
        self._is_pumping = False
        self._published = 0
        self._marks: deque[Receipt] = deque()
        """Of each batch that is on its way, the last event."""
        self._problem: Exception | None = None
        """Why an event could not be published, for `drain`."""
        self._closing = threading.Lock()
        self._is_closed = False
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sterna", daemon=True)
        self._thread.start()
        try:
            self._client = self._wait(lambda: _started(make), None)
        except BaseException:
            self._end()
            raise

    # ---- Life

    def close(self, *, wait_s: float = 5.0) -> None:
        """Say what is left to say, and end. Without a `state`, the network forgets the client."""
        with self._closing:
            if not self._is_closed:
                try:
                    self._wait(lambda: self._client.close(wait_s=wait_s), None)
                finally:
                    self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """What the client is called in the network."""
        return self._client.name

    @property
    def broker(self) -> str | None:
        """The broker it is connected to, or was last."""
        return self._client.broker

    @property
    def missed(self) -> int:
        """How many events were discarded before they could be delivered (limits of brokers)."""
        return self._client.missed

    @property
    def is_connected(self) -> bool:
        """Whether its broker takes and gives events just now."""
        return not self._is_closed and self._client.is_connected

    # ---- What an application does

    def publish(
        self, attributes: Mapping[str, object] | None = None, payload: bytes = b"", **more: object
    ) -> Receipt:
        """Publish an event, with attributes from a mapping or as keywords.

        It is on its way when this returns; `client.publish(price=3).wait()` waits until a broker
        has it for good, and `drain()` waits for all. With very many on their way, it waits until
        there are fewer.
        """
        plain = plain_attributes({**(attributes or {}), **more})
        if type(payload) is not bytes:
            raise TypeError(f"the payload is bytes, not {type(payload).__name__}")
        self._client._raise_failure()
        receipt = Receipt(self)
        with self._publishing:
            self._outgoing.append((plain, payload, receipt))
            if not self._is_pumping:
                self._is_pumping = True
                self._loop.call_soon_threadsafe(self._pump)
            self._published += 1
            if self._published % _BATCH_EVENTS == 0:
                self._marks.append(receipt)
                if len(self._marks) > WINDOW_EVENTS // _BATCH_EVENTS:
                    # Other threads wait, too. What goes wrong with it, its own publisher hears.
                    with contextlib.suppress(SternaError, ValueError):
                        self._marks.popleft().wait()
        return receipt

    def publish_all(
        self, events: Iterable[Mapping[str, object] | tuple[Mapping[str, object], bytes]]
    ) -> int:
        """Publish many events, attributes or pairs of attributes and payload; how many they were.

        As fast as the network takes them, and all of them with a broker in the end.
        """
        count = 0
        for each in events:
            attributes, payload = each if isinstance(each, tuple) else (each, b"")
            self.publish(attributes, payload)
            count += 1
        self.drain()
        return count

    def drain(self, timeout: float | None = None) -> None:
        """Wait until a broker has all that was published; TimeoutError after so many seconds."""

        async def drain() -> None:
            problem, self._problem = self._problem, None
            if problem is not None:
                raise problem
            await self._client.drain()

        self._wait(drain, timeout)

    def subscribe(
        self,
        where: str | Filter,
        *,
        past: int | timedelta | None = None,
        name: str | None = None,
        callback: Callable[[Event], object] | None = None,
    ) -> Subscription:
        """Subscribe to all events that match a filter.

        `past` begins with what the broker still has of before: the last so many events, or those of
        some time (a `timedelta`). With a `callback`, that is called with each event, in a thread of
        its own, instead of iterating; it may use the client. The `name` matters to a client with a
        `state`: after a restart, the subscription of the same name goes on.
        """
        filter_ = where if isinstance(where, Filter) else Filter(where)
        subscription = Subscription(
            self, self._do(lambda: self._client.subscribe(filter_, past=past, name=name))
        )
        if callback is not None:
            threading.Thread(
                target=_call, args=(subscription, callback), name="sterna callback", daemon=True
            ).start()
        return subscription

    def advertise(self, where: str | Filter, *, name: str | None = None) -> Advertisement:
        """Say what this client is going to publish (networks that route by advertisements)."""
        filter_ = where if isinstance(where, Filter) else Filter(where)
        return Advertisement(self, self._do(lambda: self._client.advertise(filter_, name=name)))

    def move(self, location: str) -> None:
        """Say where the client is now: subscriptions with `myloc` follow it."""
        self._do(lambda: self._client.move(location))

    def set(
        self, name: str, value: Scalar, *, low: Scalar | None = None, high: Scalar | None = None
    ) -> None:
        """Give a variable a value: subscriptions with `$name` follow it.

        Brokers are told the range from `low` to `high` only, and nothing of changes within it.
        """
        self._do(lambda: self._client.set(name, value, low=low, high=high))

    def attach(self, url: str | None = None) -> None:
        """Connect (again), to a certain broker or to any of the list; wait until that is done."""
        self._wait(lambda: self._client.attach(url), None)

    def detach(self) -> None:
        """Disconnect. The network keeps for the client what comes meanwhile."""
        self._wait(self._client.detach, None)

    # ---- The thread with the event loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _end(self) -> None:
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _wait(
        self, what: Callable[[], Coroutine[Any, Any, Answer]], timeout: float | None
    ) -> Answer:
        """Have the thread do something, and wait until it is done."""

        async def do() -> Answer:
            self._pump_all()
            async with asyncio.timeout(timeout):
                return await what()

        doing = do()
        try:
            future = asyncio.run_coroutine_threadsafe(doing, self._loop)
        except RuntimeError:  # The loop is closed.
            doing.close()
            raise ClosedError("the client is closed") from None
        try:
            return future.result()
        except CancelledError:
            raise ClosedError("the client is closed") from None
        except TimeoutError:
            raise TimeoutError(f"not done in {timeout:.3g} s") from None
        except BaseException:
            future.cancel()
            raise

    def _do(self, what: Callable[[], Answer]) -> Answer:
        """Have the thread do something that does not wait."""

        async def do() -> Answer:
            return what()

        return self._wait(do, None)

    def _close_quietly(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with contextlib.suppress(ClosedError):  # Its end is the end of everything it had.
            self._wait(close, None)

    def _pump(self) -> None:
        """Hand on a batch of what was published."""
        self._is_pumping = False
        for _ in range(_BATCH_EVENTS):
            if not self._outgoing:
                return
            self._hand_on()
        self._is_pumping = True
        self._loop.call_soon(self._pump)

    def _pump_all(self) -> None:
        while self._outgoing:
            self._hand_on()

    def _hand_on(self) -> None:
        attributes, payload, receipt = self._outgoing.popleft()
        try:
            receipt._receipt = self._client.publish(attributes, payload)
        except (SternaError, LocalProtocolError, ValueError) as problem:
            receipt._problem = problem
            self._problem = self._problem or problem


async def _started(make: Callable[[], async_client.Client]) -> async_client.Client:
    client = make()
    try:
        return await client
    except BaseException:
        await client.close()
        raise


def _call(subscription: Subscription, callback: Callable[[Event], object]) -> None:
    try:
        for event in subscription:
            try:
                callback(event)
            except Exception:
                log.exception("the callback of subscription %r failed", subscription.name)
    except ClosedError as error:
        log.warning("subscription %r ends: %s", subscription.name, error)


__all__ = ["Advertisement", "Client", "Receipt", "Subscription", "connect"]
