"""What an application calls: `connect`, and the client that it returns."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload
from uuid import uuid4

from sterna.core.facts import Fact
from sterna.core.inputs import Advertise, Input, Leave, MoveTo, SetVariable, Subscribe
from sterna.core.replication.options import Filtering, MergingOptions
from sterna.core.terms.messages import Terms
from sterna.errors import NotConnectedError, SternaError
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.net import clock
from sterna.net.address import Address
from sterna.net.client.checking import (
    Beginning,
    PastBounds,
    checked_filter,
    checked_merging,
    checked_past,
    checked_terms,
)
from sterna.net.client.connections import Change, Changes, Connections
from sterna.net.client.deliveries import Deliveries, call
from sterna.net.client.driver import ClientDriver
from sterna.net.client.handles import Acknowledge, Advertisement, Receipt, Subscription
from sterna.net.client.keeper import Keeper
from sterna.net.client.life import Life
from sterna.net.client.publications import Publications, checked_event
from sterna.net.client.transport import Tcp, Transport
from sterna.net.client.travel import Travel
from sterna.net.client.waiting import renamed, time_limit

if TYPE_CHECKING:
    from sterna.net.client.watching import WatchingClient

log = logging.getLogger("sterna.client")

HOLD_S = MergingOptions().hold_us / 1e6
"""For how long a client that several brokers serve holds events back at most."""

CONNECT_S = 10.0
"""How long connecting may take, unless the application sets a timeout."""

CLOSE_S = 5.0
"""How long closing may take, unless the application sets a timeout."""


@overload
def connect(
    *urls: str,
    client: str | None = None,
    state: str | Path | None = None,
    journal: str | Path | None = None,
    timeout: float | None = CONNECT_S,
    facts: Callable[[Fact], None] | None = None,
    transport: Transport | None = None,
    connect_s: float | None = None,
    watch: None = None,
) -> "Client": ...
@overload
def connect(
    *urls: str,
    client: str | None = None,
    journal: str | Path | None = None,
    timeout: float | None = CONNECT_S,
    transport: Transport | None = None,
    watch: int,
    filtering: str = Filtering.HOLDING,
    hold_s: float = HOLD_S,
) -> "WatchingClient": ...
def connect(
    *urls: str,
    client: str | None = None,
    state: str | Path | None = None,
    journal: str | Path | None = None,
    timeout: float | None = CONNECT_S,
    facts: Callable[[Fact], None] | None = None,
    transport: Transport | None = None,
    connect_s: float | None = None,
    watch: int | None = None,
    filtering: str = Filtering.HOLDING,
    hold_s: float = HOLD_S,
) -> "Client | WatchingClient":
    """Make a client of a broker network. Enter it with `async with`, or await it and close it.

    `urls` are brokers, such as `sterna://127.0.0.1:7461`. The client connects to the first that
    answers, and to another one when that one is gone. NotConnectedError if none has answered after
    `timeout` seconds. `client` is its name, unique in the network; the default is a random one. A
    client with a `state` directory continues after a restart where it was. Without one, closing is
    final: the network keeps nothing for it. `journal` is a directory for the facts at this client,
    which the data pipeline reads; `facts` is called with each of them. `transport` opens the
    connections; the default is plain TCP. `connect_s` is the old name of `timeout`.

    With `watch=2`, two of these brokers serve the client at once: the first that answers, and the
    one that depends on it least. When one of them is lost, another takes its place, and nothing is
    missed. `filtering` says what is
    done about duplicates and the order (`none`, `duplicates`, `order`, `holding`), and `hold_s` for
    how long events are held back at most. Such a client has no `state` and `facts`.
    """
    if watch is not None:
        if not (state is None and facts is None):
            raise ValueError("with watch, a client has no state and no facts")
        from sterna.net.client.watching import WatchingClient  # noqa: PLC0415 - it is made of these.

        return WatchingClient(
            urls,
            brokers=watch,
            options=checked_merging(filtering, hold_s),
            client=client,
            journal=journal,
            timeout=renamed("connect_s", connect_s, timeout),
            transport=transport,
        )
    if (filtering, hold_s) != (Filtering.HOLDING, HOLD_S):
        raise ValueError("filtering and hold_s are for clients of several brokers; add watch=2")
    return Client(
        urls,
        client=client,
        state=state,
        journal=journal,
        timeout=renamed("connect_s", connect_s, timeout),
        facts=facts,
        transport=transport,
    )


class Client:
    """A client of a broker network. `connect` makes it."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        client: str | None = None,
        state: str | Path | None = None,
        journal: str | Path | None = None,
        timeout: float | None = CONNECT_S,
        facts: Callable[[Fact], None] | None = None,
        transport: Transport | None = None,
    ) -> None:
        """The arguments are those of `connect`."""
        if not urls:
            raise ValueError("connect needs the address of at least one broker")
        self.name = client or f"client-{uuid4().hex[:12]}"
        self._addresses = [Address.from_url(url) for url in urls]
        self._state = None if state is None else Path(state)
        self._timeout = timeout
        self._life = life = Life(self.name)
        self._changes = Changes(life)
        self._driver = ClientDriver(
            life, journal=None if journal is None else Path(journal), tell=facts
        )
        self._keeper = Keeper(life, self._driver, transport or Tcp(), self._changes)
        self._deliveries = Deliveries(life, self._driver, self._keeper)
        self._publications = Publications(life, self._driver, self._keeper)
        self._travel = Travel(life, self._keeper)
        self._driver.serve(self._keeper, self._deliveries, self._publications)
        for part in (self._keeper, self._changes, self._deliveries):
            life.at_end(part.end)
        life.at_end(self._publications.node_changed)
        life.at_end(self._travel.stop)

    def __repr__(self) -> str:
        return f"<Client {self.name!r}, {self._keeper.told(self._changes.now)}>"

    # ---- Opening and closing

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._start().__await__()
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_details: object) -> None:
        if error is None:
            self._deliveries.closing()
        await self._close(CLOSE_S)

    async def _start(self) -> None:
        self._life.check()  # Nobody would close the state of a client that is closed.
        try:
            self._driver.open(self._state)
            self._keeper.broker = self._keeper.welcomed_by = self._driver.link
            await self._travel.arrive(self._addresses, self._timeout, goes_on=False)
        except BaseException:  # Nobody will close it.
            await self._close(0)
            raise

    async def close(
        self,
        *,
        timeout: float | None = CLOSE_S,
        wait_s: float | None = None,
    ) -> None:
        """Send what is left to send, and end. Without a `state`, the network forgets the client.

        After `timeout` seconds, it ends in any case; so it does if this call is cancelled. With a
        `state`, this acknowledges the events that the application has taken, unless it acknowledges
        by hand. To have the last one delivered again, leave the `async with` with an error.
        `wait_s` is the old name of `timeout`.
        """
        timeout = renamed("wait_s", wait_s, timeout)
        self._deliveries.closing()
        await self._close(timeout)

    async def _close(self, timeout: float | None) -> None:
        life = self._life
        try:
            if not life.is_closed:
                self._publications.flush()
                life.is_closing = True
                self._keeper.resume()  # Acknowledgements arrive behind the events that wait.
                async with asyncio.timeout(timeout):
                    if life.failure is None and (self._keeper.is_welcome or self._has_to_find):
                        await self._send_the_rest()
        except (TimeoutError, SternaError):
            log.warning("%s closes before its broker has acknowledged everything", self.name)
        finally:
            life.close()
            await self._driver.stop()

    @property
    def _has_to_find(self) -> bool:
        """Whether it looks for a broker for what it has published, and finds one if there is."""
        driver = self._driver
        return self._keeper.is_listening and driver.node.accepted < driver.node.published

    async def _leave_when_back(self) -> None:
        """End now, and have the network forget the client as soon as its broker answers again."""
        is_heard = False
        try:
            if self.is_connected or self.is_on_its_way:
                self._driver.give(Leave())
                await self._keeper.welcome()
                is_heard = True
        except SternaError:
            log.debug("%s has failed before its broker was back", self.name)
        finally:
            await self._close(CLOSE_S if is_heard else 0)

    async def _send_the_rest(self) -> None:
        node = self._driver.node
        await self._publications.accepted(node.published)
        if self._state is None:
            self._driver.give(Leave())
        self._keeper.flush()
        while self._keeper.connection is not None and not node.is_settled:
            await asyncio.sleep(0.001)

    # ---- State

    @property
    def broker(self) -> str | None:
        """The broker that the client is connected to, or was connected to last."""
        return self._keeper.broker

    @property
    def missed(self) -> int:
        """How many events brokers discarded, by their limits, before they could be delivered.

        Among devices alone also those that came too late to be put into order.
        """
        return self._deliveries.missed

    @property
    def is_connected(self) -> bool:
        """Whether its broker accepts and delivers events now."""
        return self._keeper.is_welcome

    @property
    def is_on_its_way(self) -> bool:
        """Whether the client is trying to connect."""
        return self._keeper.is_looking

    @property
    def inputs(self) -> int:
        """How many inputs the client has had so far, from its application and from brokers."""
        return self._driver.inputs

    @property
    def inputs_idle(self) -> int:
        """How many of them were heartbeats, or time that passed, and changed nothing."""
        return self._driver.idle_inputs

    @property
    def is_settled(self) -> bool:
        """Whether nothing that the client knows of is in flight."""
        return self._driver.is_settled and self._publications.is_settled

    @property
    def published(self) -> int:
        """The sequence number of the last published event; with a `state`, across restarts."""
        return self._publications.last

    @property
    def event_bytes_max(self) -> int:
        """The size of the largest event that the broker accepts, or the last broker accepted."""
        return self._publications.event_bytes_max

    # ---- What an application does

    def publish(
        self,
        /,
        attributes: Mapping[str, object] | None = None,
        payload: bytes = b"",
        **more: object,
    ) -> Receipt:
        """Publish an event, with attributes from a mapping or as keywords.

        A mapping takes attributes of any name, such as `{"from": 1, "payload": 2}`.
        `await client.publish(price=3)` waits until a broker has accepted the event. Without
        `await`, it is sent as well, in one batch with others; `await client.drain()` waits for all.
        """
        return self._publications.publish(*checked_event(attributes, payload, more))

    async def publish_all(
        self,
        events: Iterable[Mapping[str, object] | tuple[Mapping[str, object], bytes]],
        *,
        window: int = 20_000,
        timeout: float | None = None,
    ) -> int:
        """Publish many events, wait until a broker has accepted all, and return how many they were.

        Each is a mapping of attributes, or a pair of attributes and payload. They are sent as fast
        as the network takes them, with at most `window` in flight. TimedOutError after `timeout`
        seconds.
        """
        async with time_limit(timeout, self._publications.unaccepted("all events")):
            return await self._publications.publish_all(events, window)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until a broker has accepted all events; TimedOutError after `timeout` seconds.

        DiscardedError if the client discarded some of them since the last call.
        """
        async with time_limit(timeout, self._publications.unaccepted("all events")):
            await self._publications.drain()

    def subscribe(
        self,
        where: str | Filter,
        *,
        past: PastBounds | None = None,
        name: str | None = None,
        callback: Callable[[Event], Awaitable[None] | None] | None = None,
        acknowledge: Acknowledge = "auto",
        order: str = "strict",
        keep: str | None = None,
    ) -> Subscription:
        """Subscribe to all events that match a filter.

        With `past`, it begins with past events that brokers still have: the last ones, as many as
        this, or those of a period (`'5m'` or a `timedelta`), or both: `(10, '5m')` are the last
        ten, but none that is older than five minutes. A `callback` is called with each
        event, instead of iterating. The `name` matters to a client with a `state`: after a restart,
        the subscription of the same name continues with the first event that is not acknowledged.
        Asking for the next event acknowledges an event; with `acknowledge="manual"`,
        `subscription.acknowledge(event)` does.

        With `order="available"`, new events come at once while what the client has missed is still
        at a broker that cannot be reached; older ones of the same publishers follow when it can.

        What waits while the client is away is all kept, within the limits of brokers. With `keep`,
        it is less: `"ttl(30s)"` keeps events for so long, `"last_per(sensor)"` the last one of each
        value, `"max(price)"` and `"min(price * 2)"` the one with the greatest or least value, and
        `"ring(100)"` the last hundred. What is left out so does not count as missed.
        """
        subscription = open_subscription(
            self,
            checked_filter(where),
            checked_past(past),
            name,
            acknowledge,
            checked_terms(order=order, keep=keep),
        )
        if callback is not None:
            subscription._task = asyncio.create_task(call(subscription, callback))
        return subscription

    def advertise(self, where: str | Filter, *, name: str | None = None) -> Advertisement:
        """Announce what this client will publish, in networks that route by advertisements."""
        filter_ = where if isinstance(where, Filter) else Filter(where)
        advertisement = Advertisement(self._driver, name or str(filter_), filter_)
        self._publications.flush()
        self._give(Advertise(advertisement=advertisement.name, filter=filter_))
        return advertisement

    def move(self, location: str) -> None:
        """Set the location of the client; subscriptions with `myloc` follow it."""
        self._give(MoveTo(location=location))

    def set(
        self, name: str, value: Scalar, *, low: Scalar | None = None, high: Scalar | None = None
    ) -> None:
        """Set a variable; subscriptions with `$name` follow it.

        Brokers learn only the range from `low` to `high`, and nothing of changes within it.
        """
        self._give(SetVariable(name=name, value=value, low=low, high=high))

    def _give(self, given: Input) -> None:
        self._life.check()
        self._driver.give(given)

    # ---- The connection

    async def attach(self, url: str | None = None, *, timeout: float | None = None) -> None:
        """Connect or reconnect, to a given broker or to any of the list; wait until that is done.

        NotConnectedError if the given broker does not answer and the client is at another one of
        its list now (`instead`), or if none has answered after `timeout` seconds; the client keeps
        trying in the background then. The default is the timeout of `connect`.
        """
        self._life.check()
        wanted = None if url is None else Address.from_url(url)
        if wanted is not None and self._driver.seeks:
            raise SternaError(
                f"{self.name} looks for a broker by itself, as all clients among devices alone: "
                "attach it without an address"
            )
        first = [] if wanted is None else [wanted]
        addresses = [*first, *(each for each in self._addresses if each not in first)]
        self._send_pending()
        limit_s = self._timeout if timeout is None else timeout
        await self._travel.arrive(addresses, limit_s, wanted=wanted)

    async def _go_to(self, urls: Sequence[str], limit_s: float | None) -> None:
        """Have these addresses instead of those of `connect`, and be at one of them."""
        self._addresses = [Address.from_url(url) for url in urls]
        if self.is_connected and self._keeper.address in self._addresses:
            return
        try:
            await self.attach(urls[0], timeout=limit_s)
        except NotConnectedError as error:
            if error.instead is None:
                raise

    async def detach(self, *, timeout: float | None = None) -> None:
        """Disconnect. The network keeps events for the client meanwhile.

        TimedOutError if the connection has not ended after `timeout` seconds; it still will.
        """
        self._send_pending()
        self._travel.stop()
        async with time_limit(timeout, "the connection has not ended"):
            await self._keeper.let_go()

    def _send_pending(self) -> None:
        self._publications.flush()
        self._keeper.flush()

    def connections(self) -> Connections:
        """Return an iterator over changes of the connection: `Connected`, `Lost` and `Moved`.

        It begins with `Connected`, if the client is connected now.
        """
        return self._changes.add_reader()

    def on_connection(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call a function with each `Connected`, `Lost` and `Moved`, in the event loop.

        It begins with `Connected`, if the client is connected now. The returned function ends it.
        """
        return self._changes.add_callback(callback)


def open_subscription(
    client: Client,
    filter_: Filter,
    past: Beginning | None,
    name: str | None,
    acknowledge: Acknowledge,
    terms: Terms,
) -> Subscription:
    """Make a subscription of a client, or find the one that it goes on with after a restart."""
    if acknowledge not in {"auto", "manual"}:
        raise ValueError(f"acknowledge is 'auto' or 'manual', not {acknowledge!r}")
    name = name or str(filter_)
    subscription = client._deliveries.resumed(name, filter_)
    if subscription is None:
        events_max, period = past or Beginning()
        since_us = None
        if period is not None:
            since_us = max(0, clock.wall_us() - period // timedelta(microseconds=1))
        client._publications.flush()
        subscription = client._deliveries.subscribe(
            Subscribe(
                subscription=name,
                filter=filter_,
                past_events_max=events_max,
                past_since_us=since_us,
                terms=terms,
            )
        )
    subscription._is_manual = acknowledge == "manual"
    return subscription
