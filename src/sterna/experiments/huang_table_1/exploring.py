"""All small runs of two replicated brokers, under the model of Huang's footnote 3.

Sources publish to both brokers. Events get lost between a source and a broker, never between a
broker and the client, and each broker delivers the events of a source in their order. So a run is
a sequence of arrivals at the client, in which the numbers of each source and broker increase:
whatever is not among them is lost. Every such sequence is tried.

Runs that have brought the machine into the same state, with the same already displayed and the same
still to come, go on together, and are counted.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import msgspec

from sterna.core.inputs import Input, TimePassed
from sterna.core.replication.facts import GaveUp
from sterna.core.replication.inputs import EventsArrived
from sterna.core.replication.merging import KeptMerging, Merging
from sterna.core.replication.options import Filtering, MergingOptions
from sterna.model.delivery import is_out_of_order
from sterna.model.event import Event, EventId
from sterna.model.replicas import Verdict

BROKERS = ("EB1", "EB2")
SOURCES = ("p", "q", "r")
CLIENT = "ED"


class Arrival(NamedTuple):
    """The client gets an event from a broker."""

    broker: str
    event: EventId


PATIENCE_ENDS = None
"""A step of a run: what the client holds back has waited for as long as it may."""

Step = Arrival | None
Steps = tuple[Step, ...]


class Displayed(NamedTuple):
    """What the application has been shown, as far as the verdict depends on it."""

    last: tuple[int, ...] = ()
    """The highest number of each source."""
    events: frozenset[EventId] = frozenset()
    ordered: bool = True
    consistent: bool = True

    def then(self, id_: EventId) -> "Displayed":
        """The same after another event."""
        place = SOURCES.index(id_.publisher)
        last = list(self.last)
        late = is_out_of_order(id_.seq, last[place])
        last[place] = max(id_.seq, last[place])
        again = id_ in self.events
        return Displayed(
            tuple(last),
            self.events | {id_},
            ordered=self.ordered and not late,
            consistent=self.consistent and not again,
        )


class Ended(NamedTuple):
    """How runs have ended."""

    verdict: Verdict
    gave_up: bool
    """Whether something was displayed because it had waited for as long as it may."""
    gave_up_early: bool
    """Whether that was at a moment when something could still arrive."""


class Explored(NamedTuple):
    """What came of all runs."""

    ends: Counter[Ended]
    """How many runs have ended so."""
    shortest: dict[str, Steps]
    """For each property that does not always hold, the shortest run that shows it."""

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return self.ends.total()

    def holds(self, property_: str) -> int:
        """In how many runs a property holds."""
        return sum(n for end, n in self.ends.items() if getattr(end.verdict, property_))


class _Group(NamedTuple):
    """Runs that have reached the same state."""

    kept: KeptMerging
    reached: tuple[int, ...]
    """The last number that each broker has brought of each source."""
    displayed: Displayed
    received: frozenset[EventId]
    gave_up: bool
    runs: int
    first: Steps
    """The first of them in the order of `_before`."""


def explore(filtering: Filtering, sources: int, events: int, *, patient: bool = True) -> Explored:
    """Try all runs of so many sources with up to so many events each.

    If the client is not `patient`, the time for which it holds back events may end at any moment;
    else only after the last arrival.
    """
    queues = tuple(product(BROKERS, SOURCES[:sources]))
    machine = Merging(CLIENT, MergingOptions(filtering=filtering, hold_us=1), BROKERS)
    start = Displayed((0,) * sources)
    groups = [
        _Group(
            machine.keep(),
            reached=(0,) * len(queues),
            displayed=start,
            received=frozenset(),
            gave_up=False,
            runs=1,
            first=(),
        )
    ]
    ends: Counter[Ended] = Counter()
    shortest: dict[str, Steps] = {}
    while groups:
        level: dict[object, _Group] = {}
        broken: dict[str, list[Steps]] = {}
        for group in groups:
            end = _end(machine, group)
            ends[end] += group.runs
            for name, holds in zip(Verdict._fields, end.verdict, strict=True):
                if not holds and name not in shortest:
                    broken.setdefault(name, []).append(group.first)
            for step in _next(group, queues, events, patient=patient):
                after = _after(machine, group, queues, step)
                key = (msgspec.msgpack.encode(after.kept), *after[1:5])
                other = level.get(key)
                level[key] = after if other is None else _together(after, other)
        shortest |= {name: min(runs, key=_before) for name, runs in broken.items()}
        groups = list(level.values())
    return Explored(ends, shortest)


def _next(
    group: _Group, queues: tuple[tuple[str, str], ...], events: int, *, patient: bool
) -> Iterator[Step]:
    """Everything that may happen next."""
    for (broker, source), last in zip(queues, group.reached, strict=True):
        for seq in range(last + 1, events + 1):
            yield Arrival(broker, EventId(source, seq))
    if group.kept.held and not patient:
        yield PATIENCE_ENDS


def _after(
    machine: Merging, group: _Group, queues: tuple[tuple[str, str], ...], step: Step
) -> _Group:
    machine.restore(group.kept)
    displayed, gave_up = _handle(machine, group.displayed, step)
    reached, received = list(group.reached), group.received
    if step is not None:
        reached[queues.index((step.broker, step.event.publisher))] = step.event.seq
        received |= {step.event}
    return _Group(
        machine.keep(),
        tuple(reached),
        displayed,
        received,
        group.gave_up or gave_up,
        group.runs,
        (*group.first, step),
    )


def _end(machine: Merging, group: _Group) -> Ended:
    """Judge the runs of a group if nothing arrives any more."""
    machine.restore(group.kept)
    displayed, gave_up = _handle(machine, group.displayed, PATIENCE_ENDS)
    verdict = Verdict(displayed.ordered, displayed.consistent, group.received <= displayed.events)
    return Ended(verdict, group.gave_up or gave_up, group.gave_up)


def _handle(machine: Merging, displayed: Displayed, step: Step) -> tuple[Displayed, bool]:
    """Do a step; arrivals are at time 0, and what is held then has waited long enough at 1."""
    merged = machine.handle(given(step), int(step is PATIENCE_ENDS))
    for action in merged.actions:
        for event in action.events:
            displayed = displayed.then(event.id)
    return displayed, any(type(fact) is GaveUp for fact in merged.facts)


def given(step: Step) -> Input:
    """A step as the machine is given it."""
    if step is PATIENCE_ENDS:
        return TimePassed()
    event = Event(publisher=step.event.publisher, seq=step.event.seq, time_us=0)
    return EventsArrived(session=step.broker, events=(event,), subscriptions=(("1",),))


def _together(one: _Group, other: _Group) -> _Group:
    first = min(one.first, other.first, key=_before)
    return one._replace(runs=one.runs + other.runs, first=first)


def _before(steps: Steps) -> tuple[object, ...]:
    """Of runs of one length, the one with the fewest events is the first; then EB1 begins."""
    arrivals = [step for step in steps if step is not None]
    published = {id_.publisher: id_.seq for id_ in sorted(a.event for a in arrivals)}
    return sum(published.values()), [
        (step is None, *(step or ("", EventId("", 0)))) for step in steps
    ]


# ---- A run in words


def tell(filtering: Filtering, steps: Steps) -> str:
    """A run as text: what was published and lost, what arrived, and what was displayed."""
    machine = Merging(CLIENT, MergingOptions(filtering=filtering, hold_us=1), BROKERS)
    arrivals = [step for step in steps if step is not None]
    lines = []
    for source in dict.fromkeys(sorted(arrival.event.publisher for arrival in arrivals)):
        last = max(a.event.seq for a in arrivals if a.event.publisher == source)
        lines.append(f"{source} publishes {_list(range(1, last + 1))}")
        for broker in BROKERS:
            got = {
                a.event.seq for a in arrivals if (a.broker, a.event.publisher) == (broker, source)
            }
            lost = [seq for seq in range(1, last + 1) if seq not in got]
            lines.append(f"  {broker} " + (f"misses {_list(lost)}" if lost else "gets all"))
    shown: list[EventId] = []
    for step in (*steps, PATIENCE_ENDS):
        merged = machine.handle(given(step), int(step is PATIENCE_ENDS))
        events = [event.id for action in merged.actions for event in action.events]
        shown += events
        what = f"displays {_ids(events)}" if events else "displays nothing"
        if step is not PATIENCE_ENDS:
            lines.append(f"{step.broker} → {CLIENT}  {_ids([step.event])}: {what}")
        elif events:
            lines.append(f"time passes: {what}")
    lines.append(f"displayed: {_ids(shown)}")
    return "\n".join(lines)


def _list(numbers: range | list[int]) -> str:
    return ", ".join(map(str, numbers))


def _ids(ids: list[EventId]) -> str:
    return ", ".join(f"{id_.publisher}#{id_.seq}" for id_ in ids)
