"""Runs the core's broker: does its actions, and passes on its facts."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, cast

from sterna.core.actions import (
    Action,
    Broadcast,
    Connect,
    Disconnect,
    LookUp,
    Reconnect,
    Transmit,
)
from sterna.core.broker import Broker
from sterna.core.depot import PageUnreadableError
from sterna.core.facts import Fact, ForgottenEarly, MemoriesDiffer, RingFound
from sterna.core.history.recent import Recent
from sterna.core.inputs import ArchiveChanged, Input, LookedUp, Received
from sterna.core.link import Data, Paged
from sterna.core.names import LinkId
from sterna.core.node import Turn
from sterna.core.overlay.members import Members
from sterna.devices.inputs import DeviceConnected, DeviceSaid
from sterna.model.event import Event
from sterna.net.broker.configuration import Configuration
from sterna.net.broker.journaling import Journalist
from sterna.net.broker.opening import configure, lock, log_options, open_engine
from sterna.net.broker.spilling import Spill
from sterna.net.engine import Driver, Engine, without_message
from sterna.net.historian import Historian
from sterna.net.metrics import Metrics
from sterna.net.storage import Log
from sterna.wire.codec import Bodies
from sterna.wire.frames import Role

if TYPE_CHECKING:
    from sterna.net.broker.pausing import Pausing
    from sterna.net.broker.server import BrokerServer
    from sterna.net.broker.sessions import Session, Sessions

log = logging.getLogger("sterna.broker")


FEW_ACTIONS = 32
"""So many frames for each link are sent at once, whatever they are."""

AT_ONCE_BYTES = 2**20
"""Of more frames, about so many bytes are sent at once; the others wait for other turns."""

SLICE_S = 0.01
"""For how many seconds frames are encoded and sent before others have their turn."""

FULL_S = 0.005
"""How many seconds later a session is looked at again that has not taken enough."""

Sending = tuple[bytes, ...] | Transmit | Disconnect | Reconnect
"""A frame as bytes, or before it is encoded, or the end of the session."""

REPORTED = frozenset((RingFound, ForgottenEarly, MemoriesDiffer))
"""The facts that an operator is told."""

TAKEN_OVER_ELSEWHERE = (
    "another client of the same name has connected to another broker, and has taken over; give "
    "each client a name of its own"
)


class Prepared(NamedTuple):
    """What the core asked for in one turn, ready to be sent."""

    arrived: float
    """When the input that caused it arrived."""
    sendings: "Sequence[tuple[Session, Sending]]"
    """What goes to which session."""
    links: "Sequence[Connect | Disconnect]" = ()
    """The links between brokers to make, or to make no more."""


class BrokerDriver(Driver):
    """Runs the core's broker in an engine, with a log and a journal if the configuration wants."""

    engine: Engine[Broker]
    log: Log | None = None

    def __init__(
        self, configuration: Configuration, metrics: Metrics, server: "BrokerServer"
    ) -> None:
        self.journalist = Journalist(self._journal_failed, self._wait_for_journal)
        self.spill = Spill(configuration)
        self._configuration = configuration
        self._metrics = metrics
        self._server = server
        self._historian = Historian(configuration.config, self._looked_up)
        self._loop = asyncio.get_running_loop()
        self._bodies = Bodies()
        self._arrived = 0.0
        """When the input that the core handles now arrived; 0 if no connection brought it."""
        self._dirty: dict[Session, None] = {}
        """Sessions with something to flush."""
        self._released: list[float] = []
        """When the inputs arrived whose consequences are sent with the next flush."""
        self._is_flushing = False
        self._backlogs: dict[Session, deque[Sending]] = {}
        """What waits for sessions because it is more than can be sent at once."""
        self._unchecked_bytes = 0
        """How many bytes are received until the memory is checked because of that."""
        self._unreported: list[tuple[int, Sequence[Fact], int]] = []
        """Facts that are not reported yet, with the numbers and the sizes of their inputs."""
        self._unlock: Callable[[], None] = lambda: None
        self._sessions: Sessions
        self._pausing: Pausing

    def serve(self, sessions: "Sessions", pausing: "Pausing") -> None:
        """Set the parts that carry out what the core asks for."""
        self._sessions = sessions
        self._pausing = pausing
        sessions.when_over(self._forget)

    # ---- Beginning and end

    def open(self) -> None:
        """Continue where the log ends."""
        self._unlock = lock(self._configuration.config)
        self.engine, self.log = open_engine(self._configuration, self, self.journalist, self.spill)
        self.spill.open(self.engine, self.log)
        configure(self.engine, self._configuration)
        self._tell_of_the_archive()
        recent = self.node.part(Recent.name)
        if isinstance(recent, Recent):
            for question in recent.unanswered():
                self._historian.look_up(question)

    def configure(self, *, is_journal_new: bool, is_archive_new: bool) -> None:
        """Work by another configuration, including the journal or the archive if those changed."""
        if self.log is not None:
            self.log.options = log_options(self._configuration.config)
        if is_journal_new:
            self.journalist.reopen(self._configuration.config)
        configure(self.engine, self._configuration)
        if is_archive_new:
            self._historian.configure(self._configuration.config)
            self._tell_of_the_archive()

    async def stop(self, *, snapshot: bool) -> None:
        """Send what is left, keep the state, and end."""
        try:
            if hasattr(self, "engine"):
                await self.engine.stop(snapshot=snapshot)
                self.tell()
            self.journalist.close(finish=self._server.failure is None)
        finally:
            self.journalist.end()
            self.spill.close()
            self._historian.stop()
            self._unlock()

    def _tell_of_the_archive(self) -> None:
        recent, is_there = self.node.part(Recent.name), self._historian.has_archive
        if isinstance(recent, Recent) and recent.has_archive != is_there:
            self.give(ArchiveChanged(is_there=is_there))

    def _looked_up(self, question: int, events: tuple[Event, ...]) -> None:
        self.give(LookedUp(question=question, events=events))

    # ---- For the other parts of the broker

    @property
    def node(self) -> Broker:
        """The core's broker."""
        return self.engine.node

    @property
    def members(self) -> Members:
        """The network as the broker knows it."""
        return cast("Members", self.node.part(Members.name))

    def give(self, given: Input, raw: bytes = b"") -> None:
        """Give the core an input; `raw` is what came over the connection, if something did."""
        self._arrived = perf_counter()
        self.engine.give(given, raw)
        self._arrived = 0.0
        self._unchecked_bytes -= len(raw)
        if self._unchecked_bytes < 0:
            self._unchecked_bytes = self._server.budget.grain_bytes
            self._loop.call_soon(self._server.check_memory)

    # ---- Actions of the core

    def prepare(self, turn: Turn) -> Prepared:
        sendings: list[tuple[Session, Sending]] = []
        to_link: list[Connect | Disconnect] = []
        links = self._sessions.links
        has_backlog = len(turn.actions) > FEW_ACTIONS and _has_backlog(turn.actions)
        left_bytes = AT_ONCE_BYTES
        if turn.facts and self._pausing.is_watching:
            self._pausing.routed(turn.facts)
        for action in turn.actions:
            if type(action) is Transmit:
                session = links.get(action.link)
                if session is not None:
                    if type(action.frame) is Paged or (has_backlog and left_bytes <= 0):
                        sendings.append((session, action))
                        continue
                    try:
                        data = session.encode(action.frame, self._bodies)
                    except Exception as error:  # noqa: BLE001 - others must not suffer.
                        instead = self._encoded_instead(session, action, turn.cause, error)
                        if instead is None:
                            continue
                        data = instead
                    sendings.append((session, data))
                    if has_backlog:
                        left_bytes -= sum(map(len, data))
            elif isinstance(action, Disconnect | Reconnect):
                if action.link in links:
                    sendings.append((links[action.link], action))
                if type(action) is Disconnect:
                    to_link.append(action)
            elif type(action) is Connect:
                to_link.append(action)
            elif type(action) is Broadcast:  # It promises nothing, so it need not wait.
                self._server.reach.broadcast(action.message)
            elif type(action) is LookUp:  # It changes nothing, so it need not wait.
                self._historian.look_up(action)
        self._bodies.clear()
        return Prepared(self._arrived or perf_counter(), sendings, to_link)

    def _encoded_instead(
        self, session: "Session", action: Transmit, cause: Input | None, error: Exception
    ) -> tuple[bytes, ...] | None:
        """What is sent in the place of a frame that cannot be; None if nothing is."""
        self._cannot_send(action, cause, error)
        other = without_message(action.frame)
        return None if other is None else session.encode(other, self._bodies)

    def _cannot_send(self, action: Transmit, cause: Input | None, error: Exception) -> None:
        """Log it, and close the connection that the cause came over, as if the core had failed.

        A frame that was to go over that very connection is no reason to: it may have waited for it
        since before, and would do so again.
        """
        frame = action.frame
        what = type(frame.message if isinstance(frame, Data) else frame).__name__
        name = self._configuration.name
        log.error("%s cannot send %s to %s", name, what, action.link, exc_info=error)
        if isinstance(cause, Received) and cause.link != action.link:
            self._hang_up(cause.link)

    def release(self, prepared: object) -> None:
        arrived, sendings, to_link = cast("Prepared", prepared)
        for action in to_link:
            self._server.reach.act(action)
        if not sendings:
            return
        size_bytes = frames = 0
        for session, data in sendings:
            if type(data) is tuple and not (self._backlogs and session in self._backlogs):
                size_bytes += session.put(data)
                frames += 1
                self._dirty[session] = None
            elif isinstance(data, Disconnect | Reconnect) and session not in self._backlogs:
                self._end(session, data)
            else:
                self._wait_behind(session, data)
        self._metrics.sent(size_bytes, frames)
        self._released.append(arrived)
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Flush at the end of this turn of the event loop, with one write for all."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        dirty, self._dirty = self._dirty, {}
        # Events before the acknowledgement to their publisher, which is the first in a turn.
        for session in reversed(dirty):
            session.flush()
        released, self._released = self._released, []
        now = perf_counter()
        for arrived in released:
            self._metrics.released(now - arrived)
        if self._unreported:
            self.tell()

    # ---- Long backlogs, as those of a neighbour that is back: a part in each turn of the loop

    @property
    def has_backlog(self) -> bool:
        """Whether something is released and not given to the sessions."""
        return bool(self._backlogs)

    def _wait_behind(self, session: "Session", data: "Sending") -> None:
        if not self._backlogs:
            self._loop.call_soon(self._send_some)
        self._backlogs.setdefault(session, deque()).append(data)

    def _send_some(self) -> None:
        """Send a part of what waits, to one session after the other."""
        began = perf_counter()
        size_bytes = frames = 0
        full: dict[Session, None] = {}
        while self._backlogs and size_bytes < AT_ONCE_BYTES and perf_counter() < began + SLICE_S:
            session, waiting = next(iter(self._backlogs.items()))
            if _is_paged(waiting[0]) and session.waiting_bytes > AT_ONCE_BYTES:
                full[session] = None  # The rest can stay on disk until it has taken that.
                if all(each in full for each in self._backlogs):
                    break
                self._backlogs[session] = self._backlogs.pop(session)
                continue
            while waiting and _is_paged(waiting[0]):
                if not self._take_from_page(waiting):
                    return
            data = waiting.popleft() if waiting else ()
            if not waiting:
                del self._backlogs[session]
            if isinstance(data, Disconnect | Reconnect):
                self._end(session, data)
                continue
            if isinstance(data, Transmit):
                action = data
                try:
                    data = session.encode(action.frame, self._bodies)
                except Exception as error:  # noqa: BLE001 - others must not suffer.
                    instead = self._encoded_instead(session, action, None, error)
                    if instead is None:
                        continue
                    data = instead
            if not data:
                continue
            size_bytes += session.put(data)
            frames += 1
            self._dirty[session] = None
        self._bodies.clear()
        self._metrics.sent(size_bytes, frames)
        self._flush()
        if self._backlogs:
            first = next(iter(self._backlogs))  # It is the turn of another one.
            self._backlogs[first] = self._backlogs.pop(first)
            # As long as it took, so that half of the time is for others.
            is_full = all(each in full for each in self._backlogs)
            wait_s = max(perf_counter() - began, FULL_S if is_full else 0)
            self._loop.call_later(wait_s, self._send_some)

    def _take_from_page(self, waiting: "deque[Sending]") -> bool:
        """Read the next message that waits in a page; False if it cannot be read."""
        action = cast("Transmit", waiting.popleft())
        paged = cast("Paged", action.frame)
        stretch = paged.stretch
        if not self.spill.has(stretch.page):
            return True  # Nobody waits for it any more.
        try:
            message = self.spill.depot.message(stretch.page, stretch.place)
        except PageUnreadableError as error:
            self.engine.fail(error)
            return False
        if stretch.count > 1:
            waiting.appendleft(Transmit(action.link, paged.without(1)))
        waiting.appendleft(Transmit(action.link, Data(paged.seq, 0, message)))
        return True

    def _forget(self, session: "Session") -> None:
        self._dirty.pop(session, None)
        self._backlogs.pop(session, None)

    def _end(self, session: "Session", action: Disconnect | Reconnect) -> None:
        """End a session; a client that must not come back is told why."""
        if isinstance(action, Disconnect) and action.taken_over:
            log.warning("%s is refused: %s", session.peer, TAKEN_OVER_ELSEWHERE)
            session.refuse(TAKEN_OVER_ELSEWHERE, final=True)
        elif self._sessions.roles.get(session) is Role.BROKER and isinstance(action, Disconnect):
            session.abort()  # It may be out of reach, and never take what it was sent.
        else:
            session.close()

    # ---- Facts

    def stated(self, position: int, facts: Sequence[Fact], size_bytes: int) -> None:
        if facts:  # They are reported once everything urgent is sent.
            self._unreported.append((position, facts, size_bytes))
            self._flush_soon()

    def tell(self) -> None:
        """Report the facts so far: to the metrics, to the journal, and some to the operator."""
        unreported, self._unreported = self._unreported, []
        for position, facts, size_bytes in unreported:
            self._metrics.facts([fact for fact in facts if fact.at == self.node.id])
            self.stated_before(position, facts, size_bytes)
            for fact in facts:
                if type(fact) in REPORTED:
                    _report(fact)

    def stated_before(self, position: int, facts: Sequence[Fact], size_bytes: int) -> None:
        self.journalist.record(position, facts, size_bytes)

    def before_snapshot(self) -> Callable[[], None]:
        self.tell()
        return self.journalist.making_safe()

    def snapshot_ended(self, how: str, seconds: float) -> None:
        self._metrics.snapshot(how, seconds)

    def stumbled(self, given: Input, error: Exception) -> None:
        name = self._configuration.name
        log.error("%s failed at %s", name, type(given).__name__, exc_info=error)
        if isinstance(given, Received):
            self._hang_up(given.link)
        elif isinstance(given, DeviceConnected | DeviceSaid):
            self._hang_up(given.device)

    def _hang_up(self, link: LinkId) -> None:
        """End a connection after what came over it has failed; what follows is sent again."""
        session = self._sessions.links.get(link)
        if session is not None:
            session.abort()

    def committed(self, seconds: float, inputs: int) -> None:
        self._metrics.commit(seconds, inputs)
        self._pausing.committed()

    def failed(self, error: Exception) -> None:
        self._server.fail(error)

    def _journal_failed(self, error: Exception) -> None:
        self.engine.fail(error)

    def _wait_for_journal(self, waits: bool) -> None:  # noqa: FBT001
        self._pausing.journal_waits(waits=waits)


def _report(fact: Fact) -> None:
    """Tell the operator of a fact."""
    if isinstance(fact, RingFound):
        log.error(
            "%s and %s must not be neighbours: they would close a ring; "
            "remove one of the links between brokers",
            *(fact.at, fact.link),
        )
    elif isinstance(fact, ForgottenEarly):
        log.warning(
            "%s is away, and had to be forgotten before its time: too much is kept for clients "
            "that are away (clients_away_max, subscriptions_away_max, memory_bytes_max)",
            fact.client,
        )
    elif isinstance(fact, MemoriesDiffer):
        log.warning(
            "%s and %s remember different things: one of them has come back with an old memory. "
            "Their link begins anew. %s has %d messages that %s does not remember to have sent, "
            "and has forgotten %d that it had",
            *(fact.at, fact.link, fact.link),
            *(fact.forgotten_here, fact.at, fact.forgotten_there),
        )


def _is_paged(sending: Sending) -> bool:
    return type(sending) is Transmit and type(sending.frame) is Paged


def _has_backlog(actions: Sequence[Action]) -> bool:
    """Whether some link gets much; a little for each of many is mostly the same, encoded once."""
    links = {action.link for action in actions if type(action) is Transmit}
    return len(actions) > FEW_ACTIONS * max(1, len(links))
