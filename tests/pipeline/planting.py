"""Faults for the journals of random programs: where one can be planted, and what then is wrong."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from msgspec.structs import replace

from sterna.core.facts import Accepted, Attached, Delivered, Detached, Fact, Published, Recalled
from sterna.core.names import Time
from sterna.journal import facts_in, read_journal
from sterna.model.delivery import FOREVER, Fault
from sterna.model.event import Event, EventId
from tests.pipeline.programs import GRACE_US, SKEW_US, Planted, Run, Tamper

SOON_US: Time = GRACE_US // 10
"""So soon an event comes to a client that is connected."""


def plant(what: str, run: Run, rng: Random) -> tuple[Tamper, Planted] | None:
    """A change of one node's journal, and what the audit has to find; None if there is no place.

    The run has been played, and its journals are written; the same run is to be played again.
    """
    written = Written(run)
    places, change = _FAULTS[what]
    found = list(places(run, written))
    return change(*rng.choice(found)) if found else None


class Written:
    """What really is in the journals of a run, and how long nothing happened to its clients."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.times: dict[str, list[Time]] = {}
        """When each node stated something: not by its clock, but in truth."""
        self.events: set[tuple[type[Fact], str, EventId]] = set()
        self.accepted: dict[EventId, tuple[str, Time]] = {}
        """The broker that accepted an event last, and when."""
        self.links: dict[str, list[tuple[Time, bool]]] = {}
        """When each client got a link, or lost one."""
        for part in ("clients", "brokers"):
            for batch in read_journal(run.directory / part):
                for fact in facts_in(batch):
                    if fact.at.startswith(f"{run.name}."):
                        self._add(fact)

    def _add(self, fact: Fact) -> None:
        time = fact.time - self._run.ahead[fact.at]
        self.times.setdefault(fact.at, []).append(time)
        if isinstance(fact, Delivered | Published):
            self.events |= {(type(fact), fact.at, event.id) for event in fact.events}
        if isinstance(fact, Accepted):
            self.accepted |= {event.id: (fact.at, time) for event in fact.events}
        if isinstance(fact, Attached | Detached):
            self.links.setdefault(fact.at, []).append((time, isinstance(fact, Attached)))

    def is_calm(self, client: str, since: Time, until: Time) -> bool:
        """Whether nothing happened to a client meanwhile, and it recorded something after that."""
        breaks = sorted(self._run.breaks[client])
        place = bisect_right(breaks, since)
        following = breaks[place] if place < len(breaks) else FOREVER
        return following > until and any(
            until < time < following for time in self.times.get(client, ())
        )

    def is_known(self, time: Time) -> bool:
        """Whether the journals of all brokers reach so far."""
        return all(max(self.times.get(each, [0])) > time for each in self._run.brokers)


_Place = tuple[str, Event, Event]
"""A client, an event that came to it, and the next one of the same publisher that did."""


def _anywhere(run: Run, written: Written) -> Iterator[_Place]:
    for client, _, event in run.delivered:
        if (Delivered, client, event.id) in written.events:
            yield client, event, event


def _owed(run: Run, written: Written) -> Iterator[_Place]:
    for client, time, event in run.delivered:
        published = run.published.get(event.id)
        if (
            published is not None
            and time - published < SOON_US
            and (Delivered, client, event.id) in written.events
            and (Published, event.publisher, event.id) in written.events
            and written.is_calm(client, published - 5 * GRACE_US // 2, published + 3 * GRACE_US)
            and written.is_calm(event.publisher, published - 1, published + 3 * GRACE_US // 2)
        ):
            yield client, event, event


def _two(run: Run, written: Written) -> Iterator[_Place]:
    last: dict[tuple[str, str], tuple[Time, Event]] = {}
    for client, time, event in run.delivered:
        before, other = last.get((client, event.publisher), (-FOREVER, event))
        if time - before < SOON_US and written.is_calm(client, before - 1, time):
            yield client, other, event
        last[client, event.publisher] = time, event


def _known(run: Run, written: Written) -> Iterator[_Place]:
    for client, time, event in run.delivered:
        if (Delivered, client, event.id) in written.events and written.is_known(
            time + GRACE_US + 2 * SKEW_US + 1
        ):
            yield client, event, event


def _accepted(run: Run, written: Written) -> Iterator[_Place]:
    """Events that both the publisher and a broker have, and the name of the broker."""
    for _, event, _ in _own(run, written):
        if event.id in written.accepted:
            yield written.accepted[event.id][0], event, event


def _connected(run: Run, written: Written) -> Iterator[_Place]:
    """The same, if the publisher has been connected for long, and goes on."""
    for broker, event, _ in _accepted(run, written):
        published, (_, accepted) = run.published[event.id], written.accepted[event.id]
        if accepted - published < SOON_US and written.is_calm(
            event.publisher, published - 2 * GRACE_US, published + 2 * GRACE_US
        ):
            yield broker, event, event


def _own(run: Run, written: Written) -> Iterator[_Place]:
    """Events that their publishers have, and the names of these."""
    events = {event.id: event for _, _, event in run.delivered}
    for id_, event in events.items():
        if id_ in run.published and (Published, event.publisher, id_) in written.events:
            yield event.publisher, event, event


def _returned(run: Run, written: Written) -> Iterator[tuple[str, Event, Time]]:
    """What came to clients right after they were back, and was published while they were away."""
    seen: set[tuple[str, Time, str]] = set()
    for client, time, event in run.delivered:
        links = written.links.get(client, [])
        place = bisect_left(links, (time, True)) - 1
        if place < 1 or not links[place][1] or links[place - 1][1]:
            continue
        came, went = links[place][0], links[place - 1][0]
        is_first = (client, came, event.publisher) not in seen
        seen.add((client, came, event.publisher))
        breaks = [each for each in run.breaks[client] if went < each <= time and each != came]
        published = run.published.get(event.id)
        if (
            is_first
            and not breaks
            and published is not None
            and went + GRACE_US + 2 * SKEW_US < published < came
            and (Delivered, client, event.id) in written.events
        ):
            yield client, event, came


def _lose(client: str, event: Event, _: Event) -> tuple[Tamper, Planted]:
    def tamper(at: str, fact: Fact) -> list[Fact]:
        if at != client or not isinstance(fact, Delivered):
            return [fact]
        left = tuple(each for each in fact.events if each.id != event.id)
        return [replace(fact, events=left)] if left else []

    return tamper, (Fault.LOST, client, *event.id)


def _repeat(client: str, event: Event, _: Event) -> tuple[Tamper, Planted]:
    def tamper(at: str, fact: Fact) -> list[Fact]:
        is_it = at == client and isinstance(fact, Delivered) and event in fact.events
        return [fact, replace(fact, events=(event,))] if is_it else [fact]

    return tamper, (Fault.DUPLICATED, client, *event.id)


def _swap(client: str, event: Event, other: Event) -> tuple[Tamper, Planted]:
    exchanged = {event.id: other, other.id: event}

    def tamper(at: str, fact: Fact) -> list[Fact]:
        if at != client or not isinstance(fact, Delivered):
            return [fact]
        return [replace(fact, events=tuple(exchanged.get(e.id, e) for e in fact.events))]

    return tamper, (Fault.REORDERED, client, *event.id)


def _forge(client: str, event: Event, _: Event) -> tuple[Tamper, Planted]:
    forged = replace(event, publisher=f"{event.publisher}.ghost")

    def tamper(at: str, fact: Fact) -> list[Fact]:
        is_it = at == client and isinstance(fact, Delivered) and event in fact.events
        return [fact, replace(fact, events=(forged,))] if is_it else [fact]

    return tamper, (Fault.UNPUBLISHED, client, *forged.id)


def _forge_past(client: str, event: Event, _: Event) -> tuple[Tamper, Planted]:
    forged = replace(event, publisher=f"{event.publisher}.ghost")

    def tamper(at: str, fact: Fact) -> list[Fact]:
        is_it = at == client and isinstance(fact, Delivered) and event in fact.events
        past = Recalled(at=at, time=fact.time, events=(forged,))
        return [fact, past] if is_it else [fact]

    return tamper, (Fault.UNPUBLISHED, client, *forged.id)


UNUSED = 10**9
"""Greater than all numbers of events in these runs, which are microseconds."""


def _forge_entry(broker: str, event: Event, _: Event) -> tuple[Tamper, Planted]:
    """The content is that of another event, so that subscribers seem to have lost it."""
    forged = replace(event, seq=event.seq + UNUSED)

    def tamper(at: str, fact: Fact) -> list[Fact]:
        is_it = at == broker and isinstance(fact, Accepted) and event in fact.events
        return [fact, replace(fact, events=(forged,))] if is_it else [fact]

    return tamper, (Fault.FORGED, "", *forged.id)


def _alter(broker: str, event: Event, _: Event) -> tuple[Tamper, Planted]:
    altered = replace(event, attributes={**event.attributes, "n": 99})

    def tamper(at: str, fact: Fact) -> list[Fact]:
        if at != broker or not isinstance(fact, Accepted):
            return [fact]
        return [replace(fact, events=tuple(altered if e == event else e for e in fact.events))]

    return tamper, (Fault.ALTERED, "", *event.id)


def _use_again(publisher: str, event: Event, _: Event) -> tuple[Tamper, Planted]:
    other = replace(event, time_us=event.time_us + 1, attributes={"run": "of nobody"})

    def tamper(at: str, fact: Fact) -> list[Fact]:
        is_it = at == publisher and isinstance(fact, Published) and event in fact.events
        return [fact, replace(fact, events=(other,))] if is_it else [fact]

    return tamper, (Fault.REUSED, "", *event.id)


def _come_early(client: str, event: Event, came: Time) -> tuple[Tamper, Planted]:
    """What came when the client was back comes right before that."""

    def tamper(at: str, fact: Fact) -> list[Fact]:
        if at != client or fact.time < came:
            return [fact]
        if isinstance(fact, Attached) and fact.time == came:
            return [Delivered(at=at, time=came, events=(event,), anywhere=True), fact]
        if not isinstance(fact, Delivered):
            return [fact]
        left = tuple(each for each in fact.events if each.id != event.id)
        return [replace(fact, events=left)] if left else []

    return tamper, (Fault.DETACHED, client, *event.id)


_FAULTS: dict[str, tuple[Callable[..., Iterator[Any]], Callable[..., tuple[Tamper, Planted]]]] = {
    "an event without a link": (_returned, _come_early),
    "an event lost": (_owed, _lose),
    "an event twice": (_anywhere, _repeat),
    "two events swapped": (_two, _swap),
    "an event nobody published": (_known, _forge),
    "a past nobody published": (_known, _forge_past),
    "an event forged at a broker": (_connected, _forge_entry),
    "an event altered at a broker": (_accepted, _alter),
    "a number used twice": (_own, _use_again),
}
FAULTS = tuple(_FAULTS)
"""What can be planted, beginning with what has the fewest places."""
