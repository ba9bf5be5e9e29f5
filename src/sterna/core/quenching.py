"""Quenching: publishers learn what is wanted and discard the rest at the source. (Huang, 3.2)

The broker tells a publisher about filters as it tells a neighbouring broker, simplified by covering
and merging: what the publisher has been told is c_all, the OR of all active subscriptions.
"""

from collections import deque
from collections.abc import Iterator

from sterna.core.component import Component
from sterna.core.messages import InterestAsked, InterestKnown, Message, SubscriptionChange
from sterna.core.names import LinkId, Time
from sterna.matching import MatchIndex
from sterna.model.event import Event


class Quenching(Component):
    """The border broker's part: keep publishers informed that ask for it."""

    handles = (InterestAsked,)

    def on_interest_asked(self, _message: InterestAsked, link: LinkId, now: Time) -> None:
        self.broker.router.tell_interest(link, now)
        self.broker.send(link, InterestKnown(), now)


class Interest:
    """The publisher's part: c_all as far as it is known."""

    def __init__(self) -> None:
        self.asked = False
        """Whether the broker was asked since the link stands."""
        self.current = False
        """Whether the broker has said all it knows since the link stands."""
        self._filters: MatchIndex[str] = MatchIndex()

    def __len__(self) -> int:
        return len(self._filters)

    def change(self, message: SubscriptionChange) -> None:
        for route in message.added:
            if route.id in self._filters:
                self._filters.remove(route.id)
            self._filters.add(route.id, route.filter)
        for id_ in message.removed:
            if id_ in self._filters:
                self._filters.remove(id_)

    def forget(self) -> None:
        """The broker is a new one: what the last one said does not hold."""
        self.current = False
        self._filters = MatchIndex()

    def wants(self, event: Event) -> bool:
        """Whether some subscription that is known matches the event."""
        return bool(self._filters.match(event.attributes))


class Outgoing:
    """What waits for a connection, in order: events, up to a limit, and what must not pass them."""

    def __init__(self, events_max: int, interest: Interest | None) -> None:
        self._waiting: deque[Event | Message] = deque()
        self._events = 0
        self._events_max = events_max
        self._interest = interest

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event) -> Event | None:
        """Keep an event; the one that had to go for it, if there was no room.

        A subscription that is not known here may want any of them, so all are kept while there is
        room. Then the oldest goes that nobody was known to want, else the oldest.
        """
        self._waiting.append(event)
        self._events += 1
        if self._events <= self._events_max:
            return None
        events = [waiting for waiting in self._waiting if isinstance(waiting, Event)]
        victim = events[0]
        if self._interest is not None:
            victim = next((old for old in events if not self._interest.wants(old)), victim)
        self._waiting.remove(victim)
        self._events -= 1
        return victim

    def put_message(self, message: Message) -> None:
        """Keep a message that must not pass the events before it."""
        self._waiting.append(message)

    def take(self) -> Iterator[tuple[Event, ...] | Message]:
        """Everything, in order; events that follow each other at once."""
        while self._waiting:
            first = self._waiting.popleft()
            if isinstance(first, Message):
                yield first
                continue
            events = [first]
            while self._waiting and isinstance(self._waiting[0], Event):
                events.append(self._waiting.popleft())  # type: ignore[arg-type]
            self._events -= len(events)
            yield tuple(events)
