"""The peers of a broker: the seam between the core's links and what is at their ends."""

import logging
from collections.abc import Callable
from typing import Protocol

from sterna.core.inputs import Input, LinkGone
from sterna.core.link import Frame
from sterna.core.names import NodeId
from sterna.net.broker.driver import BrokerDriver
from sterna.net.metrics import Metrics
from sterna.wire.codec import Bodies
from sterna.wire.frames import Role

log = logging.getLogger("sterna.broker")

TAKEN_OVER = "another connection of the same name has taken over"


class Session(Protocol):
    """The other end of a link, however it is reached and whatever protocol it speaks.

    A native connection is one. So is anything else that takes the core's frames: a session of
    another protocol takes them for the node that it hosts.
    """

    peer: NodeId
    """The name of the other side, once it is known."""
    heard: bool
    """Whether anything was received since this was set to False."""
    is_over: bool
    received_bytes: int
    """How many bytes the other side has sent so far."""

    def down(self) -> Input:
        """What the core is given when the session is over."""
        ...

    @property
    def unfinished_bytes(self) -> int:
        """How many of those belong to a frame that has not arrived completely."""
        ...

    @property
    def address(self) -> str:
        """The address of the other side, for messages."""
        ...

    @property
    def host(self) -> str:
        """The host of the other side; empty if it is not known."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the other side has not taken yet."""
        ...

    def is_stuck(self) -> bool:
        """Whether something waits, and the other side took nothing since the last call."""
        ...

    def unconfirmed_bytes(self, oldest: int | None) -> int:
        """About how many bytes were sent since a message that the other side has not confirmed."""
        ...

    def encode(self, frame: Frame, bodies: Bodies) -> tuple[bytes, ...]:
        """Make a frame ready for `put`; `bodies` holds what this turn has encoded before."""
        ...

    def put(self, parts: tuple[bytes, ...]) -> int:
        """Have a frame sent with the next `flush`; return its size in bytes."""
        ...

    def flush(self) -> None:
        """Send what was put, in one write."""
        ...

    def probe(self) -> None:
        """Send a ping."""
        ...

    def pause_reading(self) -> None:
        """Stop reading from the other side."""
        ...

    def resume_reading(self) -> None:
        """Read on from the other side."""
        ...

    def refuse(self, reason: str, *, final: bool = False) -> None:
        """Give the reason and end; `final` if the peer should not return."""
        ...

    def close(self) -> None:
        """End once everything that was put is sent."""
        ...

    def abort(self) -> None:
        """End now."""
        ...


class Sessions:
    """The sessions whose handshake is finished, and which of them are links of the core."""

    def __init__(self, driver: BrokerDriver, metrics: Metrics) -> None:
        self.roles: dict[Session, Role] = {}
        """All sessions, with the role of the other side."""
        self.links: dict[NodeId, Session] = {}
        """The session of each neighbour and client."""
        self._driver = driver
        self._metrics = metrics
        self._forget: list[Callable[[Session], None]] = []

    def when_over(self, forget: Callable[[Session], None]) -> None:
        """Have a function called when a session is over, for a part of the broker to forget it."""
        self._forget.append(forget)

    def add(self, session: Session, role: Role) -> None:
        """Add a session whose handshake is finished."""
        self.roles[session] = role

    def link(self, session: Session, up: Input) -> None:
        """Let a session be the core's link to its peer, instead of any other one."""
        name = session.peer
        old = self.links.pop(name, None)
        if old is not None:
            self._drop(old)
            old.refuse(TAKEN_OVER, final=True)
        self.links[name] = session
        self._driver.give(up)

    def is_linked(self, session: Session) -> bool:
        """Whether a session is the core's link to its peer."""
        return self.links.get(session.peer) is session

    def lost(self, session: Session) -> None:
        """A session is over; its link is down, if it was one."""
        self._drop(session)
        if self.is_linked(session):
            del self.links[session.peer]
            self._driver.give(session.down())

    def leave(self, neighbour: NodeId) -> None:
        """Remove a neighbour for good."""
        session = self.links.pop(neighbour, None)
        if session is not None:
            session.close()
        self._driver.give(LinkGone(link=neighbour))

    def send_away(self, client: NodeId, reason: str) -> None:
        """End the session of a client, if it is here, and have the core forget it for good."""
        session = self.links.pop(client, None)
        if session is not None:
            self._drop(session)
            self.refuse(session, reason, final=True)
        self._driver.give(LinkGone(link=client))

    def refuse(self, session: Session, reason: str, *, final: bool = False) -> None:
        """End a session, and give the reason."""
        if session.is_over:
            return
        who, extra = session.peer or session.address, {"host": session.host}
        log.warning("refused %s: %s", who, reason, extra=extra)
        self._metrics.closed("refused")
        session.refuse(reason, final=final)

    def _drop(self, session: Session) -> None:
        self.roles.pop(session, None)
        for forget in self._forget:
            forget(session)
