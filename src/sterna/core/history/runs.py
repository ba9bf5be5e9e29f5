"""Runs of events: what of each publisher is there without a gap, and which are the latest of all.

Each broker says of the events that it sends from which number on it has all of a publisher that
match. Whatever several brokers have is put together: as far as their runs touch, nothing is missing
between the first one and those that come as usual.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from sterna.core.history.messages import Run
from sterna.core.names import NodeId, Time
from sterna.model.event import Event


class Runs:
    """What was found of each publisher so far."""

    def __init__(self) -> None:
        self._events: dict[NodeId, dict[int, Event]] = defaultdict(dict)
        self._runs: dict[NodeId, list[Run]] = defaultdict(list)

    def add(self, events: Iterable[Event], runs: Iterable[Run]) -> None:
        """Add what somebody has."""
        for event in events:
            self._events[event.publisher][event.seq] = event
        for run in runs:
            self._runs[run.publisher].append(run)

    def take_longest(self, events: Sequence[Event], runs: Iterable[Run]) -> None:
        """Of each publisher, take what somebody has if that is more than is there."""
        for run in runs:
            mine = [event for event in events if event.publisher == run.publisher]
            if len(mine) > len(self._events.get(run.publisher, ())):
                self._events[run.publisher] = {event.seq: event for event in mine}
                self._runs[run.publisher] = [run]

    def events(self) -> list[Event]:
        """All events that were added."""
        return [event for events in self._events.values() for event in events.values()]

    def all(self) -> list[Run]:
        """All runs that were added."""
        return [run for runs in self._runs.values() for run in runs]

    def runs_from(
        self, firsts: Mapping[NodeId, int], whole: Mapping[NodeId, Sequence[Event]]
    ) -> list[Run]:
        """What is there of some publishers, if some of the earliest events are left out."""
        found = []
        for publisher, number in firsts.items():
            first = self._first(publisher, is_all=True)
            if first is None or whole[publisher][0].seq < number:
                first = number
            runs = self._runs[publisher]
            is_open = any(run.last is None for run in runs)
            last = None if is_open else max(run.last or 0 for run in runs)
            found.append(Run(publisher, first, last, not is_open))
        return found

    def known(self) -> tuple[tuple[NodeId, int], ...]:
        """Of which publishers the events are there, from which number on."""
        firsts = ((publisher, self._first(publisher, is_all=False)) for publisher in self._runs)
        return tuple((publisher, first) for publisher, first in firsts if first is not None)

    def without_gap(self, *, is_all: bool = True) -> dict[NodeId, list[Event]]:
        """The events of each publisher that are there without a gap up to those that come as usual.

        `is_all` says whether all brokers have answered. If not, one that has not may know of later
        events of a publisher that another has seen leave.
        """
        found = {}
        for publisher, events in self._events.items():
            first = self._first(publisher, is_all=is_all)
            if first is not None:
                found[publisher] = [events[seq] for seq in sorted(events) if seq >= first]
        return {publisher: run for publisher, run in found.items() if run}

    def _first(self, publisher: NodeId, *, is_all: bool) -> int | None:
        """The number from which on nothing is missing; None if there is none."""
        runs = self._runs.get(publisher, ())
        firsts = [run.first for run in runs if run.last is None]
        left = [(run.first, run.last) for run in runs if run.last is not None]
        if not firsts:
            gone = [(run.last or 0, run.first) for run in runs if run.is_gone]
            if not (gone and is_all):
                return None
            firsts = [max(gone)[1]]
        first = min(firsts)
        for earlier, last in sorted(left, reverse=True):
            if earlier < first <= last + 1:
                first = earlier
        return first


def latest(
    runs: Mapping[NodeId, Sequence[Event]], events_max: int | None, since_us: Time | None
) -> list[Event]:
    """The latest events of all publishers by the times at which they were published.

    Of each publisher they are the last ones, also if its clock was set back.
    """
    taken = {publisher: _since(run, since_us) for publisher, run in runs.items()}
    heads = [(-run[-1].time_us, publisher) for publisher, run in taken.items() if run]
    heapify(heads)
    count = {publisher: len(run) for publisher, run in taken.items()}
    found: list[Event] = []
    while heads and (events_max is None or len(found) < events_max):
        _, publisher = heads[0]
        count[publisher] -= 1
        left = count[publisher]
        found.append(taken[publisher][left])
        if left:
            heapreplace(heads, (-taken[publisher][left - 1].time_us, publisher))
        else:
            heappop(heads)
    return found[::-1]


def _since(run: Sequence[Event], since_us: Time | None) -> Sequence[Event]:
    """The last events of a publisher that were all published at a time or later."""
    if since_us is None:
        return run
    first = len(run)
    while first and run[first - 1].time_us >= since_us:
        first -= 1
    return run[first:]


def before(run: Sequence[Event], number: int) -> Sequence[Event]:
    """The events of a publisher with smaller numbers."""
    return run[: bisect_left(run, number, key=lambda event: event.seq)]
