"""What a node asks its driver to do."""

import msgspec

from sterna.core.link import Frame
from sterna.core.names import LinkId
from sterna.model.event import Event


class Transmit(msgspec.Struct, frozen=True, gc=False):
    """Send a frame over the link's connection. It may get lost: the link session sees to that."""

    link: LinkId
    frame: Frame


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand events to the application, each with the subscriptions that it matches."""

    events: tuple[Event, ...]
    subscriptions: tuple[tuple[str, ...], ...]


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Make a connection to a broker, and keep trying; say `LinkUp` when it stands."""

    link: LinkId


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    """End the connection over a link, and do not come back to it by yourself."""

    link: LinkId


Action = Transmit | Deliver | Connect | Disconnect
