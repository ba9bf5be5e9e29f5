"""Links that stand still: connected, and the neighbour confirms nothing."""

import time
from typing import TYPE_CHECKING

from sterna.core.names import NodeId, Peer

if TYPE_CHECKING:
    from sterna.net.broker.driver import BrokerDriver
    from sterna.net.broker.sessions import Sessions

STALLED_S = 10.0
"""A link is stalled after so many seconds without progress."""


class Progress:
    """Watches how far each neighbour is with what it was sent.

    That a connection is up says nothing of that: the neighbour may be frozen, or its memory of the
    link may be of no use.
    """

    def __init__(self, driver: "BrokerDriver", sessions: "Sessions") -> None:
        self._driver = driver
        self._sessions = sessions
        self._marks: dict[NodeId, tuple[int, float]] = {}
        """The oldest message that each neighbour has not confirmed (0 before the handshake), and
        since when."""

    def look(self) -> None:
        """See which links have made progress."""
        node, now = self._driver.node, time.monotonic()
        marks: dict[NodeId, tuple[int, float]] = {}
        for link in self._sessions.links:
            if node.peers.get(link) is Peer.BROKER:
                place = node.oldest_unconfirmed(link) if link in node.up else 0
                if place is not None:
                    before = self._marks.get(link)
                    marks[link] = before if before and before[0] == place else (place, now)
        self._marks = marks

    def stalled(self) -> dict[NodeId, float]:
        """For how many seconds which links have made no progress."""
        now = time.monotonic()
        waits = {link: round(now - since, 1) for link, (_, since) in self._marks.items()}
        return {link: seconds for link, seconds in waits.items() if seconds >= STALLED_S}

    def problem(self) -> str | None:
        """What is wrong, in words; None if all links make progress."""
        stalled = self.stalled()
        if not stalled:
            return None
        told = ", ".join(f"{link} for {seconds:.0f} s" for link, seconds in stalled.items())
        return f"no progress on the link to {told}"
