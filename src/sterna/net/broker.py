"""A broker on sockets and disk."""

import asyncio
import logging
import resource
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import cast

from msgspec.structs import replace

from sterna.core.actions import Action, Disconnect, LookUp, Transmit
from sterna.core.assembly import client_settings
from sterna.core.broker import Broker
from sterna.core.facts import Fact, RingFound
from sterna.core.history.recent import Recent
from sterna.core.inputs import (
    ArchiveChanged,
    Configured,
    Input,
    LinkDown,
    LinkGone,
    LinkUp,
    LookedUp,
    Received,
)
from sterna.core.link import Frame
from sterna.core.names import LinkId, NodeId, Peer, RouteId
from sterna.core.overlay.members import Members
from sterna.errors import SternaError
from sterna.journal import Journal, JournalFailedError
from sterna.model.event import Event
from sterna.net.address import Address
from sterna.net.admission import NAME_CHARACTERS_MAX, Admission, RefusedError
from sterna.net.config import BrokerConfig, Durability, SlowConsumer
from sterna.net.connection import Connection
from sterna.net.dialing import FRAME_BYTES_MAX, Dialler
from sterna.net.engine import Driver, Engine, recover
from sterna.net.historian import Historian
from sterna.net.http import HttpServer, Pages
from sterna.net.librarian import QUESTIONS, Librarian
from sterna.net.metrics import Gauges, Metrics
from sterna.net.nodes import (
    OLDER_KINDS,
    STATE_KIND,
    broker_of,
    next_incarnation,
    settings_of,
)
from sterna.net.records import Began
from sterna.net.status import queues, status, topology
from sterna.net.storage import Log, LogOptions
from sterna.wire.codec import LENGTH_BYTES, Bodies, MalformedError, decode, encode
from sterna.wire.frames import (
    FEATURES,
    SETTINGS,
    VERSION,
    Answer,
    Ask,
    Control,
    Hello,
    Ping,
    Pong,
    Refusal,
    Role,
    agree,
    digest,
)

log = logging.getLogger("sterna.broker")

FIRST_A_HELLO = "the first frame has to be a Hello of a broker or a client"
TAKEN_OVER = "another connection of the same name has taken over"

READING_S = 0.02
"""How long what one client says is read before others have their turn."""

FILES_KEPT_FREE = 128
"""Of what the system lets a process open: so many are not for connections."""

Sendings = list[tuple[Connection, Sequence[bytes] | None]]
"""What goes over which connection; None ends it."""


class StartError(SternaError):
    """The broker cannot start; the message says what to do."""


class BrokerServer(Driver):
    """One broker: listens, connects to its neighbours, and runs the core between them."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.settings = settings_of(config)
        self.client_settings = client_settings(self.settings)
        self.digest = digest(self.client_settings)
        self.address = Address("", 0)
        """Where it listens, once it does."""
        self.http_address: Address | None = None
        self.metrics = Metrics(config.name, self._gauges)
        self.links: dict[NodeId, Connection] = {}
        """The connection over which each neighbour or client is here."""
        self.roles: dict[Connection, Role] = {}
        """Connections whose other side has said who it is."""
        self.is_ready = False
        self.is_draining = False
        self.failure: Exception | None = None
        self.over = asyncio.Event()
        self.log: Log | None = None
        self.journal: Journal | None = None
        self._journalist = ThreadPoolExecutor(1, "journal")
        self._librarian = Librarian(self)
        self._historian = Historian(config, self._looked_up)
        self._loop = asyncio.get_running_loop()
        self._bodies = Bodies()
        self._dirty: dict[Connection, None] = {}
        self._is_flushing = False
        self._untold: list[tuple[int, Sequence[Fact]]] = []
        """What has happened, with the numbers of the inputs."""
        self._in_flight = 0
        self._is_paused = False
        self._later: dict[Connection, deque[tuple[bytes, Sequence[memoryview]]]] = {}
        """What clients have said and others had their turn before."""
        self._full: dict[Connection, None] = {}
        """Connections that do not take as much as there is for them."""
        self._strangers: dict[Connection, asyncio.TimerHandle] = {}
        """Connections whose other side has not said who it is, with when that is too late."""
        self._missed: dict[Connection, int] = {}
        """How often in a row nothing came over a connection."""
        self._admission = Admission(
            self._claimed, subscriptions_max=config.limits.subscriptions_per_client_max
        )
        self._connections_max = config.limits.connections_max
        self._server: asyncio.Server | None = None
        self._http: HttpServer | None = None
        self._diallers: list[Dialler] = []
        self._timers: list[asyncio.Task[None]] = []
        self.engine: Engine[Broker]

    @property
    def node(self) -> Broker:
        return self.engine.node

    # ---- Life

    async def start(self) -> None:
        """Recover, listen and connect."""
        config = self.config
        self._connections_max = _connections_max(config.limits.connections_max)
        self._start_engine(Path(config.data))
        self._start_history()
        listen = Address.parse(config.listen)
        try:
            self._server = await self._loop.create_server(
                self._accept, listen.host, listen.port, backlog=1024
            )
        except OSError as error:
            raise StartError(
                f"cannot listen on {listen}: {error.strerror or error}; "
                "end what listens there, or choose another address (`listen`)"
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        self.address = (
            Address(listen.host, port)
            if config.advertised_address is None
            else Address.parse(config.advertised_address)
        )
        if config.http.listen:
            pages = Pages(
                not_ready=self._not_ready,
                metrics=self.metrics.text,
                documents={
                    "/status": lambda: status(self),
                    "/topology": lambda: topology(self),
                    "/queues": lambda: queues(self),
                },
            )
            self._http = HttpServer(pages)
            self.http_address = await self._http.start(Address.parse(config.http.listen))
        for url in config.network.neighbours:
            self.join(Address.from_url(url))
        self._timers = [
            asyncio.create_task(self._look_for_the_silent()),
            asyncio.create_task(self._keep_house()),
        ]
        self.is_ready = True
        log.info("%s listens on %s", config.name, self.address.url)

    def join(self, address: Address) -> None:
        """Connect to another broker, and keep trying."""
        self._diallers.append(Dialler(self, address))

    async def stop(self, *, drain_s: float = 5.0) -> None:
        """Take no more, let go what is under way, keep the state, and end."""
        self.is_draining, self.is_ready = True, False
        for task in self._timers:
            task.cancel()
        for dialler in self._diallers:
            dialler.stop()
        if self._server is not None:
            self._server.close()
        for connection, role in list(self.roles.items()):
            if role is Role.CLIENT:
                connection.pause_reading()
        deadline = self._loop.time() + drain_s
        while self._loop.time() < deadline and not self._is_drained():
            await asyncio.sleep(0.01)
        for connection in [*self.roles, *self._strangers]:
            connection.say(Refusal(reason=f"{self.config.name} is shutting down"))
            connection.close()
        await asyncio.sleep(0)  # The other sides learn of it.
        if self.failure is None:
            await self.engine.stop(snapshot=True)
            self._tell()
            if self.journal is not None:
                self.journal.close()
        self._librarian.stop()
        self._historian.stop()
        self._journalist.shutdown()
        if self._http is not None:
            await self._http.close()
        self.over.set()

    def _is_drained(self) -> bool:
        return not self.engine.held and not any(c.waiting_bytes for c in self.roles)

    def _start_engine(self, directory: Path) -> None:
        config = self.config
        level = config.durability.level
        new = Began(node=config.name, incarnation=next_incarnation(), settings=self.settings)
        if level is Durability.NONE:
            self.journal = self._open_journal(directory, None)
            self.engine = Engine(broker_of(new), self, new)
            if self.journal is not None:
                self.engine.inputs = self.journal.last_position.position
            return
        self.log, recovery = Log.open(
            directory / "log", kind=STATE_KIND, older=OLDER_KINDS, options=_log_options(config)
        )
        found = recover(self.log, recovery, new, broker_of)
        self._check_same(found.began)
        if found.began is not new:
            log.info("%s", recovery.report)
        self.journal = self._open_journal(directory, self.log.appended)
        self.engine = Engine(
            found.node, self, found.began, level=level, log=self.log, compacts=True
        )
        self.engine.recover(found)
        if self.node.settings != self.settings:
            self.engine.give(Configured(settings=self.settings))

    def _start_history(self) -> None:
        """Tell the broker whether there is an archive, and ask again what it had asked."""
        recent = self.node.part(Recent.name)
        if not isinstance(recent, Recent):
            return
        if recent.has_archive != self._historian.has_archive:
            self.engine.give(ArchiveChanged(is_there=self._historian.has_archive))
        for question in recent.unanswered():
            self._historian.look_up(question)

    def _looked_up(self, question: int, events: tuple[Event, ...]) -> None:
        self.engine.give(LookedUp(question=question, events=events))

    def _check_same(self, began: Began) -> None:
        if began.node != self.config.name:
            raise StartError(
                f"the data in {self.config.data} is of broker {began.node!r}, not of "
                f"{self.config.name!r}; give each broker a directory of its own (`data`)"
            )

    def _open_journal(self, directory: Path, log_end: int | None) -> Journal | None:
        config = self.config.journal
        if not config.enabled:
            return None
        return Journal(
            directory / "journal",
            self.config.name,
            segment_bytes=config.segment_bytes,
            segment_s=config.segment_s,
            flush_s=config.flush_s,
            bytes_max=config.bytes_max or None,
            log_end=log_end,
            thread=self._journalist,
        )

    # ---- What the engine wants

    def prepare(self, actions: Sequence[Action]) -> Sendings:
        sendings: Sendings = []
        links = self.links
        for action in actions:
            if type(action) is Transmit:
                connection = links.get(action.link)
                if connection is not None:
                    sendings.append((connection, encode(action.frame, self._bodies)))
            elif type(action) is Disconnect and action.link in links:
                sendings.append((links[action.link], None))
            elif type(action) is LookUp:  # It changes nothing, so it need not wait.
                self._historian.look_up(action)
        self._bodies.clear()
        return sendings

    def release(self, prepared: object) -> None:
        sendings: Sendings = prepared  # type: ignore[assignment]
        for connection, data in sendings:
            if data is None:
                connection.close()
            else:
                connection.put(data)
                self._dirty[connection] = None
        if self._dirty:
            self._flush_soon()

    def stated(self, position: int, facts: Sequence[Fact]) -> None:
        if facts:  # To be told when all that hurries is sent.
            self._untold.append((position, facts))
            self._flush_soon()

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for position, facts in untold:
            self.metrics.facts(facts)
            self.stated_before(position, facts)
            for fact in facts:
                if type(fact) is RingFound:
                    log.error(
                        "%s and %s must not be neighbours: they would close a ring; "
                        "remove one of the links between brokers",
                        *(fact.at, fact.link),
                    )

    def stated_before(self, position: int, facts: Sequence[Fact]) -> None:
        if self.journal is not None:
            try:
                self.journal.record(position, facts)
            except JournalFailedError as error:
                self.engine.fail(error)

    def before_snapshot(self) -> Callable[[], None]:
        self._tell()
        journal = self.journal
        return lambda: None if journal is None else journal.flush(sync=True)

    def snapshot_ended(self, how: str, seconds: float) -> None:
        self.metrics.snapshot(how, seconds)

    def stumbled(self, given: Input, error: Exception) -> None:
        log.error("%s stumbled over %s", self.config.name, type(given).__name__, exc_info=error)
        if isinstance(given, Received) and given.link in self.links:
            self.links[given.link].abort()  # What else it has said, it says again.

    def committed(self, seconds: float, inputs: int) -> None:
        self.metrics.commit(seconds, inputs)
        self._in_flight = 0
        if self._is_paused:
            self._resume_reading()

    def failed(self, error: Exception) -> None:
        """Nothing more is let out; what was not acknowledged will be sent again by its senders."""
        log.critical("%s stops: %s", self.config.name, error)
        self.failure = error
        self.is_ready = False
        for connection in [*self.roles, *self._strangers]:
            connection.abort()
        self.over.set()

    def _flush_soon(self) -> None:
        """One write for all that this turn of the event loop has to say."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        dirty, self._dirty = self._dirty, {}
        # Events before the acknowledgement to their publisher, which is the first in a turn.
        for connection in reversed(dirty):
            connection.flush()
        if self._untold:
            self._tell()

    # ---- Connections

    def _accept(self) -> Connection:
        limits = self.config.limits
        return Connection(
            self, limits.handshake_bytes_max, write_bytes_max=limits.queue_bytes_per_client_max // 4
        )

    def connected(self, connection: Connection) -> None:
        limits = self.config.limits
        if len(self._strangers) + len(self.roles) >= self._connections_max:
            self._refuse(connection, "too many connections (connections_max); try again later")
            return
        if self.is_draining:
            self._refuse(connection, f"{self.config.name} is shutting down")
            return
        self._strangers[connection] = self._loop.call_later(
            limits.handshake_s,
            lambda: self._refuse(connection, f"no Hello within {limits.handshake_s:g} s"),
        )

    def control_arrived(self, connection: Connection, said: Control) -> None:
        role = self.roles.get(connection)
        match said:
            case Hello() if role is None:
                try:
                    self._greeted(connection, said)
                except (MalformedError, RefusedError) as problem:
                    self._refuse(connection, str(problem), final=True)
            case Refusal():
                log.warning("%s refuses: %s", connection.peer or connection.address, said.reason)
                connection.close()
            case _ if role is None:
                self._refuse(connection, FIRST_A_HELLO, final=True)
            case Ping():
                connection.say(Pong())
            case Pong():
                pass
            case Ask():
                self._answer(connection, said)
            case _:
                self._refuse(connection, f"{type(said).__name__} makes no sense here", final=True)

    def frames_arrived(
        self, connection: Connection, raw: bytes, bodies: Sequence[memoryview]
    ) -> None:
        link = connection.peer
        if self.links.get(link) is not connection:
            self._refuse(connection, FIRST_A_HELLO, final=True)
            return
        if connection in self._later:
            self._later[connection].append((raw, bodies))
            return
        if self.roles[connection] is Role.CLIENT:
            frames, raw = self._first_frames(connection, raw, bodies)
            try:
                self._admission.check(link, frames)
            except RefusedError as problem:
                self._refuse(connection, str(problem), final=True)
                return
        else:
            frames = tuple([decode(body) for body in bodies])
        self.metrics.received(len(raw), len(frames))
        self.engine.give(Received(link=link, frames=frames), raw)
        if self.engine.held:
            self._in_flight += len(raw)
        if self._in_flight > self.config.limits.in_flight_bytes_max:
            self._is_paused = True
            self._pause_reading()

    def _first_frames(
        self, connection: Connection, raw: bytes, bodies: Sequence[memoryview]
    ) -> tuple[tuple[Frame, ...], bytes]:
        """What a client says, or as much of it as can be read in one turn.

        To read many filters takes long: then others have their turn before it goes on.
        """
        began = perf_counter()
        frames = []
        for body in bodies:
            frames.append(decode(body, short_filters=True))
            if len(frames) < len(bodies) and perf_counter() - began > READING_S:
                size = sum(LENGTH_BYTES + len(body) for body in bodies[: len(frames)])
                self._later[connection] = deque([(raw[size:], bodies[len(frames) :])])
                connection.pause_reading()
                # As long as it took, so that half of the time is for others.
                self._loop.call_later(perf_counter() - began, self._go_on_reading, connection)
                return tuple(frames), raw[:size]
        return tuple(frames), raw

    def _go_on_reading(self, connection: Connection) -> None:
        for raw, bodies in self._later.pop(connection, ()):
            if connection.is_over:
                return
            try:
                self.frames_arrived(connection, raw, bodies)
            except MalformedError as problem:
                self.malformed(connection, problem)
        if connection not in self._later and not self._is_paused and not self.is_draining:
            connection.resume_reading()

    def _claimed(self, client: LinkId) -> Sequence[tuple[str, Collection[RouteId]]]:
        return self.node.claimed(client)

    def malformed(self, connection: Connection, problem: MalformedError) -> None:
        self._refuse(connection, str(problem), final=True)

    def lost(self, connection: Connection) -> None:
        self._forget(connection)
        link = connection.peer
        if self.links.get(link) is connection:
            del self.links[link]
            self.engine.give(LinkDown(link=link))

    def congested(self, connection: Connection, *, is_full: bool) -> None:
        if is_full:
            self._full[connection] = None
            self._bound(connection)
        else:
            self._full.pop(connection, None)
            self._librarian.taken(connection)
            if self._is_paused:
                self._resume_reading()

    def _forget(self, connection: Connection) -> None:
        timer = self._strangers.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self.roles.pop(connection, None)
        self._missed.pop(connection, None)
        self._dirty.pop(connection, None)
        self._later.pop(connection, None)
        self._librarian.forget(connection)
        self.congested(connection, is_full=False)

    def _refuse(self, connection: Connection, reason: str, *, final: bool = False) -> None:
        if connection.is_over:
            return
        log.warning("refused %s: %s", connection.peer or connection.address, reason)
        self.metrics.closed("refused")
        connection.say(Refusal(reason=reason, final=final))
        connection.close()

    # ---- Who is there

    def hello(self) -> Hello:
        """What this broker says of itself to those who connect to it."""
        return Hello(
            versions=(VERSION, VERSION),
            role=Role.BROKER,
            node=self.config.name,
            features=FEATURES,
            address=self.address.url,
            settings=self.client_settings,
            digest=self.digest,
            frame_bytes_max=self.config.limits.frame_bytes_max,
            advertises=self.settings.routing.by_advertisements,
        )

    def _greeted(self, connection: Connection, said: Hello) -> None:
        if not 0 < len(said.node) <= NAME_CHARACTERS_MAX or not said.node.isprintable():
            raise RefusedError(f"a name has 1 to {NAME_CHARACTERS_MAX} printable characters")
        agree(self.hello(), said)
        if self.is_draining:
            self._refuse(connection, f"{self.config.name} is shutting down")
            return
        is_dialled = connection.peer != ""  # Else nobody knows yet who it is.
        if said.role is Role.BROKER:
            self._check_neighbour(said, is_dialled=is_dialled)
            connection.splitter.frame_bytes_max = FRAME_BYTES_MAX
        else:
            if said.role is Role.CLIENT and said.node in self.members.brokers():
                raise RefusedError(f"{said.node} is the name of a broker; choose another one")
            connection.splitter.frame_bytes_max = self.config.limits.frame_bytes_max
        timer = self._strangers.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self.roles[connection] = said.role
        connection.peer = said.node
        if not is_dialled:
            knows = said.role is Role.BROKER or said.digest == self.digest
            connection.say(replace(self.hello(), settings=None) if knows else self.hello())
        if said.role is Role.OBSERVER:
            return
        peer = Peer.BROKER if said.role is Role.BROKER else Peer.CLIENT
        if self.node.peers.get(said.node, peer) is not peer:
            raise RefusedError(f"{said.node} is the name of a {self.node.peers[said.node]} here")
        old = self.links.pop(said.node, None)
        if old is not None:
            self._forget(old)
            old.say(Refusal(reason=TAKEN_OVER, final=True))
            old.close()
        self.links[said.node] = connection
        connection.changed.set()
        if self._is_paused:
            connection.pause_reading()
        advertises = said.advertises
        if peer is Peer.CLIENT:
            advertises = self.settings.routing.by_advertisements  # So it was told.
        self.engine.give(LinkUp(link=said.node, peer=peer, advertises=advertises))

    def _check_neighbour(self, said: Hello, *, is_dialled: bool) -> None:
        if said.node == self.config.name:
            raise RefusedError(f"two brokers are called {said.node}; rename one (`name`)")
        if not is_dialled and not self.config.network.accept_brokers:
            raise RefusedError("this broker accepts no other brokers (accept_brokers)")
        if said.digest != self.digest and SETTINGS not in said.features:
            raise RefusedError(
                f"{said.node} has other settings in [network], [places] or limits of what is kept, "
                "and is of a release whose brokers need the same; upgrade it first"
            )
        members = self.members
        way = members.way_to(said.node)
        if way is not None and way != said.node:
            raise RefusedError(
                f"{said.node} is connected to {self.config.name} by way of {way} already; "
                "another link would close a ring"
            )

    def leave(self, neighbour: NodeId) -> None:
        """A neighbour is none any more."""
        connection = self.links.pop(neighbour, None)
        if connection is not None:
            connection.close()
        self.engine.give(LinkGone(link=neighbour))

    def _answer(self, connection: Connection, asked: Ask) -> None:
        answers = {"status": status, "topology": topology, "queues": queues}
        if asked.what in answers:
            connection.say(Answer(what=asked.what, answer=answers[asked.what](self)))
        elif asked.what not in QUESTIONS:
            self._refuse(connection, f"ask for one of {', '.join([*answers, *QUESTIONS])}")
        elif self.journal is None:
            self._refuse(connection, "this broker keeps no journal (journal.enabled)", final=True)
        elif self._librarian.is_busy_for(connection):
            self._refuse(connection, "one question about the journal at a time")
        else:
            self._tell()
            self._librarian.answer(connection, asked, self.journal)

    # ---- Limits

    def _bound(self, connection: Connection) -> None:
        """A connection has more to take than it takes."""
        if self._is_waited_for(connection):
            self._is_paused = True
            self._pause_reading()
        elif self.roles.get(connection) is not Role.CLIENT and not self._librarian.is_busy_for(
            connection
        ):
            self._too_slow(connection)  # It asks and asks, and does not read the answers.

    def _is_waited_for(self, connection: Connection) -> bool:
        """Whether others have to wait for a connection that does not take what there is."""
        role = self.roles.get(connection)
        return role is Role.BROKER or (
            role is Role.CLIENT and self.config.limits.slow_consumer is SlowConsumer.BLOCK
        )

    def _too_slow(self, connection: Connection) -> None:
        self.metrics.closed("slow")
        log.warning(
            "%s does not take what there is for it (queue_bytes_per_client_max); disconnected",
            connection.peer or connection.address,
        )
        connection.abort()

    def _check_queues(self) -> None:
        limits = self.config.limits
        for connection, role in list(self.roles.items()):
            if role is Role.CLIENT and (
                connection.waiting_bytes > limits.queue_bytes_per_client_max
                or self._unconfirmed_bytes(connection) > limits.queue_bytes_per_client_max
            ):
                self._too_slow(connection)
        waiting = {c: c.waiting_bytes for c in self.roles if c.waiting_bytes}
        total = sum(waiting.values())
        for connection in sorted(waiting, key=waiting.__getitem__, reverse=True):
            if total <= limits.queue_bytes_max:
                break
            if self.roles[connection] is Role.CLIENT:
                total -= waiting[connection]
                self._too_slow(connection)

    def _unconfirmed_bytes(self, connection: Connection) -> int:
        """How much was sent since the oldest message that a client has not confirmed, about."""
        return connection.unconfirmed_bytes(self.node.oldest_unconfirmed(connection.peer))

    def _pause_reading(self) -> None:
        """Let publishers wait.

        A neighbour that does not take what there is for it is read nevertheless: two brokers that
        wait for each other would wait for ever.
        """
        for connection, role in self.roles.items():
            if role is Role.BROKER and connection in self._full:
                connection.resume_reading()
            elif role is not Role.OBSERVER:
                connection.pause_reading()

    def _resume_reading(self) -> None:
        is_blocked = any(self._is_waited_for(connection) for connection in self._full)
        if is_blocked or self._in_flight > self.config.limits.in_flight_bytes_max:
            self._pause_reading()
            return
        self._is_paused = False
        if not self.is_draining:
            for connection in self.roles:
                if connection not in self._later:
                    connection.resume_reading()

    # ---- From time to time

    async def _look_for_the_silent(self) -> None:
        heartbeat = self.config.heartbeat
        while True:
            await asyncio.sleep(heartbeat.every_s)
            for connection in list(self.roles):
                is_stuck = connection.is_stuck() and self._is_waited_for(connection)
                if not is_stuck and (connection.heard or self._is_paused):
                    self._missed.pop(connection, None)
                    connection.heard = False
                    continue
                missed = self._missed[connection] = self._missed.get(connection, 0) + 1
                if missed > heartbeat.missed_max:
                    log.warning("%s is silent; disconnected", connection.peer)
                    connection.abort()
                else:
                    connection.say(Ping())

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            self._check_queues()
            if self.journal is not None:
                try:
                    await self._loop.run_in_executor(self._journalist, self.journal.flush_if_due)
                except JournalFailedError as error:
                    self.engine.fail(error)

    # ---- For those who run it

    @property
    def members(self) -> Members:
        return cast("Members", self.node.part(Members.name))

    def _not_ready(self) -> str | None:
        if self.is_ready:
            return None
        return "draining" if self.is_draining else "starting"

    def _gauges(self) -> Gauges:
        waiting = [connection.waiting_bytes for connection in self.roles]
        roles = Counter(str(role) for role in self.roles.values())
        return Gauges(
            connections={**roles, "unknown": len(self._strangers)},
            clients_away=sum(
                peer is Peer.CLIENT and link not in self.links
                for link, peer in self.node.peers.items()
            ),
            subscriptions=len(self.node.router.subscriptions),
            queue_events=sum(self.node.backlog(link) for link in self.node.peers),
            queue_bytes=sum(waiting),
            in_flight_bytes=self._in_flight,
            log_bytes=0 if self.log is None else self.log.bytes_on_disk,
            log_inputs=0 if self.log is None else self.log.records_since_snapshot,
            journal_bytes=0 if self.journal is None else self.journal.bytes_on_disk,
            is_ready=self.is_ready,
        )


def _connections_max(wanted: int) -> int:
    """How many connections there may be: files of log and journal can be opened in any case."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_KEPT_FREE
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        if raised < needed:
            wanted = max(1, raised - FILES_KEPT_FREE)
            log.warning("the system allows for %d connections at a time (ulimit -n)", wanted)
    return wanted


def _log_options(config: BrokerConfig) -> LogOptions:
    durability = config.durability
    return LogOptions(
        segment_bytes=durability.segment_bytes,
        snapshot_bytes=durability.snapshot_bytes,
        snapshot_records=durability.snapshot_inputs,
        bytes_max=durability.bytes_max or None,
        salvage=durability.salvage,
    )
