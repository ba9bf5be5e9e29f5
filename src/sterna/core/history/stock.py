"""What a broker has of the past: of each publisher, events of which it knows that none is missing.

It may have several of them for the same publisher: as the publisher's broker, and as one on the way
of its events. Of each kind only the latest events belong to an answer, so that is what it makes
runs of; the others are not even touched.
"""

from collections.abc import Mapping, Sequence

import msgspec

from sterna.core.history.messages import Run
from sterna.core.history.runs import Runs, behind, latest, without
from sterna.core.names import NodeId, Time
from sterna.model.event import Event

Shelf = dict[NodeId, tuple[Sequence[Event], Run]]
"""For each publisher, the events that match, in order, and from where to where they are all."""


class Stock:
    """Shelves, each with the events of some publishers."""

    def __init__(self) -> None:
        self._shelves: list[Shelf] = []

    def add(self, shelf: Shelf) -> None:
        """Add what is known of some publishers."""
        if shelf:
            self._shelves.append(shelf)

    def runs(
        self,
        events_max: int | None,
        since_us: Time | None,
        known: Mapping[NodeId, tuple[int, int]],
    ) -> Runs:
        """The latest events of each shelf, but for those that are known already."""
        runs = Runs()
        for shelf in self._shelves:
            left = {
                publisher: without(events, known.get(publisher))
                for publisher, (events, _) in shelf.items()
            }
            chosen = latest(left, events_max, since_us)
            firsts: dict[NodeId, int] = {}
            for event in chosen:
                firsts.setdefault(event.publisher, event.seq)
            runs.add(chosen, [_cut(*each, firsts) for each in shelf.values()])
        return runs


def _cut(events: Sequence[Event], run: Run, firsts: Mapping[NodeId, int]) -> Run:
    """The run that is left of events if only those from a number on are chosen, or none."""
    first = firsts.get(run.publisher, behind(run))
    is_less = events and events[0].seq < first
    return msgspec.structs.replace(run, first=first) if is_less else run
