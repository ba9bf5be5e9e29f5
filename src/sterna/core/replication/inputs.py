"""What the merging of sessions is given."""

from sterna.core.inputs import Input
from sterna.core.names import NodeId
from sterna.model.event import Event

SessionId = NodeId
"""The name of a session: that of its client."""


class SessionJoined(Input, frozen=True, kw_only=True):
    """Another session watches the subscriptions. Nothing waits for it until it brings something."""

    session: SessionId


class SessionLost(Input, frozen=True, kw_only=True):
    """A session will bring nothing more, so nothing waits for it."""

    session: SessionId


class EventsArrived(Input, frozen=True, kw_only=True):
    """A session has events for the application, of each publisher in the order of their numbers."""

    session: SessionId
    events: tuple[Event, ...]
    subscriptions: tuple[tuple[str, ...], ...]
    """The subscriptions that each of them matches."""


class SessionReached(Input, frozen=True, kw_only=True):
    """A session will bring no event of a publisher up to a number any more."""

    session: SessionId
    publisher: NodeId
    seq: int
