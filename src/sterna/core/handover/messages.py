"""What clients that roam and their brokers send each other. (Fiege, 4 and App. A)"""

from collections.abc import Iterable
from typing import ClassVar

from sterna.core.handover.connection_log import Connection
from sterna.core.messages import Claim, Message, Route
from sterna.core.names import NodeId, RouteId
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.model.ranges import Digest, Duration, Number, Visit

BEFORE_MAX = 32
"""How many brokers a client names at most where it has been; those beyond are ignored."""

Queued = tuple[tuple[EventId, Duration], ...]
"""Events in the order in which they wait, and for how long they have waited."""

KeptFor = tuple[tuple[EventId, tuple[RouteId, ...]], ...]
"""The moving subscriptions that wanted an event where the client was when it was kept."""


class Arrival(Message, frozen=True, kw_only=True):
    """Client -> new border broker: here I am, with all my subscriptions. (Fiege, Fig. 10, line 1)

    A client that no broker has welcomed yet only announces itself.
    """

    from_clients: ClassVar[bool] = True

    visit: Visit
    """Counts the brokers that the client has attached to."""
    born: Visit
    """The visit on which it was welcomed for the first time; 0 if it never was."""
    stay: Visit
    """The last visit on which it was welcomed; after a farewell, the visit which that ended."""
    received: Number
    """How many events it got on that visit: the sequence number of the last, the paper's num."""
    subscriptions: tuple[Route, ...] = ()
    advertisements: tuple[Route, ...] = ()
    others: tuple[Message, ...] = ()
    """What components of the client add: messages that may go `with_arrival`."""
    numbered: Number | None = None
    """The number of its last event, or the one from which it counts; None if it does not say."""
    brings: bool = True
    """Whether it brings its subscriptions and advertisements; else brokers keep them for it."""
    before: tuple[NodeId, ...] = ()
    """Where it has been since it was last welcomed, that broker included; the latest first. If
    there are more than `BEFORE_MAX`, some in the middle are left out."""
    home: NodeId = ""
    """Its home broker; empty if it has none."""
    connections: tuple[Connection, ...] = ()
    """When its last connections ended, the latest first; see `connection_log.py`. Only a client
    that lets new events overtake what it has missed says so."""

    @property
    def places(self) -> tuple[NodeId, ...]:
        """The brokers that are named in `before`, each once, as far as they count."""
        return tuple(dict.fromkeys(self.before[:BEFORE_MAX]))

    @property
    def sources(self) -> tuple[NodeId, ...]:
        """The same, and its home behind them, which another broker may have been for it."""
        return self.places if not self.home else tuple(dict.fromkeys((*self.places, self.home)))

    def claims(self) -> Iterable[Claim]:
        if self.brings:
            yield from _all_of(self.subscriptions, self.advertisements)
        elif self.advertisements:  # It publishes here what its home broker routes for it.
            names = [route.id for route in self.advertisements]
            yield Claim("advertisement", names, replaces=True)
        for other in self.others:
            yield from other.claims()


class Introduction(Message, frozen=True, kw_only=True):
    """Client -> border broker: these are all my subscriptions; those that you keep are others."""

    from_clients: ClassVar[bool] = True

    subscriptions: tuple[Route, ...] = ()
    advertisements: tuple[Route, ...] = ()

    def claims(self) -> Iterable[Claim]:
        return _all_of(self.subscriptions, self.advertisements)


class Welcome(Message, frozen=True, kw_only=True):
    """Border broker -> client: all that was kept for you follows; from now on you may publish."""

    published: Number
    """The number of the last event that the network has from you."""
    born: Visit = 0
    """The birth of a client that had been forgotten; 0 if the client's own number holds."""
    known: Digest | None = None
    """Stands for the subscriptions and advertisements that brokers keep for the client, if it has
    not brought them; see `messages.digest`."""
    home: NodeId = ""
    """The client's home broker, if the network has such."""


class Replayed(Message, frozen=True, kw_only=True):
    """Border broker -> client: what was kept for you while you were away."""

    is_said_once: ClassVar[bool] = True

    events: tuple[Event, ...]
    missed: tuple[EventId, ...] = ()
    """Events that were discarded before they could be replayed."""
    moving: KeptFor = ()


class Overtaking(Message, frozen=True, kw_only=True):
    """Border broker -> client: new events, which need not wait for what you have missed.

    Earlier ones may follow. Those of these that the client has not confirmed by then follow again,
    in their order. (Huang and Garcia-Molina, 4.3)
    """

    events: tuple[Event, ...]


class Located(Message, frozen=True, kw_only=True):
    """To all brokers: a new client is in the direction that this comes from.

    A broker that has just begun to hand clients over asks its neighbours for all their news with
    one about itself, which was never born. Release 0.1 takes that for old news.
    """

    client: NodeId
    born: Visit
    """The visit on which the client was welcomed for the first time; 0 in a question for news."""
    numbered: Number | None = None
    """The number of its last event, or an estimate that is not too low; None: not known."""
    renews: Visit = 0
    """The birth of a client that is not born anew, but has moved where no request has turned its
    trails: then `born` is a later visit."""


class Request(Message, frozen=True, kw_only=True):
    """What both forms of the search for the old border broker have in common."""

    follows_client: ClassVar[bool] = True

    client: NodeId
    number: Number
    """The number by which the broker that asks recognizes the answer."""
    born: Visit
    stay: Visit
    received: Number
    filters: tuple[Filter, ...]
    path: tuple[NodeId, ...] = ()
    """The brokers that it came through: the way back for the replay."""


class Resubscribe(Request, frozen=True, kw_only=True):
    """New border broker -> junction: the client is here now. (Fiege, Fig. 11, line 1)

    On each link it follows the client's subscriptions, so that whatever passes a broker after it
    is routed to the new place as well.
    """


class Fetch(Request, frozen=True, kw_only=True):
    """Junction -> old border broker: send what the client missed. (Fiege, Fig. 11, line 13)"""

    junction: NodeId
    """The last broker on the way that leads to another producer: from there on, no event will come
    for the client."""


class Replay(Message, frozen=True, kw_only=True):
    """Old border broker -> new border broker: what the client missed. (Fiege, Fig. 11, line 22)"""

    is_said_once: ClassVar[bool] = True
    follows_client: ClassVar[bool] = True

    client: NodeId
    number: Number
    events: tuple[Event, ...]
    missed: tuple[EventId, ...]
    moving: KeptFor
    published: Number
    path: tuple[NodeId, ...]
    """The brokers that it still has to go through."""
    forgotten: bool = False
    """Whether nothing was kept, because the client has left, or was away for too long."""
    departing: Visit = 0
    """The visit on which the client sent a farewell meanwhile; 0 if it did not."""
    visit: Visit | None = None
    """The client's last visit to a broker that this comes from; None if that did not say."""
    queue: Queued = ()
    """All events that wait, if a policy decides which of them are kept; else nothing."""
    purged: tuple[EventId, ...] = ()
    """The last event of each publisher that a policy did without."""


class Farewell(Message, frozen=True, kw_only=True):
    """Client -> border broker: I will not come back; forget me."""

    from_clients: ClassVar[bool] = True


class Departed(Message, frozen=True, kw_only=True):
    """To all brokers: a client has left for good, or was away for too long."""

    client: NodeId
    visit: Visit
    """The client's last visit: whatever belongs to it, or to an earlier one, has ended."""
    published: Number
    """The number of the last event that the network has from the client."""
    numbered: Number = 0
    """The greatest number that the client, or an earlier life of it, may have used for an event."""


def _all_of(subscriptions: Iterable[Route], advertisements: Iterable[Route]) -> Iterable[Claim]:
    yield Claim("subscription", [route.id for route in subscriptions], replaces=True)
    yield Claim("advertisement", [route.id for route in advertisements], replaces=True)
