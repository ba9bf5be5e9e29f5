"""Puts the events of each publisher into order again, at the client.

Where brokers move, an event that has waited at one broker is passed by the next one, which goes
another way. Some come twice. A client cannot know whether an event is missing between two that it
has, or whether it does not want that one. So it holds an event that does not follow directly upon
the last one of its publisher, for a while and no longer. What comes still later is discarded and
stated as such.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from sterna.core import facts
from sterna.core.component import ClientComponent
from sterna.core.keeping import Reader, Writer
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.protocol import Protocol
from sterna.core.settings import Settings
from sterna.model.event import Event

NAME = "ordering"

REMEMBERED_MAX = 4_096
"""Of so many events of each publisher it is known that they came."""


class OrderingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a client is."""

    patience_us: Time = 500_000
    """So long an event waits for earlier ones of its publisher."""


class KeptPublisher(msgspec.Struct, frozen=True):
    """What a snapshot holds of a publisher."""

    last: int
    came: dict[int, bool]
    held: list[tuple[int, Time]]
    """The number that the snapshot has for each event, and how long it waits."""


class KeptOrdering(msgspec.Struct, frozen=True):
    """What a snapshot holds of all of them."""

    publishers: dict[NodeId, KeptPublisher]


class Publisher:
    """What a client has got from a publisher."""

    __slots__ = ("came", "held", "last")

    def __init__(self) -> None:
        self.last = 0
        """The number of the last event that the application may have got."""
        self.came: dict[int, bool] = {}
        """The numbers of the events up to there that came, the latest at the end, and whether they
        came in time."""
        self.held: dict[int, tuple[Event, Time]] = {}
        """Later events, and how long each of them waits."""

    def release(self, up_to: int) -> list[Event]:
        """The events up to a number, and those that follow directly upon them."""
        ready = [self.held.pop(seq)[0] for seq in sorted(self.held) if seq <= up_to]
        self.last = max(self.last, up_to)
        while self.last + 1 in self.held:
            self.last += 1
            ready.append(self.held.pop(self.last)[0])
        self.note((event.seq for event in ready), in_time=True)
        return ready

    def note(self, numbers: Iterable[int], *, in_time: bool) -> None:
        """Remember that events came."""
        self.came |= dict.fromkeys(numbers, in_time)
        while len(self.came) > REMEMBERED_MAX:
            del self.came[next(iter(self.came))]


class Ordering(ClientComponent):
    """The client's part, and all there is."""

    name = NAME
    Kept = KeptOrdering

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.options_of(cls.name, OrderingOptions))

    def __init__(self, options: OrderingOptions | None = None) -> None:
        self._options = options or OrderingOptions()
        self._publishers: dict[NodeId, Publisher] = {}

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self._options = settings.options_of(self.name, OrderingOptions)

    def events_arriving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        del link
        ready: list[Event] = []
        repeated: list[Event] = []
        late: list[Event] = []
        for event in events:
            publisher = self._publishers.setdefault(event.publisher, Publisher())
            if event.seq in publisher.held or publisher.came.get(event.seq):
                repeated.append(event)
            elif event.seq <= publisher.last:
                if event.seq not in publisher.came:
                    publisher.note((event.seq,), in_time=False)
                    late.append(event)
            else:
                until = now + self._options.patience_us
                publisher.held[event.seq] = event, until
                up_to = publisher.last + 1 if until > now else event.seq
                if up_to in publisher.held:
                    ready += publisher.release(up_to)
                else:
                    self.wake_by(until)
        if repeated:
            state = facts.Repeated(at=self.client.id, time=now, events=tuple(repeated))
            self.client.state(state)
        if late:
            self.client.state(facts.Purged(at=self.client.id, time=now, events=tuple(late)))
        return ready

    def came_late(self, event: Event) -> bool:
        """Whether an event came, and too late to be put into order."""
        publisher = self._publishers.get(event.publisher)
        return publisher is not None and publisher.came.get(event.seq) is False

    def wake(self, now: Time) -> None:
        """Some have waited long enough."""
        ready: list[Event] = []
        for publisher in self._publishers.values():
            over = [seq for seq, (_, until) in publisher.held.items() if until <= now]
            if over:
                ready += publisher.release(max(over))
            for _, until in publisher.held.values():
                self.wake_by(until)
        if ready:
            self.client.wants.take(tuple(ready), now)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether nothing waits."""
        return not any(publisher.held for publisher in self._publishers.values())

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptOrdering:
        return KeptOrdering(
            {
                name: KeptPublisher(
                    publisher.last,
                    dict(publisher.came),
                    [(writer.event(event), until) for event, until in publisher.held.values()],
                )
                for name, publisher in self._publishers.items()
            }
        )

    def restore(self, kept: KeptOrdering, reader: Reader) -> None:
        for name, each in kept.publishers.items():
            publisher = self._publishers[name] = Publisher()
            publisher.last, publisher.came = each.last, dict(each.came)
            for number, until in each.held:
                event = reader.event(number)
                publisher.held[event.seq] = event, until


ORDERING = Protocol(name=NAME, client=Ordering)
