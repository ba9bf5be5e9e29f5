"""What brokers send each other, by name, about a client that has moved. (Burcea et al., 3)

Each question is answered. A broker that has nothing for the client says so, and maybe where to ask.
"""

from typing import Any, ClassVar

from sterna.core.handover.messages import KeptFor, Queued
from sterna.core.location.messages import MovingRoute
from sterna.core.messages import Message, Route
from sterna.core.names import NodeId, RouteId
from sterna.core.overlay.messages import Unicast
from sterna.core.terms.messages import TermsOf
from sterna.model.event import Event, EventId
from sterna.model.ranges import Digest, Instant, Number, Visit


class Answer(Unicast, frozen=True, kw_only=True):
    """Old broker -> new broker: the answer to a question."""

    follows_client: ClassVar[bool] = True

    client: NodeId
    number: Number
    is_here: bool = True
    """Whether the old broker has anything for the client."""
    later: Visit = 0
    """A later visit of the client than that of the question: who asks has been left since."""
    elsewhere: tuple[NodeId, ...] = ()
    """Brokers that have what the client left here, because they were predicted."""
    published: Number = 0
    """The number of the last event that the network has from the client, as far as this broker
    knows."""


class SubscriptionsFound(Answer, frozen=True, kw_only=True):
    """Old broker -> new broker: the client's subscriptions. (Step 2)"""

    subscriptions: tuple[Route, ...] = ()
    advertisements: tuple[Route, ...] = ()
    ids_follow: bool = False
    """Whether `IdsFound` comes behind, without being asked for."""


class IdsFound(Answer, frozen=True, kw_only=True):
    """Old broker -> new broker: the events that I would send, by their identities. (3.2.2)"""

    ids: tuple[EventId, ...] = ()


class EventsFound(Answer, frozen=True, kw_only=True):
    """Old broker -> new broker: the client's events; nothing of it is here any more. (Step 5)"""

    is_said_once: ClassVar[bool] = True

    events: tuple[Event, ...] = ()
    missed: tuple[EventId, ...] = ()
    moving: KeptFor = ()
    forgotten: bool = False
    departing: Visit = 0
    visit: Visit | None = None
    queue: Queued = ()
    """All events that wait, also those that are not sent because the new broker has them, if a
    policy decides which of them are kept; else nothing."""
    purged: tuple[EventId, ...] = ()
    """The last event of each publisher that a policy did without."""


class Registered(EventsFound, frozen=True, kw_only=True):
    """Home broker -> the broker where the client is: its events; more are going to follow."""

    known: Digest = 0
    """Stands for what the home broker has subscribed for the client; see `messages.digest`."""
    names: tuple[RouteId, ...] = ()
    """The names of these subscriptions: they count where the client is."""


class Question(Unicast, frozen=True, kw_only=True):
    """New broker -> old broker: a client is here now; what do you have for it?"""

    answer: ClassVar[type[Answer]]
    is_repeated: ClassVar[bool] = True
    follows_client: ClassVar[bool] = True

    client: NodeId
    number: Number
    """The number by which the broker that asks recognizes the answer."""
    visit: Visit
    """The client's visit to the broker that asks."""

    def answered(self, **found: Any) -> Answer:
        """The answer to this question."""
        return self.answer(
            to=self.sender, sender=self.to, client=self.client, number=self.number, **found
        )

    def nothing(self, **known: Any) -> Answer:
        """The answer that there is nothing here."""
        return self.answered(is_here=False, **known)


class SubscriptionsAsked(Question, frozen=True, kw_only=True):
    """New broker -> old broker: which subscriptions does this client have? (Step 2)"""

    answer = SubscriptionsFound


class IdsAsked(Question, frozen=True, kw_only=True):
    """New broker -> old broker: which events do you have for this client? (3.2.2)

    It is sent by itself only if the client has brought its subscriptions.
    """

    answer = IdsFound


class UnsubscribeAsked(Question, frozen=True, kw_only=True):
    """New broker -> old broker: I have subscribed for this client; unsubscribe, and send its
    events. It follows the subscriptions on the same way. (Step 3, the paper's REQUNSUB)
    """

    answer = EventsFound

    stay: Visit
    """The last visit on which the client was welcomed."""
    received: Number
    """How many events it got on that visit."""
    logged: tuple[EventId, ...] = ()
    """Events that the new broker has in its log: they need not be sent. (3.2.2)"""
    prefetch: Number = 0
    """The number of the `Prefetch` that this follows; 0 if the client itself is there."""


class Registration(Question, frozen=True, kw_only=True):
    """The broker where a client is -> its home broker: send me its events. (3.2.3)"""

    answer = Registered

    stay: Visit
    received: Number


class HomeEvents(Unicast, frozen=True, kw_only=True):
    """Home broker -> the broker where the client is: new events for it. (3.2.3)"""

    is_said_once: ClassVar[bool] = True

    client: NodeId
    events: tuple[Event, ...]


class Suspended(Unicast, frozen=True, kw_only=True):
    """The broker where a client was connected -> its home broker: it is not, at present. (3.2.3)"""

    client: NodeId
    visit: Visit


class HomeEnded(Unicast, frozen=True, kw_only=True):
    """Home broker -> the broker where a client is: I hand clients over by another protocol now.

    The client has its home where it is from now on: its subscriptions and events are fetched.
    """

    client: NodeId
    visit: Visit


class HomeChange(Unicast, frozen=True, kw_only=True):
    """The broker where a client is -> its home broker: its subscriptions have changed. (3.2.3)"""

    client: NodeId
    visit: Visit
    added: tuple[Route, ...] = ()
    removed: tuple[RouteId, ...] = ()
    advertisements: tuple[Route, ...] | None = None
    """All its advertisements, if these have changed."""
    replaces: bool = False
    """Whether the client has no other subscriptions than those added."""
    moving: tuple[MovingRoute, ...] | None = None
    """All its moving subscriptions, if these have changed, or where it is."""
    terms: TermsOf | None = None
    """The terms of all its subscriptions, if these have changed."""


class MemoryLost(Message, frozen=True, kw_only=True):
    """Broker -> all brokers on its side: a neighbour has lost what it knew of its clients."""

    broker: NodeId


class ConfirmationSought(Unicast, frozen=True, kw_only=True):
    """The broker where a client is -> its home broker: it asks who knows a subscription."""

    client: NodeId
    visit: Visit
    subscription: RouteId
    number: Number


class ConfirmationFound(Unicast, frozen=True, kw_only=True):
    """Home broker -> the broker where the client is: the answer."""

    client: NodeId
    number: Number
    but_not: tuple[NodeId, ...] = ()


class PastSought(Unicast, frozen=True, kw_only=True):
    """The broker where a client is -> its home broker: it begins a subscription with the past.

    Only behind what the home broker announces does a search know what follows as usual.
    """

    client: NodeId
    visit: Visit
    route: Route
    number: Number
    """The number of the search where the client is."""
    events_max: Number | None = None
    since_us: Instant | None = None
    is_here: bool = False
    """Whether it is the past of the place where the client is."""


class PastBrought(Unicast, frozen=True, kw_only=True):
    """Home broker -> the broker where the client is: what it has found."""

    client: NodeId
    number: Number
    events: tuple[Event, ...] = ()
    more: bool = False
    """Whether another part follows."""


class Prefetch(Unicast, frozen=True, kw_only=True):
    """Old broker -> predicted broker: this client may come to you; get ready. (3.2.1, period t2)"""

    client: NodeId
    number: Number
    """Its number at the old broker."""
    visit: Visit
    """The client's last visit, to the old broker."""
    born: Visit
    subscriptions: tuple[Route, ...] = ()
    advertisements: tuple[Route, ...] = ()
    others: tuple[NodeId, ...] = ()
    """The other brokers that were predicted."""
    terms: TermsOf = ()


class Discard(Unicast, frozen=True, kw_only=True):
    """To brokers that were predicted, and to who predicted them: the client is elsewhere."""

    client: NodeId
    visit: Visit
    """The client's visit there: what belongs to earlier ones has ended."""
