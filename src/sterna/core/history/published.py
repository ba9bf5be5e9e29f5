"""The last events of each publisher of a broker, however loud others are. (Cilia et al., 5.2)"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from sterna.core.history.messages import Place, Run
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NodeId, Time
from sterna.model.event import Event


class Own:
    """The last events of one publisher, and from which number on they are all there."""

    __slots__ = ("events", "first", "is_cut", "is_last", "time")

    def __init__(self, first: int) -> None:
        self.events: deque[Event] = deque()
        self.first = first
        self.time: Time = 0
        """When the last of them came."""
        self.is_cut = False
        """Whether there were others before, which are not kept any more."""
        self.is_last = True
        """Whether the publisher has published nothing since; it may have, if it was elsewhere."""

    def run(self, place: Place) -> Run:
        """What is there of it."""
        return Run(self.events[0].publisher, self.first, self.events[-1].seq, place)


class KeptOwn(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of a publisher."""

    publisher: NodeId
    first: int
    time: Time
    is_cut: bool
    is_last: bool
    events: list[int]


class Published:
    """The last events of each publisher; the one that was silent for the longest time is first."""

    def __init__(self, events_max: int, publishers_max: int) -> None:
        self.events_max = events_max
        self.publishers_max = publishers_max
        self._own: dict[NodeId, Own] = {}

    def __len__(self) -> int:
        return len(self._own)

    def add(self, publisher: NodeId, events: Sequence[Event], now: Time) -> None:
        """A publisher has published something."""
        if not self.events_max:
            return
        own = self._own.pop(publisher, None)
        for event in events:
            if own is None or event.seq != own.events[-1].seq + 1:
                own = Own(event.seq)  # What is between may have come elsewhere, or in another life.
            own.events.append(event)
            own.is_last = True
        if own is None:
            return
        self._own[publisher] = own
        own.time = now
        self._trim(own)
        if len(self._own) > self.publishers_max:
            del self._own[next(iter(self._own))]

    def _trim(self, own: Own) -> None:
        surplus = len(own.events) - self.events_max
        if surplus > 0:
            for _ in range(surplus):
                own.events.popleft()
            own.first, own.is_cut = own.events[0].seq, True

    def came(self, publisher: NodeId) -> None:
        """A publisher has come, maybe from elsewhere."""
        if publisher in self._own:
            self._own[publisher].is_last = False

    def expire(self, before: Time) -> None:
        """Forget publishers that were silent since a time."""
        while self._own and (own := next(iter(self._own.values()))).time < before:
            del self._own[own.events[0].publisher]

    def configure(self, events_max: int, publishers_max: int) -> None:
        """Keep more or less from now on."""
        self.events_max, self.publishers_max = events_max, publishers_max
        if not events_max:
            self._own.clear()
        for own in self._own.values():
            self._trim(own)
        while len(self._own) > publishers_max:
            del self._own[next(iter(self._own))]

    def items(self) -> Iterable[tuple[NodeId, Own]]:
        """What is there of each publisher."""
        return self._own.items()

    def keep(self, writer: Writer) -> list[KeptOwn]:
        """What a snapshot has to hold."""
        return [
            KeptOwn(
                publisher,
                own.first,
                own.time,
                own.is_cut,
                own.is_last,
                [writer.event(event) for event in own.events],
            )
            for publisher, own in self._own.items()
        ]

    def restore(self, kept: Iterable[KeptOwn], reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        for each in kept:
            own = Own(each.first)
            own.events.extend(reader.event(number) for number in each.events)
            own.time, own.is_cut, own.is_last = each.time, each.is_cut, each.is_last
            self._own[each.publisher] = own
