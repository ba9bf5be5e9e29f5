"""Foresight: what handling an input will have to know, found out before, a little at a time.

Testing many filters or long texts may take longer than a broker may be away from its other
peers. So its driver has events matched before it gives them to the core: in slices, between
which other inputs are handled. What comes out is the same, only sooner.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.filters.long_texts import LongTexts, checked

if TYPE_CHECKING:
    from sterna.core.history.scan import Scan


class PastVerdicts(NamedTuple):
    """Which of the events of the past match a filter: a byte for each, 1 if it does."""

    first: int
    """The place of the first of these events among all that have passed."""
    verdicts: bytearray


class Foresight:
    """What is known of an input that has not been handled yet."""

    def __init__(self, events: Sequence[Event], is_time_up: Callable[[], bool]) -> None:
        self.events = events
        self.texts = LongTexts(is_time_up)
        self.found: dict[int, list[int]] = {}
        """For the numbers of filters in the routing table, the places of events that match."""
        self.since = 0
        """The number of the last filter that was matched."""
        self.past: dict[tuple[Filter, int], PastVerdicts] = {}
        """Which events of the past match a filter, from a time on."""
        self.scans: dict[Filter, Scan] = {}
        """Which events match a filter, of all that the broker has."""
        self._work: Iterator[None] = iter(())
        self._by_event: list[list[int]] | None = None
        """For each event, the numbers of filters that match; made when only some are asked for."""
        self._next = 0

    def begin(self, *work: Iterable[None]) -> None:
        """Set the work that has to be done, which yields whenever its time is up."""
        self._work = (None for each in work for _ in each)

    def is_complete(self) -> bool:
        """Go on; whether all is known now."""
        for _ in self._work:
            return False
        self.texts.finish()
        return True

    def test_past(
        self, filter_: Filter, since_us: int, untested: PastVerdicts, events: Iterable[Event | None]
    ) -> Generator[None, None, None]:
        """Test events of the past from a time on; it yields whenever time is up."""
        if (filter_, since_us) in self.past:
            return
        verdicts = self.past.setdefault((filter_, since_us), untested).verdicts
        for event in events:
            is_wanted = False
            if event is not None and event.time_us >= since_us:
                is_wanted = yield from checked(filter_.matches, event.attributes, self.texts)
            verdicts.append(is_wanted)
            if self.texts.is_time_up:
                yield

    def found_for(self, events: Sequence[Event]) -> dict[int, list[int]] | None:
        """What was found for some of the events, in their order; None if one was not foreseen.

        What was asked for before is not asked for again.
        """
        if len(events) == len(self.events) and all(map(is_, events, self.events)):
            return dict(self.found)
        if self._by_event is None:
            self._by_event = [[] for _ in self.events]
            for number, places in self.found.items():
                for place in places:
                    self._by_event[place].append(number)
        found: dict[int, list[int]] = {}
        for place, event in enumerate(events):
            while self._next < len(self.events) and self.events[self._next] is not event:
                self._next += 1  # It came twice, for example.
            if self._next == len(self.events):
                return None
            for number in self._by_event[self._next]:
                found.setdefault(number, []).append(place)
            self._next += 1
        return found
