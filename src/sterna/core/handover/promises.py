"""What a broker holds for a client that is elsewhere, and to whom it is promised.

A broker that is asked for it may still wait for a part of it itself. Then it promises the rest, and
sends all of it on when that part has come.
"""

from collections.abc import Collection, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

import msgspec

from sterna.core.handover.cache import after
from sterna.core.handover.guests import Ages, KeptForMoving
from sterna.core.handover.messages import KeptFor, Queued
from sterna.core.handover.transfer_messages import Question
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import NodeId, RouteId, Time
from sterna.model.event import Event, EventId
from sterna.model.ranges import VISIT_MAX


class Belongings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a broker holds for a client, on its way to another broker."""

    events: tuple[Event, ...] = ()
    missed: tuple[EventId, ...] = ()
    """Events that were discarded before the client could get them."""
    moving: KeptFor = ()
    published: int = 0
    """The number of the client's last event that the network has."""
    forgotten: bool = False
    """Whether nothing was kept, because the client has left, or was away for too long."""
    departing: int = 0
    """The visit on which the client sent a farewell meanwhile; 0 if it did not."""
    visit: int | None = 0
    """The client's last visit to a broker that these come from; None if that is not known."""
    queue: Queued = ()
    """All events that wait, if a policy decides which of them are kept; else nothing."""
    purged: tuple[EventId, ...] = ()
    """The last event of each publisher that a policy did without."""

    def without(self, ids: Collection[EventId]) -> "Belongings":
        """These, but for the events that the new broker has in its log."""
        events = tuple(event for event in self.events if event.id not in ids)
        return msgspec.structs.replace(self, events=events)

    def and_logged(self, logged: Sequence[Event]) -> "Belongings":
        """These, and the events that were found in a log, each publisher's in their order.

        Some of these may not wait any more, if there is a queue.
        """
        if self.queue:
            found = {event.id: event for event in (*logged, *self.events)}
            events = tuple(found[id_] for id_, _ in self.queue if id_ in found)
            return msgspec.structs.replace(self, events=events)
        return msgspec.structs.replace(self, events=_in_order((*logged, *self.events)))

    @property
    def last_visit(self) -> int:
        """The same; no visit is later if it is not known."""
        return VISIT_MAX if self.visit is None else self.visit


NOTHING = Belongings(forgotten=True)


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Another broker is owed what this one still waits for itself."""

    request: Message
    lost: list[Event]
    """Events that did not reach the client from here, from before those that are on their way."""
    held: list[Event]
    """Events that arrived for the client since they were requested."""
    missed: list[EventId]
    moving: KeptForMoving
    published: int
    departing: int
    visit: int
    logged: list[Event] = []
    """Events that were in the log of this broker, and so are not among those that come."""
    question: Question | None = None
    """What this broker has asked for them; None if its protocol does not ask twice."""
    since: Time = 0
    """When it was sent."""
    copies: tuple[NodeId, ...] = ()
    """Other brokers that have something for the client, which they can discard afterwards."""
    waited: Ages = {}
    """For how long the lost and the held events had waited, if there is a queue policy."""
    purged: tuple[EventId, ...] = ()

    def kept_with(self, come: Belongings) -> Belongings:
        """What is owed, now that the rest has come."""
        come = come.and_logged(self.logged) if self.logged else come
        came = {event.id for event in come.events}
        missed = [id_ for id_ in self.missed if id_ not in came]
        events = (*self.lost, *come.events, *after(come.events, self.held, come.purged))
        waited = {**self.waited, **dict(come.queue)}
        return Belongings(
            events=events,
            missed=(*come.missed, *missed),
            moving=tuple((self.moving | dict(come.moving)).items()),
            published=max(come.published, self.published),
            forgotten=come.forgotten,
            departing=max(come.departing, self.departing),
            visit=max(come.last_visit, self.visit),
            queue=queued(events, waited) if waited else (),
            purged=latest((*come.purged, *self.purged)),
        )


class KeptPromise(msgspec.Struct, frozen=True):
    """What a snapshot holds of a promise."""

    client: NodeId
    awaits: int
    request: int
    lost: list[int]
    held: list[int]
    missed: list[EventId]
    moving: list[tuple[EventId, tuple[RouteId, ...]]]
    published: int
    departing: int
    visit: int = VISIT_MAX
    logged: list[int] = []
    question: int | None = None
    since: Time = 0
    copies: tuple[NodeId, ...] = ()
    waited: list[tuple[EventId, Time]] = []
    purged: tuple[EventId, ...] = ()


Key = tuple[NodeId, int]
"""A client, and the number of the request that the broker itself has sent."""


class Promises(MutableMapping[Key, Promise]):
    """The promises of a broker."""

    def __init__(self) -> None:
        self._all: dict[Key, Promise] = {}
        self._of: dict[NodeId, dict[Key, Promise]] = {}

    def of(self, client: NodeId) -> list[tuple[Key, Promise]]:
        """Those for one client."""
        return list(self._of.get(client, {}).items())

    def __getitem__(self, key: Key) -> Promise:
        return self._all[key]

    def __setitem__(self, key: Key, promise: Promise) -> None:
        self._all[key] = promise
        self._of.setdefault(key[0], {})[key] = promise

    def __delitem__(self, key: Key) -> None:
        del self._all[key]
        client = key[0]
        del self._of[client][key]
        if not self._of[client]:
            del self._of[client]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def keep(self, writer: Writer) -> list[KeptPromise]:
        """What a snapshot has to hold."""
        return [
            KeptPromise(
                client=client,
                awaits=awaits,
                request=writer.message(promise.request),
                lost=[writer.event(event) for event in promise.lost],
                held=[writer.event(event) for event in promise.held],
                missed=list(promise.missed),
                moving=list(promise.moving.items()),
                published=promise.published,
                departing=promise.departing,
                visit=promise.visit,
                logged=[writer.event(event) for event in promise.logged],
                question=None if promise.question is None else writer.message(promise.question),
                since=promise.since,
                copies=promise.copies,
                waited=list(promise.waited.items()),
                purged=promise.purged,
            )
            for (client, awaits), promise in self.items()
        ]

    def restore(self, kept: list[KeptPromise], reader: Reader, kind: type[Any]) -> None:
        """Go on with what a snapshot has held; the requests are of a kind."""
        for each in kept:
            self[each.client, each.awaits] = Promise(
                request=reader.message(each.request, kind),
                lost=[reader.event(number) for number in each.lost],
                held=[reader.event(number) for number in each.held],
                missed=each.missed,
                moving=dict(each.moving),
                published=each.published,
                departing=each.departing,
                visit=each.visit,
                logged=[reader.event(number) for number in each.logged],
                question=None if each.question is None else reader.message(each.question, Question),
                since=each.since,
                copies=each.copies,
                waited=dict(each.waited),
                purged=each.purged,
            )


def queued(events: Iterable[Event], waited: Ages) -> Queued:
    """How a queue of events is told to another broker."""
    return tuple((event.id, waited.get(event.id, 0)) for event in events)


def latest(events: Iterable[EventId]) -> tuple[EventId, ...]:
    """The last one of each publisher."""
    last: dict[NodeId, int] = {}
    for publisher, seq in events:
        last[publisher] = max(seq, last.get(publisher, 0))
    return tuple(EventId(publisher, seq) for publisher, seq in last.items())


def _in_order(events: Sequence[Event]) -> tuple[Event, ...]:
    """Events without repetitions, those of each publisher in their order."""
    publishers: dict[NodeId, dict[int, Event]] = {}
    for event in events:
        publishers.setdefault(event.publisher, {})[event.seq] = event
    return tuple(numbered[seq] for numbered in publishers.values() for seq in sorted(numbered))
