"""The searches that a broker has begun, and those of others that go through it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from sterna.core.history.coverage import KeptCovered
from sterna.core.history.messages import HistoryAsked, HistoryFound, Run
from sterna.core.history.published import KeptOwn
from sterna.core.history.runs import Runs, latest
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Route
from sterna.core.names import LinkId, NodeId, RouteId, Time
from sterna.core.sizes import weight
from sterna.model.event import Event
from sterna.model.ranges import INT_MAX

PAST = "past"
"""The name of the component that has most searches made."""

RUN_BYTES = 200
"""About how many bytes a run takes in memory."""

HELD_BYTES = 200
"""About how many bytes it takes in memory that a search holds an event."""

OPEN_MAX = 1_000_000
"""No network has so many brokers; who announces more answers than that is not believed."""


@dataclass(slots=True)
class Found:
    """What a search has found, the latest events that were asked for."""

    events: list[Event] = field(default_factory=list)
    here: int = 0
    """How many of them the broker that searches had itself."""
    away: int = 0
    """How far away the farthest of the brokers is that have sent any."""
    asked_us: Time | None = None
    """When other brokers were asked; None if none were."""
    bytes: int = 0
    """About how many bytes the events take that came from others."""
    is_all: bool = False
    """Whether all brokers have answered that may have something."""


@dataclass(slots=True)
class Searching:
    """A search of this broker, for one of its clients or to prepare for others."""

    asked: HistoryAsked
    client: LinkId
    route: RouteId
    began: Time
    ends: Time
    own: tuple[Event, ...] = ()
    """What this broker has itself."""
    runs: Runs = field(default_factory=Runs)
    open: int = 0
    """How many answers are missing. (The counter r.)"""
    links: tuple[LinkId, ...] = ()
    """The neighbours that were asked."""
    is_all: bool = True
    """Whether everybody was asked who may have something."""
    parts: dict[NodeId, tuple[list[Event], list[Run]]] = field(default_factory=dict)
    """The answers that are not complete yet, by who answers."""
    bytes: int = 0
    """About how many bytes it holds."""
    count: int = 0
    """How many events others have sent."""
    away: int = 0
    """How far away the farthest broker is that had something."""
    covered: int | None = None
    """What is known from then on when all have answered; see `Coverage`."""
    asker: str = PAST
    """The name of the component that is told what was found."""

    def take(self, message: HistoryFound) -> int:
        """Take a part of an answer; about how many bytes more that are."""
        events, runs = self.parts.pop(message.broker, ([], []))
        events += message.events
        runs += message.runs
        if message.events:
            self.away = max(self.away, message.away)
        if message.more:
            self.parts[message.broker] = events, runs
        elif self.asked.search.sends_more_only:
            self.runs.take_longest(events, runs)
        else:
            self.runs.add(events, runs)
        more = sum(weight(event) + HELD_BYTES for event in message.events)
        more += RUN_BYTES * len(message.runs)
        self.bytes += more
        self.count += len(message.events)
        return more

    def found(self, *, is_all: bool) -> Found:
        """The latest events, as far as nothing is missing up to those that come as usual."""
        asked, runs = self.asked, self.runs.without_gap(is_all=is_all and self.is_all)
        events = latest(runs, asked.events_max, asked.since_us)
        own = {event.id for event in self.own}
        others = sum(event.id not in own for event in events)
        return Found(
            events,
            len(events) - others,
            self.away if others else 0,
            self.began if self.links else None,
            self.bytes * others // (self.count or 1),
            is_all and self.is_all,
        )


@dataclass(slots=True)
class Passing:
    """A search of another broker, of which a part goes through here."""

    asked: HistoryAsked
    link: LinkId
    """Where it came from."""
    links: tuple[LinkId, ...]
    """Where it went on."""
    open: int
    began: Time
    """When it came."""
    covered: int | None
    """What is known from then on when all have answered; see `Coverage`."""


class KeptSearching(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a search of this broker."""

    asked: int
    client: LinkId
    route: RouteId
    began: Time
    ends: Time
    own: list[int]
    events: list[int]
    runs: list[Run]
    open: int
    links: tuple[LinkId, ...]
    is_all: bool
    parts: list[tuple[NodeId, list[int], list[Run]]]
    bytes: int
    count: int
    away: int
    covered: int | None
    asker: str

    @classmethod
    def of(cls, searching: Searching, writer: Writer) -> "KeptSearching":
        """What a snapshot has to hold."""
        return cls(
            asked=writer.message(searching.asked),
            client=searching.client,
            route=searching.route,
            began=searching.began,
            ends=searching.ends,
            own=_numbers(searching.own, writer),
            events=_numbers(searching.runs.events(), writer),
            runs=searching.runs.all(),
            open=searching.open,
            links=searching.links,
            is_all=searching.is_all,
            parts=[
                (who, _numbers(events, writer), runs)
                for who, (events, runs) in searching.parts.items()
            ],
            bytes=searching.bytes,
            count=searching.count,
            away=searching.away,
            covered=searching.covered,
            asker=searching.asker,
        )

    def restored(self, reader: Reader) -> Searching:
        """The search that a snapshot has held."""
        runs = Runs()
        runs.add([reader.event(number) for number in self.events], self.runs)
        return Searching(
            asked=reader.message(self.asked, HistoryAsked),
            client=self.client,
            route=self.route,
            began=self.began,
            ends=self.ends,
            own=tuple([reader.event(number) for number in self.own]),
            runs=runs,
            open=self.open,
            links=self.links,
            is_all=self.is_all,
            parts={
                who: ([reader.event(each) for each in events], list(runs))
                for who, events, runs in self.parts
            },
            bytes=self.bytes,
            count=self.count,
            away=self.away,
            covered=self.covered,
            asker=self.asker,
        )


class KeptPassing(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a search of another broker."""

    asked: int
    link: LinkId
    links: tuple[LinkId, ...]
    open: int
    began: Time
    covered: int | None


class KeptSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of searches, and of what they found out."""

    number: int
    searching: dict[int, KeptSearching]
    passing: list[KeptPassing]
    covered: list[KeptCovered]
    published: list[KeptOwn]
    crossed: dict[NodeId, Time]
    crossed_before: Time
    unprepared: list[tuple[LinkId, Route]]
    mute: list[LinkId]
    held: dict[LinkId, list[int]]


def joined(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    """The numbers between which events are known, if they are between two others, too.

    If there is a hole between them, the later ones count.
    """
    if one is None or one[0] > one[1]:
        return other
    if other[0] > other[1]:
        return one
    if one[1] + 1 < other[0] or other[1] + 1 < one[0]:
        return max(one, other)
    return min(one[0], other[0]), max(one[1], other[1])


def believable(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Those of the runs that others may send: there are numbers behind them."""
    return tuple(run for run in runs if run.last < INT_MAX)


def _numbers(events: Iterable[Event], writer: Writer) -> list[int]:
    return [writer.event(event) for event in events]
