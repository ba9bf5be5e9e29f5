"""The life of a broker: it starts, serves, and stops or fails."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from sterna.core.broker import Broker
from sterna.core.inputs import Restarted
from sterna.core.names import NodeId, Peer
from sterna.errors import StartError, SternaError
from sterna.model.filters import Filter
from sterna.net.address import Address
from sterna.net.broker.budget import Budget
from sterna.net.broker.configuration import Configuration
from sterna.net.broker.doors import Door, Parts
from sterna.net.broker.driver import BrokerDriver
from sterna.net.broker.limits import Limits, going_on
from sterna.net.broker.mqtt import MqttDoor, MqttSession
from sterna.net.broker.native import NativeDoor
from sterna.net.broker.observing import Observers
from sterna.net.broker.pausing import Pausing
from sterna.net.broker.progress import Progress
from sterna.net.broker.reach import Reach
from sterna.net.broker.reloading import Reloader, Report, Reread
from sterna.net.broker.sessions import Session, Sessions
from sterna.net.config import BrokerConfig
from sterna.net.dialing import Dialler
from sterna.net.engine import Engine
from sterna.net.http import HttpServer
from sterna.net.librarian import Librarian
from sterna.net.metrics import ElectionGauges, Gauges, Metrics
from sterna.net.status import ad_hoc, cut_off, electing_of
from sterna.net.watchdog import Watchdog
from sterna.wire.frames import Role

log = logging.getLogger("sterna.broker")

T = TypeVar("T")

HOUSEKEEPING_S = 0.25
"""How many seconds pass between checks of the queues and flushes of the journal."""


class BrokerServer:
    """One broker: listens, connects to its neighbours, and runs the core between them."""

    def __init__(self, config: BrokerConfig, *, reread: Reread | None = None) -> None:
        """Make a broker; `start` starts it. `reread` reads its configuration again for `reload`."""
        self.configuration = Configuration(config)
        self.http_address: Address | None = None
        self.is_ready = False
        self.is_draining = False
        self.failure: Exception | None = None
        self.over = asyncio.Event()
        """Set when the broker has stopped, or cannot continue."""
        self.metrics = Metrics(config.name, self._gauges)
        self.driver = BrokerDriver(self.configuration, self.metrics, self)
        self.sessions = Sessions(self.driver, self.metrics)
        self._librarian = Librarian(config.name)
        self.pausing = Pausing(self.configuration, self.sessions)
        self.driver.serve(self.sessions, self.pausing)
        self._limits = Limits(
            self.configuration,
            self.driver,
            self.sessions,
            self.pausing,
            self._librarian,
            self.metrics,
        )
        self.budget = Budget(
            self.configuration,
            self.driver,
            self.sessions,
            self.pausing,
            lambda: sum(door.strangers_bytes for door in self._doors),
        )
        self.driver.spill.when_spilled(self._check_memory_soon)
        parts = Parts(
            self.configuration,
            self.driver,
            self.sessions,
            self.pausing,
            self._limits,
            self.budget,
            self.metrics,
        )
        self.progress = Progress(self.driver, self.sessions)
        self.watchdog = Watchdog(config.name)
        self._observers = Observers(self, self.sessions, self._librarian)
        self._native = NativeDoor(parts, self._observers)
        self._mqtt = MqttDoor(parts)
        self._doors: list[Door] = [self._native, self._mqtt]
        self._reloader = Reloader(parts, self._doors, reread)
        self._http: HttpServer | None = None
        self._diallers: list[Dialler] = []
        self.reach = Reach(self.configuration, self.driver, self.sessions, self._native)
        """The brokers in reach, if brokers make their links by themselves."""
        self._housekeeping: asyncio.Task[None] | None = None

    @property
    def config(self) -> BrokerConfig:
        """The configuration that the broker works by now."""
        return self.configuration.config

    @property
    def address(self) -> Address:
        """The address of the broker for others, once it listens."""
        return self._native.address

    @property
    def mqtt_address(self) -> Address | None:
        """Where MQTT clients connect, if they can."""
        return self._mqtt.address

    @property
    def websocket_address(self) -> Address | None:
        """Where MQTT clients connect over WebSockets, if they can."""
        return self._mqtt.websocket_address

    @property
    def engine(self) -> Engine[Broker]:
        """The engine that runs the core's broker."""
        return self.driver.engine

    @property
    def node(self) -> Broker:
        """The core's broker."""
        return self.driver.node

    # ---- Life

    async def start(self) -> None:
        """Recover, listen and connect. A start that fails leaves nothing open."""
        try:
            self.configuration.try_out()
            self.driver.open()
            Filter("TRUE")  # The first one takes long: the grammar is read for it.
            await self._listen()
        except BaseException:
            await self._release()
            raise
        if not self.elects:
            for url in self.config.network.neighbours:
                self.join(Address.from_url(url))
        self._limits.begin()
        self.watchdog.start()
        self._housekeeping = asyncio.create_task(self._keep_house())
        self.is_ready = True
        log.info("%s listens on %s", self.config.name, self.address.url)
        if self.mqtt_address is not None:
            log.info("%s listens on mqtt://%s", self.config.name, self.mqtt_address)

    @property
    def elects(self) -> bool:
        """Whether brokers make their links by themselves."""
        return self.config.network.elects

    def join(self, address: Address) -> None:
        """Connect to another broker, and keep trying."""
        self._diallers.append(Dialler(self._native, self.sessions, lambda: address))

    def leave(self, neighbour: NodeId) -> None:
        """Remove a neighbour for good."""
        self.sessions.leave(neighbour)

    async def reload(self) -> Report:
        """Read the configuration again, and apply what has changed and can be applied."""
        return await self._reloader.reload()

    async def stop(self, *, drain_s: float = 5.0) -> None:
        """Take no more, finish what is under way, keep the state, and end."""
        self.is_draining, self.is_ready = True, False
        self._limits.end()
        self.watchdog.stop()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        for dialler in self._diallers:
            dialler.stop()
        self.reach.close()
        for door in self._doors:
            door.close()
        self.pausing.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + drain_s
        while self.failure is None and loop.time() < deadline and not self._is_drained():
            await asyncio.sleep(0.01)
        self._say_goodbye(f"{self.config.name} is shutting down")
        await asyncio.sleep(0)  # The other sides are informed.
        try:
            await self._release(snapshot=True)
        finally:
            self.over.set()

    def fail(self, error: Exception) -> None:
        """End at once: senders will send again what was not acknowledged."""
        log.critical("%s stops: %s", self.config.name, error)
        self.failure = error
        self.is_ready = False
        self.reach.close()
        for session in list(self.sessions.roles):
            session.abort()
        for door in self._doors:
            door.abort()
        self.over.set()

    async def _listen(self) -> None:
        await _listening(self._native.open(), self.config.listen, "listen")
        mqtt = self.config.mqtt
        addresses = " or ".join(filter(None, (mqtt.listen, mqtt.websocket)))
        await _listening(self._mqtt.open(), addresses, "mqtt.listen, mqtt.websocket")
        if self.elects:
            here = Address.parse(self.config.listen)._replace(port=self._native.port)
            await _listening(self.reach.open(here), f"{here} (UDP)", "listen")
            self.driver.give(Restarted())
        listen = self.config.http.listen
        if listen:
            self._http = HttpServer(self._observers.pages())
            opening = self._http.start(Address.parse(listen))
            self.http_address = await _listening(opening, listen, "http.listen")

    def _is_drained(self) -> bool:
        is_busy = self.engine.held or self.driver.has_backlog
        return (
            not is_busy
            and not any(session.waiting_bytes for session in self.sessions.roles)
            and all(door.is_drained for door in self._doors)
        )

    def _say_goodbye(self, reason: str) -> None:
        for session in list(self.sessions.roles):
            session.refuse(reason)
        for door in self._doors:
            door.turn_away(reason)

    async def _release(self, *, snapshot: bool = False) -> None:
        """Close all files, threads and sockets, whatever state the broker is in."""
        self.reach.close()
        for door in self._doors:
            door.close()
        try:
            await self.driver.stop(snapshot=snapshot and self.failure is None)
        except SternaError as error:
            if self.failure is None:
                raise
            log.debug("what failed cannot be closed either: %s", error)
        finally:
            self._librarian.stop()
            if self._http is not None:
                await self._http.close()

    # ---- From time to time

    def check_memory(self) -> None:
        """See to it that queues keep to their limits, now and then and when much has arrived."""
        with going_on("checking the queues"):
            memory = self.budget.check()
            if memory is not None:
                self._limits.check_queues(memory.here, self.budget.shares.here)

    def _check_memory_soon(self) -> None:
        """Some of what waits is on disk now: publishers may be waiting for that."""
        delay_s = self.budget.next_check_s
        if delay_s is not None:
            asyncio.get_running_loop().call_later(delay_s, self.check_memory)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            self.check_memory()
            with going_on("looking at the links"):
                self.progress.look()
            with going_on("flushing the journal"):
                await self.driver.journalist.flush_if_due()

    # ---- For observers

    def _gauges(self) -> Gauges:
        roles, links = self.sessions.roles, self.sessions.links
        node, kept, snapshots = self.node, self.driver.log, self.engine.snapshots
        memory = self.budget.count()
        alone = ad_hoc(self)
        return Gauges(
            connections={
                **Counter(_kind(session, role) for session, role in roles.items()),
                "unknown": sum(door.strangers for door in self._doors),
            },
            clients_away=sum(
                peer is Peer.CLIENT and link not in links for link, peer in node.peers.items()
            ),
            clients_elsewhere=len(node.hosted()),
            subscriptions=len(node.router.subscriptions),
            queue_events=memory.queued.events,
            queue_bytes=memory.queued.bytes,
            unfinished_bytes=memory.unfinished,
            memory_bytes=memory.total,
            memory_bytes_max=self.budget.bytes_max,
            spilled_bytes=self.driver.spill.used_bytes,
            peers_waiting=self.pausing.waiting,
            in_flight_bytes=self.pausing.in_flight_bytes,
            log_bytes=0 if kept is None else kept.bytes_on_disk,
            log_inputs=0 if kept is None else kept.records_since_snapshot,
            snapshots_failed=0 if snapshots is None else snapshots.failures,
            journal_bytes=self.driver.journalist.bytes_on_disk,
            links_stalled=len(self.progress.stalled()),
            loop_holds=self.watchdog.holds,
            loop_held_s_max=self.watchdog.longest.seconds,
            is_ready=self.is_ready,
            datagrams=self.reach.radio.datagrams,
            mqtt_ignored=self._mqtt.ignored,
            election=self._election(),
            serves=None if alone is None else alone["serves"],
        )

    def _election(self) -> ElectionGauges | None:
        found = electing_of(self)
        if found is None:
            return None
        cuts = cut_off(self.node)
        return ElectionGauges(
            is_leader=found.next_hop is None,
            hops=len(found.path) - 1,
            round=found.round,
            brokers=len(self.driver.members.brokers()),
            in_reach=len(found.heard),
            cut_off=len(cuts),
            kept_events=sum(cuts.values()),
        )


def _kind(session: Session, role: Role) -> str:
    """What is at the other end of a connection, and what it speaks if that is not ours."""
    return "mqtt" if isinstance(session, MqttSession) else str(role)


async def _listening(opening: Awaitable[T], address: str, key: str) -> T:
    """Wait until something listens; StartError if it cannot."""
    try:
        return await opening
    except OSError as error:
        raise StartError(
            f"cannot listen on {address}: {error.strerror or error}; "
            f"end what listens there, or choose another address (`{key}`)"
        ) from None
