"""Runs the core's client: the only part of the client library that knows engines and logs.

The core's actions go to the parts that carry them out: frames and connections to the keeper, events
to the deliveries. Inputs from the application and from brokers come in through `give`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sterna import plugins
from sterna.core import facts
from sterna.core.actions import (
    Action,
    Broadcast,
    Connect,
    Deliver,
    Disconnect,
    Reconnect,
    Transmit,
)
from sterna.core.adhoc.options import NAME as AD_HOC
from sterna.core.adhoc.seeking import Seeking
from sterna.core.assembly import make_client
from sterna.core.client import Client as Node
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.facts import Fact
from sterna.core.inputs import Configured, Input, LinkUp, Received, Unsubscribe
from sterna.core.lives import NOTHING_KNOWN, Earlier
from sterna.core.mobile.ordering import NAME as ORDERING
from sterna.core.mobile.ordering import Ordering
from sterna.core.names import LinkId
from sterna.core.node import Turn
from sterna.core.settings import Settings
from sterna.errors import ClosedError, NotConnectedError, SternaError
from sterna.model.event import Event
from sterna.net.client.checking import check_sendable
from sterna.net.client.life import Life
from sterna.net.client.record import STARTED, Record
from sterna.net.config import Durability
from sterna.net.connection import Connection
from sterna.net.engine import Driver, Engine, loading, recover, without_message
from sterna.net.nodes import AT_A_CLIENT, new_client
from sterna.net.records import Began
from sterna.net.state import decode_memory, encode_memory
from sterna.net.storage import Log, Recovery
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import digest, live_settings

if TYPE_CHECKING:
    from sterna.net.client.deliveries import Deliveries
    from sterna.net.client.handles import Subscription
    from sterna.net.client.keeper import Keeper
    from sterna.net.client.publications import Publications

log = logging.getLogger("sterna.client")

STATE_KIND = "client state 2"
"""What snapshots of a client hold: a `State`."""

OLDER_KINDS = ("client state 1",)
"""The kinds that older releases wrote, which can still be read."""


class Delivery(NamedTuple):
    """Events for the application, and the subscriptions at the time of their arrival."""

    action: Deliver
    subscriptions: "dict[str, Subscription]"


class Prepared(NamedTuple):
    """The actions of the core in one turn, and the connection at that time."""

    connection: Connection | None
    steps: Sequence[tuple[bytes, ...] | Delivery | Connect | Disconnect | Reconnect]
    """The actions in order; a tuple of bytes is a frame to send."""


class ClientDriver(Driver):
    """Runs the core's client in an engine, with a log and a journal if there are to be any."""

    def __init__(
        self, life: Life, *, journal: Path | None, tell: Callable[[Fact], None] | None
    ) -> None:
        self.engine: Engine[Node] | None = None
        self.log: Log | None = None
        self._life = life
        self._tell = tell
        self._record = Record(journal, life.name)
        self._recovery: Recovery | None = None
        self._recovering: Node
        self._resume_record: Callable[[], None]
        self._stopping: asyncio.Task[None] | None = None
        self._bodies = Bodies()
        self._keeper: Keeper
        self._deliveries: Deliveries
        self._publications: Publications

    def serve(
        self, keeper: "Keeper", deliveries: "Deliveries", publications: "Publications"
    ) -> None:
        """Set the parts that carry out the core's actions."""
        self._keeper = keeper
        self._deliveries = deliveries
        self._publications = publications

    @property
    def name(self) -> str:
        """The name of the client."""
        return self._life.name

    # ---- Starting and stopping

    def open(self, state: Path | None) -> None:
        """Start; with a `state`, continue where the last process was, if there was one."""
        if state is not None:
            self.log, self._recovery = Log.open(
                state, kind=STATE_KIND, older=OLDER_KINDS, load=loading(_make)
            )
        self._record.open(self.log, self.failed)
        self._record.start()
        if self._recovery is not None and (
            self._recovery.state is not None or self._recovery.report.records
        ):
            self._start(Settings(), NOTHING_KNOWN)

    @property
    def digest(self) -> str:
        """The digest of the core's settings; empty if it has none yet."""
        return "" if self.engine is None else digest(self.engine.node.settings)

    def configure(self, settings: Settings, earlier: Earlier) -> None:
        """Use the settings of the network that a broker has sent; they may have changed.

        If the core begins with them, it begins above what the broker knows of `earlier` lives.
        """
        plugins.require(settings)
        if self.engine is None:
            self._start(settings, earlier)
        elif self.engine.node.settings != settings:
            self.give(Configured(settings=settings))

    async def stop(self) -> None:
        """Release what is left, and save the state; also if this call is cancelled meanwhile."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        try:
            await asyncio.shield(self._stopping)
        except asyncio.CancelledError:
            await asyncio.wait([self._stopping])
            raise

    async def _stop(self) -> None:
        try:
            if self.engine is not None:
                await self.engine.stop(snapshot=self._life.failure is None)
        finally:
            if self.log is not None:
                self.log.close()
            await self._record.stop()

    def _start(self, settings: Settings, earlier: Earlier) -> None:
        new = new_client(self._life.name, settings, earlier)
        if self.log is None or self._recovery is None:
            self.engine = engine = Engine(_make(new), self, new)
            self._record.begin(engine)
            return
        found = recover(self.log, self._recovery, new, _make)
        if found.began.node != self._life.name:
            self.log.close()
            raise SternaError(
                f"the state in {self.log.directory} belongs to {found.began.node!r}, not to "
                f"{self._life.name!r}; give each client a state of its own"
            )
        engine = Engine(found.node, self, found.began, level=Durability.BATCH, log=self.log)
        self._recovering = found.node
        self._record.expect(found.began)
        self._resume_record = partial(self._record.resume, engine, self.log)
        engine.recover(found)
        self.engine = engine  # Not before: a node that is half recovered must not be kept.
        self._deliveries.resume(found.node.subscriptions)
        settings = live_settings(found.node.settings)
        if settings != found.node.settings:  # Its state is from an older release.
            self.give(Configured(settings=settings))

    # ---- For the other parts

    @property
    def node(self) -> Node:
        """The core's client; raises an error if the application cannot use it."""
        self._life.check()
        if self.engine is None:
            raise NotConnectedError(f"{self._life.name} has never been connected: enter it first")
        return self.engine.node

    @property
    def link(self) -> LinkId | None:
        """The broker that the core is attached to, or wants to be."""
        return None if self.engine is None else self.engine.node.link

    @property
    def seeks(self) -> bool:
        """Whether the core looks for a broker by itself, among devices alone."""
        return self.engine is not None and AD_HOC in self.engine.node.settings.protocols

    @property
    def needs_broker(self) -> bool:
        """Whether the core looks for a broker by itself because it has something to say to one."""
        seeking = None if self.engine is None else self.engine.node.part(AD_HOC)
        return isinstance(seeking, Seeking) and seeking.needs_broker

    @property
    def is_welcome(self) -> bool:
        """Whether the broker accepts and delivers events."""
        return self.engine is not None and self.engine.node.is_welcome

    @property
    def accepted(self) -> int:
        """The sequence number up to which a broker has accepted all events."""
        return -1 if self.engine is None else self.engine.node.accepted

    @property
    def inputs(self) -> int:
        """How many inputs the core has had so far."""
        return 0 if self.engine is None else self.engine.inputs

    @property
    def idle_inputs(self) -> int:
        """How many of them were heartbeats, or time that passed, and changed nothing else."""
        return 0 if self.engine is None else self.engine.idle_inputs

    @property
    def position(self) -> int:
        """The position of the last input; its facts are `stated` with this position."""
        return self.inputs if self.log is None else self.log.appended

    @property
    def is_settled(self) -> bool:
        """Whether the core has nothing in flight, and nothing waits to be durable."""
        engine = self.engine
        return engine is None or (engine.node.is_settled and not engine.held)

    def give(self, given: Input, raw: bytes = b"") -> None:
        """Give the core an input; `raw` has the bytes that arrived over the connection, if any."""
        if self.engine is None or self._life.is_closed:
            return
        check_sendable(given)
        if isinstance(given, LinkUp):
            self._publications.flush()  # What follows may be numbered from somewhere else.
        self.engine.give(given, raw)
        self._keeper.node_changed()
        self._publications.node_changed()

    def note(self, note: str) -> None:
        """Keep a note for `noted` after a restart, if there is a state."""
        if self.log is not None and self.engine is not None:
            self.engine.note(note.encode())

    # ---- Actions and facts of the core

    def prepare(self, turn: Turn) -> object:
        steps: list[tuple[bytes, ...] | Delivery | Connect | Disconnect | Reconnect] = []
        for action in turn.actions:
            if type(action) is Transmit:
                if action.link == self._keeper.broker:
                    try:
                        steps.append(encode(action.frame, self._bodies))
                    except Exception:
                        log.exception("%s has something that cannot be sent", self._life.name)
                        other = without_message(action.frame)
                        if other is not None:
                            steps.append(encode(other, self._bodies))
            elif isinstance(action, Deliver):
                now = self._deliveries.subscriptions  # Not those that begin while it is held.
                steps.append(Delivery(action, now if self.log is None else dict(now)))
            elif isinstance(action, Connect | Disconnect | Reconnect):
                steps.append(action)
            elif type(action) is Broadcast:  # It promises nothing, so it need not wait.
                self._keeper.broadcast(action.message)
        self._bodies.clear()
        return Prepared(self._keeper.connection, steps)

    def release(self, prepared: object) -> None:
        connection, steps = prepared  # type: ignore[misc]
        for step in steps:  # type: ignore[has-type]
            if type(step) is Delivery:
                self._deliveries.deliver(step.action, step.subscriptions)
            elif type(step) is Connect:
                self._keeper.connect(step.link)
            elif type(step) is Disconnect:
                self._keeper.disconnect(step.link)
            elif type(step) is Reconnect:
                self._keeper.abort("client and broker remember different things; they begin anew")
            elif connection is not None:  # type: ignore[has-type]
                connection.put(step)  # type: ignore[has-type]
        if connection is not None:  # type: ignore[has-type]
            self._keeper.flush_soon()
        self._publications.node_changed()

    def stated(self, position: int, stated: Sequence[Fact], size_bytes: int) -> None:
        self.stated_before(position, stated, size_bytes)
        for fact in stated:
            if self._tell is not None:
                _call(self._tell, fact)
            if isinstance(fact, facts.Missed):
                self._deliveries.missed_more(len(fact.events))
            elif isinstance(fact, SubscriptionKnown):
                self._deliveries.known(fact, position)
            elif isinstance(fact, facts.Purged):
                self._purged(fact.events)

    def _purged(self, events: Sequence[Event]) -> None:
        """The core has discarded what it was to publish, or what came too late."""
        ordering = None if self.engine is None else self.engine.node.part(ORDERING)
        late = isinstance(ordering, Ordering) and [e for e in events if ordering.came_late(e)]
        if late:
            self._deliveries.missed_more(len(late))
        self._publications.discard([event for event in events if event not in (late or ())])

    def stumbled(self, given: Input, error: Exception) -> None:
        log.error("%s failed at %s", self._life.name, type(given).__name__, exc_info=error)
        if isinstance(given, Received):
            self._keeper.abort("the client could not process what the broker sent")

    def failed(self, error: Exception) -> None:
        self._life.fail(ClosedError(str(error)))

    async def stop_recording(self) -> None:
        """Leave the journal to another life of the client, which is about to begin."""
        await self._record.stop()

    # ---- Recovery and snapshots

    def stated_before(self, position: int, stated: Sequence[Fact], size_bytes: int) -> None:
        self._record.add(position, stated, size_bytes)

    def recovered(self) -> None:
        self._resume_record()

    def before_snapshot(self) -> Callable[[], None]:
        return self._record.sync

    def done_before(self, given: Input, actions: Sequence[Action]) -> None:
        if isinstance(given, Unsubscribe):
            self._deliveries.unsubscribed_before(given.subscription)
        for action in actions:
            if isinstance(action, Deliver):
                self._deliveries.delivered_before(action, self._recovering.subscriptions)

    def noted(self, note: bytes) -> None:
        if note != STARTED:
            self._deliveries.done_before(note.decode())

    def memory(self) -> bytes:
        return encode_memory(self._deliveries.memory())

    def remember(self, memory: bytes) -> None:
        self._deliveries.remember(decode_memory(memory))


def _call(tell: Callable[[Fact], None], fact: Fact) -> None:
    try:
        tell(fact)
    except Exception:
        log.exception("the callback for facts failed")


def _make(began: Began) -> Node:
    return make_client(
        began.node,
        began.settings,
        timing=AT_A_CLIENT,
        incarnation=began.incarnation,
        seq=began.seq,
    )
