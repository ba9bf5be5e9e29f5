"""Runs of events: what of each publisher is there without a gap, and which are the latest of all.

Each broker says of the events that it sends from which number on it has all of a publisher that
match. Whatever several brokers have is put together: as far as their runs touch, nothing is missing
between the first one and those that come as usual.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

import msgspec

from sterna.core.history.messages import Place, Run
from sterna.core.names import NodeId, Time
from sterna.model.event import Event
from sterna.model.ranges import INT_MAX


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
        """Of each publisher, take what somebody has if that is more than is there.

        Where a publisher was last is known in any case.
        """
        given: dict[NodeId, list[Run]] = defaultdict(list)
        for run in runs:
            given[run.publisher].append(run)
        all_found: dict[NodeId, dict[int, Event]] = defaultdict(dict)
        for event in events:
            all_found[event.publisher][event.seq] = event
        for publisher, mine in given.items():
            known, there = self._runs[publisher], self._events.get(publisher, {})
            found = all_found[publisher]
            if (_is_open(mine), len(found)) > (_is_open(known), len(there)):
                self._events[publisher] = found
                self._runs[publisher] = [*map(_ended, known), *mine]
            else:
                known += map(_ended, mine)

    def events(self) -> list[Event]:
        """All events that were added."""
        return [event for events in self._events.values() for event in events.values()]

    def all(self) -> list[Run]:
        """All runs that were added."""
        return [run for runs in self._runs.values() for run in runs]

    def cut(self, chosen: Iterable[Event]) -> list[Run]:
        """The runs, if of all events only some are sent: of each publisher the last ones."""
        firsts: dict[NodeId, int] = {}
        for event in chosen:
            firsts.setdefault(event.publisher, event.seq)
        found = []
        for run in self.all():
            first = firsts.get(run.publisher, behind(run))
            there = self._events.get(run.publisher, ())
            if any(run.first <= seq < first for seq in there):
                found.append(msgspec.structs.replace(run, first=first))
            else:
                found.append(run)
        return found

    def known(self) -> dict[NodeId, tuple[int, int]]:
        """Of which publishers the events are there, and between which numbers."""
        reached = {publisher: self._reach(publisher) for publisher in self._runs}
        return {publisher: (first, last) for publisher, (first, last, _) in reached.items()}

    def without_gap(self, *, is_all: bool = True) -> dict[NodeId, list[Event]]:
        """The events of each publisher that are there without a gap up to those that come as usual.

        `is_all` says whether all brokers have answered. If not, one that has not may know of later
        events of a publisher that another has seen leave.
        """
        return self._from({p: self._first(p, is_all=is_all) for p in self._runs})

    def whole(self) -> dict[NodeId, list[Event]]:
        """The events of each publisher that are there without a gap, whatever may follow."""
        return self._from({p: self._reach(p)[0] for p in self._runs})

    def whole_with(self, known: Mapping[NodeId, tuple[int, int]]) -> dict[NodeId, list[Event]]:
        """The same for somebody who has all events of publishers between two numbers.

        They may close a gap.
        """
        closed = Runs()
        for publisher, (first, last) in known.items():
            if publisher in self._runs and first <= last:
                between = Run(publisher, first, last, Place.BEFORE)
                closed._runs[publisher] = [*self._runs[publisher], between]
                closed._events[publisher] = self._events.get(publisher, {})
        found = self.whole()
        for publisher, events in closed.whole().items():
            if len(events) > len(found.get(publisher, ())):
                found[publisher] = events
        return found

    def _from(self, firsts: Mapping[NodeId, int | None]) -> dict[NodeId, list[Event]]:
        found = {}
        for publisher, first in firsts.items():
            events = self._events.get(publisher)
            if events and first is not None:
                last = self._reach(publisher)[1]
                found[publisher] = [events[seq] for seq in sorted(events) if first <= seq <= last]
        return {publisher: run for publisher, run in found.items() if run}

    def _first(self, publisher: NodeId, *, is_all: bool) -> int | None:
        """The number from which on nothing is missing; None if there is none.

        Of the brokers where a publisher is or was, the one that has its latest event counts.
        """
        first, _, end = self._reach(publisher)
        is_open = any(run.place is Place.WAY for run in self._runs[publisher])
        if is_open or end.place is Place.HERE or (end.place is Place.LEFT and is_all):
            return first
        return None

    def _reach(self, publisher: NodeId) -> tuple[int, int, Run]:
        """Between which numbers all is there, and the end where the publisher was last.

        All that follow a run on the way come as usual, so there may be a hole behind it.
        """
        runs = self._runs[publisher]
        end = max(runs, key=lambda run: (run.last, run.place is Place.HERE))
        first = min([end.first, *(run.first for run in runs if run.place is Place.WAY)])
        for run in sorted(runs, key=lambda run: run.first, reverse=True):
            if run.first < first <= run.last + 1:
                first = run.first
        last = first - 1
        for run in sorted(runs, key=lambda run: run.first):
            if run.first <= last + 1:
                last = max(last, run.last)
        return first, last, end


def _is_open(runs: Iterable[Run]) -> bool:
    """Whether all that follow come as usual."""
    return any(run.place.is_open for run in runs)


def _ended(run: Run) -> Run:
    """A run of which no event is used."""
    return msgspec.structs.replace(run, first=behind(run))


def behind(run: Run) -> int:
    """The number that follows a run, as far as there are numbers."""
    return min(run.last + 1, INT_MAX)


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


def without(run: Sequence[Event], known: tuple[int, int] | None) -> Sequence[Event]:
    """The events of a publisher but those between two numbers."""
    if known is None:
        return run
    return [event for event in run if not known[0] <= event.seq <= known[1]]
