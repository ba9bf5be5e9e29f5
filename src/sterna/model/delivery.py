"""What a correct delivery is: the rules by which runs, simulated and real, are judged.

Everything is decided by comparing a few moments. A moment is a number: a time or, better, a place
in the stream of facts, where no two are the same. The rules use only comparisons, `&` and `|`, so
they judge numbers (the oracle of the simulator) and columns of Spark (the audit of journals) alike.

- A subscription is *asked* at one time, *settled* when all brokers know it, and *ended* (or never).
- An event is *published* at one time and *calm* when everything it caused has arrived.
- It is *owed* to a client if a subscription that matches it was settled when it was published, and
  not ended before it was calm. Where the network needs advertisements, one that matches the event
  was settled as well.
- It is *allowed* for a client if a subscription that matches it was asked and not ended when it was
  delivered.

- It may be *sent* to a client in vain only if such a subscription was asked, and had not ended and
  been forgotten everywhere when the event was published.

What is owed and was not delivered is lost, what was delivered and not allowed is unasked; what was
delivered was published before, exactly so; nothing comes twice; and of each publisher, a client
gets events in the order of their numbers, but for those that may overtake others: all subscriptions
that want these permit it.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sterna.model.event import EventId

FOREVER = 2**63 - 1
"""The moment at which something ends that does not end."""


class Fault(StrEnum):
    """What can be wrong with a delivery, or with how an event came into the network."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    REORDERED = "out of order"
    UNASKED = "never asked for"
    UNPUBLISHED = "never published so"
    DETACHED = "delivered while detached"
    """It came to a client that was connected with no broker since before it was published."""
    FORGED = "forged"
    """A broker has it from its publisher, who has not published it."""
    ALTERED = "altered"
    """A broker has it with another content than its publisher."""
    REUSED = "number used twice"
    """Another event of the same publisher has this number."""


OF_ENTRIES = (Fault.FORGED, Fault.ALTERED, Fault.REUSED)
"""The faults of events on their way into the network, whoever gets them then."""


Moment = Any
"""A number, or a column of numbers."""

Truth = Any
"""A bool, or a column of them."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a subscription or advertisement was asked, settled, ended, and then forgotten."""

    asked: Moment
    settled: Moment = FOREVER
    ended: Moment = FOREVER
    forgotten: Moment = FOREVER
    """When no broker knew it any more."""


def is_settled(span: Lifetime, published: Moment) -> Truth:
    """Whether a subscription or advertisement was in force everywhere at a publication."""
    return (span.settled <= published) & (published <= span.ended)


def is_owed(subscription: Lifetime, published: Moment, calm: Moment) -> Truth:
    """Whether an event that the subscription matches must be delivered."""
    return is_settled(subscription, published) & (calm <= subscription.ended)


def is_allowed(subscription: Lifetime, delivered: Moment, *, anywhere: Truth = False) -> Truth:
    """Whether an event that the subscription matches may be delivered.

    What was kept for a place where the client was then (`anywhere`) may come after the end.
    """
    return (subscription.asked <= delivered) & (anywhere | (delivered <= subscription.ended))


def is_explained(subscription: Lifetime, published: Moment, arrived: Moment) -> Truth:
    """Whether an event that the subscription matches may arrive without being delivered."""
    return (subscription.asked <= arrived) & (published <= subscription.forgotten)


def was_published(published: Moment, arrived: Moment) -> Truth:
    """Whether an event was published before it arrived."""
    return published <= arrived


def is_out_of_order(seq: Moment, last: Moment) -> Truth:
    """Whether an event arrives after one that its publisher published later."""
    return seq < last


def faults_of_order(
    delivered: Iterable[EventId], may_overtake: Container[EventId] = ()
) -> Iterator[tuple[Fault, EventId]]:
    """The faults in the sequence in which one client got events."""
    seen: set[EventId] = set()
    last: dict[str, int] = {}
    for event in delivered:
        if event in seen:
            yield Fault.DUPLICATED, event
        elif event not in may_overtake and is_out_of_order(event.seq, last.get(event.publisher, 0)):
            yield Fault.REORDERED, event
        seen.add(event)
        if event not in may_overtake:
            last[event.publisher] = max(event.seq, last.get(event.publisher, 0))
