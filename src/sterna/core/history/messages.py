"""How a client asks for what was published before it subscribed, and brokers ask each other."""

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar

import msgspec

from sterna.core.history.options import Search
from sterna.core.messages import Claim, Message, Route
from sterna.core.names import NodeId, RouteId
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.model.ranges import Instant, Number

SEARCH = "search"
"""The name of the protocol by which brokers search each other, and of the feature to speak it."""


class PastAsked(Message, frozen=True, kw_only=True):
    """Client -> border broker: I subscribe, and want the past events that you still have."""

    from_clients: ClassVar[bool] = True

    route: Route
    events_max: Number | None = None
    """At most so many events, the newest ones."""
    since_us: Instant | None = None
    """Only events that were published at this time or later."""
    number: Number = 0
    """The number by which the client recognizes the answer."""
    in_parts: bool = False
    """Whether the client takes the answer in several messages; those of release 0.1 do not."""
    is_here: bool = False
    """Whether the filter stands for where the client is: its subscription moves with it, and was
    announced already."""

    def claims(self) -> Iterable[Claim]:
        return () if self.is_here else (Claim("subscription", (self.route.id,)),)


class Past(Message, frozen=True, kw_only=True):
    """Border broker -> client: past events; later ones arrive as usual."""

    subscription: RouteId
    number: Number = 0
    events: tuple[Event, ...]
    more: bool = False
    """Whether another part of the answer follows."""
    later: bool = False
    """Whether the broker has too many requests, and the client is to ask again later."""
    missed: tuple[EventId, ...] = ()
    """Events that the broker had to drop, because the client took the others too slowly."""


class Place(StrEnum):
    """Where somebody stands who has events of a publisher."""

    WAY = "way"
    """On the way of its events: all that follow come through there, wherever it is."""
    HERE = "here"
    """It is the publisher's broker: all that follow come from there, unless it has moved."""
    LEFT = "left"
    """The publisher has left there, for good as far as is known."""
    BEFORE = "before"
    """The publisher was there before, and is elsewhere."""

    @property
    def is_open(self) -> bool:
        """Whether all that follow come as usual."""
        return self in {Place.WAY, Place.HERE}


class Run(msgspec.Struct, frozen=True, array_like=True):
    """The numbers between which somebody has all events of a publisher that match a filter."""

    publisher: NodeId
    first: Number
    last: Number
    place: Place


class HistoryMessage(Message, frozen=True, kw_only=True):
    """Broker -> broker: a part of a search for the past."""

    path: tuple[NodeId, ...]
    """The brokers between, the one that searches first."""
    number: Number
    """The number that the broker which searches has given the search."""


class HistoryAsked(HistoryMessage, frozen=True, kw_only=True):
    """Towards the publishers, behind the subscription: send what you have. (`fetchHistory`)"""

    filter: Filter
    events_max: Number | None = None
    since_us: Instant | None = None
    search: Search = Search.COMPLETE
    known: tuple[tuple[NodeId, Number, Number], ...] = ()
    """Of these publishers, the events between two numbers are there. (The list L.)"""
    had: tuple[tuple[NodeId, Number], ...] = ()
    """Of these publishers, how many events another broker on the way has."""


class HistoryExpected(HistoryMessage, frozen=True, kw_only=True):
    """Back to who searches: others were asked, who are going to answer, too. (`expect`)

    It precedes the answer of the broker that has asked them; else the one that searches would
    believe that it has all answers.
    """

    count: Number
    """How many; more than one where several directions meet: a junction."""


class HistoryFound(HistoryMessage, frozen=True, kw_only=True):
    """Back to who searches: what a broker has; also if it has nothing. (`replay`)

    A long answer comes in parts, and its runs come last: without them, no event of it counts.
    """

    broker: NodeId = ""
    """The broker that answers."""
    away: Number = 0
    """How many links lie between it and the one that searches."""
    events: tuple[Event, ...] = ()
    runs: tuple[Run, ...] = ()
    more: bool = False
    """Whether another part of the answer follows."""
