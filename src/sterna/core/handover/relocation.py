"""Roaming clients keep every event: relocation after Fiege et al., section 4, Figs. 10 and 11.

A client that comes to a new border broker says how many events it has. The new broker subscribes
for it, holds back what arrives, and sends a request after the subscription to where the client was.
The old broker answers with a replay of what the client missed, and forgets it. The replay is
delivered first, then what was held back.

**How the request finds the old broker.** The paper's tables have an entry for each client and
subscription, and requests follow those. Tables that are reduced by covering or merging do not tell
where a client is, so each broker keeps a *trail* for each roaming client: the link that leads to
where its events are. A new client is announced to all brokers once; a request follows the trail and
turns it around on its way, as in the arrow protocol (Demmer and Herlihy, 1998). A second request,
sent before the first is answered, follows the turned trail to the broker that sent the first and
waits there. What a client left behind is always at one place, or on its way to the next.

**Why nothing is lost.** A request follows the client's subscriptions on every link. An event that
passes a broker on the way before the request does goes to the old place and is there before it; one
that passes after it goes to the new place. What goes both ways is delivered once. The same holds
for what the client publishes: it waits for the replay, which has followed all that the client
published at the old place.

**Leaving for good.** A client that says farewell, or is away for too long, is forgotten by its
broker, and all others hear that it has departed. They drop the trail and remember the departure for
a while: whoever asks for something from before is told that nothing is left. A client that had not
meant to leave is then born anew where it is. Of two numbers of the same client the greater one is
the later one, so whatever crosses on the way, all brokers agree in the end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import msgspec

from sterna.core import facts
from sterna.core.actions import Disconnect
from sterna.core.component import BrokerComponent, ClientComponent
from sterna.core.handover.cache import Cache, after
from sterna.core.handover.messages import (
    Arrival,
    Departed,
    Farewell,
    Fetch,
    Located,
    Replay,
    Replayed,
    Request,
    Resubscribe,
    Welcome,
)
from sterna.core.location.messages import MovingChange
from sterna.core.messages import Events, Message
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Kind, Protocol
from sterna.core.settings import Settings
from sterna.model.event import Event, EventId

DEPARTED_MAX = 10_000
"""How many clients that have left a broker remembers."""

STRANGERS_MAX = 10_000
"""How many requests for unknown clients a broker keeps."""

NEWS_US: Time = 10_000_000
"""How long a broker waits for news of a client: that it was born, or that it has left."""


@dataclass(slots=True)
class Guest:
    """A client whose border broker this is, or is going to be."""

    visit: int
    born: int
    cache: Cache
    awaits: int | None = None
    """The number of the request whose replay has to come first: the paper's blocking flag."""
    is_here: bool = True
    """Whether it can be sent something."""
    stay: int = 0
    """The visit on which it was welcomed …"""
    sent: int = 0
    """… and how many events were sent since."""
    has_forgotten: bool = False
    """Whether it is going to say anew what it wants, having forgotten the link …"""
    lost: list[Event] = field(default_factory=list)
    """… and the events that it had not confirmed before."""
    missed: list[EventId] = field(default_factory=list)
    """Events that were kept for it no longer."""
    moving: dict[EventId, tuple[RouteId, ...]] = field(default_factory=dict)
    """For which of its moving subscriptions an event is kept: where it was, it wanted it."""
    published: int = 0
    """The number of its last event that came through here."""
    departing: int = 0
    """The visit on which it has said farewell; 0 if it has not."""
    away_since: Time | None = None
    """When its connection was lost; None while it stands."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Another broker waits for what this one waits for itself."""

    request: Request
    lost: list[Event]
    """What did not reach the client from here, before the replay …"""
    held: list[Event]
    """… and what came for it since."""
    missed: list[EventId]
    moving: dict[EventId, tuple[RouteId, ...]]
    published: int
    departing: int


@dataclass(frozen=True, slots=True)
class Trail:
    """Where the events for a client are: over a link, or (None) here."""

    link: LinkId | None
    born: int
    """Of the client it was laid for: one that has lost its memory is another."""


@dataclass(frozen=True, slots=True)
class Departure:
    """What is remembered of a client that has left: its last visit, and its last event."""

    visit: int
    published: int


@dataclass(frozen=True, slots=True)
class Stranger:
    """A request for a client of whom this broker has not heard yet."""

    request: Request
    source: LinkId | None
    since: Time


class Relocation(BrokerComponent):
    """The brokers' part. `events_max` and `ttl_us` bound what is kept for each subscription,
    `bytes_max` what is kept for each client.

    Who is away for longer than `away_max_us` is forgotten; None: nobody is.
    """

    name = "relocation"
    handles = (Arrival, Located, Resubscribe, Fetch, Replay, Farewell, Departed)

    @classmethod
    def make(cls, settings: Settings) -> Self:
        options = settings.handover
        return cls(
            events_max=options.cache_events_max,
            bytes_max=options.cache_bytes_max,
            ttl_us=options.cache_ttl_us,
            away_max_us=options.away_max_us,
        )

    def __init__(
        self, *, events_max: int = 10_000, bytes_max: int | None = None,
        ttl_us: Time | None = None, away_max_us: Time | None = None,
    ) -> None:  # fmt: skip
        self.guests: dict[NodeId, Guest] = {}
        self.trails: dict[NodeId, Trail] = {}
        self.promises: dict[tuple[NodeId, int], Promise] = {}
        self.strangers: dict[NodeId, list[Stranger]] = {}
        self.departed: dict[NodeId, Departure] = {}
        self.returning: dict[NodeId, tuple[Arrival, Time]] = {}
        """Clients that are back before this broker has heard that they had left."""
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._ttl_us = ttl_us
        self._away_max_us = away_max_us
        self._strangers = 0
        """How many there are."""
        self._number = 0
        self._held: dict[LinkId, list[Message]] = {}
        """What must not pass the subscriptions that wait until a link stands."""

    # ---- Fig. 10: at the border brokers

    def on_arrival(self, message: Arrival, link: LinkId, now: Time) -> None:
        """A client is here."""
        client, guest = link, self.guests.get(link)
        self.returning.pop(client, None)
        if not message.born:
            self._receive_new(client, message, now)
        elif guest is None or guest.born < message.born:
            guest = self.guests[client] = Guest(message.visit, message.born, self._cache())
            self._introduce(message, client, now)
            self.broker.state(facts.HandoverStarted(at=self.broker.id, time=now, client=client))
            self._request(client, guest, message, now)
        else:  # It was away, and is back where it was.
            guest.lost = self._not_received(client, guest, message, guest.lost)
            guest.stay, guest.sent = 0, len(guest.lost)
            self._introduce(message, client, now)
            guest.visit, guest.is_here, guest.has_forgotten = message.visit, True, False
            guest.away_since = None
            if guest.awaits is None:
                lost, guest.lost = guest.lost, []
                self._serve(client, guest, [*lost, *self._take(client, guest, now)], now)

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """What cannot be sent to a guest now is kept for it."""
        guest = self.guests.get(link)
        if guest is None:
            return events
        if guest.is_here and guest.awaits is None:
            guest.sent += len(events)
            return events
        self._keep(link, guest, events, now)
        return ()

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        del now
        if link in self.guests:
            self.guests[link].published = events[-1].seq

    def _hand_over(self, request: Request, now: Time) -> None:
        """A guest is elsewhere: send its events after it. (Fig. 10, line 15)

        If it is here after all, because the request comes from where it was before, it is sent away
        and comes back by itself, with a request of its own.
        """
        client = request.client
        guest = self.guests.get(client)
        if guest is None or not request.path:  # It left nothing behind.
            self._replay(request, (), (), {}, 0, now, forgotten=True)
            return
        unconfirmed = self.broker.unconfirmed(client)
        guest.moving |= _moving_in(unconfirmed)
        lost = [*guest.lost, *_events_in(unconfirmed)]
        lost = self._not_received(client, guest, request, lost)
        kept = self._take(client, guest, now)
        missed = [*_missed_in(unconfirmed), *guest.missed]
        if guest.awaits is None:
            self._replay(request, [*lost, *kept], missed, guest.moving, guest.published, now)
        else:
            promise = Promise(
                request, lost, kept, missed, guest.moving, guest.published, guest.departing
            )
            self.promises[client, guest.awaits] = promise
        self._forget(client, now)

    def on_replay(self, message: Replay, _link: LinkId, now: Time) -> None:
        """What a guest missed has come. (Fig. 10, line 23; further on the way, Fig. 11, line 22)"""
        client = message.client
        if message.path:
            onward = msgspec.structs.replace(message, path=message.path[:-1])
            self._send(message.path[-1], onward, now)
            return
        promise = self.promises.pop((client, message.number), None)
        if promise is not None:
            self._replay(
                promise.request,
                [*promise.lost, *message.events, *after(message.events, promise.held)],
                [*message.missed, *_without(promise.missed, message.events)],
                promise.moving | dict(message.moving),
                max(message.published, promise.published),
                now,
                forgotten=message.forgotten,
                departing=max(message.departing, promise.departing),
            )
            return
        guest = self.guests.get(client)
        if guest is None or guest.awaits != message.number:
            return
        guest.awaits = None
        guest.moving |= dict(message.moving)
        guest.published = max(guest.published, message.published)
        held = after(message.events, self._take(client, guest, now))
        guest.missed = [*message.missed, *_without(guest.missed, message.events)]
        events = [*guest.lost, *message.events, *held]
        guest.lost = []
        self.broker.state(
            facts.HandoverFinished(
                at=self.broker.id, time=now, client=client,
                replayed=len(message.events), held=len(held),
            )
        )  # fmt: skip
        departing = max(message.departing, guest.departing)
        if departing >= guest.visit:
            self._depart(client, departing, now)
        elif message.forgotten and not self._bear(client, guest, now):
            self._forget(client, now)
        elif guest.is_here:
            self._serve(client, guest, events, now)
        else:
            self._keep(client, guest, events, now, again=True)
            self._look_for(guest, now)

    # ---- Fig. 11: on the way

    def on_resubscribe(self, message: Resubscribe, link: LinkId, now: Time) -> None:
        """A client has moved, and the path to its new place begins."""
        self._follow(message, link, now)

    def on_fetch(self, message: Fetch, link: LinkId, now: Time) -> None:
        """A client has moved, and its new path has met the old one."""
        self._follow(message, link, now)

    def _follow(self, request: Request, source: LinkId | None, now: Time) -> None:
        """Follow the trail to what a client left behind, and turn it around."""
        trail = self.trails.get(request.client)
        if trail is None or trail.born != request.born:
            self._await_news(Stranger(request, source, now), now)
            return
        self.trails[request.client] = Trail(source, trail.born)
        if trail.link is None:
            self._hand_over(request, now)
            return
        if isinstance(request, Resubscribe):
            if self._is_junction(request, trail.link):
                self.broker.state(
                    facts.JunctionFound(at=self.broker.id, time=now, client=request.client)
                )
                request = _fetch(request, self.broker.id)
        elif self.broker.router.is_offered(request.filters, but_not={source, trail.link}):
            request = msgspec.structs.replace(request, junction=self.broker.id)
        onward = msgspec.structs.replace(request, path=(*request.path, self.broker.id))
        self._send(trail.link, onward, now)

    def _is_junction(self, request: Resubscribe, link: LinkId) -> bool:
        """Whether this broker routes the client's events to the old place."""
        table = self.broker.router.subscriptions
        return any(table.has(link, filter_) for filter_ in request.filters)

    # ---- New clients

    def _receive_new(self, client: NodeId, message: Arrival, now: Time) -> None:
        """Nobody has welcomed this client before, so nothing was kept for it.

        One that has left just now waits until that is known here: what it published before must
        not be overtaken by what it is going to publish.
        """
        if self._last_departure(client) < message.stay:
            self.returning[client] = message, now
            self._look_again_by(now + NEWS_US, NEWS_US, now)
        else:
            self._receive(client, message, now)

    def _receive(self, client: NodeId, message: Arrival, now: Time) -> None:
        self._clear(client, now)
        is_here = client in self.broker.up
        guest = self.guests[client] = Guest(message.visit, 0, self._cache(), is_here=is_here)
        if self._bear(client, guest, now):
            self._serve(client, guest, [], now)
        else:
            self._forget(client, now)

    def _bear(self, client: NodeId, guest: Guest, now: Time) -> bool:
        """A client that is here begins anew, unless it has been elsewhere since."""
        trail = self.trails.get(client)
        last = max(self._last_departure(client), 0 if trail is None else trail.born)
        if not guest.is_here or guest.visit <= last:
            if trail is not None and trail.link is None:
                del self.trails[client]
            return False
        guest.born = guest.visit
        self.trails[client] = Trail(None, guest.born)
        self._announce(Located(client=client, born=guest.born), None, now)
        return True

    def on_located(self, message: Located, link: LinkId, now: Time) -> None:
        """A new client is somewhere behind a link."""
        client = message.client
        trail = self.trails.get(client)
        if trail is not None and trail.born >= message.born:
            return
        if self._last_departure(client) >= message.born:
            return
        if client in self.guests and self.guests[client].visit < message.born:
            self._forget(client, now)
        self.trails[client] = Trail(link, message.born)
        self._announce(message, link, now)
        for stranger in self._take_strangers(client):
            if stranger.request.born == message.born:
                self._follow(stranger.request, stranger.source, now)
            else:
                self._await_news(stranger, now)

    def _announce(self, message: Located | Departed, source: LinkId | None, now: Time) -> None:
        for link, peer in self.broker.peers.items():
            if peer is Peer.BROKER and link != source:
                self._send(link, message, now)

    def _await_news(self, stranger: Stranger, now: Time) -> None:
        """Keep a request until its client is known here, or known to have left, but not for ever.

        It does not follow the trail of another life of its client, although that is a later one:
        whoever that trail was laid for would not find what the request turns around.
        """
        request = stranger.request
        if self._last_departure(request.client) >= request.born:
            self._answer_forgotten(stranger, now)
            return
        self.strangers.setdefault(request.client, []).append(stranger)
        self._strangers += 1
        self._look_again_by(stranger.since + NEWS_US, NEWS_US, now)
        if self._strangers > STRANGERS_MAX:
            first, *others = self._take_strangers(next(iter(self.strangers)))
            if others:
                self.strangers[first.request.client] = others
                self._strangers += len(others)
            self._answer_forgotten(first, now)

    def _take_strangers(self, client: NodeId) -> list[Stranger]:
        strangers = self.strangers.pop(client, [])
        self._strangers -= len(strangers)
        return strangers

    def _answer_forgotten(self, stranger: Stranger, now: Time) -> None:
        departure = self.departed.get(stranger.request.client)
        published = 0 if departure is None else departure.published
        self._replay(stranger.request, (), (), {}, published, now, forgotten=True)

    # ---- Leaving for good

    def on_farewell(self, _message: Farewell, link: LinkId, now: Time) -> None:
        """A guest will not come back. If something is on its way to it, that comes first."""
        guest = self.guests.get(link)
        if guest is not None:
            guest.departing = guest.visit
            if guest.awaits is None:
                self._depart(link, guest.visit, now)

    def _depart(self, client: NodeId, visit: int, now: Time) -> None:
        """Forget a guest, and have all brokers forget it."""
        self.broker.state(facts.ClientForgotten(at=self.broker.id, time=now, client=client))
        published = self.guests[client].published
        if client in self.broker.up:  # It ends the connection when it knows that it was heard.
            del self.guests[client]
            self._clear(client, now)
        else:
            self._forget(client, now)
        self._bury(Departed(client=client, visit=visit, published=published), None, now)

    def on_departed(self, message: Departed, link: LinkId, now: Time) -> None:
        """A client has left at some broker behind a link."""
        self._bury(message, link, now)

    def _bury(self, message: Departed, source: LinkId | None, now: Time) -> None:
        client = message.client
        if self._last_departure(client) >= message.visit:
            return
        self.departed.pop(client, None)
        self.departed[client] = Departure(message.visit, message.published)
        if len(self.departed) > DEPARTED_MAX:
            del self.departed[next(iter(self.departed))]
        trail = self.trails.get(client)
        if trail is not None and trail.born <= message.visit:
            del self.trails[client]
        self._announce(message, source, now)
        for stranger in self._take_strangers(client):
            self._await_news(stranger, now)
        if client in self.returning:
            arrival, _ = self.returning[client]
            if arrival.stay <= message.visit:
                del self.returning[client]
                self._receive(client, arrival, now)

    def _last_departure(self, client: NodeId) -> int:
        """The last visit of a client that has left, if that is remembered."""
        departure = self.departed.get(client)
        return 0 if departure is None else departure.visit

    # ---- Links

    def link_new(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.BROKER:
            for client, departure in self.departed.items():
                departed = Departed(
                    client=client, visit=departure.visit, published=departure.published
                )
                self._send(link, departed, now)
            for client, trail in self.trails.items():
                if trail.link != link:
                    self._send(link, Located(client=client, born=trail.born), now)

    def link_up(self, link: LinkId, now: Time) -> None:
        for message in self._held.pop(link, []):
            self.broker.send(link, message, now)
        guest = self.guests.get(link)
        if guest is not None:
            guest.away_since = None
        if guest is not None and not guest.has_forgotten:
            guest.is_here = True
            if guest.awaits is None:
                self._serve(link, guest, self._take(link, guest, now), now)

    def link_down(self, link: LinkId, now: Time) -> None:
        if link in self.guests:
            self.guests[link].is_here = False
            self.guests[link].away_since = now
            self._look_for(self.guests[link], now)
        elif self.broker.peers[link] is Peer.CLIENT:  # It left before it said who it is.
            self.returning.pop(link, None)
            self.broker.forget(link, now)

    def link_reset(self, link: LinkId, unconfirmed: list[Message], _now: Time) -> None:
        guest = self.guests.get(link)
        if guest is not None:
            guest.is_here, guest.has_forgotten = False, True
            guest.lost += _events_in(unconfirmed)
            guest.moving |= _moving_in(unconfirmed)
            guest.missed[:0] = _missed_in(unconfirmed)

    def link_gone(self, link: LinkId, unconfirmed: list[Message], now: Time) -> None:
        """Who is behind a link that is taken away cannot be found, unless another leads there."""
        if self.broker.peers[link] is not Peer.BROKER:
            return
        self.trails = {client: trail for client, trail in self.trails.items() if trail.link != link}
        for message in [*unconfirmed, *self._held.pop(link, [])]:
            if isinstance(message, Request):
                *before, _ = message.path
                request = msgspec.structs.replace(message, path=tuple(before))
                self._await_news(Stranger(request, before[-1] if before else None, now), now)

    def keeps(self, link: LinkId) -> bool:
        """The guest is going to say anew what it wants; until then the old holds."""
        return link in self.guests

    def kept_events(self, link: LinkId) -> int:
        return len(self.guests[link].cache) if link in self.guests else 0

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether nobody waits for a replay."""
        return not (self.promises or self.strangers or self.returning) and all(
            guest.awaits is None for guest in self.guests.values()
        )

    # ---- What is kept

    def wake(self, now: Time) -> None:
        """Something may have been kept, or waited for, too long."""
        if self._ttl_us is not None:
            for client, guest in self.guests.items():
                self._discard(client, guest, guest.cache.expire(now), now)
                self._look_again_by(guest.cache.expires_at, self._ttl_us, now)
        if self._away_max_us is not None:
            self._depart_who_is_away(self._away_max_us, now)
        for client in list(self.strangers):
            for stranger in self._take_strangers(client):
                if stranger.since + NEWS_US <= now:
                    self._answer_forgotten(stranger, now)
                else:
                    self._await_news(stranger, now)
        for client, (arrival, since) in list(self.returning.items()):
            if since + NEWS_US <= now:
                del self.returning[client]
                self._receive(client, arrival, now)
            else:
                self._look_again_by(since + NEWS_US, NEWS_US, now)

    def _depart_who_is_away(self, away_max_us: Time, now: Time) -> None:
        for client, guest in list(self.guests.items()):
            if guest.away_since is None or guest.awaits is not None:
                continue  # It is looked for when what it awaits has come.
            if guest.away_since + away_max_us <= now:
                self._depart(client, guest.visit, now)
            else:
                self._look_for(guest, now)

    def _look_for(self, guest: Guest, now: Time) -> None:
        if self._away_max_us is not None and guest.away_since is not None:
            self._look_again_by(guest.away_since + self._away_max_us, self._away_max_us, now)

    def _look_again_by(self, time: Time, lifetime_us: Time, now: Time) -> None:
        """Not for each one: all are looked at, but no more than 16 times in a lifetime."""
        self.wake_by(max(time, now + lifetime_us // 16))

    def _take(self, client: NodeId, guest: Guest, now: Time) -> list[Event]:
        """What is kept for a guest; what was kept too long just now is not."""
        self._discard(client, guest, guest.cache.expire(now), now)
        return guest.cache.take()

    def _keep(
        self, client: NodeId, guest: Guest, events: Sequence[Event], now: Time, *,
        again: bool = False,
    ) -> None:  # fmt: skip
        """Keep what is wanted; `again` if that was decided when it came."""
        for event in events:
            wanting = [*self._matching(client, event)]
            if again:
                wanting += guest.moving.get(event.id, ())
            else:
                wanting += self._matching_here(client, guest, event)
            if wanting:
                self._discard(client, guest, guest.cache.keep(event, wanting, now), now)
        if self._ttl_us is not None:
            self._look_again_by(guest.cache.expires_at, self._ttl_us, now)

    def _matching(self, client: NodeId, event: Event) -> Iterable[RouteId]:
        """The client's subscriptions that want an event."""
        for id_, route in self.broker.router.subscriptions.routes(client).items():
            if route.filter.matches(event.attributes):
                yield id_

    def _matching_here(self, client: NodeId, guest: Guest, event: Event) -> tuple[RouteId, ...]:
        """The client's moving subscriptions that want an event where it was last."""
        found = tuple(
            id_
            for exact in self.broker.at_exact
            for id_, filter_ in exact(client)
            if filter_.matches(event.attributes)
        )
        if found:
            guest.moving[event.id] = found
        return found

    def _discard(self, client: NodeId, guest: Guest, events: list[Event], now: Time) -> None:
        if events:
            guest.missed += [event.id for event in events]
            for event in events:
                guest.moving.pop(event.id, None)
            self.broker.state(
                facts.Discarded(at=self.broker.id, time=now, client=client, events=tuple(events))
            )

    def _not_received(
        self, client: NodeId, guest: Guest, said: Arrival | Request, unconfirmed: list[Event]
    ) -> list[Event]:
        """Of what was sent and not confirmed, what did not arrive, and was wanted."""
        received = said.received if said.stay == guest.stay else 0
        lost = unconfirmed[max(0, len(unconfirmed) - (guest.sent - received)) :]
        return [
            event
            for event in lost
            if event.id in guest.moving
            or any(True for _ in self._matching(client, event))
            or self._matching_here(client, guest, event)
        ]

    # ---- What is said

    def _introduce(self, message: Arrival, client: NodeId, now: Time) -> None:
        router = self.broker.router
        router.introduced(message.subscriptions, message.advertisements, client, now)
        for other in message.others:
            self.broker.message_arrived(other, client, now)

    def _request(self, client: NodeId, guest: Guest, said: Arrival, now: Time) -> None:
        self._number += 1
        guest.awaits = self._number
        routes = self.broker.router.subscriptions.routes(client).values()
        request = Resubscribe(
            client=client,
            number=self._number,
            born=said.born,
            stay=said.stay,
            received=said.received,
            filters=tuple(route.filter for route in routes),
        )
        self._follow(request, None, now)

    def _serve(self, client: NodeId, guest: Guest, events: Sequence[Event], now: Time) -> None:
        """Everything for a guest is here: from now on it gets its events."""
        if guest.stay != guest.visit:
            guest.stay, guest.sent = guest.visit, 0
            self.broker.send(client, Welcome(published=guest.published, born=guest.born), now)
        if events or guest.missed:
            guest.sent += len(events)
            missed, guest.missed = tuple(guest.missed), []
            replayed = Replayed(
                events=tuple(events), missed=missed, moving=tuple(guest.moving.items())
            )
            guest.moving = {}
            self.broker.send(client, replayed, now)

    def _replay(
        self, request: Request, events: Sequence[Event], missed: Sequence[EventId],
        moving: Mapping[EventId, tuple[RouteId, ...]], published: int, now: Time, *,
        forgotten: bool = False, departing: int = 0,
    ) -> None:  # fmt: skip
        message = Replay(
            client=request.client,
            number=request.number,
            events=tuple(events),
            missed=tuple(missed),
            moving=tuple(moving.items()),
            published=published,
            path=request.path,
            forgotten=forgotten,
            departing=departing,
        )
        self.on_replay(message, "", now)

    def _forget(self, client: NodeId, now: Time) -> None:
        """The client is elsewhere: nothing of it stays."""
        del self.guests[client]
        self.returning.pop(client, None)
        if self.broker.is_connected(client):
            self.broker.act(Disconnect(client))
        self.broker.forget(client, now)

    def _clear(self, client: NodeId, now: Time) -> None:
        """Whatever a client has said before holds no more."""
        self.broker.router.introduced((), (), client, now)
        self.broker.message_arrived(MovingChange(anew=True), client, now)

    def _send(self, link: LinkId, message: Message, now: Time) -> None:
        if link in self.broker.up:
            self.broker.send(link, message, now)
        else:
            self._held.setdefault(link, []).append(message)

    def _cache(self) -> Cache:
        return Cache(self._events_max, self._ttl_us, self._bytes_max)


class Roaming(ClientComponent):
    """The client's part: it says where it stands, and drops what it has already."""

    name = "relocation"
    handles = (Welcome, Replayed)

    def __init__(self) -> None:
        self.seen: dict[NodeId, int] = {}
        """The number of the last event of each publisher."""
        self._visit = 0
        self._born = 0
        self._stay = 0
        self._received = 0
        self._is_welcome = False
        self._left_at: Time = 0

    def introduces(self) -> bool:
        return True

    def may_publish(self) -> bool:
        return self._is_welcome

    def link_new(self, link: LinkId, now: Time) -> None:
        self._visit = max(self._visit, self.client.incarnation << 32) + 1
        self._is_welcome = False
        subscriptions, advertisements, others = (
            self.client.introduction() if self._born else ((), (), ())
        )
        is_known = self._born or now < self._left_at + NEWS_US
        arrival = Arrival(
            visit=self._visit,
            born=self._born,
            stay=self._stay if is_known else 0,
            received=self._received,
            subscriptions=subscriptions,
            advertisements=advertisements,
            others=others,
        )
        self.client.send(link, arrival, now)

    def on_welcome(self, message: Welcome, _link: LinkId, now: Time) -> None:
        self._is_welcome = True
        self._stay, self._received = self._visit, 0
        self.client.arrived(message.published)
        before, self._born = self._born, message.born or self._born or self._visit
        if not before:
            self.client.introduce(now)
        else:
            self.client.introduction_sent(now)
            if before != self._born:
                self.client.state(facts.Forgotten(at=self.client.id, time=now))
        self.client.flush(now)

    def left(self, now: Time) -> None:
        self._born = self._received = 0
        self._is_welcome = False
        self._left_at = now

    def on_replayed(self, message: Replayed, link: LinkId, now: Time) -> None:
        came = {event.id for event in message.events}
        missed = tuple(
            id_
            for id_ in dict.fromkeys(message.missed)  # Maybe discarded both here and there.
            if id_ not in came and id_.seq > self.seen.get(id_.publisher, 0)
        )
        fresh = self.events_arriving(message.events, link, now)
        if fresh:
            self.client.take(fresh, now, kept_for=message.moving)
        if missed:
            self.client.state(facts.Missed(at=self.client.id, time=now, events=missed))
            for id_ in missed:
                self.seen[id_.publisher] = max(id_.seq, self.seen.get(id_.publisher, 0))

    def events_arriving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        del link
        self._received += len(events)
        fresh, repeated = [], []
        for event in events:
            if event.seq > self.seen.get(event.publisher, 0):
                self.seen[event.publisher] = event.seq
                fresh.append(event)
            else:
                repeated.append(event)
        if repeated:
            self.client.state(facts.Repeated(at=self.client.id, time=now, events=tuple(repeated)))
        return fresh

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether its broker has welcomed it, if it has one."""
        return self._is_welcome or self.client.link not in self.client.up


RELOCATION = Protocol(name="relocation", kind=Kind.HANDOVER, broker=Relocation, client=Roaming)


def _fetch(request: Resubscribe, junction: NodeId) -> Fetch:
    said = {name: getattr(request, name) for name in Request.__struct_fields__}
    return Fetch(**said, junction=junction)


def _events_in(messages: Iterable[Message]) -> list[Event]:
    return [
        event
        for message in messages
        if isinstance(message, Events | Replayed)
        for event in message.events
    ]


def _missed_in(messages: Iterable[Message]) -> list[EventId]:
    return [id_ for message in messages if isinstance(message, Replayed) for id_ in message.missed]


def _moving_in(messages: Iterable[Message]) -> dict[EventId, tuple[RouteId, ...]]:
    return {
        id_: wanting
        for message in messages
        if isinstance(message, Replayed)
        for id_, wanting in message.moving
    }


def _without(missed: Iterable[EventId], events: Iterable[Event]) -> list[EventId]:
    """What was missed and did not come after all."""
    came = {event.id for event in events}
    return [id_ for id_ in missed if id_ not in came]
