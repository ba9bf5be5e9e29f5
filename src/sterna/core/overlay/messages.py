"""How brokers tell each other which of them are neighbours."""

import msgspec

from sterna.core.messages import Message
from sterna.core.names import NodeId


class OverlayLink(msgspec.Struct, frozen=True, order=True, gc=False):
    """Two brokers that are neighbours, in alphabetical order."""

    a: NodeId
    b: NodeId


class OverlayChange(Message, frozen=True, kw_only=True):
    """To a neighbour: these links are on my side of the network (and no longer those)."""

    added: tuple[OverlayLink, ...] = ()
    removed: tuple[OverlayLink, ...] = ()
