"""What protocols have in common whose brokers fetch what others have kept for a client."""

from collections.abc import Iterable

from sterna.core import facts
from sterna.core.handover import overtaking
from sterna.core.handover.cache import after
from sterna.core.handover.guests import Ages, Guest, events_in, missed_in, moving_in
from sterna.core.handover.hosting import Hosting
from sterna.core.handover.messages import Arrival
from sterna.core.handover.missed import Missed
from sterna.core.handover.options import HandoverOptions
from sterna.core.handover.promises import Belongings, Promise, Promises, latest, queued
from sterna.core.lives import life_of
from sterna.core.messages import Message
from sterna.core.names import NodeId, Time
from sterna.model.event import Event, EventId


class Fetching(Hosting):
    """The brokers' part: what is handed over, and how it is received."""

    def __init__(self, options: HandoverOptions | None = None) -> None:
        super().__init__(options)
        self.promises = Promises()
        self._number = 0

    # ---- At the old broker

    def hand_over(
        self, client: NodeId, request: Message, stay: int, received: int, now: Time
    ) -> Belongings | None:
        """Take what a guest owns, which is asked for.

        None if it waits for a part of it itself: then it is promised to who asks. The client says
        how many events it `received` on the `stay` on which it was last welcomed.
        """
        guest = self.guests[client]
        unconfirmed = [*self.broker.unconfirmed(client)] if client in self.broker.peers else []
        guest.moving |= moving_in(unconfirmed)
        lost = [*guest.lost, *events_in(unconfirmed)]
        lost = self.guests.not_received(self.broker, client, stay, received, lost)
        waited: Ages = {}
        kept = self.take(client, now, waited)
        has_policies = bool(self.policies_of(client))
        if has_policies:
            since = now if guest.away_since is None else guest.away_since
            waited = {**{event.id: now - since for event in lost}, **waited}
        if has_policies and guest.awaits is None:
            lost, kept = [], self.sift(client, [*lost, *kept], waited, now)
        if guest.ahead:
            kept = overtaking.without_known(self.broker, client, guest, kept)
        missed = [*missed_in(unconfirmed), *guest.missed]
        visit = max(guest.visit, guest.latest)
        purged = latest(map(EventId._make, guest.purged.items()))
        if guest.awaits is None:
            return Belongings(
                events=(*lost, *kept),
                missed=tuple(missed),
                moving=tuple(guest.moving.items()),
                published=guest.published,
                visit=visit,
                queue=queued((*lost, *kept), waited) if has_policies else (),
                purged=purged,
            )
        transfer = guest.transfer
        self.promises[client, guest.awaits] = Promise(
            request=request,
            lost=lost,
            held=kept,
            missed=missed,
            moving=guest.moving,
            published=guest.published,
            departing=guest.departing,
            visit=visit,
            logged=[] if transfer is None else transfer.logged,
            question=None if transfer is None else transfer.question,
            since=0 if transfer is None else transfer.since,
            copies=() if transfer is None else transfer.copies,
            waited=waited if has_policies else {},
            purged=purged,
        )
        return None

    # ---- At the new broker

    def receive_back(self, client: NodeId, guest: Guest, message: Arrival, now: Time) -> None:
        """A guest was away, and is back where it was before."""
        guest.lost = self.guests.not_received(
            self.broker, client, message.stay, message.received, guest.lost
        )
        guest.stay, guest.sent = 0, len(guest.lost)
        since = now if guest.away_since is None else guest.away_since
        guest.arrive(message)
        self.introduce(message, client, now)
        if not guest.waits:
            lost, guest.lost = guest.lost, []
            waited = {event.id: now - since for event in lost}
            kept = self.take(client, now, waited)
            events = self.sift(client, [*lost, *kept], waited, now) if lost else kept
            self.serve(client, guest, events, now)

    def receive_belongings(
        self, client: NodeId, guest: Guest, brought: Belongings, now: Time
    ) -> None:
        """Serve a guest what it waited for."""
        guest.awaits = None
        guest.moving |= dict(brought.moving)
        guest.published = max(guest.published, brought.published)
        guest.latest = brought.last_visit
        waited = dict(brought.queue)
        held = after(brought.events, self.take(client, now, waited), brought.purged)
        guest.missed = Missed((*brought.missed, *_without(guest.missed, brought.events)))
        events = [*guest.lost, *brought.events, *held]
        guest.lost = []
        self.finished(client, guest, len(brought.events), len(held), now)
        departing = max(brought.departing, guest.departing)
        if departing >= guest.visit:
            self.depart(client, departing, now)
        elif brought.forgotten and not self.bear(client, guest, now):
            self.forget(client, now)
        elif guest.is_here:
            self.serve(client, guest, self.sift(client, events, waited, now), now)
        else:
            for publisher, seq in brought.purged:
                guest.purged[publisher] = max(seq, guest.purged.get(publisher, 0))
            self.keep_for(client, events, now, again=True, waited=waited)
            self.look_for(guest, now)

    def finished(self, client: NodeId, guest: Guest, replayed: int, held: int, now: Time) -> None:
        """State that a guest has what it waited for."""
        del guest
        self.broker.state(
            facts.HandoverFinished(
                at=self.broker.id, time=now, client=client, replayed=replayed, held=held
            )
        )


def is_of_another(guest: Guest, arrival: Arrival) -> bool:
    """Whether what is here is not of the stay, or not of the life, that the arriving client had."""
    return _is_old(guest, arrival) or is_over(arrival, guest.born, guest.visit)


def is_over(arrival: Arrival, born: int, visit: int) -> bool:
    """Whether a client is back that remembers nothing of a life that its name has had since.

    One whose birth was told in a `Welcome` that it never got counts its visits as before.
    """
    return arrival.born < born and life_of(visit) < life_of(arrival.visit)


def _is_old(guest: Guest, arrival: Arrival) -> bool:
    """Whether another broker has welcomed a guest, and this one does not remember that it left.

    Not if that broker has handed it over since, to a request from a visit that it had ended.
    """
    return not guest.waits and max(guest.visit, guest.latest) < arrival.stay


def _without(missed: Iterable[EventId], events: Iterable[Event]) -> list[EventId]:
    """The missed events without those that arrived after all."""
    came = {event.id for event in events}
    return [id_ for id_ in missed if id_ not in came]
