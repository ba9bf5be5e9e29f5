"""What brokers send each other about the sessions of devices."""

from typing import ClassVar

import msgspec

from sterna.core.messages import Message
from sterna.core.names import NodeId
from sterna.core.overlay.messages import Unicast
from sterna.model.event import Event
from sterna.model.ranges import Number


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where the session of a device is."""

    device: NodeId
    broker: NodeId
    """Empty if it has ended."""
    epoch: Number
    """Of two places of one session, the one with the greater number is later."""


class SessionsNoted(Message, frozen=True, kw_only=True):
    """To all brokers: sessions are here now, or have ended."""

    places: tuple[Place, ...] = ()
    asks: bool = False
    """Whether the sender has just begun to take part, and needs to know what its neighbour does."""


class RetainedNoted(Message, frozen=True, kw_only=True):
    """To all brokers: these are the last retained messages of their topics."""

    events: tuple[Event, ...]
    stamps: tuple[Number, ...]
    """Of each event; of two events of one topic, the one with the greater stamp is later."""


class SessionAsked(Unicast, frozen=True, kw_only=True):
    """New broker -> old broker: a device is here now; hand its session over."""

    device: NodeId
    digest: str
    """Stands for the settings of the new broker's clients."""


class SessionMoved(Unicast, frozen=True, kw_only=True):
    """Old broker -> new broker: the session of a device; nothing of it is here any more."""

    is_said_once: ClassVar[bool] = True

    device: NodeId
    epoch: Number
    state: bytes
    """A `MovingDevice`."""


class SessionElsewhere(Unicast, frozen=True, kw_only=True):
    """Old broker -> new broker: the session of a device is not here, but there, or it has ended."""

    place: Place


class ShareJoined(Unicast, frozen=True, kw_only=True):
    """Broker of a member -> broker of a group: a device shares its subscription, and is here."""

    group: NodeId
    member: NodeId
    topics: str
    where: str = ""
    keep: str = ""
    is_active: bool = True
    """Whether it is connected."""


class ShareLeft(Unicast, frozen=True, kw_only=True):
    """Broker of a member -> broker of a group: it does not share the subscription any more."""

    group: NodeId
    member: NodeId


class ShareGiven(Unicast, frozen=True, kw_only=True):
    """Broker of a group -> broker of a member: these messages are for this member."""

    is_said_once: ClassVar[bool] = True

    group: NodeId
    member: NodeId
    numbers: tuple[Number, ...]
    events: tuple[Event, ...]


class ShareEnded(Unicast, frozen=True, kw_only=True):
    """Broker of a member -> broker of a group: what has become of messages."""

    is_said_once: ClassVar[bool] = True

    group: NodeId
    done: tuple[Number, ...] = ()
    returned: tuple[Number, ...] = ()
    """These are for another member."""
