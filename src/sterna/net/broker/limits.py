"""Limits of what sessions may take: queues, slow consumers, silence, and how many there are."""

import asyncio
import logging
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sterna.core.names import NodeId
from sterna.net.broker.configuration import Configuration
from sterna.net.broker.driver import BrokerDriver
from sterna.net.broker.pausing import Pausing
from sterna.net.broker.sessions import Session, Sessions
from sterna.net.librarian import Librarian
from sterna.net.metrics import Metrics
from sterna.wire.frames import Role

log = logging.getLogger("sterna.broker")

FILES_KEPT_FREE = 128
"""How many of the files that a process may open are not for connections."""

SOCKETS_BYTES = 16 * 2**20
"""How many bytes the system may hold that were sent to a client, and that it has not read."""


class Limits:
    """Disconnects peers that read too slowly, or are silent for too long."""

    def __init__(
        self,
        configuration: Configuration,
        driver: BrokerDriver,
        sessions: Sessions,
        pausing: Pausing,
        librarian: Librarian,
        metrics: Metrics,
    ) -> None:
        self.connections_max = _connections_max(configuration.limits.connections_max)
        """How many connections there may be at a time."""
        self._configuration = configuration
        self._driver = driver
        self._sessions = sessions
        self._pausing = pausing
        self._librarian = librarian
        self._metrics = metrics
        self._missed: dict[Session, int] = {}
        """How many heartbeats in a row a session has missed."""
        self._watching: asyncio.Task[None] | None = None
        sessions.when_over(self._forget)

    def begin(self) -> None:
        """Watch sessions from now on."""
        self._watching = asyncio.create_task(self._watch_for_silence())

    def end(self) -> None:
        """Stop watching sessions."""
        if self._watching is not None:
            self._watching.cancel()

    def configure(self, *, is_heartbeat_new: bool) -> None:
        """Work by another configuration."""
        self.connections_max = _connections_max(self._configuration.limits.connections_max)
        if is_heartbeat_new:
            self.end()
            self._watching = asyncio.create_task(self._watch_for_silence())

    # ---- Queues

    def congested(self, session: Session, *, is_full: bool) -> None:
        """A session's queue is longer than it should be, or is short again."""
        if not is_full:
            self._librarian.taken(session)
            self._pausing.relieved(session)
            return
        self._pausing.full(session)
        is_client = self._sessions.roles.get(session) is Role.CLIENT
        is_waited_for = self._pausing.is_waited_for(session)
        if not is_client and not is_waited_for and not self._librarian.is_busy_for(session):
            self._too_slow(session)  # It asks again and again, and does not read the answers.

    def check_queues(self, sizes: Mapping[NodeId, int], bytes_max: int) -> None:
        """Disconnect clients whose queues are too long: alone, or together.

        `sizes` are what the queues of connected clients take in memory, and `bytes_max` is what
        all of them may take.
        """
        limits, roles = self._configuration.limits, self._sessions.roles
        for session, role in list(roles.items()):
            if role is not Role.CLIENT:
                continue
            unconfirmed_bytes = self._unconfirmed_bytes(session)
            if not self._pausing.reads(session):
                unconfirmed_bytes = 0  # What it confirms is not read.
            elif self._pausing.is_waited_for(session):
                unconfirmed_bytes -= SOCKETS_BYTES  # Publishers wait before there is more.
            if max(session.waiting_bytes, unconfirmed_bytes) > limits.queue_bytes_per_client_max:
                self._too_slow(session)
        links = self._sessions.links
        self._check_together({links[client]: size for client, size in sizes.items()}, bytes_max)
        waiting = {each: each.waiting_bytes for each, role in roles.items() if role is Role.CLIENT}
        self._check_together(waiting, limits.queue_bytes_max)

    def _check_together(self, sizes: Mapping[Session, int], bytes_max: int) -> None:
        total = sum(sizes.values())
        for session in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if total <= bytes_max:
                break
            total -= sizes[session]
            self._too_slow(session)

    def _unconfirmed_bytes(self, session: Session) -> int:
        """About how many bytes were sent since the oldest message that is not confirmed."""
        return session.unconfirmed_bytes(self._driver.node.oldest_unconfirmed(session.peer))

    def _too_slow(self, session: Session) -> None:
        if session.is_over:
            return
        self._metrics.closed("slow")
        log.warning(
            "%s does not take what there is for it (queue_bytes_per_client_max, "
            "memory_bytes_max); disconnected",
            session.peer or session.address,
            extra={"host": session.host},
        )
        session.abort()

    # ---- Silence

    async def _watch_for_silence(self) -> None:
        """Disconnect silent peers, until this is cancelled."""
        while True:
            await asyncio.sleep(self._configuration.config.heartbeat.every_s)
            with going_on("looking for silent peers"):
                self._look_for_the_silent()

    def _look_for_the_silent(self) -> None:
        missed_max = self._configuration.config.heartbeat.missed_max
        for session, role in list(self._sessions.roles.items()):
            is_read = self._pausing.reads(session)
            is_stuck = session.is_stuck() and self._pausing.is_waited_for(session)
            if role is Role.BROKER and session.heard:
                is_stuck = False  # It reads nothing because it has to wait for others itself.
            if not is_stuck and (session.heard or not is_read):
                self._missed.pop(session, None)
                session.heard = False
                if not is_read:
                    session.probe()  # It gets no answers to what it sends.
                continue
            missed = self._missed[session] = self._missed.get(session, 0) + 1
            if missed > missed_max:
                extra = {"host": session.host}
                log.warning("%s is silent; disconnected", session.peer, extra=extra)
                session.abort()
            else:
                session.probe()

    def _forget(self, session: Session) -> None:
        self._missed.pop(session, None)
        self._librarian.forget(session)


@contextmanager
def going_on(doing: str) -> Iterator[None]:
    """Log an error that nobody expects; what is done again and again must not end with it."""
    try:
        yield
    except Exception:
        log.exception("%s has failed, and is tried again", doing)


def _connections_max(wanted: int) -> int:
    """How many connections there may be, so that log and journal can always open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_KEPT_FREE
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        if raised < needed:
            wanted = max(1, raised - FILES_KEPT_FREE)
            log.warning("the system allows for %d connections at a time (ulimit -n)", wanted)
    return wanted
