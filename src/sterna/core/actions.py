"""What a node asks its driver to do."""

import msgspec

from sterna.core.link import Frame
from sterna.core.messages import Message
from sterna.core.names import LinkId, Time
from sterna.model.event import Event
from sterna.model.filters import Filter


class Transmit(msgspec.Struct, frozen=True, gc=False):
    """Send a frame over the link's connection. It may get lost: the link session sees to that."""

    link: LinkId
    frame: Frame


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand events to the application, each with the subscriptions that it matches."""

    events: tuple[Event, ...]
    subscriptions: tuple[tuple[str, ...], ...]


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Connect to a broker, and keep trying; report `LinkUp` when the connection is up."""

    link: LinkId


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    """End the connection over a link, and do not come back to it by yourself."""

    link: LinkId
    taken_over: bool = False
    """Whether another client of that name is elsewhere now, so that this one must not come back."""


class Reconnect(msgspec.Struct, frozen=True, gc=False):
    """End the connection over a link; it is to be made again, by whichever end makes it."""

    link: LinkId


class LookUp(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Look into the archive for events that match a filter, and answer with `LookedUp`."""

    question: int
    filter: Filter
    events_max: int | None
    """At most so many events, the newest ones."""
    since_us: Time
    """Only events that were published at this time or later."""
    until_us: Time
    """Only events that were published at this time or earlier."""


class Broadcast(msgspec.Struct, frozen=True, gc=False):
    """Send a message to all nodes in reach, as a datagram: any of them may not get it."""

    message: Message


Action = Transmit | Deliver | Connect | Disconnect | Reconnect | LookUp | Broadcast
