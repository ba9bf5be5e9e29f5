"""A history buffer: the last events that passed a broker and match a filter. (Cilia et al., 5.2)"""

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from sterna.core.history.options import BufferOptions
from sterna.core.history.passed import Passed
from sterna.core.keeping import Reader, Writer
from sterna.core.names import LinkId, Time
from sterna.core.sizes import weight
from sterna.model.event import Event


class KeptBatch(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of events that passed together."""

    events: list[int]
    link: LinkId
    time: Time


class Buffer:
    """The last events that passed and match, bounded by count, by bytes and by age."""

    def __init__(self, options: BufferOptions) -> None:
        self.options = options
        self.passed = Passed(options.events_max, options.bytes_max)

    def configured(self, options: BufferOptions) -> Self:
        """The same buffer with other bounds."""
        self.options = options
        self.passed.events_max, self.passed.bytes_max = options.events_max, options.bytes_max
        self.passed.trim()
        return self

    def add(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        """Events have passed."""
        matches = self.options.filter.matches
        found = tuple(event for event in events if matches(event.attributes))
        if found and self.passed.add(found, sum(map(weight, found)), link, now):
            self.passed.trim()
        if self.options.age_max_us is not None:
            self.passed.expire(now - self.options.age_max_us)

    def keep(self, writer: Writer) -> list[KeptBatch]:
        """What a snapshot has to hold."""
        return [
            KeptBatch([writer.event(event) for event in batch.events], batch.link, batch.time)
            for batch in self.passed.batches()
        ]

    def restore(self, kept: Iterable[KeptBatch], reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        for each in kept:
            events = tuple([reader.event(number) for number in each.events])
            self.passed.add(events, sum(map(weight, events)), each.link, each.time)
