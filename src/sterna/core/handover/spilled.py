"""Where the events of a cache are that were spilled, in little memory: some 50 bytes each.

They are the oldest of the cache. Each may be in several rings, and is gone when it has left all.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec

from sterna.core.depot import PageId
from sterna.core.names import Time

GONE_MAX = 256
"""So many that are gone are remembered before the columns are shortened."""


class InPage(NamedTuple):
    """Where an event is that was spilled."""

    page: PageId
    place: int


class KeptSpilled(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of the events that were spilled."""

    runs: list[tuple[int, PageId, int, int]] = []
    """Of each run of consecutive events the number of the first, its page, its place there, and how
    many they are."""
    weights: list[int] = []
    since: list[tuple[Time, int]] = []
    """Since when they are kept, and for how many that is so."""


class Spilled:
    """A column for everything that is known of an event, in the order of their numbers."""

    __slots__ = (
        *("_first", "_numbers", "_pages", "_places", "_rings", "_since", "_weights", "bytes"),
        *("count", "pages"),
    )

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        """About how many bytes they take on their way."""
        self.pages: Counter[PageId] = Counter()
        """How many of them are in each page."""
        self._first = 0
        """Those before this place in the columns are gone."""
        self._numbers = array("q")
        self._pages = array("Q")
        self._places = array("Q")
        self._weights = array("Q")
        self._since = array("q")
        self._rings = array("Q")
        """How many rings each is in; 0: it is gone."""

    def add(self, number: int, where: InPage, weight: int, since: Time, rings: int) -> None:
        """One more event was spilled; its number is greater than all before."""
        self._numbers.append(number)
        self._pages.append(where.page)
        self._places.append(where.place)
        self._weights.append(weight)
        self._since.append(since)
        self._rings.append(rings)
        self.count += 1
        self.bytes += weight
        self.pages[where.page] += 1

    @property
    def oldest(self) -> int:
        """The number of the oldest; there is one."""
        return self._numbers[self._first]

    def since(self, number: int) -> Time:
        """Since when an event is kept."""
        return self._since[self._at(number)]

    def begin_anew(self, now: Time) -> None:
        """All of them count as kept since now, or later."""
        for place in range(self._first, len(self._since)):
            self._since[place] = max(self._since[place], now)

    def enter_ring(self, number: int) -> None:
        """An event is in one more ring."""
        self._rings[self._at(number)] += 1

    def leave_ring(self, number: int) -> InPage | None:
        """Take an event out of one ring; if that was its last one, it is gone."""
        at = self._at(number)
        self._rings[at] -= 1
        if self._rings[at]:
            return None
        where = InPage(self._pages[at], self._places[at])
        self.count -= 1
        self.bytes -= self._weights[at]
        self.pages[where.page] -= 1
        if not self.pages[where.page]:
            del self.pages[where.page]
        self._forget()
        if len(self._numbers) - self._first - self.count > max(GONE_MAX, self.count):
            self._close_up()
        return where

    def __iter__(self) -> Iterator[InPage]:
        return (InPage(self._pages[at], self._places[at]) for at in self._left())

    def numbers(self) -> Iterator[int]:
        """The numbers of the events, in the order of these."""
        return (self._numbers[at] for at in self._left())

    def keep(self) -> KeptSpilled:
        """What a snapshot has to hold."""
        runs: list[tuple[int, PageId, int, int]] = []
        for at in self._left():
            number, page, place = self._numbers[at], self._pages[at], self._places[at]
            if runs:
                first, in_page, begin, count = runs[-1]
                if (number, page, place) == (first + count, in_page, begin + count):
                    runs[-1] = first, in_page, begin, count + 1
                    continue
            runs.append((number, page, place, 1))
        since = groupby(self._since[at] for at in self._left())
        return KeptSpilled(
            runs,
            [self._weights[at] for at in self._left()],
            [(time, sum(1 for _ in group)) for time, group in since],
        )

    @classmethod
    def restored(cls, kept: KeptSpilled) -> "Spilled":
        """What a snapshot has held; nothing of it is in a ring yet."""
        if not kept.runs:
            return NOTHING_SPILLED
        spilled = cls()
        places = (
            (first + n, InPage(page, begin + n))
            for first, page, begin, count in kept.runs
            for n in range(count)
        )
        times = (time for time, count in kept.since for _ in range(count))
        for (number, where), weight, since in zip(places, kept.weights, times, strict=True):
            spilled.add(number, where, weight, since, 0)
        return spilled

    def _left(self) -> Iterable[int]:
        return (at for at in range(self._first, len(self._numbers)) if self._rings[at])

    def _at(self, number: int) -> int:
        return bisect_left(self._numbers, number, self._first)

    def _forget(self) -> None:
        """Let go of those at the front that are gone."""
        while self._first < len(self._rings) and not self._rings[self._first]:
            self._first += 1
        if self._first > max(GONE_MAX, len(self._numbers) // 2) or not self.count:
            for column in (self._numbers, self._pages, self._places, self._weights):
                del column[: self._first]
            del self._since[: self._first], self._rings[: self._first]
            self._first = 0

    def _close_up(self) -> None:
        """Let go of those in the middle that are gone: policies leave old ones before them."""
        left = list(self._left())
        for name in ("_numbers", "_pages", "_places", "_weights", "_since", "_rings"):
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, [column[at] for at in left]))
        self._first = 0


NOTHING_SPILLED = Spilled()
"""For all caches of which nothing was spilled, which are most; nothing is added to it."""
