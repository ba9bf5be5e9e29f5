"""What a client returns to its application: receipts, subscriptions, advertisements."""

import asyncio
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from sterna.core.inputs import Unadvertise
from sterna.core.names import LocalProtocolError
from sterna.errors import ClosedError
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.net.client.backlog import Backlog
from sterna.net.client.waiting import time_limit

if TYPE_CHECKING:
    from sterna.net.client.deliveries import Deliveries
    from sterna.net.client.driver import ClientDriver
    from sterna.net.client.publications import Publications

Acknowledge = Literal["auto", "manual"]
"""How an event is acknowledged: by asking for the next one, or by calling `acknowledge`."""


class Receipt:
    """What `publish` returns. Await it to wait until a broker has accepted the event."""

    __slots__ = ("_publications", "id")

    def __init__(self, publications: "Publications", id_: EventId) -> None:
        self._publications = publications
        self.id = id_
        """The identity of the event."""

    def __repr__(self) -> str:
        state = self._publications.state_of(self.id.seq)
        return f"<Receipt of {self.id.publisher}#{self.id.seq}: {state}>"

    def __await__(self) -> Generator[Any, None, EventId]:
        yield from self._publications.accepted(self.id.seq).__await__()
        return self.id

    async def wait(self, timeout: float | None = None) -> EventId:
        """Wait until a broker has accepted the event, and return the identity of the event.

        TimedOutError after `timeout` seconds.
        """
        async with time_limit(timeout, self._publications.unaccepted("the event")):
            return await self


class Subscription:
    """The events that match a filter: `async for event in subscription`.

    It ends with `close()`, with its client, or when an `async with` around it is left.
    """

    def __init__(self, deliveries: "Deliveries", name: str, where: Filter) -> None:
        self.name = name
        self.where = where
        self._deliveries = deliveries
        self._backlog = Backlog()
        self._waiters: list[asyncio.Future[None]] = []
        self._confirming: dict[asyncio.Future[None], int] = {}
        """The calls that wait until brokers know it, and the position of the input before each."""
        self._is_manual = False
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return told(self, self._deliveries.owner, is_over=self._is_over)

    @property
    def waiting(self) -> int:
        """How many events have arrived and were not taken yet."""
        return len(self._backlog.waiting)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._backlog.waiting:
            if self._is_over:
                self._deliveries.check()
                raise StopAsyncIteration
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        self._ask_for_more()
        event = self._backlog.take()
        self._deliveries.read_on()
        return event

    async def ready(self, timeout: float | None = None) -> Self:
        """Wait until every broker that matters knows the subscription, and return it.

        Matching events that are published after that, anywhere, will be delivered. A broker matters
        if matching events can come from it: in networks that route by advertisements, if one that
        overlaps the filter has reached the brokers on the way. This waits for brokers that are
        down. TimedOutError after `timeout` seconds; UnconfirmedError if a broker on the way cannot
        be asked; ClosedError if the subscription ends.
        """
        async with time_limit(timeout, "not every broker that matters knows the subscription"):
            await self._deliveries.confirm(self)
        return self

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
        self._ask_for_more()
        events = self._backlog.take_all()
        self._deliveries.read_on()
        return events

    def acknowledge(self, event: Event) -> None:
        """Acknowledge an event and all that came before it.

        This is for subscriptions with `acknowledge="manual"`. In a client with a `state`, events
        that were not acknowledged are delivered again after a restart. A second acknowledgement of
        an event does nothing.
        """
        if not self._is_manual:
            raise LocalProtocolError(
                f"the subscription {self.name!r} acknowledges by itself; subscribe with "
                "acknowledge='manual' to do it by hand"
            )
        if self._backlog.finish(event):
            self._deliveries.note_done(self)

    async def close(self) -> None:
        """Unsubscribe. Events that have arrived can still be taken."""
        self._deliveries.end_subscription(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def _ask_for_more(self) -> None:
        """Acknowledge the events in hand, unless the application does so by hand."""
        if not self._is_manual and self._backlog.finish():
            self._deliveries.note_done(self)

    def _put(self, events: Iterable[Event]) -> None:
        self._backlog.put(events)
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _end(self) -> None:
        self._is_over = True
        self._wake()
        for waiter in self._confirming:
            if not waiter.done():
                waiter.set_exception(self._deliveries.reason(self))


class Advertisement:
    """Announces what the application will publish, until `close()`."""

    def __init__(self, driver: "ClientDriver", name: str, where: Filter) -> None:
        self.name = name
        self.where = where
        self._driver = driver

    def __repr__(self) -> str:
        return f"<Advertisement {short(self.name)!r} of {self._driver.name!r}: {short(self.where)}>"

    async def close(self) -> None:
        """Withdraw the advertisement."""
        self._driver.give(Unadvertise(advertisement=self.name))


class SubscriptionLike(Protocol):
    """A subscription of a client for asyncio or for threads."""

    @property
    def name(self) -> str: ...
    @property
    def where(self) -> Filter: ...
    @property
    def waiting(self) -> int: ...


def told(subscription: SubscriptionLike, client: str, *, is_over: bool) -> str:
    """A subscription as `repr` shows it."""
    state = "closed, " if is_over else ""
    return (
        f"<Subscription {short(subscription.name)!r} of {client!r}: {short(subscription.where)}, "
        f"{state}{subscription.waiting} waiting>"
    )


def short(text: str | Filter) -> str:
    """A text as `repr` shows it, which may be a very long filter."""
    text = str(text)
    return text if len(text) <= 80 else f"{text[:79]}…"
