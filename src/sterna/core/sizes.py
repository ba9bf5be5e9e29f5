"""The approximate size of events, and how many go into one message."""

from collections.abc import Iterable, Iterator

from sterna.model.event import Event

BATCH_BYTES_MAX = 256 * 1024
"""About how long a message of events gets, unless a single event is longer."""


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


def weight(event: Event) -> int:
    """About how many bytes an event takes on its way, rather more than less."""
    size = 64 + len(event.payload)
    for name, value in event.attributes.items():
        size += 4 * (len(name) + len(value)) if type(value) is str else 4 * len(name) + 10
    return size
