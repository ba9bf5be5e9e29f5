"""The last events of each publisher of a broker, however loud others are. (Cilia et al., 5.2)"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from sterna.core.history.messages import Place, Run
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NodeId, Time
from sterna.core.sizes import weight
from sterna.model.event import Event

BYTES_MAX = 64 << 20
"""How many bytes of events are kept of all publishers together."""

SHARE = 64
"""The part of these bytes that one publisher gets at most."""


class Own:
    """The last events of one publisher, and from which number on they are all there."""

    __slots__ = ("bytes", "events", "is_cut", "is_last", "start", "time")

    def __init__(self, start: int) -> None:
        self.events: deque[Event] = deque()
        self.start = start
        """From this number on, all its events came here, one after the other."""
        self.bytes = 0
        """About how many bytes the events take."""
        self.time: Time = 0
        """When the last of them came."""
        self.is_cut = False
        """Whether there were others before, which are not kept any more."""
        self.is_last = True
        """Whether the publisher has published nothing since; it may have, if it was elsewhere."""

    @property
    def first(self) -> int:
        """The number of the first event that is kept."""
        return self.events[0].seq

    def run(self, first: int, place: Place) -> Run:
        """All that is there of it from a number on."""
        return Run(self.events[0].publisher, first, self.events[-1].seq, place)


class KeptOwn(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of a publisher."""

    publisher: NodeId
    start: int
    time: Time
    is_cut: bool
    is_last: bool
    events: list[int]
    bytes: int


class Published:
    """The last events of each publisher; the one that was silent for the longest time is first."""

    def __init__(self, events_max: int, publishers_max: int, bytes_max: int = BYTES_MAX) -> None:
        self.events_max = events_max
        self.publishers_max = publishers_max
        self.bytes_max = bytes_max
        self._own: dict[NodeId, Own] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._own)

    def add(
        self, publisher: NodeId, events: Sequence[Event], now: Time, size: int | None = None
    ) -> None:
        """A publisher has published something, of about this size if that is known."""
        if not self.events_max or not events:
            return
        own = self._take(publisher)
        if not _follow(own, events):
            events = _last_in_a_row(events)
            size = None
            if not _follow(own, events):
                own = None  # What is between may have come elsewhere, or in another life.
        if own is None:
            own = Own(events[0].seq)
        own.events.extend(events)
        own.bytes += sum(map(weight, events)) if size is None else size
        own.is_last, own.time = True, now
        self._trim(own)
        self._put(publisher, own)

    def get(self, publisher: NodeId) -> Own | None:
        """What is there of a publisher, if anything is."""
        return self._own.get(publisher)

    def _take(self, publisher: NodeId) -> Own | None:
        own = self._own.pop(publisher, None)
        if own is not None:
            self._bytes -= own.bytes
        return own

    def _put(self, publisher: NodeId, own: Own) -> None:
        """Have a publisher as the last one; forget others if these are too many."""
        self._own[publisher] = own
        self._bytes += own.bytes
        while len(self._own) > self.publishers_max or self._bytes > self.bytes_max:
            self._take(next(iter(self._own)))

    def _trim(self, own: Own) -> None:
        events, share = own.events, self.bytes_max // SHARE
        surplus = len(events) - self.events_max
        if surplus > 0:
            own.bytes -= own.bytes * surplus // len(events)
            for _ in range(surplus):
                events.popleft()
            own.is_cut = True
        while own.bytes > share and len(events) > 1:
            own.bytes -= own.bytes // len(events)
            events.popleft()
            own.is_cut = True

    def came(self, publisher: NodeId) -> None:
        """A publisher has come, maybe from elsewhere."""
        if publisher in self._own:
            self._own[publisher].is_last = False

    def expire(self, before: Time) -> None:
        """Forget publishers that were silent since a time."""
        while self._own and (own := next(iter(self._own.values()))).time < before:
            self._take(own.events[0].publisher)

    def configure(self, events_max: int, publishers_max: int, bytes_max: int = BYTES_MAX) -> None:
        """Keep more or less from now on."""
        self.events_max, self.publishers_max = events_max, publishers_max
        self.bytes_max = bytes_max
        for publisher in list(self._own):
            own = self._take(publisher)
            if own is not None and events_max:
                self._trim(own)
                self._put(publisher, own)

    def items(self) -> Iterable[tuple[NodeId, Own]]:
        """What is there of each publisher."""
        return self._own.items()

    def keep(self, writer: Writer) -> list[KeptOwn]:
        """What a snapshot has to hold."""
        return [
            KeptOwn(
                publisher,
                own.start,
                own.time,
                own.is_cut,
                own.is_last,
                [writer.event(event) for event in own.events],
                own.bytes,
            )
            for publisher, own in self._own.items()
        ]

    def restore(self, kept: Iterable[KeptOwn], reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        for each in kept:
            own = Own(each.start)
            own.events.extend(reader.event(number) for number in each.events)
            own.time, own.is_cut, own.is_last = each.time, each.is_cut, each.is_last
            own.bytes = each.bytes
            self._put(each.publisher, own)


def _follow(own: Own | None, events: Sequence[Event]) -> bool:
    """Whether events follow those that are there, or none, without a number missing.

    Their numbers ascend; a publisher that does otherwise harms only itself.
    """
    first = events[0].seq if own is None else own.events[-1].seq + 1
    return events[0].seq == first and events[-1].seq == first + len(events) - 1


def _last_in_a_row(events: Sequence[Event]) -> Sequence[Event]:
    """The last of some events, as far as no number is missing between them."""
    first = len(events) - 1
    while first and events[first - 1].seq + 1 == events[first].seq:
        first -= 1
    return events[first:]
