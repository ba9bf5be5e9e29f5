"""Quenching: publishers learn what is wanted and discard the rest at the source. (Huang, 3.2)

The broker announces filters to a publisher as to a neighbouring broker, simplified by covering
and merging: what was announced to the publisher is c_all, the OR of all active subscriptions.
"""

from collections.abc import Iterator
from itertools import groupby

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import (
    InterestAsked,
    InterestKnown,
    Message,
    Route,
    SubscriptionChange,
)
from sterna.core.names import NEVER, LinkId, Time
from sterna.core.sizes import batches
from sterna.matching import MatchIndex
from sterna.model.event import Event


class Quenching(BrokerComponent):
    """The border broker's part: it keeps publishers informed that ask for it."""

    name = "quenching"
    handles = (InterestAsked,)

    def on_interest_asked(self, message: InterestAsked, link: LinkId, now: Time) -> None:
        self.broker.router.tell_interest(link, now)
        self.broker.send(link, InterestKnown(number=message.number), now)


class Interest:
    """The publisher's part: c_all as far as it is known."""

    def __init__(self) -> None:
        self.asked = 0
        """How often a broker was asked; only the answer to the last question counts."""
        self.current = False
        """Whether the broker has announced all it knows since the link came up."""
        self.version = 0
        """A number that grows with each change."""
        self._filters: MatchIndex[str] = MatchIndex()
        self._known: dict[str, Route] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def change(self, message: SubscriptionChange) -> None:
        self.version += 1
        for route in message.added:
            if not route.filter.is_bound:
                continue  # It means nothing here.
            if route.id in self._filters:
                self._filters.remove(route.id)
            self._filters.add(route.id, route.filter)
            self._known[route.id] = route
        for id_ in message.removed:
            if self._known.pop(id_, None) is not None:
                self._filters.remove(id_)

    def forget(self) -> None:
        """The broker is a new one: forget what the last one announced."""
        self.current = False
        self.version += 1
        self._filters = MatchIndex()
        self._known = {}

    def keep(self) -> "KeptInterest":
        """What a snapshot has to hold."""
        known = list(self._known.values())
        return KeptInterest(self.asked, self.current, self.version, known)

    def restore(self, kept: "KeptInterest") -> None:
        """Go on with what a snapshot has held."""
        self.change(SubscriptionChange(added=tuple(kept.known)))
        self.asked, self.current, self.version = kept.asked, kept.is_current, kept.version

    def wants(self, event: Event) -> bool:
        """Whether some subscription that is known matches the event."""
        return bool(self._filters.match(event.attributes))


class KeptInterest(msgspec.Struct, frozen=True):
    """What a snapshot holds of what is wanted."""

    asked: int
    is_current: bool
    version: int
    known: list[Route]


class KeptOutbox(msgspec.Struct, frozen=True):
    """What a snapshot holds of what waits for a connection."""

    waiting: list[tuple[bool, int]]
    """Whether it is an event, and the number that the writer gave it."""
    wanted: int
    version: int


class Outbox:
    """What waits for a connection, in order: events, up to a limit, and what must not pass them."""

    def __init__(self, events_max: int, interest: Interest | None) -> None:
        self._waiting: list[Event | Message] = []
        self._events = 0
        self._events_max = events_max
        self._interest = interest
        self._wanted = 0
        """How many entries at the beginning are known to be wanted, or are no events."""
        self._version = 0
        """The version of the interest that `_wanted` was counted with."""

    def __len__(self) -> int:
        return len(self._waiting)

    def configure(self, events_max: int, interest: Interest | None) -> None:
        """Keep up to another number of events from now on; what waits already stays."""
        self._events_max, self._interest = events_max, interest
        self._wanted = self._version = 0

    def keep(self, writer: Writer) -> KeptOutbox:
        """What a snapshot has to hold."""
        waiting = [
            (True, writer.event(each)) if isinstance(each, Event) else (False, writer.message(each))
            for each in self._waiting
        ]
        return KeptOutbox(waiting, self._wanted, self._version)

    def restore(self, kept: KeptOutbox, reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        self._waiting = [
            reader.event(number) if is_event else reader.message(number)
            for is_event, number in kept.waiting
        ]
        self._events = sum(is_event for is_event, _ in kept.waiting)
        self._wanted, self._version = kept.wanted, kept.version

    def put(self, event: Event) -> Event | None:
        """Keep an event; return the one that was discarded for it, if there was no room.

        A subscription that is not known here may want any of them, so all are kept while there is
        room. Then the oldest goes that nobody was known to want, else the oldest.
        """
        self._waiting.append(event)
        self._events += 1
        if self._events <= self._events_max:
            return None
        place = self._oldest_unwanted()
        if place is None:
            place = next(i for i, each in enumerate(self._waiting) if isinstance(each, Event))
            self._wanted = max(0, self._wanted - 1)
        victim = self._waiting.pop(place)
        self._events -= 1
        return victim if isinstance(victim, Event) else None

    def _oldest_unwanted(self) -> int | None:
        interest = self._interest
        if interest is None:
            return None
        if self._version != interest.version:
            self._version, self._wanted = interest.version, 0
        while self._wanted < len(self._waiting):
            each = self._waiting[self._wanted]
            if isinstance(each, Event) and not interest.wants(each):
                return self._wanted
            self._wanted += 1
        return None

    def first_seq(self) -> int:
        """The number of the first event that waits; NEVER if none does."""
        return next((each.seq for each in self._waiting if isinstance(each, Event)), NEVER)

    def put_message(self, message: Message) -> None:
        """Keep a message that must not pass the events before it."""
        self._waiting.append(message)

    def put_back(self, taken: list[Event | Message]) -> None:
        """Put back what was taken before, and may not have arrived, before all that waits."""
        self._waiting[:0] = taken
        self._events += sum(isinstance(each, Event) for each in taken)
        self._wanted = 0

    def drop(self, last: int) -> list[Event]:
        """Drop the events up to a number, and return them."""
        dropped: list[Event] = []
        left: list[Event | Message] = []
        for each in self._waiting:
            if isinstance(each, Event) and each.seq <= last:
                dropped.append(each)
            else:
                left.append(each)
        self._waiting = left
        self._events -= len(dropped)
        self._wanted = 0
        return dropped

    def take(self) -> Iterator[tuple[Event, ...] | Message]:
        """Take everything, in order; consecutive events together."""
        waiting, self._waiting = self._waiting, []
        self._events = self._wanted = 0
        for is_event, group in groupby(waiting, lambda each: isinstance(each, Event)):
            if is_event:
                yield from batches(group)  # type: ignore[arg-type]
            else:
                yield from group  # type: ignore[misc]
