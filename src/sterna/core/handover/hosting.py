"""A border broker's guests from birth to departure, whatever protocol hands them over.

A client that no broker has welcomed yet is born at the broker it attaches to, and announced to all
others. While it is here, events go to it as they arrive; while it is away, they are kept for it. A
client that sends a farewell, or is away for too long, is forgotten, and its departure is announced
to all brokers.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Self, cast

from sterna.core import facts
from sterna.core.actions import Disconnect
from sterna.core.component import BrokerComponent
from sterna.core.depot import PageId
from sterna.core.handover import overtaking
from sterna.core.handover.cache import NO_POLICIES, NOT_DUE, Due, Policies
from sterna.core.handover.connection_log import new_after
from sterna.core.handover.courier import Courier
from sterna.core.handover.guests import (
    Ages,
    Guest,
    Guests,
    Moment,
    Presence,
    events_in,
    missed_in,
    moving_in,
)
from sterna.core.handover.messages import (
    Arrival,
    Departed,
    Farewell,
    Introduction,
    Located,
    Replayed,
    Welcome,
)
from sterna.core.handover.missed import Missed
from sterna.core.handover.options import HandoverOptions
from sterna.core.handover.roaming import NEWS_US
from sterna.core.handover.trails import Trails
from sterna.core.lives import Earlier
from sterna.core.location.messages import MovingChange
from sterna.core.messages import Events, Message, Route, SubscriptionChange
from sterna.core.names import NEVER, LinkId, NodeId, Peer, RouteId, Time
from sterna.core.overlay.doubts import in_order
from sterna.core.routing.offers import MANY
from sterna.core.routing.router import PAUSE_US
from sterna.core.settings import Settings
from sterna.core.sizes import NO_LOAD, Load, batches
from sterna.core.terms.agreements import Agreements
from sterna.core.terms.messages import TERMS, Terms, TermsChange
from sterna.model.event import Event

BESIDES: tuple[type[MovingChange] | type[TermsChange], ...] = (MovingChange, TermsChange)
"""What clients announce besides subscriptions and advertisements; with `anew`, all of it."""


class Hosting(BrokerComponent):
    """What handover protocols have in common at brokers: guests, trails, births, departures."""

    handles: ClassVar[tuple[type[Message], ...]] = (Farewell, Introduction, Located, Departed)

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.handover)

    def __init__(self, options: HandoverOptions | None = None) -> None:
        self.guests = Guests(options or HandoverOptions())
        self.trails = Trails()
        self.returning: dict[NodeId, tuple[Arrival, Time]] = {}
        """Clients that are back before this broker knows that they had left."""
        self._entered: NodeId | None = None
        """The client whose subscriptions another broker has announced just now."""
        self.courier = Courier()

    def configure(self, settings: Settings, now: Time) -> None:
        self.guests.configure(settings.handover, now)
        self.look_after_guests(now)

    def begin(self, now: Time) -> None:
        """Receive the clients that are known, and ask the neighbours which ones they know."""
        self.resume(now)
        self.announce(Located(client=self.broker.id, born=0), None, now)

    def resume(self, now: Time) -> None:
        """Clients that are known already are guests from now on.

        Those of a protocol that ends go on as they are; others have not been born yet.
        """
        for other in self.broker.arrangement.ending:
            if isinstance(other, Hosting) and other is not self:
                self.take_over(other, now)
        for link, peer in self.broker.peers.items():
            if peer is Peer.CLIENT and link not in self.guests:
                guest = self.guests.admit(link, 0, 0, is_here=link in self.broker.up)
                guest.away_since = None if guest.is_here else now
                self.look_for(guest, now)

    def take_over(self, other: "Hosting", now: Time) -> None:
        """Go on for a protocol that ends, which leaves its guests to this one when it can."""
        self.trails.join(other.trails)
        self.returning.update(other.returning)
        other.returning.clear()
        self.look_after_returning(now)

    def may_go(self, client: NodeId) -> bool:
        """Whether another protocol can go on with a guest."""
        return not self.guests[client].waits

    def _adopt(self, client: NodeId, guest: Guest, now: Time) -> None:
        """Go on with a guest of a protocol that ends."""
        mine, options = self.guests.get(client), self.guests.options
        guest.cache.bound(
            options.cache_events_max, options.cache_ttl_us, options.cache_bytes_max, now=now
        )
        self.guests[client] = guest
        if mine is None or not mine.visit:
            self.adopted(client, guest, now)
            return
        # It has introduced itself to this protocol since: what was kept before comes first.
        events = [*guest.lost, *self.take(client, now)]
        self.guests[client] = mine
        mine.missed = Missed((*guest.missed, *mine.missed))
        mine.moving = guest.moving | mine.moving
        mine.published = max(guest.published, mine.published)
        if mine.waits:
            mine.lost = [*events, *mine.lost]
            mine.sent += len(events)
        elif mine.is_served:
            self.serve(client, mine, events, now)
        else:
            self.keep_for(client, [*events, *self.take(client, now)], now, again=True)

    def adopted(self, client: NodeId, guest: Guest, now: Time) -> None:
        """A guest of a protocol that ends is one of this protocol from now on."""

    def end(self, now: Time) -> bool:
        """Another protocol goes on with the guests.

        If none does, clients do not roam any more: what is kept for each waits here, on its link.
        """
        if any(isinstance(each, Hosting) for each in self.broker.arrangement.beginning):
            return not self.guests and not self.courier and self.is_settled
        successor = self._successor()
        for client, guest in list(self.guests.items()):
            if successor is not None:
                if self.may_go(client):
                    successor._adopt(client, self.guests.pop(client), now)
            elif not guest.waits and guest.presence is not Presence.FORGETFUL:
                events = self.take(client, now)
                del self.guests[client]
                if client in self.broker.peers:  # Else another protocol has forgotten it.
                    self._leave_on_link(client, guest, events, now)
        if successor is not None:
            successor.look_after_guests(now)
        return not self.guests and not self.courier and self.is_settled

    def is_with_another(self, client: NodeId) -> bool:
        """Whether a protocol that ends still waits here for what a client has missed."""
        others = (each for each in self.broker.arrangement.ending if each is not self)
        return any(isinstance(each, Hosting) and client in each.guests for each in others)

    def _successor(self) -> "Hosting | None":
        """The protocol that hands clients over instead of this one, if one does."""
        ending = self.broker.arrangement.ending
        staying = (each for each in self.broker.components if each not in ending)
        found = (each for each in staying if isinstance(each, Hosting) and each is not self)
        return next(found, None)

    def _leave_on_link(
        self, client: NodeId, guest: Guest, events: Sequence[Event], now: Time
    ) -> None:
        """Have what was kept for a guest, and the news of what was not, wait for its connection.

        A guest that came here and has not been welcomed may not know that handover has ended.
        """
        self._welcome(client, guest, now)
        if guest.missed or guest.moving:
            self.replay(client, guest, events, now)
            return
        for batch in batches(events):
            self.broker.send(client, Events(events=batch), now)

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        """A guest that introduces itself without an arrival does not know that it is handed over.

        It has connected just before its broker began to, or ends to. What was kept for it before it
        forgot the link it may have got elsewhere.
        """
        guest = self.guests.get(link)
        if guest is None or guest.presence is not Presence.FORGETFUL or not change.added:
            return
        if link == self._entered:
            return
        if self.is_ending:
            guest.pass_through(Moment.ARRIVAL)
            return
        self.guests.admit(link, 0, 0)
        said = {route.id for route in change.added}
        known = self.broker.router.subscriptions.routes(link)
        ended = tuple(id_ for id_ in known if id_ not in said)
        if ended:
            self.broker.message_arrived(SubscriptionChange(removed=ended), link, now)

    # ---- Events

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Keep for a guest what cannot be sent to it now."""
        guest = self.guests.get(link)
        if guest is None:
            return events
        if guest.is_served and not self.broker.is_unsure:
            guest.sent += len(events)
            return events
        self.keep_for(link, events, now)
        if guest.new_after != NEVER:
            overtaking.send(self.broker, link, guest, events, self.terms_of(link), now)
        return ()

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        del now
        if link in self.guests:
            self.guests[link].published = events[-1].seq

    @property
    def agreements(self) -> Agreements | None:
        """Knows the terms of clients, if the broker takes part in that."""
        return cast("Agreements | None", self.broker.part(TERMS))

    def terms_of(self, client: NodeId) -> Mapping[RouteId, Terms]:
        """The terms of a client's subscriptions that have other ones than the default."""
        agreements = self.agreements
        return {} if agreements is None else agreements.of(client)

    def policies_of(self, client: NodeId) -> Policies:
        """The queue policies of a client's subscriptions, as far as they have such."""
        agreements = self.agreements
        return NO_POLICIES if agreements is None else agreements.policies_of(client)

    def keep_for(
        self, client: NodeId, events: Sequence[Event], now: Time, *, again: bool = False,
        waited: Ages | None = None,
    ) -> None:  # fmt: skip
        """Keep the events that a guest wants; `again` if that was decided when they arrived."""
        policies = self.policies_of(client)
        due = self.guests.keep(
            self.broker, client, events, now, policies, again=again, waited=waited
        )
        self._look_at(due, now)
        ttl_us = self.guests.options.cache_ttl_us
        if ttl_us is not None:
            self.look_again_by(self.guests[client].cache.expires_at, ttl_us, now)

    def take(self, client: NodeId, now: Time, waited: Ages | None = None) -> list[Event]:
        """Take what is kept for a guest; for how long it has `waited` is entered there."""
        return self.guests.take(self.broker, client, now, waited)

    def sift(self, client: NodeId, events: Sequence[Event], waited: Ages, now: Time) -> list[Event]:
        """Of a guest's events from several places, those that its policies keep."""
        policies = self.policies_of(client)
        return self.guests.sift(self.broker, client, events, now, policies, waited)

    def serve(self, client: NodeId, guest: Guest, events: Sequence[Event], now: Time) -> None:
        """Begin to send a guest its events: everything it waited for has arrived."""
        self._welcome(client, guest, now)
        if guest.ahead:
            events = overtaking.without_known(self.broker, client, guest, events)
            guest.ahead.clear()
        if self.broker.is_unsure:
            self.keep_for(client, events, now, again=True)
            events = ()
        if events or guest.missed:
            events = in_order(events)
            guest.sent += len(events)
            self.replay(client, guest, events, now)

    def order_restored(self, now: Time) -> None:
        """Send guests what they had to wait for."""
        for client, guest in self.guests.items():
            if guest.is_served and len(guest.cache):
                events = in_order(self.take(client, now))
                guest.sent += len(events)
                self.replay(client, guest, events, now)

    def _welcome(self, client: NodeId, guest: Guest, now: Time) -> None:
        if guest.stay != guest.visit:
            guest.stay, guest.sent = guest.visit, 0
        elif not guest.is_unaware:
            return
        guest.is_unaware = False
        welcome = Welcome(
            published=guest.published,
            born=guest.born,
            known=None if guest.brings else self.known_of(client, guest),
            home=self.home_of(guest),
        )
        self.broker.send(client, welcome, now)

    def known_of(self, client: NodeId, guest: Guest) -> int:
        """A number that stands for what brokers have subscribed for a guest."""
        del guest
        return self.broker.router.digest_of(client)

    def home_of(self, guest: Guest) -> NodeId:
        """The home broker of a guest, if the network has such."""
        del guest
        return ""

    def replay(self, client: NodeId, guest: Guest, events: Sequence[Event], now: Time) -> None:
        """Send a guest what was kept for it, and the news of what was discarded."""
        missed, guest.missed = tuple(guest.missed), Missed()
        moving, guest.moving = tuple(guest.moving.items()), {}
        guest.purged = {}
        self.broker.send(client, Replayed(events=tuple(events), missed=missed, moving=moving), now)

    # ---- Births

    def receive_new(self, client: NodeId, message: Arrival, now: Time) -> None:
        """No broker has welcomed this client before, so nothing was kept for it.

        One that has left just now waits until that is known here: what it published before must
        not be overtaken by what it is going to publish.
        """
        if self.trails.last_departure(client) < message.stay:
            self.returning[client] = message, now
            self.look_again_by(now + NEWS_US, NEWS_US, now)
        else:
            self._receive(client, message, now)

    def _receive(self, client: NodeId, message: Arrival, now: Time) -> None:
        guest = self.guests.get(client)
        if guest is None or guest.presence is Presence.FORGETFUL:
            if guest is not None:
                self.broker.router.live_again(client, now)
                self.clear(client, now)
            is_here = client in self.broker.up
            guest = self.guests.admit(client, message.visit, 0, is_here=is_here)
        guest.visit, guest.numbered = message.visit, message.numbered
        guest.brings = message.brings
        if guest.waits:
            return  # Its network has ended to hand clients over, and begun again.
        if self.bear(client, guest, now):
            self.serve(client, guest, self.take(client, now), now)
        else:
            self.forget(client, now)

    def bear(self, client: NodeId, guest: Guest, now: Time) -> bool:
        """Let a client that is here begin anew, unless it has been elsewhere since."""
        if not guest.is_here or guest.visit <= self.trails.last_life(client):
            self.trails.end_here(client)
            return False
        guest.born = guest.visit
        guest.numbered = self.settle_here(client, guest.born, guest.numbered, now)
        return True

    def settle_here(
        self, client: NodeId, born: int, numbered: int | None, now: Time, *, renews: int = 0
    ) -> int | None:
        """Have all brokers know that a client is here; return the number of its last event, too."""
        numbered = self.trails.numbered(client, numbered, now)
        self.trails.lay(client, None, born, renews=renews)
        self.trails.number(client, numbered, now)
        located = Located(client=client, born=born, numbered=numbered, renews=renews)
        self.announce(located, None, now)
        return numbered

    def on_located(self, message: Located, link: LinkId, now: Time) -> None:
        """A new client is somewhere behind a link."""
        client = message.client
        if not message.born:
            self._send_news(link, now)
        if not self.trails.locate(message, link, now):
            return
        guest = self.guests.get(client)
        # One that was connected before this protocol began says itself where it has been.
        is_unknown = guest is not None and not guest.visit and guest.is_here
        if guest is not None and guest.visit < message.born and not is_unknown:
            self.broker.router.live_again(client, now)
            self.forget(client, now, taken_over=guest.visit > 0 and guest.is_here)
        self.announce(message, link, now)
        self.learned(client, now)

    def is_elsewhere(self, client: NodeId) -> bool:
        guest = self.guests.get(client)
        if guest is not None:
            # It is expected, or this is its home, or its link was reset: it may be anywhere.
            return guest.presence is Presence.FORGETFUL
        return client in self.trails

    def learned(self, client: NodeId, now: Time) -> None:
        """There is news of a client: it was born somewhere, or it has left."""

    def announce(self, message: Message, source: LinkId | None, now: Time) -> None:
        """Send news to all neighbouring brokers but the one that it comes from."""
        for link, peer in self.broker.peers.items():
            if peer is Peer.BROKER and link != source:
                self.courier.send(self.broker, link, message, now)

    def _send_news(self, link: LinkId, now: Time) -> None:
        """Send a neighbouring broker everything that is news to it."""
        for message in self.trails.news_for(link, now):
            self.courier.send(self.broker, link, message, now)

    def introduce(self, message: Arrival, client: NodeId, now: Time) -> None:
        """Subscribe and advertise what a client brings along, and nothing else."""
        # What it has never told of, another life that was here may have told of.
        told = {type(other) for other in message.others}
        others = (*message.others, *(kind(anew=True) for kind in BESIDES if kind not in told))
        for other in others:
            if other.precedes_subscriptions:
                self.broker.message_arrived(other, client, now)
        if message.brings:
            router = self.broker.router
            router.introduced(message.subscriptions, message.advertisements, client, now)
        for other in others:
            if not other.precedes_subscriptions:
                self.broker.message_arrived(other, client, now)
        guest = self.guests.get(client)
        if guest is not None:
            guest.new_after = self._new_after(message, now)
            overtaking.send_kept(self.broker, client, guest, self.terms_of(client), now)

    def _new_after(self, arrival: Arrival, now: Time) -> Time:
        """From when on events are surely new to a client that arrives."""
        agreements = self.agreements
        if agreements is None:
            return NEVER
        return new_after(
            arrival.connections,
            self.broker.id,
            now,
            kept_us=self.guests.options.cache_ttl_us,
            clocks_differ_us=agreements.clocks_differ_us,
        )

    def enter(
        self, client: NodeId, subscriptions: Sequence[Route], advertisements: Sequence[Route],
        now: Time,
    ) -> None:  # fmt: skip
        """Subscribe and advertise for a client what another broker has kept for it."""
        self._entered = client
        self.broker.router.introduced(subscriptions, advertisements, client, now)
        self._entered = None

    def on_introduction(self, message: Introduction, link: LinkId, now: Time) -> None:
        """What was kept for a guest is not what it has subscribed to."""
        if link in self.guests:
            router = self.broker.router
            router.introduced(message.subscriptions, message.advertisements, link, now)

    # ---- Departures

    def on_farewell(self, _message: Farewell, link: LinkId, now: Time) -> None:
        """A guest will not come back. What is on its way to it comes first."""
        guest = self.guests.get(link)
        if guest is not None:
            guest.departing = guest.visit
            if not guest.waits:
                self.depart(link, guest.visit, now)

    def depart(self, client: NodeId, visit: int, now: Time) -> None:
        """Forget a guest, and have all brokers forget it."""
        self.broker.state(facts.ClientForgotten(at=self.broker.id, time=now, client=client))
        published, numbered = self.guests[client].published, self.guests[client].numbered or 0
        if client in self.broker.up:  # It closes the connection once its farewell is confirmed.
            del self.guests[client]
            self.clear(client, now)
        else:
            self.forget(client, now)
        departed = Departed(
            client=client, visit=visit, published=published, numbered=max(published, numbered)
        )
        self._bury(departed, None, now)

    def on_departed(self, message: Departed, link: LinkId, now: Time) -> None:
        """A client has left at some broker behind a link."""
        self._bury(message, link, now)

    def _bury(self, message: Departed, source: LinkId | None, now: Time) -> None:
        client = message.client
        if not self.trails.depart(message):
            return
        self.announce(message, source, now)
        self.learned(client, now)
        if client in self.returning:
            arrival, _ = self.returning[client]
            if arrival.stay <= message.visit:
                del self.returning[client]
                self._receive(client, arrival, now)

    def forget(self, client: NodeId, now: Time, *, taken_over: bool = False) -> None:
        """The client is elsewhere: drop everything about it.

        If a later visit has `taken_over` from the one that is here, and its connection is still up,
        it is the connection of another client of the same name, which is told. If it is what a
        client has left behind that has moved, nobody is at its other end.
        """
        del self.guests[client]
        self.returning.pop(client, None)
        if self.broker.is_connected(client):
            self.broker.act(Disconnect(client, taken_over))
        if client not in self.broker.known:
            # It was expected here. It has never come, or the handshake is unfinished.
            self.clear(client, now)
        if client in self.broker.peers:
            self.broker.forget(client, now)

    def clear(self, client: NodeId, now: Time) -> None:
        """End everything that a client has announced."""
        self.broker.router.introduced((), (), client, now)
        for kind in BESIDES:
            self.broker.message_arrived(kind(anew=True), client, now)

    # ---- Links

    def link_new(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.BROKER:
            self._send_news(link, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        self.courier.link_up(self.broker, link, now)
        guest = self.guests.get(link)
        if guest is not None:
            guest.away_since = None
            guest.pass_through(Moment.LINK_UP)
            if guest.is_served:
                self.serve(link, guest, self.take(link, now), now)
            else:
                overtaking.send_kept(self.broker, link, guest, self.terms_of(link), now)

    def link_down(self, link: LinkId, now: Time) -> None:
        guest = self.guests.get(link)
        if guest is not None:
            guest.pass_through(Moment.LINK_DOWN)
            guest.away_since = now
            self.look_for(guest, now)
        elif self.broker.peers[link] is Peer.CLIENT and not self.is_ending:
            # It left before it introduced itself.
            self.returning.pop(link, None)
            self.broker.forget(link, now)

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del now
        guest = self.guests.get(link)
        if guest is not None:
            guest.pass_through(Moment.LINK_RESET)
            unconfirmed = [*unconfirmed]
            guest.lost += events_in(unconfirmed)
            guest.moving |= moving_in(unconfirmed)
            guest.missed = Missed((*missed_in(unconfirmed), *guest.missed))
            overtaking.lost(guest, unconfirmed)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """A neighbour that has left, and its news with it; or a guest that the driver has sent away
        for good, such as one with the name of a broker.
        """
        del unconfirmed
        self.courier.take(link)
        guest = self.guests.pop(link, None)
        if guest is not None:
            self.returning.pop(link, None)
            self.broker.state(facts.ClientForgotten(at=self.broker.id, time=now, client=link))
            departed = Departed(client=link, visit=guest.visit, published=guest.published)
            self._bury(departed, None, now)

    def keeps(self, link: LinkId) -> bool:
        """The guest is going to introduce itself again; until then, what it announced holds."""
        return link in self.guests

    def kept(self, link: LinkId) -> Load:
        guest = self.guests.get(link)
        return self.courier.held(link) if guest is None else guest.load

    def hosted(self) -> Iterable[NodeId]:
        return [client for client in self.guests if client not in self.broker.peers]

    def keep_less(self, bytes_max: int, now: Time) -> None:
        """Those for which the most is kept lose something first: the oldest events.

        What was sent to a client and not confirmed may have arrived, so it cannot be discarded in
        parts, nor can the list of what was discarded: if these take more than half, clients with
        the most of them are forgotten.
        """
        sent = {
            client: self._queued(client).plus(self.guests[client].burden).memory_bytes
            for client in self.guests.away()
        }
        sent_bytes = sum(sent.values())
        for client in sorted(sent, key=sent.__getitem__, reverse=True):
            if sent_bytes <= bytes_max // 2:
                break
            if not self.guests[client].waits:
                sent_bytes -= sent[client]
                self.forget_away(client, now)
        self.guests.keep_less(self.broker, bytes_max - sent_bytes, now)

    def _queued(self, client: NodeId) -> Load:
        """What was sent to a client and not confirmed; nothing if it has no link here."""
        return self.broker.queued(client) if client in self.broker.peers else NO_LOAD

    def discard_spilled(self, bytes_: int, now: Time) -> bool:
        return self.guests.discard_spilled(self.broker, bytes_, now)

    def to_spill(self, client: LinkId, bytes_max: int) -> Sequence[tuple[int, Event]]:
        guest = self.guests.get(client)
        return () if guest is None else guest.cache.to_spill(bytes_max)

    def still_kept(self, client: LinkId, events: Sequence[tuple[int, Event]]) -> Collection[int]:
        guest = self.guests.get(client)
        return () if guest is None else guest.cache.still_in_memory(events)

    def spilled(self, client: LinkId, number: int, page: PageId, place: int) -> None:
        guest = self.guests.get(client)
        if guest is not None:
            guest.cache.spill(number, page, place)

    def pages(self) -> Iterable[PageId]:
        return {page: None for guest in self.guests.values() for page in guest.cache.pages()}

    def forget_away(self, client: LinkId, now: Time) -> bool:
        guest = self.guests.get(client)
        if guest is None or guest.waits:
            return False
        self.broker.state(facts.ForgottenEarly(at=self.broker.id, time=now, client=client))
        self.depart(client, guest.visit, now)
        return True

    def earlier(self, client: LinkId, now: Time) -> Earlier:
        known = self.trails.earlier(client, now)
        guest = self.guests.get(client)
        if guest is None:
            return known
        return known.join(Earlier(guest.visit, max(guest.published, guest.numbered or 0)))

    # ---- Time

    def wake(self, now: Time) -> None:
        """Look after what may have been kept, or waited for, too long."""
        self.look_after_guests(now)
        self.look_after_returning(now)

    def look_after_returning(self, now: Time) -> None:
        """Receive clients that are back, although no news of their departure has come in time."""
        for client, (arrival, since) in list(self.returning.items()):
            if since + NEWS_US <= now:
                del self.returning[client]
                self._receive(client, arrival, now)
            else:
                self.look_again_by(since + NEWS_US, NEWS_US, now)

    def look_after_guests(self, now: Time) -> None:
        """Discard what has expired, and forget guests that are away for too long."""
        ttl_us, away_max_us = self.guests.options.cache_ttl_us, self.guests.options.away_max_us
        if ttl_us is not None:
            lifetime_us = ttl_us
            self.guests.expire(
                self.broker, now, lambda time: self.look_again_by(time, lifetime_us, now)
            )
        if self.agreements is not None and self.agreements.has_policies:
            self.guests.expire_by_policy(self.broker, now, lambda due: self._look_at(due, now))
        if away_max_us is None:
            return
        routes = 0
        for client, guest in list(self.guests.items()):
            if guest.away_since is None or guest.waits:
                continue  # It is checked when what it awaits has arrived.
            if guest.away_since + away_max_us <= now:
                if routes > MANY:  # The others have their turn later.
                    self.wake_by(now + PAUSE_US)
                    return
                routes += 1 + len(self.broker.router.subscriptions.routes(client))
                self.depart(client, guest.visit, now)
            else:
                self.look_for(guest, now)

    def _look_at(self, due: Due, now: Time) -> None:
        if due != NOT_DUE:
            self.look_again_by(due.time, due.lifetime_us, now)

    def look_for(self, guest: Guest, now: Time) -> None:
        """Check again when a guest that is away will have been away for too long."""
        away_max_us = self.guests.options.away_max_us
        if away_max_us is not None and guest.away_since is not None:
            self.look_again_by(guest.away_since + away_max_us, away_max_us, now)

    def look_again_by(self, time: Time, lifetime_us: Time, now: Time) -> None:
        """Check all guests at once, at most 16 times in a lifetime, and not once for each."""
        self.wake_by(max(time, now + lifetime_us // 16))
