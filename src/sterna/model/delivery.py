"""What a correct delivery is: the rules by which runs, simulated and real, are judged.

Everything is decided by comparing a few times, so that the same rules work on records here and on
columns of a table elsewhere:

- A subscription is *asked* at one time, *settled* when all brokers know it, and *ended* (or never).
- An event is *published* at one time and *calm* when everything it caused has arrived.
- It is *owed* to a client if a subscription that matches it was settled when it was published, and
  not ended before it was calm. Where the network needs advertisements, one that matches the event
  was settled as well.
- It is *allowed* for a client if a subscription that matches it was asked and not ended when it was
  delivered.

What is owed and was not delivered is lost, what was delivered and not allowed is unasked; nothing
comes twice; and of each publisher, a client gets events in the order of their numbers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sterna.model.event import EventId

FOREVER = 2**63 - 1
"""When something ends that does not end."""


class Fault(StrEnum):
    """What can be wrong with a delivery."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    REORDERED = "out of order"
    UNASKED = "never asked for"


@dataclass(frozen=True, slots=True)
class Span:
    """When a subscription or advertisement was asked, settled and ended."""

    asked_us: int
    settled_us: int = FOREVER
    ended_us: int = FOREVER


def is_settled(span: Span, published_us: int) -> bool:
    """Whether it was in force everywhere when an event was published."""
    return span.settled_us <= published_us <= span.ended_us


def is_owed(subscription: Span, published_us: int, calm_us: int) -> bool:
    """Whether an event that the subscription matches must be delivered."""
    return is_settled(subscription, published_us) and calm_us <= subscription.ended_us


def is_allowed(subscription: Span, delivered_us: int) -> bool:
    """Whether an event that the subscription matches may be delivered."""
    return subscription.asked_us <= delivered_us <= subscription.ended_us


def faults_of_order(delivered: Iterable[EventId]) -> Iterator[tuple[Fault, EventId]]:
    """What is wrong with the sequence in which one client got events."""
    seen: set[EventId] = set()
    last: dict[str, int] = {}
    for event in delivered:
        if event in seen:
            yield Fault.DUPLICATED, event
        elif event.seq < last.get(event.publisher, 0):
            yield Fault.REORDERED, event
        seen.add(event)
        last[event.publisher] = max(event.seq, last.get(event.publisher, 0))
