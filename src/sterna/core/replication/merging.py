"""Makes one sequence of events out of those of several sessions. (Huang and Garcia-Molina, 5)

Each session brings the events of a publisher in the order of their numbers, with gaps: numbers
that no subscription wants, and events that were lost on their way to the session's broker. A gap
alone says nothing. So the holding filter lets an event go on when

- it has the number after that of the last one given: nothing lies between; or
- every session has brought it or a later one: none of them can bring an earlier one any more; or
- it has waited for `hold_us`, or too many wait. Then it *gives up*, and states so.

A session for which events have waited in vain is *silent*: nothing waits for it until it brings
something again. So one that is cut off from all publishers costs that time once, and not each time.
A session that joins later begins silent.

What is remembered is bounded. Of each publisher: the number of the last event given, how far each
session is, and the latest numbers given, at most `remembered_max`; of events that wait, at most
`held_events_max`. An event that is older than what is remembered is dropped: to give it twice
would be worse.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import msgspec

from sterna.core.actions import Deliver
from sterna.core.facts import Delivered, Fact, Repeated
from sterna.core.inputs import Input, TimePassed
from sterna.core.names import NEVER, LocalProtocolError, NodeId, Time
from sterna.core.replication.facts import CameLate, GaveUp, HeldBack, Reason
from sterna.core.replication.inputs import (
    EventsArrived,
    SessionId,
    SessionJoined,
    SessionLost,
    SessionReached,
)
from sterna.core.replication.options import Filtering, MergingOptions
from sterna.model.event import Event, EventId


class Merged(msgspec.Struct):
    """The result of one input: what the application is given, and what happened."""

    actions: list[Deliver]
    facts: list[Fact]


class KeptSource(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a publisher."""

    publisher: NodeId
    last: int
    forgotten: int
    given: tuple[int, ...]
    reached: tuple[tuple[SessionId, int], ...]


class KeptHeld(msgspec.Struct, frozen=True, array_like=True):
    """An event that waits."""

    event: Event
    subscriptions: tuple[str, ...]
    until: Time


class KeptMerging(msgspec.Struct, frozen=True, array_like=True):
    """All that another machine needs to continue exactly as this one."""

    sessions: tuple[SessionId, ...]
    sources: tuple[KeptSource, ...]
    held: tuple[KeptHeld, ...]
    silent: tuple[SessionId, ...] = ()


class Merging:
    """Merges the events of several sessions for one application.

    Its driver calls `handle` for each input, does the actions, and comes back with `TimePassed`
    when the `deadline` has come.
    """

    def __init__(
        self,
        id_: NodeId,
        options: MergingOptions | None = None,
        sessions: Sequence[SessionId] = (),
    ) -> None:
        """`id_` is the name by which facts call the application."""
        self.id = id_
        self.options = options or MergingOptions()
        self.sessions: dict[SessionId, None] = dict.fromkeys(sessions)
        """The sessions that may bring something, in the order in which they joined."""
        self._silent: dict[SessionId, None] = {}
        """Those of them for which nothing waits, until they bring something again."""
        self._sources: dict[NodeId, _Source] = {}
        self._held: dict[EventId, KeptHeld] = {}
        """The events that wait; the one that has waited longest is the first."""
        self._turn = _Turn()

    @property
    def deadline(self) -> Time:
        """When an event will have waited for long enough."""
        return next(iter(self._held.values())).until if self._held else NEVER

    @property
    def held(self) -> int:
        """How many events wait."""
        return len(self._held)

    def handle(self, given: Input, now: Time) -> Merged:
        """Take an input; return what the application is given, and what happened."""
        match given:
            case EventsArrived():
                self._arrived(given, now)
            case SessionReached():
                self._reach(given.session, given.publisher, given.seq)
                self._release(given.publisher)
            case SessionJoined():
                self.sessions[given.session] = self._silent[given.session] = None
            case SessionLost():
                self._lose(given.session)
            case TimePassed():
                self._give_up_those_due(now)
            case _:
                raise LocalProtocolError(f"merging does not take {type(given).__name__}")
        turn, self._turn = self._turn, _Turn()
        return turn.result(self.id, now)

    # ---- What arrives

    def _arrived(self, given: EventsArrived, now: Time) -> None:
        for event, names in zip(given.events, given.subscriptions, strict=True):
            self._take(given.session, event, names, now)

    def _take(self, session: SessionId, event: Event, names: tuple[str, ...], now: Time) -> None:
        filtering = self.options.filtering
        if filtering is Filtering.NONE:
            self._turn.give(event, names)
            return
        source = self._source(event.publisher)
        if filtering is Filtering.HOLDING:
            self._reach(session, event.publisher, event.seq)
        if source.has_given(event.seq) or event.id in self._held:
            self._turn.repeated.append(event)
        elif event.seq <= source.forgotten or (
            event.seq < source.last and filtering is not Filtering.DUPLICATES
        ):
            self._turn.late.append(event.id)
        elif filtering is Filtering.HOLDING:
            self._hold(source, event, names, now)
        else:
            self._give(source, event, names)
        if filtering is Filtering.HOLDING:
            self._release(event.publisher)

    def _source(self, publisher: NodeId) -> "_Source":
        source = self._sources.get(publisher)
        if source is None:
            source = self._sources[publisher] = _Source()
        return source

    def _give(self, source: "_Source", event: Event, names: tuple[str, ...]) -> None:
        self._turn.give(event, names)
        source.gave(event.seq, self.options.remembered_max)

    # ---- Waiting for earlier events

    def _reach(self, session: SessionId, publisher: NodeId, seq: int) -> None:
        """A session will bring nothing of a publisher up to this number."""
        self._silent.pop(session, None)
        if session in self.sessions:  # Else nothing waits for it.
            reached = self._source(publisher).reached
            reached[session] = max(seq, reached.get(session, 0))

    def _hold(self, source: "_Source", event: Event, names: tuple[str, ...], now: Time) -> None:
        self._held[event.id] = KeptHeld(event, names, now + self.options.hold_us)
        insort(source.held, event.seq)
        self._turn.held.append(event.id)
        while len(self._held) > self.options.held_events_max:
            if self._release(event.publisher):
                continue  # It need not have waited.
            self._give_up(next(iter(self._held)), Reason.ROOM)

    def _release(self, publisher: NodeId) -> bool:
        """Give the events that wait for nothing any more; whether there were any."""
        source = self._sources.get(publisher)
        if source is None:
            return False
        before = len(source.held)
        while source.held and (
            source.held[0] == source.last + 1 or not any(self._may_precede(source, source.held[0]))
        ):
            self._go_on(publisher, source)
        return len(source.held) < before

    def _may_precede(self, source: "_Source", seq: int) -> Iterator[SessionId]:
        """The sessions that may still bring an event before the one with this number."""
        for session in self.sessions:
            if session not in self._silent and source.reached.get(session, 0) < seq:
                yield session

    def _go_on(self, publisher: NodeId, source: "_Source") -> EventId:
        """Give the first event of a publisher that waits."""
        held = self._held.pop(EventId(publisher, source.held.pop(0)))
        self._give(source, held.event, held.subscriptions)
        return held.event.id

    def _lose(self, session: SessionId) -> None:
        self.sessions.pop(session, None)
        self._silent.pop(session, None)
        for source in self._sources.values():
            source.reached.pop(session, None)
        self._release_all()

    def _release_all(self) -> None:
        for publisher in dict.fromkeys(id_.publisher for id_ in self._held):
            self._release(publisher)

    def _give_up_those_due(self, now: Time) -> None:
        while self.deadline <= now:
            self._give_up(next(iter(self._held)), Reason.TIME)

    def _give_up(self, id_: EventId, reason: Reason) -> None:
        """Let an event go on, and the earlier ones of its publisher that wait as well."""
        source = self._sources[id_.publisher]
        sessions = tuple(self._may_precede(source, source.held[0]))
        gone = []
        while source.held and source.held[0] <= id_.seq:
            gone.append(self._go_on(id_.publisher, source))
        self._turn.gave_up.append((tuple(gone), sessions, reason))
        if reason is Reason.TIME:
            self._silent |= dict.fromkeys(sessions)
            self._release_all()
        else:
            self._release(id_.publisher)

    # ---- Snapshots

    def keep(self) -> KeptMerging:
        """All that another machine needs to continue exactly as this one."""
        return KeptMerging(
            sessions=tuple(self.sessions),
            sources=tuple(
                KeptSource(
                    publisher,
                    source.last,
                    source.forgotten,
                    tuple(source.given),
                    tuple(source.reached.items()),
                )
                for publisher, source in self._sources.items()
            ),
            held=tuple(self._held.values()),
            silent=tuple(self._silent),
        )

    def restore(self, kept: KeptMerging) -> None:
        """Continue with what another machine has kept."""
        self.sessions = dict.fromkeys(kept.sessions)
        self._silent = dict.fromkeys(kept.silent)
        self._held = {held.event.id: held for held in kept.held}
        self._sources = {}
        for each in kept.sources:
            source = self._sources[each.publisher] = _Source()
            source.last, source.forgotten = each.last, each.forgotten
            source.given, source.reached = list(each.given), dict(each.reached)
        for id_ in self._held:
            insort(self._sources[id_.publisher].held, id_.seq)


class _Source:
    """What is remembered of one publisher."""

    __slots__ = ("forgotten", "given", "held", "last", "reached")

    def __init__(self) -> None:
        self.last = 0
        """The highest number that was given."""
        self.forgotten = 0
        """Of numbers up to this, nobody knows whether they were given, unless `given` has them."""
        self.given: list[int] = []
        """The highest numbers that were given, in order."""
        self.reached: dict[SessionId, int] = {}
        """How far each session is."""
        self.held: list[int] = []
        """The numbers of the events that wait, in order."""

    def has_given(self, seq: int) -> bool:
        place = bisect_left(self.given, seq)
        return place < len(self.given) and self.given[place] == seq

    def gave(self, seq: int, remembered_max: int) -> None:
        self.last = max(seq, self.last)
        insort(self.given, seq)
        if len(self.given) > remembered_max:
            self.forgotten = self.given.pop(0)


class _Turn:
    """What one input has brought about."""

    __slots__ = ("events", "gave_up", "held", "late", "names", "repeated")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.names: list[tuple[str, ...]] = []
        self.repeated: list[Event] = []
        self.late: list[EventId] = []
        self.held: list[EventId] = []
        self.gave_up: list[tuple[tuple[EventId, ...], tuple[SessionId, ...], Reason]] = []

    def give(self, event: Event, names: tuple[str, ...]) -> None:
        self.events.append(event)
        self.names.append(names)

    def result(self, at: NodeId, now: Time) -> Merged:
        """As actions and facts; what went on within the turn has not waited."""
        actions, facts = [], list[Fact]()
        for gone, sessions, reason in self.gave_up:
            facts.append(GaveUp(at=at, time=now, events=gone, sessions=sessions, reason=reason))
        if self.events:
            events = tuple(self.events)
            actions.append(Deliver(events, tuple(self.names)))
            facts.append(Delivered(at=at, time=now, events=events))
        if self.held:
            gone_on = {event.id for event in self.events}
            held = tuple(id_ for id_ in self.held if id_ not in gone_on)
            if held:
                facts.append(HeldBack(at=at, time=now, events=held))
        if self.repeated:
            facts.append(Repeated(at=at, time=now, events=tuple(self.repeated)))
        if self.late:
            facts.append(CameLate(at=at, time=now, events=tuple(self.late)))
        return Merged(actions, facts)
