"""How brokers tell each other which of them are neighbours."""

from typing import ClassVar

import msgspec

from sterna.core.messages import Message
from sterna.core.names import NodeId


class OverlayLink(msgspec.Struct, frozen=True, order=True, gc=False):
    """Two brokers that are neighbours, in alphabetical order."""

    a: NodeId
    b: NodeId


class Unicast(Message, frozen=True, kw_only=True):
    """To a broker by name: the brokers between pass it on, whatever protocols they take part in."""

    is_repeated: ClassVar[bool] = False
    """Whether its sender sends it again if nothing comes back."""

    to: NodeId
    sender: NodeId


class OverlayChange(Message, frozen=True, kw_only=True):
    """To a neighbour: these links are on my side of the network (and no longer those)."""

    added: tuple[OverlayLink, ...] = ()
    removed: tuple[OverlayLink, ...] = ()
    asks: bool = False
    """Whether the sender has just begun to look at the overlay, and needs to know your side."""
