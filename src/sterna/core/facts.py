"""What happened, as nodes state it: the one stream that oracle, metrics and audit read."""

from collections.abc import Mapping

import msgspec

from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.model.event import Event, EventId, Scalar
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
    anywhere: bool = False
    """Whether they were kept for the client, for a place where it was then."""


class Overtook(Fact, frozen=True, kw_only=True):
    """The application was given these events before earlier ones of their publishers that may still
    come, as their subscriptions permit. A `Delivered` has just stated that they came.
    """

    events: tuple[EventId, ...]


class WatchBegun(Fact, frozen=True, kw_only=True):
    """An application subscribed at several brokers; what its sessions bring is merged."""

    subscription: str
    filtering: str
    """What is done about duplicates and the order."""


class WatchEnded(Fact, frozen=True, kw_only=True):
    """An application ended a subscription that several brokers watched."""

    subscription: str


class SessionWatches(Fact, frozen=True, kw_only=True):
    """A client is a session of the application: what it is given is merged with what others are."""

    client: NodeId


class Displayed(Fact, frozen=True, kw_only=True):
    """The application was given events that its sessions have brought."""

    subscription: str
    events: tuple[EventId, ...]


class Withheld(Fact, frozen=True, kw_only=True):
    """Events that a session has brought were not given to the application: it has later ones of
    their publishers, or the subscription ended while they were held back.
    """

    subscription: str
    events: tuple[EventId, ...]


class Stray(Fact, frozen=True, kw_only=True):
    """Events arrived that match no subscription (any more); the application never saw them."""

    events: tuple[Event, ...]


class Subscribed(Fact, frozen=True, kw_only=True):
    """The application subscribed."""

    subscription: str
    filter: Filter
    past_events_max: int | None = None
    """How many past events it asks for; None if it wants none, or does not say how many."""
    keep: str = ""
    """What is to be kept of the events that wait for the client; empty if all are."""
    order: str = ""
    """In which order it wants what other brokers have kept, if not strictly in that of each
    publisher."""


class Unsubscribed(Fact, frozen=True, kw_only=True):
    """The application ended a subscription."""

    subscription: str


class Moved(Fact, frozen=True, kw_only=True):
    """The application is at another location."""

    location: str


class VariableSet(Fact, frozen=True, kw_only=True):
    """The application gave a variable a value."""

    name: str
    value: Scalar


class Adapted(Fact, frozen=True, kw_only=True):
    """A subscription that depends on the client's location or variables means this from now on."""

    subscription: str
    filter: Filter


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
    """Events were discarded: a buffer was full, another life has published later ones, or they came
    too late to be put into order.
    """

    events: tuple[Event, ...]


class Repeated(Fact, frozen=True, kw_only=True):
    """Events arrived again, as happens to clients that move; the application got them once."""

    events: tuple[Event, ...]


class Recalled(Fact, frozen=True, kw_only=True):
    """The application was given events from before its subscription, as it had asked."""

    events: tuple[Event, ...]
    subscription: str | None = None
    """The subscription whose past this is; earlier releases did not write it."""


class Missed(Fact, frozen=True, kw_only=True):
    """The application never got these events, because a bounded cache discarded them."""

    events: tuple[EventId, ...]


class Left(Fact, frozen=True, kw_only=True):
    """The client has left for good, and its broker knows."""

    published: int
    """The number up to which the broker has all of the client's events."""


class Forgotten(Fact, frozen=True, kw_only=True):
    """The client was away for longer than the network remembers: events may be missing."""


class RecordBegun(Fact, frozen=True, kw_only=True):
    """A client's journal is complete from here on. What is before is of another life of the client,
    or a part is missing between. What is in force at the client is stated again after this.
    """


class Restarted(Fact, frozen=True, kw_only=True):
    """The client's program was started again with its state, and its journal has everything before.
    At some time between the last fact and this one, the program had ended.
    """


# ---- At brokers.


class Accepted(Fact, frozen=True, kw_only=True):
    """A client has handed events over to its border broker."""

    link: LinkId
    events: tuple[Event, ...]


class Forwarded(Fact, frozen=True, kw_only=True):
    """Events came over one link and went on over others."""

    source: LinkId
    to: Mapping[LinkId, tuple[Event, ...]]


class RingFound(Fact, frozen=True, kw_only=True):
    """A link would close a ring of brokers, and is cut."""

    link: LinkId


class ClientForgotten(Fact, frozen=True, kw_only=True):
    """A client has left, or was away for too long: nothing is kept for it any more."""

    client: NodeId


class ForgottenEarly(Fact, frozen=True, kw_only=True):
    """A client that is away had to be forgotten before its time, because of a limit."""

    client: NodeId


class HandoverStarted(Fact, frozen=True, kw_only=True):
    """A client came from elsewhere, or is expected, and what it missed is being fetched."""

    client: NodeId


class JunctionFound(Fact, frozen=True, kw_only=True):
    """The old path of a client and the new one meet at this broker."""

    client: NodeId


class HandoverFinished(Fact, frozen=True, kw_only=True):
    """What a client missed has arrived."""

    client: NodeId
    replayed: int
    """How many events were fetched from the old broker."""
    held: int
    """How many live events had to wait for the fetched ones."""


class Discarded(Fact, frozen=True, kw_only=True):
    """Events that were kept for an absent client are kept no longer."""

    client: NodeId
    events: tuple[Event, ...]
    policy: str = ""
    """The queue policy of the client that does without them; empty if a bound was reached."""


# ---- At both.


class Attached(Fact, frozen=True, kw_only=True):
    """A link is up."""

    link: LinkId
    peer: Peer


class Detached(Fact, frozen=True, kw_only=True):
    """A link is lost."""

    link: LinkId
    peer: Peer | None = None
    """What is at the other end; None if an older journal did not record it."""


class LinkReset(Fact, frozen=True, kw_only=True):
    """The messages of a link are numbered anew: its other end has lost its state, or the two ends
    remembered different things. What was not confirmed, and is not sent again, is given up.
    """

    link: LinkId
    given_up: int
    """How many messages were given up."""


class MemoriesDiffer(Fact, frozen=True, kw_only=True):
    """The two ends of a link remember different things: one has come back with an old memory.

    They begin anew. What was in the messages that one of them has forgotten cannot be known.
    """

    link: LinkId
    forgotten_here: int
    """The other end has so many messages that this node does not remember to have sent."""
    forgotten_there: int
    """The other end had confirmed so many messages that it does not remember to have received."""


# ---- Of the whole system.


class Settled(Fact, frozen=True, kw_only=True):
    """Nothing is on its way any more, and no part of the network is cut off for good.

    Only a simulator can know that.
    """
