"""The client library: publish and subscribe from an asyncio program, wherever it moves.

    async with sterna.connect("sterna://127.0.0.1:7461", client="car-7") as client:
        async for event in client.subscribe("service = 'parking' AND price < 3", past=10):
            ...

The client reconnects by itself, to the same broker or another one of its list, and keeps its
subscriptions. Events come once, and those of each publisher in their order. With a `state`
directory that holds across restarts of the process, too.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import time_ns
from typing import Any, Self
from uuid import uuid4

from sterna.core import facts
from sterna.core.actions import Action, Deliver, Transmit
from sterna.core.assembly import make_client
from sterna.core.client import Client as Node
from sterna.core.facts import Fact
from sterna.core.inputs import (
    Advertise,
    Attach,
    Detach,
    Input,
    Leave,
    LinkDown,
    LinkUp,
    MoveTo,
    PublishMany,
    Received,
    SetVariable,
    Subscribe,
    Unsubscribe,
)
from sterna.core.names import LocalProtocolError, Peer
from sterna.core.settings import Settings
from sterna.core.sizes import BATCH_BYTES_MAX
from sterna.journal import Journal, JournalFailedError
from sterna.model.event import Event, EventId, Scalar, plain_attributes
from sterna.model.filters import Filter
from sterna.net.address import Address
from sterna.net.config import Durability
from sterna.net.connection import Connection
from sterna.net.dialing import waits
from sterna.net.engine import Driver, Engine, recover
from sterna.net.errors import ClosedError, DiscardedError, NotConnectedError, SternaError
from sterna.net.handles import Advertisement, Discarded, Receipt, Subscription
from sterna.net.nodes import AT_A_CLIENT, first_seq, next_incarnation
from sterna.net.records import Began
from sterna.net.state import decode_memory, encode_memory
from sterna.net.storage import Log, Recovery
from sterna.wire.codec import Bodies, MalformedError, decode, encode
from sterna.wire.frames import (
    FEATURES,
    VERSION,
    Control,
    Hello,
    Ping,
    Pong,
    Refusal,
    Role,
    agree,
)

log = logging.getLogger("sterna.client")

FRAME_BYTES_MAX = 2**30
"""A client believes its broker: what was kept for it may come in one frame."""

STATE_KIND = "client state 2"
"""What snapshots of a client hold: a `State`."""

OLDER_KINDS = ("client state 1",)
"""What older releases wrote, and is read still."""

QUEUE_EVENTS_MAX = 10_000
"""With more events waiting for the application, the client reads no more until they are taken."""

PENDING_EVENTS_MAX = 1_000
"""So many events at most go into one input."""

DIAL_S = 5.0
"""How long a connection may take to stand."""

HEARTBEAT_S = 5.0
"""After so long without a word from the broker, it is asked for one …"""

SILENCES_MAX = 3
"""… so often, before it is given up."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Events for the application, and the subscriptions that there were when they came."""

    action: Deliver
    subscriptions: dict[str, Subscription]


def connect(
    *urls: str,
    client: str | None = None,
    state: str | Path | None = None,
    journal: str | Path | None = None,
    connect_s: float = 10.0,
    facts: Callable[[Fact], None] | None = None,
) -> "Client":
    """A client of a broker network, to be entered with `async with` (or awaited, then closed).

    `urls` are brokers, such as `sterna://127.0.0.1:7461`; the client connects to the first that
    answers, and to another when that one is gone. `client` is its name, unique in the network, made
    up if none is given. A client with a `state` directory goes on after a restart where it was;
    without one, closing it means goodbye: nothing is kept for it. `journal` is a directory for what
    happens at this client, which the data pipeline reads; `facts` is called with each of these.
    """
    return Client(
        urls, client=client, state=state, journal=journal, connect_s=connect_s, facts=facts
    )


class Client(Driver):
    """A client at work; made by `connect`."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        client: str | None,
        state: str | Path | None,
        journal: str | Path | None,
        connect_s: float,
        facts: Callable[[Fact], None] | None,
    ) -> None:
        if not urls:
            raise ValueError("connect needs the address of at least one broker")
        self.name = client or f"client-{uuid4().hex[:12]}"
        self.broker: str | None = None
        """The broker it is connected to, or was last."""
        self.missed = 0
        """How many events were discarded before they could be delivered (limits of brokers)."""
        self._addresses = [Address.from_url(url) for url in urls]
        self._state = None if state is None else Path(state)
        self._journal_directory = None if journal is None else Path(journal)
        self._connect_s = connect_s
        self._tell = facts
        self._engine: Engine[Node] | None = None
        self._log: Log | None = None
        self._journal: Journal | None = None
        self._bodies = Bodies()
        self._connection: Connection | None = None
        self._frame_bytes_max = 2**20
        self._subscriptions: dict[str, Subscription] = {}
        self._pending: list[tuple[Mapping[str, Scalar], bytes]] = []
        self._pending_bytes = 0
        self._told_bytes = 0
        """About how much a new broker has to be told."""
        self._receipts: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._resumable: dict[str, Subscription] = {}
        """Subscriptions of before a restart that the application has not asked for yet."""
        self._recovery: Recovery | None = None
        self._recovering: Node
        self._discarded = Discarded()
        self._silences = 0
        """How often in a row the broker said nothing."""
        self._is_flushing = False
        self._is_dirty = False
        self._is_paused = False
        self._welcome = asyncio.Event()
        self._changed = asyncio.Event()
        self._failure: SternaError | None = None
        self._is_closing = False
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop

    # ---- Life

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._start().__await__()
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_details: object) -> None:
        if error is None:
            self._done()
        await self._close(5.0)

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._journal_directory is not None:
            self._journal = Journal(self._journal_directory, self.name)
        try:
            if self._state is not None:
                self._open_state(self._state)
            await self.attach()
        except BaseException:  # Nobody will close it.
            await self._close(0)
            raise

    async def close(self, *, wait_s: float = 5.0) -> None:
        """Say what is left to say, and end. Without a `state`, the network forgets the client.

        With one, the application is done with the events it has; leave the `async with` by an error
        if it is not, and the last one comes again.
        """
        self._done()
        await self._close(wait_s)

    def _done(self) -> None:
        for subscription in self._subscriptions.values():
            subscription._done()

    async def _close(self, wait_s: float) -> None:
        if self._is_closed:
            return
        self._flush_pending()
        self._is_closing = True
        if self._is_paused and self._connection is not None:
            self._connection.resume_reading()  # Confirmations come behind the events that wait.
        try:
            async with asyncio.timeout(wait_s):
                if self._engine is not None and self._welcome.is_set() and self._failure is None:
                    await self._accepted(self._node.published)
                    if self._state is None:
                        self._give(Leave())
                    self._flush()
                    await self._confirmed()
        except (TimeoutError, SternaError):
            log.warning("%s closes before its broker has confirmed everything", self.name)
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.close()
        if self._engine is not None:
            await self._engine.stop(snapshot=self._failure is None)
        elif self._log is not None:
            self._log.close()
        if self._journal is not None:
            self._journal.close()
        for subscription in self._subscriptions.values():
            subscription._end()
        self._wake_receipts()

    # ---- What an application does

    @property
    def is_connected(self) -> bool:
        """Whether its broker takes and gives events just now."""
        return self._welcome.is_set()

    @property
    def is_on_its_way(self) -> bool:
        """Whether it wants to be connected, and is not."""
        return self._task is not None and not self.is_connected

    @property
    def inputs(self) -> int:
        """How much it was told so far, by its application and by brokers."""
        return 0 if self._engine is None else self._engine.inputs

    @property
    def is_settled(self) -> bool:
        """Whether nothing it knows of is on its way just now."""
        return self._engine is None or (
            self._engine.node.is_settled and not self._pending and not self._engine.held
        )

    @property
    def published(self) -> int:
        """The number of the last event that was published; with a `state`, by any process."""
        return self._node.published + len(self._pending)

    @property
    def event_bytes_max(self) -> int:
        """How large an event may be for the broker it is connected to, or was last."""
        return self._frame_bytes_max - 1024

    def publish(
        self, attributes: Mapping[str, object] | None = None, payload: bytes = b"", **more: object
    ) -> Receipt:
        """Publish an event, with attributes from a mapping or as keywords.

        `await client.publish(price=3)` waits until a broker has it for good. Without `await` it is
        on its way as well, and many of them go together; `await client.drain()` waits for all.
        """
        plain = plain_attributes({**(attributes or {}), **more})
        if type(payload) is not bytes:
            raise TypeError(f"the payload is bytes, not {type(payload).__name__}")
        size = len(payload) + sum(
            _length(name) + (_length(value) if type(value) is str else 9)
            for name, value in plain.items()
        )
        if size > self.event_bytes_max:
            raise ValueError(
                f"the event has about {size:,} bytes, and the broker takes "
                f"{self._frame_bytes_max:,} (frame_bytes_max); send large things another way"
            )
        node = self._node
        if node.options.advertisements:
            self._flush_pending()
            self._give(PublishMany(events=((plain, payload),)))
            return Receipt(self, EventId(self.name, node.published))
        self._pending.append((plain, payload))
        self._pending_bytes += size
        receipt = Receipt(self, EventId(self.name, node.published + len(self._pending)))
        if len(self._pending) >= PENDING_EVENTS_MAX or self._pending_bytes >= BATCH_BYTES_MAX:
            self._flush_pending()
        else:
            self._flush_soon()
        return receipt

    async def publish_all(
        self,
        events: Iterable[Mapping[str, object] | tuple[Mapping[str, object], bytes]],
        *,
        window: int = 20_000,
    ) -> int:
        """Publish many events, attributes or pairs of attributes and payload; how many they were.

        As fast as the network takes them, with at most `window` on their way, and all of them with
        a broker in the end.
        """
        count = 0
        # While there is no connection, no more can wait than the client keeps.
        window = max(0, min(window, self._node.options.buffer_events_max - PENDING_EVENTS_MAX))
        for each in events:
            attributes, payload = each if isinstance(each, tuple) else (each, b"")
            receipt = self.publish(attributes, payload)
            count += 1
            if count % PENDING_EVENTS_MAX == 0:
                await asyncio.sleep(0)
                await self._accepted(receipt.id.seq - window)
        await self.drain()
        return count

    async def drain(self) -> None:
        """Wait until a broker has all that was published.

        DiscardedError if some of it was given up since this was called last.
        """
        self._flush_pending()
        await self._accepted(self._node.published)
        if self._discarded.is_news():
            raise self._given_up()

    def subscribe(
        self,
        where: str | Filter,
        *,
        past: int | timedelta | None = None,
        name: str | None = None,
        callback: Callable[[Event], Awaitable[None] | None] | None = None,
    ) -> Subscription:
        """Subscribe to all events that match a filter.

        `past` begins with what the broker still has of before: the last so many events, or
        those of some time (a `timedelta`). With a `callback`, that is called with each
        event instead of iterating. The `name` matters to a client with a `state`: after a restart,
        the subscription of the same name goes on.
        """
        filter_ = where if isinstance(where, Filter) else Filter(where)
        name = name or str(filter_)
        known = self._resumable.pop(name, None)
        if known is not None and known.where != filter_:
            self._end_subscription(known)  # It means something else now.
            known = None
        if known is not None:
            subscription = known
        else:
            if name in self._node.subscriptions:
                raise LocalProtocolError(
                    f"{self.name} has a subscription {name!r} already; close it first, or give "
                    "this one a name of its own"
                )
            self._check_room(name, filter_)
            subscription = Subscription(self, name, filter_)
            self._flush_pending()
            self._subscriptions[name] = subscription
            self._subscribe(
                Subscribe(
                    subscription=name,
                    filter=filter_,
                    past_events_max=past if isinstance(past, int) else None,
                    past_since_us=time_ns() // 1000 - past // timedelta(microseconds=1)
                    if isinstance(past, timedelta)
                    else None,
                )
            )
        if callback is not None:
            subscription._task = asyncio.create_task(_call(subscription, callback))
        return subscription

    def advertise(self, where: str | Filter, *, name: str | None = None) -> Advertisement:
        """Say what this client is going to publish (networks that route by advertisements)."""
        filter_ = where if isinstance(where, Filter) else Filter(where)
        advertisement = Advertisement(self, name or str(filter_), filter_)
        self._flush_pending()
        self._give(Advertise(advertisement=advertisement.name, filter=filter_))
        return advertisement

    def move(self, location: str) -> None:
        """Say where the client is now: subscriptions with `myloc` follow it."""
        self._give(MoveTo(location=location))

    def set(
        self, name: str, value: Scalar, *, low: Scalar | None = None, high: Scalar | None = None
    ) -> None:
        """Give a variable a value: subscriptions with `$name` follow it.

        Brokers are told the range from `low` to `high` only, and nothing of changes within it.
        """
        self._give(SetVariable(name=name, value=value, low=low, high=high))

    async def attach(self, url: str | None = None) -> None:
        """Connect (again), to a certain broker or to any of the list; wait until that is done."""
        self._raise_failure()
        first = [] if url is None else [Address.from_url(url)]
        if url is not None:
            await self.detach()
        if self._task is None:
            others = [address for address in self._addresses if address not in first]
            self._task = asyncio.create_task(self._stay_connected([*first, *others]))
        try:
            async with asyncio.timeout(self._connect_s):
                await self._welcome_or_failure()
        except TimeoutError:
            tried = ", ".join(address.url for address in [*first, *self._addresses])
            await self._stop_connecting()
            raise NotConnectedError(
                f"no broker answers at {tried}; is one running (`sterna up`)?"
            ) from None

    async def detach(self) -> None:
        """Disconnect. The network keeps for the client what comes meanwhile."""
        self._flush_pending()
        self._flush()
        await self._stop_connecting()

    # ---- Connecting

    async def _stop_connecting(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        connection = self._connection
        if connection is not None:
            if self._engine is not None and self._node.link is not None:
                self._give(Detach())
            connection.close()
            while self._connection is connection:
                await self._change()

    async def _welcome_or_failure(self) -> None:
        while not self._welcome.is_set():
            self._raise_failure()
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _stay_connected(self, addresses: Sequence[Address]) -> None:
        waiting = waits()
        place = 0
        while self._failure is None:
            connection = await self._dial(addresses[place % len(addresses)])
            if connection is not None:
                was_welcome = False
                while self._connection is connection:
                    was_welcome = was_welcome or self._welcome.is_set()
                    await self._change_or_silence(connection)
                if was_welcome:
                    waiting = waits()
                    await asyncio.sleep(0)
                    continue  # At once, and first to where it was: its events are there.
            place += 1
            if place % len(addresses) == 0 or connection is not None:
                await asyncio.sleep(next(waiting))

    async def _change_or_silence(self, connection: Connection) -> None:
        """Wait for a change; hang up if the broker is silent for too long."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._change()
                return
        except TimeoutError:
            pass
        # A client that does not read hears nothing; but the broker has to know that it is there.
        if connection.heard or self._is_paused:
            self._silences = 0
        else:
            self._silences += 1
        if self._silences > SILENCES_MAX:
            log.warning("%s is silent; %s looks for it anew", self.broker, self.name)
            connection.abort()
        elif self._is_paused or not connection.heard:
            connection.say(Ping())
        connection.heard = False

    async def _dial(self, address: Address) -> Connection | None:
        try:
            async with asyncio.timeout(DIAL_S):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self, FRAME_BYTES_MAX), address.host, address.port
                )
        except OSError:  # A TimeoutError is one, too.
            return None
        if connection.is_over:
            return None
        self._connection = connection
        self._silences = 0
        self._is_paused = False
        connection.say(
            Hello(versions=(VERSION, VERSION), role=Role.CLIENT, node=self.name, features=FEATURES)
        )
        return connection

    def connected(self, connection: Connection) -> None:
        """A connection stands."""

    def control_arrived(self, connection: Connection, said: Control) -> None:
        match said:
            case Hello() if connection is self._connection:
                try:
                    agree(Hello(versions=(VERSION, VERSION), role=Role.CLIENT, node=""), said)
                    self._greeted(said)
                except (MalformedError, SternaError) as problem:
                    self._fail(SternaError(str(problem)))
            case Ping():
                connection.say(Pong())
            case Refusal() if said.final and connection is self._connection:
                self._fail(ClosedError(f"the broker refuses {self.name}: {said.reason}"))
            case Refusal():
                connection.close()
            case _:
                pass

    def _greeted(self, said: Hello) -> None:
        if said.settings is None:
            raise SternaError(f"{said.node} is no broker")
        self._frame_bytes_max = said.frame_bytes_max
        if self._engine is None:
            self._start_engine(said.settings)
        elif self._engine.began.settings != said.settings:
            raise SternaError(
                f"{said.node} belongs to a network with other settings than the one before; "
                "connect to brokers of one network"
            )
        self.broker = said.node
        if self._node.link != said.node:
            self._give(Attach(broker=said.node))
        self._give(LinkUp(link=said.node, peer=Peer.BROKER))

    def frames_arrived(
        self, connection: Connection, raw: bytes, bodies: Sequence[memoryview]
    ) -> None:
        if connection is self._connection and self.broker is not None:
            frames = tuple([decode(body) for body in bodies])
            self._give(Received(link=self.broker, frames=frames), raw)

    def malformed(self, connection: Connection, problem: MalformedError) -> None:
        log.warning("%s does not speak our language: %s", connection.address, problem)
        connection.abort()

    def lost(self, connection: Connection) -> None:
        if connection is self._connection:
            self._connection = None
            self._welcome.clear()
            if self._engine is not None and self.broker is not None:
                self._give(LinkDown(link=self.broker))
            self._changed.set()

    def congested(self, connection: Connection, *, is_full: bool) -> None:
        """The broker takes less than there is; what waits is bounded by the window."""

    # ---- The core

    @property
    def _node(self) -> Node:
        self._raise_failure()
        if self._engine is None:
            raise NotConnectedError(f"{self.name} has never been connected: enter it first")
        return self._engine.node

    def _new(self, settings: Settings) -> Began:
        return Began(
            node=self.name, incarnation=next_incarnation(), settings=settings, seq=first_seq()
        )

    def _give(self, given: Any, raw: bytes = b"") -> None:
        if self._engine is None or self._is_closed:
            return
        self._engine.give(given, raw)
        node = self._engine.node
        if node.is_welcome and not self._welcome.is_set():
            self._welcome.set()
            self._changed.set()
        if self._receipts:
            self._wake_receipts()

    def prepare(self, actions: Sequence[Action]) -> object:
        prepared: list[tuple[bytes, ...] | Delivery] = []
        for action in actions:
            if type(action) is Transmit:
                if action.link == self.broker:
                    prepared.append(encode(action.frame, self._bodies))
            elif isinstance(action, Deliver):
                now = self._subscriptions  # Not those who subscribe while it is held.
                prepared.append(Delivery(action, now if self._log is None else dict(now)))
        self._bodies.clear()
        return self._connection, prepared

    def release(self, prepared: object) -> None:
        connection, what = prepared  # type: ignore[misc]
        for each in what:  # type: ignore[has-type]
            if isinstance(each, Delivery):
                self._deliver(each.action, each.subscriptions)
            elif connection is not None:  # type: ignore[has-type]
                connection.put(each)  # type: ignore[has-type]
        if connection is not None:  # type: ignore[has-type]
            self._is_dirty = True
            self._flush_soon()
        if self._receipts:
            self._wake_receipts()

    def stated_before(self, position: int, facts: Sequence[Fact]) -> None:
        if self._journal is not None:
            try:
                self._journal.record(position, facts)
            except JournalFailedError as error:
                self.failed(error)

    def stated(self, position: int, stated: Sequence[Fact]) -> None:
        self.stated_before(position, stated)
        for fact in stated:
            if self._tell is not None:
                self._tell(fact)
            if isinstance(fact, facts.Missed):
                self.missed += len(fact.events)
                log.warning(
                    "%s missed %d events that brokers could not keep any longer",
                    *(self.name, len(fact.events)),
                )
            elif isinstance(fact, facts.Purged):
                for event in fact.events:
                    self._discarded.add(event.seq)

    def before_snapshot(self) -> bool:
        if self._journal is not None:
            try:
                self._journal.flush(sync=True)
            except JournalFailedError as error:
                self.failed(error)
                return False
        return True

    def stumbled(self, given: Input, error: Exception) -> None:
        log.error("%s stumbled over %s", self.name, type(given).__name__, exc_info=error)
        if isinstance(given, Received) and self._connection is not None:
            self._connection.abort()  # What else was said, is said again.

    def failed(self, error: Exception) -> None:
        self._fail(ClosedError(str(error)))

    def _fail(self, failure: SternaError) -> None:
        self._failure = failure
        self._welcome.clear()
        if self._connection is not None:
            self._connection.abort()
        for subscription in self._subscriptions.values():
            subscription._end()
        self._wake_receipts()
        self._changed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        if self._is_closed:
            raise ClosedError(f"{self.name} is closed")

    # ---- Going out

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self._flush_pending()
        if self._is_dirty and self._connection is not None:
            self._connection.flush()
        self._is_dirty = False

    def _flush_pending(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._pending_bytes = 0
            self._give(PublishMany(events=tuple(pending)))

    async def _accepted(self, seq: int) -> None:
        """Wait until a broker has the events up to a number."""
        if seq > self._accepted_now():
            self._raise_failure()
            future = self._loop.create_future()
            if self._receipts and self._receipts[-1][0] > seq:
                self._receipts = deque(sorted([*self._receipts, (seq, future)], key=lambda r: r[0]))
            else:
                self._receipts.append((seq, future))
            await future
        if seq in self._discarded:
            raise self._given_up()
        if seq > self._accepted_now():
            self._raise_failure()

    def _given_up(self) -> DiscardedError:
        return DiscardedError(
            "an event was given up: more than "
            f"{self._node.options.buffer_events_max:,} waited for a connection"
        )

    def _accepted_now(self) -> int:
        """The number of the last event that a broker has: it has said so, so there is no doubt."""
        return -1 if self._engine is None else self._engine.node.accepted

    def _wake_receipts(self) -> None:
        receipts = self._receipts
        if not receipts:
            return
        is_over = self._is_closed or self._failure is not None
        accepted = self._accepted_now()
        while receipts and (is_over or receipts[0][0] <= accepted):
            future = receipts.popleft()[1]
            if not future.done():
                future.set_result(None)

    async def _confirmed(self) -> None:
        """Wait until the broker has everything, or has hung up."""
        while self._connection is not None and not self._node.is_settled:
            await asyncio.sleep(0.001)

    # ---- Coming in

    def _deliver(self, action: Deliver, subscriptions: Mapping[str, Subscription]) -> None:
        names = action.subscriptions[0]
        if len(names) == 1 and all(each == names for each in action.subscriptions):
            subscription = subscriptions.get(names[0])
            if subscription is not None:
                subscription._put(action.events)
        else:
            for event, wanting in zip(action.events, action.subscriptions, strict=True):
                for name in wanting:
                    subscription = subscriptions.get(name)
                    if subscription is not None:
                        subscription._put((event,))
        is_much = any(each.waiting > QUEUE_EVENTS_MAX for each in subscriptions.values())
        if (
            is_much
            and not self._is_paused
            and not self._is_closing
            and self._connection is not None
        ):
            self._is_paused = True
            self._connection.pause_reading()

    def _note_done(self, subscription: Subscription) -> None:
        is_known = self._subscriptions.get(subscription.name) is subscription
        if self._log is not None and self._engine is not None and is_known:
            self._engine.note(f"{subscription._handed_over} {subscription.name}".encode())

    def _read_on(self) -> None:
        """Read what the broker has, if the application has taken enough."""
        if self._is_paused and all(
            each.waiting < QUEUE_EVENTS_MAX // 2 for each in self._subscriptions.values()
        ):
            self._is_paused = False
            if self._connection is not None:
                self._connection.resume_reading()

    def _check_room(self, name: str, filter_: Filter) -> None:
        """A new broker is told of all subscriptions in one frame."""
        size = self._told_bytes + _told_size(name, filter_)
        if size > self._frame_bytes_max - 1024:
            raise ValueError(
                f"all subscriptions of {self.name} together have about {size:,} bytes, and a "
                f"broker takes {self._frame_bytes_max:,} (frame_bytes_max); subscribe to less, or "
                "share them among several clients"
            )

    def _subscribe(self, given: Subscribe) -> None:
        try:
            self._give(given)
        except LocalProtocolError:
            del self._subscriptions[given.subscription]
            raise
        self._told_bytes += _told_size(given.subscription, given.filter)

    def _end_subscription(self, subscription: Subscription) -> None:
        if subscription._is_over:
            return
        subscription._end()
        if self._subscriptions.get(subscription.name) is subscription:
            del self._subscriptions[subscription.name]
            self._told_bytes -= _told_size(subscription.name, subscription.where)
        self._read_on()  # It may have been the one that had too much.
        if self._failure is None and not self._is_closed:
            self._give(Unsubscribe(subscription=subscription.name))

    # ---- Remembering

    def _open_state(self, directory: Path) -> None:
        """Go on where the last process was, if there was one."""
        self._log, recovery = Log.open(directory, kind=STATE_KIND, older=OLDER_KINDS)
        self._recovery = recovery
        nothing = recovery.state is None and not recovery.report.records
        if not nothing:
            self._start_engine(None)

    def _start_engine(self, settings: Settings | None) -> None:
        new = self._new(settings or Settings())
        if self._log is None or self._recovery is None:
            self._engine = Engine(_make(new), self, new)
            return
        found = recover(self._log, self._recovery, new, _make)
        if found.began.node != self.name:
            self._log.close()
            raise SternaError(
                f"the state in {self._state} is of {found.began.node!r}, not of {self.name!r}; "
                "give each client a state of its own"
            )
        self._engine = Engine(found.node, self, found.began, level=Durability.BATCH, log=self._log)
        self._recovering = found.node
        self._engine.recover(found)
        for name, filter_ in self._engine.node.subscriptions.items():
            self._resumable[name] = self._remembered(name, filter_)
            self._told_bytes += _told_size(name, filter_)

    def _remembered(self, name: str, filter_: Filter) -> Subscription:
        """A subscription of before the restart, with what the application has not taken yet."""
        subscription = self._subscriptions.get(name)
        if subscription is None:
            subscription = self._subscriptions[name] = Subscription(self, name, filter_)
        return subscription

    def done_before(self, given: Input, actions: Sequence[Action]) -> None:
        if isinstance(given, Unsubscribe):
            self._subscriptions.pop(given.subscription, None)
        for action in actions:
            if isinstance(action, Deliver):
                for names in action.subscriptions:
                    for name in names:
                        self._remembered(name, self._recovering.subscriptions[name])
                self._deliver(action, self._subscriptions)

    def noted(self, note: bytes) -> None:
        """The application had taken so many events of a subscription."""
        count, _, name = note.decode().partition(" ")
        subscription = self._subscriptions.get(name)
        while subscription is not None and subscription._handed_over < int(count):
            subscription._waiting.popleft()
            subscription._handed_over += 1

    def memory(self) -> bytes:
        return encode_memory(
            (name, each.where, each._handed_over, [*each._in_hand, *each._waiting])
            for name, each in self._subscriptions.items()
        )

    def remember(self, memory: bytes) -> None:
        for kept in decode_memory(memory):
            subscription = self._remembered(kept.name, kept.where)
            subscription._handed_over = kept.handed_over
            subscription._waiting.extend(kept.waiting)


def _told_size(name: str, filter_: Filter) -> int:
    """About how many bytes a broker is told of a subscription."""
    return 2 * _length(name) + _length(str(filter_)) + 32


def _length(text: str) -> int:
    """How many bytes a text has on its way."""
    return len(text) if text.isascii() else len(text.encode())


def _make(began: Began) -> Node:
    return make_client(
        began.node,
        began.settings,
        timing=AT_A_CLIENT,
        incarnation=began.incarnation,
        seq=began.seq,
    )


async def _call(
    subscription: Subscription, callback: Callable[[Event], Awaitable[None] | None]
) -> None:
    try:
        async for event in subscription:
            try:
                result = callback(event)
                if result is not None:
                    await result
            except Exception:
                log.exception("the callback of subscription %r failed", subscription.name)
    except SternaError as error:
        log.warning("subscription %r ends: %s", subscription.name, error)
