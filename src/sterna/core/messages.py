"""What nodes send each other over a link: the part that every network needs.

Protocols declare theirs in files of their own; `sterna.core.protocol` collects them all.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import ClassVar, NamedTuple

import msgspec

from sterna.core.names import RouteId
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.ranges import Number


class Claim(NamedTuple):
    """Filters that a message announces and withdraws, by name: a broker limits how many it holds
    for a client.
    """

    kind: str
    """Names of different kinds are counted apart."""
    added: Iterable[RouteId] = ()
    removed: Iterable[RouteId] = ()
    replaces: bool = False
    """Whether everything of this kind that was announced before ends."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Anything that a node sends to its neighbour. Links keep the order and lose nothing."""

    from_clients: ClassVar[bool] = False
    """Whether clients may send it. All other messages are for brokers among themselves."""
    with_arrival: ClassVar[bool] = False
    """Whether it may be part of what a roaming client sends to a new broker at once."""
    precedes_subscriptions: ClassVar[bool] = False
    """Whether a client that introduces itself sends it before its subscriptions."""
    is_said_once: ClassVar[bool] = False
    """Whether nobody says it again: if two brokers begin a link anew, what was not confirmed of it
    is sent again. What announces a state need not be, for all of that is announced anew."""
    is_datagram: ClassVar[bool] = False
    """Whether it is sent to all nodes in reach (`Broadcast`), and never over a link."""
    follows_client: ClassVar[bool] = False
    """Whether it goes from where its `client` is to where that was before, or back as an answer:
    behind that, nothing more comes from there that the client has published."""

    def claims(self) -> Iterable[Claim]:
        """The filters that it announces and withdraws, if it does."""
        return ()


class OtherMessage(Message, frozen=True, kw_only=True):
    """A message of a protocol that is not known here, such as one of a later release.

    It is never sent. Its receiver acknowledges and ignores it: nodes of one network need not all
    have the same protocols.
    """

    kind: str
    """The name of its type at the sender."""


class Route(msgspec.Struct, frozen=True, gc=False):
    """A filter under the name by which it is withdrawn later."""

    id: RouteId
    filter: Filter


def digest(subscriptions: Iterable[Route], advertisements: Iterable[Route]) -> int:
    """A number that is equal for equal subscriptions and advertisements, in whatever order."""
    found = blake2b(digest_size=8)
    for routes in (subscriptions, advertisements):
        for id_, text in sorted((route.id, str(route.filter)) for route in routes):
            found.update(f"{len(id_)} {id_} {len(text)} {text} ".encode())
        found.update(b"| ")
    return int.from_bytes(found.digest(), "big")


class Events(Message, frozen=True, kw_only=True):
    """Towards subscribers: events, in the order of each publisher."""

    from_clients: ClassVar[bool] = True
    is_said_once: ClassVar[bool] = True

    events: tuple[Event, ...]


class SubscriptionChange(Message, frozen=True, kw_only=True):
    """Towards publishers: events that match these filters are wanted here (and no longer those).

    Both halves take effect at once, so that a filter is replaced without a gap.
    """

    from_clients: ClassVar[bool] = True

    added: tuple[Route, ...] = ()
    removed: tuple[RouteId, ...] = ()

    def claims(self) -> Iterable[Claim]:
        return (Claim("subscription", [route.id for route in self.added], self.removed),)


class AdvertisementChange(Message, frozen=True, kw_only=True):
    """Towards subscribers: events that match these filters may come from here (no longer those)."""

    from_clients: ClassVar[bool] = True

    added: tuple[Route, ...] = ()
    removed: tuple[RouteId, ...] = ()

    def claims(self) -> Iterable[Claim]:
        return (Claim("advertisement", [route.id for route in self.added], self.removed),)


class InterestAsked(Message, frozen=True, kw_only=True):
    """Publisher -> border broker: send me what is wanted, and all changes. (Huang, 3.2)"""

    from_clients: ClassVar[bool] = True

    number: Number


class InterestKnown(Message, frozen=True, kw_only=True):
    """Border broker -> publisher: you have all the subscription changes that there are so far."""

    number: Number
    """The number of the question that this answers: an old answer may follow a new question."""


class AnnouncementAsked(Message, frozen=True, kw_only=True):
    """Broker -> broker: after a link was begun anew, answer when I know all that you announce."""


class Announced(Message, frozen=True, kw_only=True):
    """Broker -> broker: that was all; whatever I announced before and not again has ended."""
