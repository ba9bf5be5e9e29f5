"""What an application calls: `connect`, and the client that it returns."""

import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Self, TypeVar

from sterna.errors import ClosedError
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.net import client as async_client
from sterna.net.blocking.handles import (
    Advertisement,
    Connections,
    Receipt,
    Subscription,
    call,
    call_all,
)
from sterna.net.blocking.outgoing import Outgoing
from sterna.net.blocking.thread import LoopThread, left
from sterna.net.client.api import CLOSE_S, CONNECT_S
from sterna.net.client.connections import Change
from sterna.net.client.handles import Acknowledge
from sterna.net.client.publications import checked_event
from sterna.net.client.transport import Transport
from sterna.net.client.waiting import renamed

Answer = TypeVar("Answer")


def connect(
    *urls: str,
    client: str | None = None,
    state: str | Path | None = None,
    journal: str | Path | None = None,
    timeout: float | None = CONNECT_S,
    transport: Transport | None = None,
    connect_s: float | None = None,
) -> "Client":
    """Connect to a broker network, and wait until that is done.

    The arguments are those of `sterna.connect`. Close the client in the end, or use `with`.
    """
    timeout = renamed("connect_s", connect_s, timeout)
    return Client(
        lambda: async_client.connect(
            *urls,
            client=client,
            state=state,
            journal=journal,
            timeout=timeout,
            transport=transport,
        ),
        has_state=state is not None,
    )


class Client:
    """A client at work; made by `connect`."""

    def __init__(self, make: Callable[[], async_client.Client], *, has_state: bool) -> None:
        """The asyncio client that `make` returns does the work."""
        self.has_state = has_state
        """Whether it goes on after a restart where it was."""
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = LoopThread()
        try:
            self._client = self._thread.wait(lambda: _started(make))
        except BaseException:
            self._thread.end()
            raise
        self._outgoing = Outgoing(self._client, self._thread)

    # ---- Life

    def close(self, *, timeout: float | None = CLOSE_S, wait_s: float | None = None) -> None:
        """Say what is left to say, and end. Without a `state`, the network forgets the client.

        After `timeout` seconds it ends in any case. With a `state`, the application is done with
        the events it has, unless it acknowledges by hand. `wait_s` is the old name of `timeout`.
        """
        timeout = renamed("wait_s", wait_s, timeout)
        self._close(lambda: self._client.close(timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_details: object) -> None:
        self._close(lambda: self._client.__aexit__(error))

    def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._closing:
            if not self._is_closed:
                try:
                    self._wait(close)
                finally:
                    self._is_closed = True
                    self._thread.end()

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
        self,
        /,
        attributes: Mapping[str, object] | None = None,
        payload: bytes = b"",
        **more: object,
    ) -> Receipt:
        """Publish an event, with attributes from a mapping or as keywords.

        A mapping takes attributes of any name, such as `{"from": 1, "payload": 2}`. The event is on
        its way when this returns; `client.publish(price=3).wait()` waits until a broker has it for
        good, and `drain()` waits for all. With very many on their way, it waits until there are
        fewer.
        """
        event = checked_event(attributes, payload, more)
        return self._outgoing.put(*event, Receipt(self))

    def publish_all(
        self,
        events: Iterable[Mapping[str, object] | tuple[Mapping[str, object], bytes]],
        *,
        timeout: float | None = None,
    ) -> int:
        """Publish many events, attributes or pairs of attributes and payload; how many they were.

        As fast as the network takes them, and all of them with a broker in the end; TimedOutError
        if that takes longer than `timeout` seconds.
        """
        deadline = None if timeout is None else monotonic() + timeout
        count = 0
        for each in events:
            attributes, payload = each if isinstance(each, tuple) else (each, b"")
            event = checked_event(attributes, payload)
            self._outgoing.put(*event, Receipt(self), deadline)
            count += 1
        self.drain(left(deadline))
        return count

    def drain(self, timeout: float | None = None) -> None:
        """Wait until a broker has all that was published; TimedOutError after so many seconds."""
        self._wait(self._outgoing.drain, timeout, "no broker has accepted all events")

    def subscribe(
        self,
        where: str | Filter,
        *,
        past: int | timedelta | None = None,
        name: str | None = None,
        callback: Callable[[Event], object] | None = None,
        acknowledge: Acknowledge = "auto",
    ) -> Subscription:
        """Subscribe to all events that match a filter.

        `past` begins with what the broker still has of before: the last so many events, or those of
        some time (a `timedelta`). With a `callback`, that is called with each event, in a thread of
        its own, instead of iterating; it may use the client. The `name` matters to a client with a
        `state`: after a restart, the subscription of the same name goes on, with the first event
        that the application is not done with. It is done with an event when it asks for the next
        one; with `acknowledge="manual"`, when it says so (`subscription.acknowledge(event)`).
        """
        filter_ = where if isinstance(where, Filter) else Filter(where)
        subscription = Subscription(
            self,
            self._do(
                lambda: self._client.subscribe(
                    filter_, past=past, name=name, acknowledge=acknowledge
                )
            ),
            # With a state, asking for more says that what was taken before is done.
            takes_ahead=not self.has_state or acknowledge == "manual",
        )
        if callback is not None:
            threading.Thread(
                target=call, args=(subscription, callback), name="sterna callback", daemon=True
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

    def attach(self, url: str | None = None, *, timeout: float | None = None) -> None:
        """Connect (again), to a certain broker or to any of the list; wait until that is done.

        NotConnectedError after `timeout` seconds; if none is given, after that of `connect`.
        """
        self._wait(lambda: self._client.attach(url, timeout=timeout))

    def detach(self, *, timeout: float | None = None) -> None:
        """Disconnect. The network keeps for the client what comes meanwhile.

        TimedOutError if the connection has not ended in so many seconds; it will nevertheless.
        """
        self._wait(lambda: self._client.detach(timeout=timeout))

    def connections(self) -> Connections:
        """What becomes of the connection: `Connected`, `Lost` and `Moved`, to be iterated over.

        It begins with `Connected`, if the client is connected now.
        """
        return Connections(self, self._do(self._client.connections))

    def on_connection(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call a function with each `Connected`, `Lost` and `Moved`, in a thread of its own.

        It begins with `Connected`, if the client is connected now, and may use the client. Calling
        what is returned ends it.
        """
        changes = self.connections()
        threading.Thread(
            target=call_all, args=(changes, callback), name="sterna callback", daemon=True
        ).start()
        return changes.close

    # ---- The thread with the event loop

    def _wait(
        self,
        what: Callable[[], Coroutine[Any, Any, Answer]],
        timeout: float | None = None,
        problem: str = "this was not done",
    ) -> Answer:
        """Have the thread do something, after all that was published before."""

        async def do() -> Answer:
            self._outgoing.pump_all()
            return await what()

        return self._thread.wait(do, timeout, problem)

    def _do(self, what: Callable[[], Answer]) -> Answer:
        """Have the thread do something that does not wait."""

        async def do() -> Answer:
            return what()

        return self._wait(do)

    def _close_quietly(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with suppress(ClosedError):  # Its end is the end of everything it had.
            self._wait(close)


async def _started(make: Callable[[], async_client.Client]) -> async_client.Client:
    client = make()
    try:
        return await client
    except BaseException:
        await client.close()
        raise
