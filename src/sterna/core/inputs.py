"""What a node is given from outside. A node that is given the same inputs at the same times does
the same.
"""

from collections.abc import Mapping

import msgspec

from sterna.core.link import Frame
from sterna.core.lives import NOTHING_KNOWN, Earlier
from sterna.core.messages import (
    AdvertisementChange,
    InterestAsked,
    Message,
    SubscriptionChange,
)
from sterna.core.names import LinkId, NodeId, Peer
from sterna.core.settings import Settings
from sterna.core.terms.messages import Terms
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.model.ranges import Instant, Number


class Input(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Something that happened outside."""


# ---- To every node, from its driver.


class LinkUp(Input, frozen=True, kw_only=True):
    """A connection over a link is up, and the driver has identified the other end."""

    link: LinkId
    peer: Peer
    advertises: bool | None = None
    """Whether the broker at the other end routes by advertisements, or the client there knows that
    it has to advertise; None: assume this node's own settings."""
    features: tuple[str, ...] | None = None
    """What the other end can do that not every node can; None: all that this one can."""
    earlier: Earlier = NOTHING_KNOWN
    """To a client: what the broker knew of its lives when the connection was made."""


class LinkDown(Input, frozen=True, kw_only=True):
    """The connection over a link is lost. What was not acknowledged is sent again on the next."""

    link: LinkId


class LinkGone(Input, frozen=True, kw_only=True):
    """A link will never be up again: forget all about it."""

    link: LinkId


class Received(Input, frozen=True, kw_only=True):
    """Frames have arrived over a link."""

    link: LinkId
    frames: tuple[Frame, ...]
    size: int = 0
    """How many bytes they were; 0 if that is not known."""


class Heard(Input, frozen=True, kw_only=True):
    """A datagram has come from a broker or a client in reach; there need not be a link to it."""

    sender: NodeId
    message: Message


class TimePassed(Input, frozen=True, kw_only=True):
    """The node's deadline has come."""


class Configured(Input, frozen=True, kw_only=True):
    """The node has other settings from now on."""

    settings: Settings


# ---- To a broker, from its driver.


class Restarted(Input, frozen=True, kw_only=True):
    """The broker begins its work, new or from its log. All its connections are gone, and others may
    have gone on without it for as long as it was down.
    """


class Migrated(Input, frozen=True, kw_only=True):
    """The broker has moved: it is linked to another one than before, with all that is behind it."""

    before: LinkId
    to: LinkId


class Ahead(Input, frozen=True, kw_only=True):
    """A part of what the next message of a link says: that message is long, so others have their
    turn between its parts. The message follows as a whole, and finds these things done.
    """

    link: LinkId
    seq: int
    """The number of that message."""
    change: SubscriptionChange | AdvertisementChange | InterestAsked
    introduces: bool = False
    """Whether a client introduces itself with that message: it gets nothing because of this part
    until the message has come."""


class ArchiveChanged(Input, frozen=True, kw_only=True):
    """There is an archive of events that can be searched, or there is none any more."""

    is_there: bool


class MemoryShort(Input, frozen=True, kw_only=True):
    """What waits for clients that are away takes more memory than it may."""

    away_bytes_max: int
    """About how many bytes of memory it may take from now on."""
    spilled_bytes: int = 0
    """About how many bytes of what was spilled of it are to be discarded instead, if there are any:
    then there is room on disk for what is in memory."""


class QueueSpilled(Input, frozen=True, kw_only=True):
    """Messages that wait for a link were written to a page, and need not be in memory any more.

    They have consecutive numbers. The driver has made sure that they still wait.
    """

    link: LinkId
    first: int
    """The number of the first of them."""
    count: int
    page: int
    place: int
    """Where the first of them is in the page."""


class KeptSpilled(Input, frozen=True, kw_only=True):
    """Events that are kept for a client were written to a page, and need not be in memory.

    The driver has made sure that they are still kept.
    """

    component: str
    """The name of the component that keeps them."""
    client: NodeId
    page: int
    runs: tuple[tuple[int, int, int], ...]
    """Of each run of consecutive events the number of the first, its place in the page, and how
    many they are."""


class LookedUp(Input, frozen=True, kw_only=True):
    """The events that the archive has; none if it cannot be read."""

    question: int
    events: tuple[Event, ...]


# ---- To a client, from its application.


class Subscribe(Input, frozen=True, kw_only=True):
    """The application wants the events that match a filter."""

    subscription: str
    filter: Filter
    past_events_max: Number | None = None
    """Begin with at most so many events that the broker still has, the newest ones."""
    past_since_us: Instant | None = None
    """Begin with events that the broker still has and that were published at this time or later."""
    terms: Terms = Terms()


class Unsubscribe(Input, frozen=True, kw_only=True):
    """The application ends a subscription."""

    subscription: str


class Confirm(Input, frozen=True, kw_only=True):
    """The application wants to know when every broker that matters knows a subscription."""

    subscription: str


class Advertise(Input, frozen=True, kw_only=True):
    """The application is going to publish events that match a filter."""

    advertisement: str
    filter: Filter


class Unadvertise(Input, frozen=True, kw_only=True):
    """The application ends an advertisement."""

    advertisement: str


class Publish(Input, frozen=True, kw_only=True):
    """The application publishes an event."""

    attributes: Mapping[str, Scalar]
    payload: bytes = b""


class PublishMany(Input, frozen=True, kw_only=True):
    """The application publishes events at once."""

    events: tuple[tuple[Mapping[str, Scalar], bytes], ...]
    """The attributes and the payload of each event."""
    time_us: Instant | None = None
    """When they are published, by the wall clock; None: now."""


class Leave(Input, frozen=True, kw_only=True):
    """The application will not come back: nothing is to be kept for it.

    All its subscriptions and advertisements end, and so does the connection, once its broker knows.
    If it attaches again nevertheless, it is a new client.
    """


class Attach(Input, frozen=True, kw_only=True):
    """The application wants to work through a broker from now on."""

    broker: NodeId


class Detach(Input, frozen=True, kw_only=True):
    """The application goes offline; it may attach again, here or elsewhere."""


class MoveTo(Input, frozen=True, kw_only=True):
    """The application is at a location now; subscriptions that use `myloc` follow it."""

    location: str


class SetVariable(Input, frozen=True, kw_only=True):
    """A variable that subscriptions may refer to as `$name` has a value now.

    Brokers know the range from `low` to `high`, and are not sent changes within it. A value
    outside makes a new range: the one given with it, else the value alone.
    """

    name: str
    value: Scalar
    low: Scalar | None = None
    high: Scalar | None = None
