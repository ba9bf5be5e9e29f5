"""What happened, as nodes state it: the one stream that oracle, metrics and audit read."""

from collections.abc import Mapping

import msgspec

from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.model.event import Event
from sterna.model.filters import Filter


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Something that happened at a node."""

    at: NodeId
    time: Time


# ---- At clients.


class Published(Fact, frozen=True, kw_only=True):
    """The application published events."""

    events: tuple[Event, ...]


class Delivered(Fact, frozen=True, kw_only=True):
    """The application was given events."""

    events: tuple[Event, ...]


class Stray(Fact, frozen=True, kw_only=True):
    """Events arrived that match no subscription (any more); the application never saw them."""

    events: tuple[Event, ...]


class Subscribed(Fact, frozen=True, kw_only=True):
    """The application subscribed."""

    subscription: str
    filter: Filter


class Unsubscribed(Fact, frozen=True, kw_only=True):
    """The application ended a subscription."""

    subscription: str


class Advertised(Fact, frozen=True, kw_only=True):
    """The application advertised."""

    advertisement: str
    filter: Filter


class Unadvertised(Fact, frozen=True, kw_only=True):
    """The application ended an advertisement."""

    advertisement: str


class Quenched(Fact, frozen=True, kw_only=True):
    """Events were discarded at their source because nobody wants them. (Huang, 3.2)"""

    events: tuple[Event, ...]


class Purged(Fact, frozen=True, kw_only=True):
    """Events were discarded because a buffer was full."""

    events: tuple[Event, ...]


# ---- At brokers.


class Forwarded(Fact, frozen=True, kw_only=True):
    """Events came over one link and went on over others."""

    source: LinkId
    to: Mapping[LinkId, tuple[Event, ...]]


# ---- At both.


class Attached(Fact, frozen=True, kw_only=True):
    """A link stands."""

    link: LinkId
    peer: Peer


class Detached(Fact, frozen=True, kw_only=True):
    """A link is lost."""

    link: LinkId


class LinkReset(Fact, frozen=True, kw_only=True):
    """The other end of a link has lost its memory; what it had not confirmed is given up."""

    link: LinkId
    given_up: int
    """How many messages."""


# ---- Of the whole system.


class Settled(Fact, frozen=True, kw_only=True):
    """Nothing is on its way any more, as only a simulator can know."""
