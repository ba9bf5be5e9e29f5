"""Reads the frames of native sessions: clients are held to the rules, and take turns."""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Sequence
from time import perf_counter
from typing import NamedTuple

from sterna.core.inputs import Received
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.messages import Events, OtherMessage
from sterna.core.names import LinkId, RouteId
from sterna.core.routing.foresight import Foresight
from sterna.net.admission import Admission, RefusedError
from sterna.net.broker.doors import Parts
from sterna.net.broker.long_changes import (
    ROUTES_MAX,
    SEARCHING,
    LongChange,
    routes_in,
    takes_long,
)
from sterna.net.broker.sessions import Session
from sterna.net.broker.slow_reading import SlowReading
from sterna.net.broker.turns import LoopTurn
from sterna.wire.codec import (
    LENGTH_BYTES,
    LONG_FILTER_CHARACTERS,
    MalformedError,
    decode,
    decode_quickly,
)
from sterna.wire.frames import Role

log = logging.getLogger("sterna.broker")

OTHERS_MAX = 100
"""How many kinds of unknown messages are logged."""

SHORT_BYTES = LONG_FILTER_CHARACTERS
"""What is not longer is quickly read and handled."""

MIXED_BYTES_MAX = 4096
"""In what is larger, events come in another turn than the filters before them."""

READING_S = 0.02
"""How many seconds are for a message that takes long; then it is the turn of others."""

UNCLOCKED_BYTES_MAX = 65_536
"""Reading so many bytes of events takes less than a millisecond: the time is looked at then."""

PREPARING_S = 0.01
"""After how many seconds it is asked again whether the core is prepared for a message."""


class _Foreseen(NamedTuple):
    """An input that others had their turn before, and what is known of it."""

    session: Session
    received: Received
    raw: bytes
    foresight: Foresight


class _Announced(NamedTuple):
    """A long message, and what of it the core was not given ahead."""

    session: Session
    received: Received
    raw: bytes
    parts: LongChange


class Reading:
    """Turns what arrives over links into inputs of the core."""

    def __init__(self, parts: Parts) -> None:
        self._configuration = parts.configuration
        self._driver = parts.driver
        self._sessions = parts.sessions
        self._pausing = parts.pausing
        self._metrics = parts.metrics
        self._loop = asyncio.get_running_loop()
        self._turn = LoopTurn(self._loop)
        self._later: dict[Session, deque[tuple[bytes, Sequence[memoryview]]]] = {}
        """What clients have sent and is read after others have had their turn."""
        self._timers: dict[Session, asyncio.TimerHandle] = {}
        """When what sessions have sent is read."""
        self._waiting: dict[Session, None] = {}
        """Sessions with an input that takes long: others have their turn before it is handled."""
        self._slow = SlowReading(self._has_read)
        self._read: dict[Session, Frame] = {}
        """Frames that another thread has read, and that are the first of what a session has
        sent and is read later."""
        self._until = 0.0
        """When the present slice of such an input ends."""
        self._admission = Admission(
            self._claimed,
            subscriptions_max=parts.configuration.limits.subscriptions_per_client_max,
        )
        self._others: set[tuple[LinkId, str]] = set()
        """The unknown messages that were logged: by whom and of which kind."""
        parts.sessions.when_over(self._forget)

    def configure(self) -> None:
        """The configuration has changed."""
        self._admission.subscriptions_max = self._configuration.limits.subscriptions_per_client_max

    def arrived(self, session: Session, raw: bytes, bodies: Sequence[memoryview]) -> None:
        """Take link frames, as received and one by one; MalformedError if they are none."""
        if session in self._later:
            self._later[session].append((raw, bodies))
            return
        turn = self._turn
        if turn.is_over:
            self._read_later(session, deque([(raw, bodies)]), 0.0)
            return
        began = perf_counter()
        is_client = self._sessions.roles[session] is Role.CLIENT
        if len(bodies) > 1 or len(raw) > SHORT_BYTES:
            frames, raw, has_others = self._first_frames(
                session, raw, bodies, began, is_client=is_client
            )
            if frames:
                self._take(session, raw, frames, has_others=has_others)
        else:
            frame = decode(bodies[0], short_filters=is_client)
            if type(frame) is Ack:
                self._give(Received(link=session.peer, frames=(frame,), size=len(raw)), raw)
                return
            has_others = type(frame) is not Data or type(frame.message) is not Events
            self._take(session, raw, (frame,), has_others=has_others)
        turn.use(perf_counter() - began)

    def _take(
        self, session: Session, raw: bytes, frames: tuple[Frame, ...], *, has_others: bool
    ) -> None:
        link = session.peer
        if self._sessions.roles[session] is Role.CLIENT:
            try:
                self._admission.check(link, frames)
            except RefusedError as problem:
                self._sessions.refuse(session, str(problem), final=True)
                return
        else:
            self._notice_others(link, frames)
        received = Received(link=link, frames=frames, size=len(raw))
        if not has_others and not self._driver.node.takes_long(received):
            self._give(received, raw)
        elif takes_long(frames[0], self._driver.node, link):
            self._announce(_Announced(session, received, raw, LongChange(frames[0])))
        else:
            self._handle(session, received, raw)

    def _handle(self, session: Session, received: Received, raw: bytes) -> None:
        foresight = self._driver.node.foresee(received, self._is_time_up)
        if foresight is None:
            self._give(received, raw)
            self._wait_no_more(session)
        else:
            self._foresee(_Foreseen(session, received, raw, foresight))

    def _give(self, received: Received, raw: bytes, foresight: Foresight | None = None) -> None:
        self._metrics.received(len(raw), len(received.frames))
        if foresight is None:
            self._driver.give(received, raw)
        else:
            node = self._driver.node
            node.foresight = foresight
            try:
                self._driver.give(received, raw)
            finally:
                node.foresight = None
        if self._driver.engine.held:
            self._pausing.received(len(raw))

    def _foresee(self, foreseen: _Foreseen) -> None:
        """Give the core an input once it can handle it quickly.

        What else the peer has sent waits until then.
        """
        session, received, raw, foresight = foreseen
        if session.is_over:
            return
        began = perf_counter()
        self._until = began + READING_S
        if not foresight.is_complete():
            self._let_wait(session)
            self._turn.use(perf_counter() - began)
            self._loop.call_later(perf_counter() - began, self._foresee, foreseen)
            return
        self._give(received, raw, foresight)
        self._wait_no_more(session)

    def _announce(self, announced: _Announced) -> None:
        """Give the core the parts of a long message, as many as fit in a turn; then all of it.

        The core may have to prepare for it in turns of its own. What else the peer has sent waits
        until then.
        """
        session, received, raw, parts = announced
        if session.is_over:
            return
        began = now = perf_counter()
        if self._turn.used_s > READING_S:
            self._let_wait(session)
            self._loop.call_later(READING_S, self._announce, announced)
            return
        router, link = self._driver.node.router, received.link
        is_preparing = router.is_preparing(link)
        while parts and not is_preparing and now - began < READING_S:
            self._driver.give(parts.next(link))
            before, now = now, perf_counter()
            parts.took(now - before)
            is_preparing = router.is_preparing(link)
        if parts or is_preparing:
            self._let_wait(session)
            self._turn.use(now - began)
            after_s = PREPARING_S if is_preparing else now - began
            self._loop.call_later(after_s, self._announce, announced)
            return
        self._handle(session, received, raw)

    def _let_wait(self, session: Session) -> None:
        """Others have their turn; what else the peer has sent waits."""
        if session not in self._waiting:
            self._waiting[session] = None
            self._later.setdefault(session, deque())
            self._pausing.rest(session)

    def _wait_no_more(self, session: Session) -> None:
        if session in self._waiting:
            del self._waiting[session]
            self._go_on_after(session, 0.0)

    def _is_time_up(self) -> bool:
        return perf_counter() > self._until

    def _notice_others(self, link: LinkId, frames: Sequence[Frame]) -> None:
        """Log a warning, once, for each kind of message that a neighbour sends in vain."""
        for frame in frames:
            if type(frame) is Data and type(frame.message) is OtherMessage:
                noticed = link, frame.message.kind
                if noticed not in self._others and len(self._others) < OTHERS_MAX:
                    self._others.add(noticed)
                    log.warning(
                        "%s sends %s messages, of a protocol that is not known here: they are "
                        "ignored; network.protocols of the two brokers may differ",
                        *noticed,
                    )

    def _first_frames(
        self,
        session: Session,
        raw: bytes,
        bodies: Sequence[memoryview],
        began: float,
        *,
        is_client: bool,
    ) -> tuple[tuple[Frame, ...], bytes, bool]:
        """The frames of a peer, or as many as can be read in one turn; none if that takes long.
        Then their bytes, and whether there are others among them than events and acknowledgements.

        Reading many filters takes long: then others have their turn before it continues. Events
        that follow filters are for another turn, too: only then can it be foreseen what they match.
        """
        frames: list[Frame] = []
        apart = len(raw) > MIXED_BYTES_MAX
        has_others = False
        node = self._driver.node
        routes = unclocked_bytes = 0
        read = self._read.pop(session, None)
        until = began + READING_S
        for body in bodies:
            frame = read or decode_quickly(body, short_filters=is_client, until_s=until)
            read = None
            if frame is None:
                break
            is_other = is_long = False
            if type(frame) is Data:
                is_other = type(frame.message) is not Events
                if apart and has_others and not is_other:
                    break
                if is_other:
                    has_others = True
                    routes += routes_in(frame)
                    is_long = (
                        routes > ROUTES_MAX
                        or isinstance(frame.message, SEARCHING)
                        or takes_long(frame, node, session.peer)
                    )
            elif type(frame) is Resume:
                has_others = is_long = takes_long(frame, node, session.peer)
            if is_long and frames:
                break  # What takes long comes alone.
            frames.append(frame)
            if is_long:
                break
            unclocked_bytes += len(body)
            if is_other or unclocked_bytes > UNCLOCKED_BYTES_MAX:
                unclocked_bytes = 0
                if perf_counter() - began > READING_S:
                    break
        if len(frames) < len(bodies):
            size = sum(LENGTH_BYTES + len(body) for body in bodies[: len(frames)])
            rest = deque([(raw[size:], bodies[len(frames) :])])
            if frames:
                # As long as it took, so that half of the time is for others.
                self._read_later(session, rest, perf_counter() - began)
            else:
                self._later[session] = rest
                self._pausing.rest(session)
                self._slow.read(session, bodies[0], short_filters=is_client)
            raw = raw[:size]
        return tuple(frames), raw, has_others

    def _has_read(self, session: Session, frame: Frame | MalformedError) -> None:
        """Another thread has read a frame that takes long."""
        if session not in self._later:
            return  # It is over.
        if isinstance(frame, MalformedError):
            self._sessions.refuse(session, str(frame), final=True)
            return
        self._read[session] = frame
        self._go_on(session)

    def _read_later(
        self, session: Session, later: deque[tuple[bytes, Sequence[memoryview]]], after_s: float
    ) -> None:
        """Read what a session has sent when others have had their turn."""
        self._later[session] = later
        self._pausing.rest(session)
        self._go_on_after(session, after_s)

    def _go_on_after(self, session: Session, seconds: float) -> None:
        """Go on with a session, once: two of them would take the time of two."""
        if session not in self._timers:
            self._timers[session] = self._loop.call_later(seconds, self._go_on, session)

    def _go_on(self, session: Session) -> None:
        timer = self._timers.pop(session, None)
        if timer is not None:
            timer.cancel()
        if session in self._waiting:
            return  # It goes on after that.
        later = self._later.pop(session, deque())
        while later:
            if session.is_over:
                return
            try:
                self.arrived(session, *later.popleft())
            except MalformedError as problem:
                self._sessions.refuse(session, str(problem), final=True)
            if session in self._later:
                self._later[session].extend(later)
                return
            if later and self._turn.is_over:
                self._read_later(session, later, READING_S)
                return
        self._pausing.go_on(session)

    def _claimed(self, client: LinkId) -> Sequence[tuple[str, Collection[RouteId]]]:
        return self._driver.node.claimed(client)

    def _forget(self, session: Session) -> None:
        self._later.pop(session, None)
        timer = self._timers.pop(session, None)
        if timer is not None:
            timer.cancel()
        self._waiting.pop(session, None)
        self._read.pop(session, None)
        self._slow.forget(session)
