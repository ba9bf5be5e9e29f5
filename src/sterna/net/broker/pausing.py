"""When a broker reads from which peer: those that send more than it can pass on have to wait."""

from collections.abc import Collection, Sequence

from sterna.core.facts import Fact, Forwarded
from sterna.core.names import LinkId
from sterna.net.broker.configuration import Configuration
from sterna.net.broker.sessions import Session, Sessions
from sterna.net.config import SlowConsumer
from sterna.wire.frames import Role


class Pausing:
    """Pauses peers that send, as long as what they sent has nowhere to go.

    A source waits for the targets of its own events, and for no others. Only a disk that is too
    slow makes all wait.
    """

    def __init__(self, configuration: Configuration, sessions: Sessions) -> None:
        self.is_paused = False
        """Whether all have to wait, because what was received is not durable yet."""
        self._journal_waits = False
        """Whether all have to wait, because the journal is not written as fast."""
        self.in_flight_bytes = 0
        """How many bytes were received since the last inputs became durable."""
        self._configuration = configuration
        self._sessions = sessions
        self._is_draining = False
        self._full: dict[Session, None] = {}
        """Sessions that do not take what is sent to them."""
        self._overdue: frozenset[LinkId] = frozenset()
        """Neighbours for which more is queued than memory allows, connected or not."""
        self._waiting: dict[Session, dict[LinkId, None]] = {}
        """Sources, each with the targets that it has to wait for."""
        self._resting: dict[Session, None] = {}
        """Sessions that have sent much at once, and wait for their turn."""
        sessions.when_over(self._forget)

    def is_waited_for(self, session: Session) -> bool:
        """Whether others have to wait for a session that does not take what is sent to it."""
        role = self._sessions.roles.get(session)
        return role is Role.BROKER or (
            role is Role.CLIENT and self._configuration.limits.slow_consumer is SlowConsumer.BLOCK
        )

    def reads(self, session: Session) -> bool:
        """Whether the broker reads what a session sends.

        A neighbour that does not take what there is for it is read nevertheless: two brokers that
        wait for each other would wait for ever.
        """
        role = self._sessions.roles.get(session)
        if role is None or role is Role.OBSERVER:
            return True
        if session in self._resting or (self._is_draining and role is Role.CLIENT):
            return False
        if role is Role.BROKER and (session in self._full or session.peer in self._overdue):
            return True
        return not (self.is_paused or self._journal_waits) and session not in self._waiting

    @property
    def waiting(self) -> int:
        """How many sources wait for their targets."""
        return len(self._waiting)

    # ---- Reasons for all

    def received(self, size_bytes: int) -> None:
        """Count bytes that were received and are not durable yet."""
        self.in_flight_bytes += size_bytes
        limit = self._configuration.limits.in_flight_bytes_max
        if self.in_flight_bytes > limit and not self.is_paused:
            self.is_paused = True
            self._apply(self._sessions.roles)

    def committed(self) -> None:
        """Everything received is durable."""
        self.in_flight_bytes = 0
        if self.is_paused:
            self.is_paused = False
            self._apply(self._sessions.roles)

    def journal_waits(self, *, waits: bool) -> None:
        """The journal has to be written before more is received, or has been."""
        self._journal_waits = waits
        self._apply(self._sessions.roles)

    def drain(self) -> None:
        """Stop reading from clients."""
        self._is_draining = True
        self._apply(self._sessions.roles)

    # ---- Reasons for some

    def full(self, session: Session) -> None:
        """A session does not take what is sent to it: who sends more to it has to wait."""
        self._full[session] = None
        self._apply((session,))

    def relieved(self, session: Session) -> None:
        """A session has taken what was sent to it."""
        if self._full.pop(session, self) is None:
            self._apply((session,))
            self._look_again()

    def queued(self, overdue: frozenset[LinkId]) -> None:
        """For these neighbours more is queued than memory allows, and for no others."""
        if overdue != self._overdue:
            changed, self._overdue = overdue ^ self._overdue, overdue
            links = self._sessions.links
            self._apply([links[link] for link in changed if link in links])
            self._look_again()

    def look_again(self) -> None:
        """The configuration has changed: some may have to wait no more."""
        limit = self._configuration.limits.in_flight_bytes_max
        self.is_paused = self.is_paused and self.in_flight_bytes > limit
        self._look_again()
        self._apply(self._sessions.roles)

    @property
    def is_watching(self) -> bool:
        """Whether there are targets that sources may have to wait for."""
        return bool(self._full or self._overdue)

    def routed(self, facts: Sequence[Fact]) -> None:
        """Have the sources of events wait for the targets that they go to, if those are full."""
        for fact in facts:
            if type(fact) is Forwarded:
                source = self._sessions.links.get(fact.source)
                if source is not None:
                    for target in fact.to:
                        if self._has_to_wait(source, target):
                            self._waiting.setdefault(source, {})[target] = None
                            self._apply((source,))

    def _has_to_wait(self, source: Session, target: LinkId) -> bool:
        """Whether a source has to wait for a target.

        Events from a neighbour are of many publishers, most of which may have nothing to do with
        the target. So they are queued for another neighbour as long as memory allows.
        """
        if target in self._overdue:
            return True
        session = self._sessions.links.get(target)
        if session is None or session not in self._full or not self.is_waited_for(session):
            return False
        roles = self._sessions.roles
        return roles.get(session) is Role.CLIENT or roles.get(source) is Role.CLIENT

    def _look_again(self) -> None:
        """Read on from sources whose targets take something again."""
        for source, targets in list(self._waiting.items()):
            left = {target: None for target in targets if self._has_to_wait(source, target)}
            self._waiting[source] = left
            if not left:
                del self._waiting[source]
                self._apply((source,))

    # ---- Turns

    def rest(self, session: Session) -> None:
        """Pause a session until others have had their turn."""
        self._resting[session] = None
        session.pause_reading()

    def go_on(self, session: Session) -> None:
        """Read on from a session that has rested."""
        self._resting.pop(session, None)
        self._apply((session,))

    def linked(self, session: Session) -> None:
        """A session has become a link; it pauses like all others."""
        self._apply((session,))

    # ---- Pausing

    def _apply(self, sessions: Collection[Session]) -> None:
        for session in sessions:
            if self.reads(session):
                session.resume_reading()
            else:
                session.pause_reading()

    def _forget(self, session: Session) -> None:
        self._resting.pop(session, None)
        self._waiting.pop(session, None)
        if self._full.pop(session, self) is None:
            self._look_again()
