"""What brokers send each other that know each subscriber. (Amozarrain and Larrea, 3 to 6)"""

from typing import ClassVar

import msgspec

from sterna.core.messages import Message, Route
from sterna.core.names import NodeId
from sterna.model.event import Event
from sterna.model.ranges import Number


class SubscriberChange(Message, frozen=True, kw_only=True):
    """To all brokers: a subscriber wants these (and no longer those). (SUB and UNS)"""

    subscriber: NodeId
    added: tuple[Route, ...] = ()
    removed: tuple[str, ...] = ()
    time: Number = 0
    """Counts what the subscriber has said; the protocols that do not count have 0."""
    hops: Number = 0
    """How many links there are from the subscriber to the sender."""
    since: Number = 0
    """If this is the first change since the subscriber has come to its broker: the number of the
    last change that was known there."""


class SubscriberMigrated(Message, frozen=True, kw_only=True):
    """Subscriber -> its new broker -> the old way to it: it is in this direction now. (MIG)"""

    from_clients: ClassVar[bool] = True

    subscriber: NodeId
    before: NodeId = ""
    """The broker where it was before; empty if it was at none."""
    time: Number = 0
    """Counts what the subscriber has said."""
    hops: Number = 0
    """How many links there are from the subscriber to the sender."""
    since: Number = 0
    """The number of the last change that its new broker knew."""


class SubscriberForgotten(Message, frozen=True, kw_only=True):
    """Broker where the way to a subscriber was lost -> all others in its part of the network:
    nobody has heard of it for too long.
    """

    subscriber: NodeId
    time: Number
    """The number of the last change that was known."""


class OwnFilters(Message, frozen=True, kw_only=True):
    """Broker -> subscriber that has just come: this is what you are known to want. (FILTERS)"""

    routes: tuple[Route, ...]
    time: Number = 0
    """The number that its coming has."""


class EventOnward(Message, frozen=True, kw_only=True):
    """Towards a subscriber: an event that has waited for a way to it. (REP)"""

    is_said_once: ClassVar[bool] = True

    subscriber: NodeId
    event: Event


class SubscribersMoved(Message, frozen=True, kw_only=True):
    """Broker that moves -> its new neighbour -> the old way to its subscribers: they are in this
    direction now. (BMIG, Algorithm 3)
    """

    subscribers: tuple[NodeId, ...]
    broker: NodeId
    """The broker that moves."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a broker knows of a subscriber."""

    subscriber: NodeId
    routes: tuple[Route, ...]


class TableKnown(Message, frozen=True, kw_only=True):
    """New neighbour -> broker that moves: this is my table. (BTAB)"""

    entries: tuple[Entry, ...]


class MigrationForced(Message, frozen=True, kw_only=True):
    """Broker that moves -> the brokers behind it: move as well. (FMIG)"""


class Known(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How new and how near what a broker knows of a subscriber is."""

    subscriber: NodeId
    time: Number
    hops: Number


class BranchMoved(Message, frozen=True, kw_only=True):
    """Broker that moves -> its new neighbour -> the old way to its subscribers: they are in this
    direction now. (BMIG, Algorithms 5 and 6)
    """

    behind: tuple[Known, ...]
    """The subscribers that the sender takes to be behind it. (C)"""
    others: tuple[Known, ...] = ()
    """All others that it knows. (O)"""
    hops: Number = 0
    has_moved: bool = True
    """Whether the sender has moved to the receiver, and not the other way round."""


class FiltersAsked(Message, frozen=True, kw_only=True):
    """Broker -> neighbour that knows something later of a subscriber: what is it? (BQUERY)"""

    subscriber: NodeId
    time: Number
    hops: Number


class FiltersKnown(Message, frozen=True, kw_only=True):
    """Broker -> neighbour that knows something older of a subscriber -> all others. (BSUB)"""

    subscriber: NodeId
    routes: tuple[Route, ...]
    time: Number
    nearest: Number
    """How many hops from the subscriber the broker is that sent it first."""
    hops: Number = 0
    """How many links it has come over."""
