"""Retained messages: the last one of each topic, which all brokers know.

The broker where a message is published gives it a stamp that is greater than that of the message
which it replaces there, and not less than the time. Of two messages of one topic the one with the
greater stamp stays, so all brokers come to retain the same, in whatever order they learn of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, Time
from sterna.devices.faces import EXPIRY, RETAIN, TOPIC
from sterna.model.event import Event, Scalar
from sterna.model.filters.patterns import topic_test

SECOND_US: Time = 1_000_000

CLEARED_US: Time = 3_600_000_000
"""How long it is remembered that nothing is retained for a topic any more."""

CLEARED_MAX = 10_000
"""So many of these topics are remembered however long ago that was."""


class Retained(NamedTuple):
    """The last retained message of a topic; one without a payload retains nothing."""

    stamp: int
    event: Event

    @property
    def order(self) -> tuple[int, str, int]:
        """What decides which of two messages is the last one."""
        return self.stamp, self.event.publisher, self.event.seq


KeptRetained = list[tuple[int, int]]
"""What a snapshot holds: the stamps, and the events by number."""


def is_retained(attributes: Mapping[str, Scalar]) -> bool:
    """Whether an event is to be retained."""
    return attributes.get(RETAIN) is True and type(attributes.get(TOPIC)) is str


def topic_of(event: Event) -> str:
    """The topic of an event that is to be retained."""
    return str(event.attributes[TOPIC])


def until(event: Event) -> Time:
    """When an event expires."""
    expiry_s = event.attributes.get(EXPIRY)
    return event.time_us + expiry_s * SECOND_US if type(expiry_s) is int else NEVER


class RetainedMessages:
    """The retained messages of all topics."""

    def __init__(self) -> None:
        self._topics: dict[str, Retained] = {}
        self._cleared: dict[str, None] = {}
        """The topics for which nothing is retained any more; the first was cleared first."""

    def __len__(self) -> int:
        return len(self._topics) - len(self._cleared)

    def __iter__(self) -> Iterator[Retained]:
        return iter(self._topics.values())

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def publish(self, event: Event, now: Time) -> Retained:
        """Retain what was published here."""
        before = self._topics.get(topic_of(event))
        retained = Retained(max(now, 1 if before is None else before.stamp + 1), event)
        self.note(retained, now)
        return retained

    def note(self, retained: Retained, now: Time) -> bool:
        """Note a message; whether it is later than what was known."""
        topic = topic_of(retained.event)
        before = self._topics.get(topic)
        if before is not None and before.order >= retained.order:
            return False
        self._topics[topic] = retained
        self._cleared.pop(topic, None)
        if not retained.event.payload:
            self._clear(topic, now)
        return True

    def _clear(self, topic: str, now: Time) -> None:
        self._cleared[topic] = None
        while len(self._cleared) > CLEARED_MAX:
            oldest = next(iter(self._cleared))
            if self._topics[oldest].stamp + CLEARED_US > now:
                break
            del self._cleared[oldest], self._topics[oldest]

    def matching(self, topic_filter: str, now: Time) -> list[Event]:
        """What is retained for the topics that match a filter, in the order of their stamps."""
        if "+" in topic_filter or "#" in topic_filter:
            test = topic_test(topic_filter)
            found = [each for topic, each in self._topics.items() if test(topic)]
        else:
            found = [self._topics[topic_filter]] if topic_filter in self._topics else []
        found = [each for each in found if each.event.payload]
        for each in found:
            if until(each.event) <= now:
                del self._topics[topic_of(each.event)]
        found = [each for each in found if until(each.event) > now]
        found.sort(key=lambda each: each.order)
        return [each.event for each in found]

    def keep(self, writer: Writer) -> KeptRetained:
        """What a snapshot has to hold."""
        return [(each.stamp, writer.event(each.event)) for each in self]

    def restore(self, kept: KeptRetained, reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        for stamp, number in kept:
            self.note(Retained(stamp, reader.event(number)), stamp)


def chunks(found: Iterable[Retained], bytes_max: int) -> Iterator[Sequence[Retained]]:
    """Messages in groups that are not too long."""
    group: list[Retained] = []
    size = 0
    for each in found:
        group.append(each)
        size += 256 + len(each.event.payload)
        if size >= bytes_max:
            yield group
            group, size = [], 0
    if group:
        yield group
