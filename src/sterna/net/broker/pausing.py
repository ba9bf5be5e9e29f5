"""When a broker reads from which peer: it pauses when it cannot keep up."""

from sterna.net.broker.configuration import Configuration
from sterna.net.broker.sessions import Session, Sessions
from sterna.net.config import SlowConsumer
from sterna.wire.frames import Role


class Pausing:
    """Pauses peers that send, as long as what they sent has nowhere to go."""

    def __init__(self, configuration: Configuration, sessions: Sessions) -> None:
        self.is_paused = False
        self.in_flight_bytes = 0
        """How many bytes were received since the last inputs became durable."""
        self._configuration = configuration
        self._sessions = sessions
        self._is_draining = False
        self._full: dict[Session, None] = {}
        """Sessions whose queues are too long."""
        self._resting: dict[Session, None] = {}
        """Sessions that have sent much at once, and wait for their turn."""
        sessions.when_over(self._forget)

    def is_waited_for(self, session: Session) -> bool:
        """Whether others have to wait for a session whose queue is too long."""
        role = self._sessions.roles.get(session)
        return role is Role.BROKER or (
            role is Role.CLIENT and self._configuration.limits.slow_consumer is SlowConsumer.BLOCK
        )

    # ---- Reasons

    def received(self, size_bytes: int) -> None:
        """Count bytes that were received and are not durable yet."""
        self.in_flight_bytes += size_bytes
        if self._is_too_much():
            self.pause()

    def committed(self) -> None:
        """Everything received is durable."""
        self.in_flight_bytes = 0
        self.look_again()

    def full(self, session: Session) -> None:
        """A session's queue is too long."""
        self._full[session] = None
        if self.is_waited_for(session):
            self.pause()

    def relieved(self, session: Session) -> None:
        """A session's queue is short again."""
        self._full.pop(session, None)
        self.look_again()

    def rest(self, session: Session) -> None:
        """Pause a session until others have had their turn."""
        self._resting[session] = None
        session.pause_reading()

    def go_on(self, session: Session) -> None:
        """Read on from a session that has rested."""
        self._resting.pop(session, None)
        if not self.is_paused and not self._is_draining:
            session.resume_reading()

    def drain(self) -> None:
        """Stop reading from clients."""
        self._is_draining = True
        for session, role in list(self._sessions.roles.items()):
            if role is Role.CLIENT:
                session.pause_reading()

    # ---- Pausing

    def pause(self) -> None:
        """Pause publishers.

        A neighbour whose queue is too long is read nevertheless: two brokers that wait for each
        other would wait for ever.
        """
        self.is_paused = True
        for session, role in self._sessions.roles.items():
            if role is Role.BROKER and session in self._full:
                session.resume_reading()
            elif role is not Role.OBSERVER:
                session.pause_reading()

    def look_again(self) -> None:
        """Read on, if there is no reason to pause any more."""
        if not self.is_paused:
            return
        if any(self.is_waited_for(session) for session in self._full) or self._is_too_much():
            self.pause()
            return
        self.is_paused = False
        if not self._is_draining:
            for session in self._sessions.roles:
                if session not in self._resting:
                    session.resume_reading()

    def linked(self, session: Session) -> None:
        """A session has become a link; it pauses like all others."""
        if self.is_paused:
            session.pause_reading()

    def _is_too_much(self) -> bool:
        return self.in_flight_bytes > self._configuration.limits.in_flight_bytes_max

    def _forget(self, session: Session) -> None:
        self._resting.pop(session, None)
        self.relieved(session)
