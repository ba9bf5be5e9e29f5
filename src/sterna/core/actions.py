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


Action = Transmit | Deliver
