"""Foresight: what handling an input will have to know, found out before, a little at a time.

Testing many filters or long texts may take longer than a broker may be away from its other
peers. So its driver has events matched before it gives them to the core: in slices, between
which other inputs are handled. What comes out is the same, only sooner.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_

from sterna.model.event import Event
from sterna.model.filters.long_texts import LongTexts


class Foresight:
    """What is known of an input that has not been handled yet."""

    def __init__(self, events: Sequence[Event], is_time_up: Callable[[], bool]) -> None:
        self.events = events
        self.texts = LongTexts(is_time_up)
        self.found: dict[int, list[int]] = {}
        """For the numbers of filters in the routing table, the places of events that match."""
        self.since = 0
        """The number of the last filter that was matched."""
        self._work: Iterator[None] = iter(())

    def begin(self, *work: Iterable[None]) -> None:
        """Set the work that has to be done, which yields whenever its time is up."""
        self._work = (None for each in work for _ in each)

    def is_complete(self) -> bool:
        """Go on; whether all is known now."""
        for _ in self._work:
            return False
        self.texts.finish()
        return True

    def found_for(self, events: Sequence[Event]) -> dict[int, list[int]] | None:
        """What was found, with places among other events; None if one of those is unknown."""
        if len(events) == len(self.events) and all(map(is_, events, self.events)):
            return self.found
        places = {id(event): place for place, event in enumerate(self.events)}
        if not all(id(event) in places for event in events):
            return None
        now = {places[id(event)]: place for place, event in enumerate(events)}
        return {
            number: sorted(now[place] for place in matching if place in now)
            for number, matching in self.found.items()
            if any(place in now for place in matching)
        }
