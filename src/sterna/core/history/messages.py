"""How a client asks for what was published before it subscribed, and brokers ask each other."""

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from sterna.core.history.options import Search
from sterna.core.messages import Claim, Message, Route
from sterna.core.names import NodeId, RouteId
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.model.ranges import Instant, Number


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

    def claims(self) -> Iterable[Claim]:
        return (Claim("subscription", (self.route.id,)),)


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


class Run(msgspec.Struct, frozen=True, array_like=True):
    """From which number on somebody has all events of a publisher that match a filter."""

    publisher: NodeId
    first: Number
    last: Number | None = None
    """Up to which number; None: all that follow come as usual."""
    is_gone: bool = False
    """Whether the publisher is not there any more: it may have published more elsewhere."""


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
    known: tuple[tuple[NodeId, Number], ...] = ()
    """Of these publishers, the events from this number on are there. (The list L.)"""
    had: Number = 0
    """How many events another broker on the way has."""


class HistoryExpected(HistoryMessage, frozen=True, kw_only=True):
    """Back to who searches: others were asked, who are going to answer, too. (`expect`)

    It precedes the answer of the broker that has asked them; else the one that searches would
    believe that it has all answers.
    """

    count: Number
    """How many; more than one where several directions meet: a junction."""


class HistoryFound(HistoryMessage, frozen=True, kw_only=True):
    """Back to who searches: what a broker has; also if it has nothing. (`replay`)"""

    events: tuple[Event, ...] = ()
    runs: tuple[Run, ...] = ()
