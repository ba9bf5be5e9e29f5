"""Faults for the journals of random programs: where one can be planted, and what then is wrong."""

from bisect import bisect_right
from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from sterna.core.facts import Delivered, Fact, Published
from sterna.core.names import Time
from sterna.journal import facts_in, read_journal
from sterna.model.delivery import FOREVER, Fault
from sterna.model.event import Event, EventId
from tests.pipeline.programs import GRACE_US, Planted, Run, Tamper

SOON_US: Time = GRACE_US // 10
"""So soon an event comes to a client that is connected."""


def plant(fault: Fault, run: Run, rng: Random) -> tuple[Tamper, Planted] | None:
    """A change of one client's journal, and what the audit has to find; None if there is no place.

    The run has been played, and its journals are written; the same run is to be played again.
    """
    written = Written(run)
    places = list(_PLACES[fault](run, written))
    return _FAULTS[fault](*rng.choice(places)) if places else None


class Written:
    """What really is in the journals of a run, and how long nothing happened to its clients."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.times: dict[str, list[Time]] = {}
        self.events: set[tuple[type[Fact], str, EventId]] = set()
        for part in ("clients", "brokers"):
            for batch in read_journal(run.directory / part):
                for fact in facts_in(batch):
                    if fact.at.startswith(f"{run.name}."):
                        self._add(fact)

    def _add(self, fact: Fact) -> None:
        self.times.setdefault(fact.at, []).append(fact.time)
        if isinstance(fact, Delivered | Published):
            self.events |= {(type(fact), fact.at, event.id) for event in fact.events}

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
            time + GRACE_US + 1
        ):
            yield client, event, event


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


_PLACES = {
    Fault.LOST: _owed,
    Fault.DUPLICATED: _anywhere,
    Fault.REORDERED: _two,
    Fault.UNPUBLISHED: _known,
}
_FAULTS = {
    Fault.LOST: _lose,
    Fault.DUPLICATED: _repeat,
    Fault.REORDERED: _swap,
    Fault.UNPUBLISHED: _forge,
}
FAULTS = tuple(_FAULTS)
