"""The approximate size of events and queues, and how many events go into one message."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from sterna.core.messages import Message
from sterna.model.event import Event

BATCH_BYTES_MAX = 256 * 1024
"""About how long a message of events gets, unless a single event is longer."""

EVENT_BYTES = 500
"""About how many bytes a queued event takes in memory besides those on its way."""

MESSAGE_BYTES = 1_000
"""About how many bytes a message takes that is not about events."""

MISSED_BYTES = 120
"""About how many bytes it takes to remember that an event was discarded."""


class Load(NamedTuple):
    """How much is queued."""

    events: int
    bytes: int
    """About how many bytes that takes on its way."""
    spared_bytes: int = 0
    """About how many bytes less it takes in memory, because it is spilled."""

    @property
    def memory_bytes(self) -> int:
        """About how many bytes that takes in memory."""
        return self.bytes + EVENT_BYTES * self.events - self.spared_bytes

    def plus(self, other: "Load") -> "Load":
        """How much both are together."""
        return Load(
            self.events + other.events,
            self.bytes + other.bytes,
            self.spared_bytes + other.spared_bytes,
        )


NO_LOAD = Load(0, 0)


def batches(events: Iterable[Event]) -> Iterator[tuple[Event, ...]]:
    """Group events into messages that are not too long."""
    batch: list[Event] = []
    size = 0
    for event in events:
        size += weight(event)
        if batch and size > BATCH_BYTES_MAX:
            yield tuple(batch)
            batch, size = [], weight(event)
        batch.append(event)
    if batch:
        yield tuple(batch)


def load(message: Message) -> Load:
    """How much a message adds to a queue."""
    events: tuple[Event, ...] | None = getattr(message, "events", None)
    if events is None:
        return Load(0, MESSAGE_BYTES)
    missed = getattr(message, "missed", ())
    return Load(len(events), sum(map(weight, events)) + MISSED_BYTES * len(missed))


def weight(event: Event) -> int:
    """About how many bytes an event takes on its way, rather more than less."""
    return 64 + len(event.payload) + len(_encode(event.attributes))


_encode = msgspec.msgpack.Encoder().encode
"""Counting the attributes one by one takes more than twice as long."""
