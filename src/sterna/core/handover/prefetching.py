"""Prefetching: what is kept for a client goes where it is going, while it is under way.

(Burcea et al., 3.2.1.) As the standard algorithm, but steps 2 to 5 take place in period t2, right
after the client has disconnected: its broker predicts where it goes, and sends its subscriptions
there. The predicted broker subscribes and has the events sent that were stored so far. From then on
events come to it directly. Only step 6 is left when the client reconnects.

Several brokers can be predicted. Then each has a copy. The one to which the client comes has the
others discard theirs. If it comes to another broker, that one is told by the old broker who has
copies, and fetches the nearest, as in the standard algorithm.

**Which copy is right.** A copy is as of the client's last visit to the old broker. A client that
was welcomed elsewhere since names a later stay, and what is kept for it is fetched from there.

**When copies are discarded.** Whoever sends what a client owns to where it is has the copies
discarded. A broker that waits for it itself, and promises it, does so when it has come: until then,
a copy may be all that there is.
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from sterna.core import facts
from sterna.core.handover.guests import Ages, Guest, Presence, missed_in
from sterna.core.handover.messages import Arrival
from sterna.core.handover.options import HandoverOptions
from sterna.core.handover.promises import Belongings, latest, queued
from sterna.core.handover.roaming import Roaming
from sterna.core.handover.standard import KeptStandard, Standard
from sterna.core.handover.transfer_messages import (
    Discard,
    EventsFound,
    Prefetch,
    UnsubscribeAsked,
)
from sterna.core.handover.transfer_options import PrefetchingOptions
from sterna.core.handover.transfers import Transfer
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.protocol import Kind, Protocol
from sterna.model.event import EventId


class Predicted(msgspec.Struct, frozen=True, array_like=True):
    """Where a client is going, as its last broker has predicted."""

    number: int
    """The number of this prediction at that broker."""
    visit: int
    """The client's visit to that broker."""
    brokers: tuple[NodeId, ...]
    waiting: tuple[NodeId, ...]
    """Those that have not got their copy."""

    def is_awaited(self, asked: UnsubscribeAsked, guest: Guest) -> bool:
        """Whether who asks has not got its copy. If it asks twice, the client may be back here.

        What is here of a later visit is no copy for this prediction.
        """
        is_this = self.number == asked.prefetch and self.visit == guest.visit
        return is_this and asked.sender in self.waiting


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """What was sent for a client that is expected."""

    number: int
    """The number of the prediction at the broker that has made it."""
    sender: NodeId
    others: tuple[NodeId, ...]
    """The other brokers that have a copy."""


class KeptPrefetching(KeptStandard, frozen=True, kw_only=True):
    """What a snapshot holds of the brokers' part."""

    predicted: dict[NodeId, Predicted]
    copies: dict[NodeId, Copy]


class Prefetching(Standard):
    """The brokers' part in prefetching."""

    name = "prefetching"
    handles = (*Standard.handles, Prefetch, Discard)
    Kept = KeptPrefetching
    options: PrefetchingOptions

    def __init__(self, handover: HandoverOptions | None = None) -> None:
        super().__init__(handover)
        self.options = PrefetchingOptions()
        self.predicted: dict[NodeId, Predicted] = {}
        """Where clients are going that were here last."""
        self.copies: dict[NodeId, Copy] = {}
        """What was sent for guests that are expected."""

    # ---- Period t2, at the old broker: the client has disconnected

    def link_down(self, link: LinkId, now: Time) -> None:
        super().link_down(link, now)
        guest = self.guests.get(link)
        if guest is not None and not guest.waits and guest.presence is Presence.AWAY:
            self._predict(link, guest, now)

    def receive_belongings(
        self, client: NodeId, guest: Guest, brought: Belongings, now: Time
    ) -> None:
        """A guest may have left before what it waited for has come."""
        super().receive_belongings(client, guest, brought, now)
        if self.guests.get(client) is guest and guest.presence is Presence.AWAY:
            self._predict(client, guest, now)

    def _predict(self, client: NodeId, guest: Guest, now: Time) -> None:
        """Send what a predicted broker needs to subscribe for a client."""
        claimed = dict(self.broker.claimed(client))
        brokers = self._next_brokers(client, guest)
        if not brokers or claimed.get("moving"):  # Who knows what they mean where it is going?
            return
        self._number += 1
        self.predicted[client] = Predicted(self._number, guest.visit, brokers, brokers)
        subscriptions, advertisements = self.broker.router.announced_by(client)
        for broker in brokers:
            prefetch = Prefetch(
                to=broker,
                sender=self.broker.id,
                client=client,
                number=self._number,
                visit=guest.visit,
                born=guest.born,
                subscriptions=subscriptions,
                advertisements=advertisements,
                others=tuple(other for other in brokers if other != broker),
                terms=tuple(self.terms_of(client).items()),
            )
            self.broker.post.send(prefetch, now)

    def _next_brokers(self, client: NodeId, guest: Guest) -> tuple[NodeId, ...]:
        history = (guest.previous,) if guest.previous else ()
        found = self.broker.predictor.next(self.broker.id, history, client=client)
        way_to = self.broker.post.members.way_to
        known = [each.place for each in found if way_to(each.place) is not None]
        return tuple(known[: self.options.brokers_max])

    # ---- At a predicted broker

    def on_prefetch(self, message: Prefetch, _link: LinkId, now: Time) -> None:
        """A client may come here: subscribe for it, and have its events sent."""
        client, guest = message.client, self.guests.get(message.client)
        if message.visit < self.left.get(client, 0) or self.trails.is_over(client, message.born):
            return
        if guest is not None:
            if guest.visit >= message.visit:
                return  # It is here already.
            self.forget(client, now)
        guest = self.guests.admit(client, message.visit, message.born, is_here=False)
        guest.presence, guest.away_since = Presence.FORGETFUL, now  # It has to introduce itself.
        if self.agreements is not None:
            self.agreements.replace(client, message.terms, now)
        self.enter(client, message.subscriptions, message.advertisements, now)
        self.look_for(guest, now)
        self.copies[client] = Copy(message.number, message.sender, message.others)
        self.broker.state(facts.HandoverStarted(at=self.broker.id, time=now, client=client))
        arrival = Arrival(
            visit=message.visit,
            born=message.born,
            stay=message.visit,
            received=0,
            before=(message.sender,),
        )
        guest.transfer = Transfer(arrival, [message.sender], prefetch=message.number)
        self.ask_next(client, guest, guest.transfer, now)

    def on_unsubscribe_asked(self, message: UnsubscribeAsked, link: LinkId, now: Time) -> None:
        """A predicted broker, or the one where the client is, has subscribed for it."""
        client, guest = message.client, self.guests.get(message.client)
        predicted = self.predicted.get(client)
        if not message.prefetch:
            copies = self.copies_of(client)
            super().on_unsubscribe_asked(message, link, now)
            if guest is not None and client not in self.guests and not guest.waits:
                self._discard(client, copies, message.visit, now)  # The client is there.
        elif guest is None or predicted is None or not predicted.is_awaited(message, guest):
            self.broker.post.send(message.nothing(), now)
        else:
            self._send_copy(message, guest, predicted, now)

    def _send_copy(
        self, asked: UnsubscribeAsked, guest: Guest, predicted: Predicted, now: Time
    ) -> None:
        """Send a copy of what was kept for a client; after the last one, nothing of it is here."""
        client = asked.client
        unconfirmed = missed_in(self.broker.unconfirmed(client))
        waited: Ages = {}
        events = tuple(self.guests.kept(self.broker, client, now, waited))
        copy = Belongings(
            events=events,
            missed=(*unconfirmed, *guest.missed),
            moving=tuple(guest.moving.items()),
            published=guest.published,
            visit=max(guest.visit, guest.latest),
            queue=queued(events, waited) if self.policies_of(client) else (),
            purged=latest(map(EventId._make, guest.purged.items())),
        )
        self.send_events_found(asked, copy, now)
        waiting = tuple(broker for broker in predicted.waiting if broker != asked.sender)
        if not waiting:
            self.forget(client, now)
        self.predicted[client] = msgspec.structs.replace(predicted, waiting=waiting)

    # ---- The client is at one of them, or elsewhere

    def receive_back(self, client: NodeId, guest: Guest, message: Arrival, now: Time) -> None:
        """A client is where its events are, or will be: here it was before, or is expected."""
        way_to = self.broker.post.members.way_to
        others = [broker for broker in message.places if way_to(broker) is not None]
        copies = (*self.copies_of(client), *others)
        transfer = guest.transfer
        if transfer is not None and transfer.prefetch:
            # Its old broker may have no copy for this prediction, but what the client owns: then it
            # is asked for that. Or it may have nothing left.
            transfer.to_ask = others
            transfer.prefetch, transfer.copies = 0, copies
        self.copies.pop(client, None)
        super().receive_back(client, guest, message, now)
        if transfer is None:
            self._discard(client, copies, message.visit, now)

    def fetch(self, client: NodeId, guest: Guest, arrival: Arrival, now: Time) -> None:
        """A client has come without being expected: who hands it over has copies discarded."""
        self.copies.pop(client, None)
        super().fetch(client, guest, arrival, now)

    def hand_over(
        self, client: NodeId, request: Message, stay: int, received: int, now: Time
    ) -> Belongings | None:
        """If what is asked for is promised only, copies are discarded when it has come."""
        transfer = self.guests[client].transfer
        if transfer is not None:
            transfer.copies = self.copies_of(client)
        return super().hand_over(client, request, stay, received, now)

    def on_events_found(self, message: EventsFound, link: LinkId, now: Time) -> None:
        """Events have come that a guest waits for, or that were promised to its next broker."""
        client = message.client
        promise = self.promises.get((client, message.number))
        super().on_events_found(message, link, now)
        if promise is not None and message.is_here:
            visit = cast("UnsubscribeAsked", promise.request).visit
            self._discard(client, promise.copies, visit, now)

    def receive(self, client: NodeId, guest: Guest, brought: Belongings, now: Time) -> None:
        transfer = guest.transfer
        if transfer is not None:
            copies = (*transfer.copies, *self._others_before(guest, transfer))
            if copies:
                self._discard(client, copies, guest.visit, now)
        super().receive(client, guest, brought, now)

    def _others_before(self, guest: Guest, transfer: Transfer) -> list[NodeId]:
        """Where a client was since, if what it owns came from where it was expected.

        A broker there may have got another copy.
        """
        places, way_to = transfer.arrival.places, self.broker.post.members.way_to
        if guest.previous in places:
            return []
        return [each for each in transfer.to_ask if each in places and way_to(each) is not None]

    def bear(self, client: NodeId, guest: Guest, now: Time) -> bool:
        self.predicted.pop(client, None)
        self.copies.pop(client, None)
        return super().bear(client, guest, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        """A connection that is back needs no arrival. What the client waits for is kept."""
        super().link_up(link, now)
        guest = self.guests.get(link)
        if guest is not None and guest.is_served:
            self._discard(link, self.copies_of(link), guest.visit, now)

    def copies_of(self, client: NodeId) -> tuple[NodeId, ...]:
        """The other brokers that have something for a client, or know who has."""
        copy, guest = self.copies.get(client), self.guests.get(client)
        copies = () if copy is None else (copy.sender, *copy.others)
        transfer = None if guest is None else guest.transfer
        known = () if transfer is None else transfer.copies
        return (*copies, *known, *self.elsewhere(client))

    def _discard(self, client: NodeId, brokers: Sequence[NodeId], visit: int, now: Time) -> None:
        """A client is at a broker: have what others have for it discarded."""
        predicted = self.predicted.get(client)
        if predicted is not None and predicted.visit <= visit:
            del self.predicted[client]
        for broker in dict.fromkeys(brokers):
            discard = Discard(to=broker, sender=self.broker.id, client=client, visit=visit)
            self.broker.post.send(discard, now)

    def on_discard(self, message: Discard, _link: LinkId, now: Time) -> None:
        """A client is elsewhere: what was copied to here, or from here, is of no use any more."""
        client, guest = message.client, self.guests.get(message.client)
        self.left[client] = max(message.visit, self.left.get(client, 0))
        predicted, copy = self.predicted.get(client), self.copies.get(client)
        if predicted is not None and predicted.visit < message.visit:
            others = [broker for broker in predicted.brokers if broker != message.sender]
            self._discard(client, others, message.visit, now)
        # Who has sent the copy has the client back on the same visit.
        until = message.visit + (copy is not None and copy.sender == message.sender)
        if guest is not None and guest.visit < until and not guest.is_here:
            self.forget(client, now)

    def elsewhere(self, client: NodeId) -> tuple[NodeId, ...]:
        predicted = self.predicted.get(client)
        return () if predicted is None else predicted.brokers

    def places_before(self, arrival: Arrival, client: NodeId) -> list[NodeId]:
        """A client that is back where it was before is looked for where it was expected."""
        here, before = self.broker.id, arrival.sources
        expected = self.broker.post.members.nearest(self.elsewhere(client))
        places = [each for b in before for each in (expected if b == here else [b])]
        return list(dict.fromkeys(places))

    def forget(self, client: NodeId, now: Time, *, taken_over: bool = False) -> None:
        self.copies.pop(client, None)
        super().forget(client, now, taken_over=taken_over)

    def end(self, now: Time) -> bool:
        """Clients that are expected are not known to any other protocol."""
        for client in list(self.copies):
            self.forget(client, now)
        return super().end(now)

    def learned(self, client: NodeId, now: Time) -> None:
        """Nothing is kept for a client that has left, or that has begun anew."""
        super().learned(client, now)
        last, predicted = self.trails.last_life(client), self.predicted.get(client)
        if predicted is not None and predicted.visit <= last:
            del self.predicted[client]
        guest = self.guests.get(client)
        if client in self.copies and (guest is None or guest.visit <= last):
            del self.copies[client]
            if guest is not None:
                self.forget(client, now)

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptPrefetching:
        return KeptPrefetching(
            **msgspec.structs.asdict(super().keep(writer)),
            predicted=dict(self.predicted),
            copies=dict(self.copies),
        )

    def restore(self, kept: KeptStandard, reader: Reader) -> None:
        super().restore(kept, reader)
        if isinstance(kept, KeptPrefetching):
            self.predicted, self.copies = dict(kept.predicted), dict(kept.copies)


PREFETCHING = Protocol(
    name="prefetching",
    kind=Kind.HANDOVER,
    broker=Prefetching,
    client=Roaming,
    needs=("overlay", "post"),
)
