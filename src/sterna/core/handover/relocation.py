"""Roaming clients keep every event: relocation after Fiege et al., section 4, Figs. 10 and 11.

A client that comes to a new border broker announces how many events it has. The new broker
subscribes for it, holds back what arrives, and sends a request behind the subscription to where the
client was, along its trail (`trails.py`). The old broker answers with a replay of what the client
missed, and forgets it. The replay is delivered first, then what was held back.

**Why nothing is lost.** A request follows the client's subscriptions on every link. An event that
passes a broker on the way before the request does goes to the old place and is there before it; one
that passes after it goes to the new place. What goes both ways is delivered once. The same holds
for what the client publishes: it waits for the replay, which has followed all that the client
published at the old place.

A request for a client that has departed (`hosting.py`) is answered with nothing. A client that had
not meant to leave is then born anew where it is.
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from sterna.core import facts
from sterna.core.handover.declining import forget_absent
from sterna.core.handover.fetching import Fetching, is_of_another
from sterna.core.handover.guests import Guest, KeptGuest
from sterna.core.handover.messages import Arrival, Fetch, Replay, Request, Resubscribe
from sterna.core.handover.options import HandoverOptions
from sterna.core.handover.promises import NOTHING, Belongings, KeptPromise
from sterna.core.handover.roaming import NEWS_US, Roaming
from sterna.core.handover.trails import KeptTrails, Stranger, Strangers, Trail
from sterna.core.handover.under_way import UnderWay
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.protocol import Kind, Protocol


class KeptRelocation(msgspec.Struct, frozen=True):
    """What a snapshot holds of the brokers' part."""

    guests: list[KeptGuest]
    trails: KeptTrails
    promises: list[KeptPromise]
    strangers: list[tuple[int, LinkId | None, Time]]
    returning: dict[NodeId, tuple[int, Time]]
    held: dict[LinkId, list[int]]
    number: int
    under_way: list[tuple[int, LinkId]] = []


class Relocation(Fetching):
    """The brokers' part in relocation."""

    name = "relocation"
    handles = (*Fetching.handles, Arrival, Resubscribe, Fetch, Replay)
    version = 2
    Kept = KeptRelocation
    older = {1: (KeptRelocation, lambda kept: kept)}  # noqa: RUF012 - a constant.

    def __init__(self, options: HandoverOptions | None = None) -> None:
        super().__init__(options)
        self.strangers = Strangers()
        self.under_way = UnderWay()

    # ---- Fig. 10: at the border brokers

    def on_arrival(self, message: Arrival, link: LinkId, now: Time) -> None:
        """A client has arrived at this broker."""
        client, guest = link, self.guests.get(link)
        self.returning.pop(client, None)
        if not message.born:
            self.receive_new(client, message, now)
        elif guest is None or guest.born < message.born or is_of_another(guest, message):
            published = 0 if guest is None else guest.published
            guest = self.guests.admit(client, message.visit, message.born)
            guest.numbered, guest.published = message.numbered, published
            guest.brings = message.brings
            self.introduce(message, client, now)
            self.broker.state(facts.HandoverStarted(at=self.broker.id, time=now, client=client))
            self._request(client, guest, now, stay=message.stay, received=message.received)
        else:
            self.receive_back(client, guest, message, now)

    def _request(
        self, client: NodeId, guest: Guest, now: Time, *, stay: int = 0, received: int = 0
    ) -> None:
        self._number += 1
        guest.awaits = self._number
        routes = self.broker.router.subscriptions.routes(client).values()
        request = Resubscribe(
            client=client,
            number=self._number,
            born=guest.born,
            stay=stay,
            received=received,
            filters=tuple(route.filter for route in routes),
        )
        self._follow(request, None, now)

    def _hand_over(self, request: Request, now: Time) -> None:
        """A guest is elsewhere: send its events after it. (Fig. 10, line 15)

        If it is here after all, because the request comes from where it was before, it is sent away
        and comes back by itself, with a request of its own.
        """
        client = request.client
        guest = self.guests.get(client)
        if guest is None or not request.path:  # It left nothing behind.
            forget_absent(self.broker, client, now)
            self._replay(request, NOTHING, now)
            return
        belongings = self.hand_over(client, request, request.stay, request.received, now)
        if belongings is not None:
            self._replay(request, belongings, now)
        # A later visit than this one has asked, if it was welcomed on this one before.
        is_later = guest.stay == guest.visit <= request.stay
        self.forget(client, now, taken_over=is_later and guest.is_here)

    def on_replay(self, message: Replay, _link: LinkId, now: Time) -> None:
        """What a guest missed has arrived. (Fig. 10, line 23; on the way, Fig. 11, line 22)"""
        client = message.client
        self.under_way.end(self.broker.id, message)
        if message.path:
            onward = msgspec.structs.replace(message, path=message.path[:-1])
            self.courier.send(self.broker, message.path[-1], onward, now)
            return
        brought = _belongings(message)
        promise = self.promises.pop((client, message.number), None)
        if promise is not None:
            self._replay(cast("Request", promise.request), promise.kept_with(brought), now)
            return
        guest = self.guests.get(client)
        if guest is not None and guest.awaits == message.number:
            self.receive_belongings(client, guest, brought, now)

    # ---- Fig. 11: on the way

    def on_resubscribe(self, message: Resubscribe, link: LinkId, now: Time) -> None:
        """A client has moved, and the path to its new place begins."""
        self._follow(message, link, now)

    def on_fetch(self, message: Fetch, link: LinkId, now: Time) -> None:
        """A client has moved, and its new path has met the old one."""
        self._follow(message, link, now)

    def _follow(self, request: Request, source: LinkId | None, now: Time) -> None:
        """Follow the trail to what a client left behind, and turn the trail around."""
        if self.under_way.has(self.broker.id, request):
            return  # A neighbour with an old memory has asked again.
        trail = self.trails.get(request.client)
        request = _of_life(_meaningful(request), trail)
        if trail is None or trail.born != request.born:
            self._await_news(Stranger(request, source, now), now)
            return
        if source is not None and trail.link == source:  # What was here was lost with the trail.
            self._answer_forgotten(request, now)
            return
        if trail.link is None and self.is_with_another(request.client):
            self._await_news(Stranger(request, source, now), now)
            return
        self.trails.lay(request.client, source, trail.born)
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
        self.under_way.begin(onward, trail.link)
        self.courier.send(self.broker, trail.link, onward, now)

    def _is_junction(self, request: Resubscribe, link: LinkId) -> bool:
        """Whether this broker routes the client's events to the old place."""
        table = self.broker.router.subscriptions
        return any(table.has(link, filter_) for filter_ in request.filters)

    def _replay(self, request: Request, belongings: Belongings, now: Time) -> None:
        message = Replay(
            client=request.client,
            number=request.number,
            path=request.path,
            **msgspec.structs.asdict(belongings),
        )
        self.on_replay(message, "", now)

    # ---- Requests for clients that are not known here (yet, or any more)

    def _await_news(self, stranger: Stranger, now: Time) -> None:
        """Keep a request until its client is known here, or known to have left, but not for ever.

        It does not follow the trail of a later life of its client: the broker that this trail was
        laid for would not find what the request turns around. Nothing is left of the life that it
        asks for, so nobody has to wait.
        """
        request = stranger.request
        if self.trails.is_over(request.client, request.born):
            self._answer_forgotten(request, now)
            return
        self.look_again_by(stranger.since + NEWS_US, NEWS_US, now)
        oldest = self.strangers.add(stranger)
        if oldest is not None:
            self._answer_forgotten(oldest.request, now)

    def _answer_forgotten(self, request: Request, now: Time) -> None:
        published = self.trails.last_published(request.client)
        self._replay(request, Belongings(published=published, forgotten=True), now)

    def adopted(self, client: NodeId, guest: Guest, now: Time) -> None:
        """Lay trails anew for a client that has moved while its requests turned none around.

        That is announced like a birth, with the number of a later visit of the same life.
        """
        if 0 < guest.born < guest.visit:
            numbered = guest.published or guest.numbered
            self.settle_here(client, guest.visit, numbered, now, renews=guest.born)
        self.learned(client, now)

    def bear(self, client: NodeId, guest: Guest, now: Time) -> bool:
        is_born = super().bear(client, guest, now)
        self._end_earlier_life(client, now)
        return is_born

    def _end_earlier_life(self, client: NodeId, now: Time) -> None:
        """Nobody waits any more for what a client missed before it was born anew.

        Among brokers with old memories, each may be waiting for what the other has promised; and
        one that is cut off by brokers that hand nothing over does not hear of the birth.
        """
        trail = self.trails.get(client)
        if trail is not None and (self.promises or self.under_way):
            for key, promise in self.promises.of(client):
                request = cast("Request", promise.request)
                if request.born < trail.life:
                    del self.promises[key]
                    self._answer_forgotten(request, now)
            self.under_way.end_before(client, trail.life)

    def learned(self, client: NodeId, now: Time) -> None:
        self._end_earlier_life(client, now)
        trail, guest = self.trails.get(client), self.guests.get(client)
        if trail is not None and guest is not None and guest.waits and guest.born < trail.life:
            guest.born = trail.born  # Nobody answers for its earlier life any more.
            self._request(client, guest, now)
        for stranger in self.strangers.take(client):
            if trail is not None and _of_life(stranger.request, trail).born == trail.born:
                self._follow(stranger.request, stranger.source, now)
            else:
                self._await_news(stranger, now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """Requests that went over the link, or waited for it, wait for another way."""
        super().link_gone(link, unconfirmed, now)
        if self.broker.peers[link] is not Peer.BROKER:
            return
        del unconfirmed
        self.trails.link_gone(link)
        for message in self.under_way.take(link):
            *before, _ = message.path
            request = msgspec.structs.replace(message, path=tuple(before))
            self._await_news(Stranger(request, before[-1] if before else None, now), now)

    def link_new(self, link: LinkId, now: Time) -> None:
        """Ask a neighbour again: if the link begins anew, it may not remember that it was asked."""
        super().link_new(link, now)
        for request in self.under_way.over(link):
            self.courier.send(self.broker, link, request, now)

    def wake(self, now: Time) -> None:
        self.look_after_guests(now)
        for client in self.strangers.clients():
            for stranger in self.strangers.take(client):
                if stranger.since + NEWS_US <= now:
                    self._answer_forgotten(stranger.request, now)
                else:
                    self._await_news(stranger, now)
        self.look_after_returning(now)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether no client and no broker waits for a replay."""
        return not (self.promises or self.strangers or self.returning) and not any(
            guest.waits for guest in self.guests.values()
        )

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptRelocation:
        return KeptRelocation(
            guests=self.guests.keep_all(writer),
            trails=self.trails.keep(),
            promises=self.promises.keep(writer),
            strangers=self.strangers.keep(writer),
            returning={
                client: (writer.message(arrival), since)
                for client, (arrival, since) in self.returning.items()
            },
            held=self.courier.keep(writer),
            number=self._number,
            under_way=self.under_way.keep(writer),
        )

    def restore(self, kept: KeptRelocation, reader: Reader) -> None:
        self.guests.restore(kept.guests, reader)
        self.trails.restore(kept.trails)
        self.promises.restore(kept.promises, reader, Request)
        self.strangers.restore(kept.strangers, reader)
        for client, (number, since) in kept.returning.items():
            self.returning[client] = reader.message(number, Arrival), since
        self.courier.restore(kept.held, reader)
        self._number = kept.number
        self.under_way.restore(kept.under_way, reader)


RELOCATION = Protocol(name="relocation", kind=Kind.HANDOVER, broker=Relocation, client=Roaming)


def _of_life(request: Request, trail: Trail | None) -> Request:
    """A request as if its client had been born when trails were last laid for its life."""
    if trail is None or trail.life != request.born:
        return request
    return msgspec.structs.replace(request, born=trail.born)


def _meaningful(request: Request) -> Request:
    """A request without the filters that mean nothing here, as if the client had not had them."""
    if all(filter_.is_bound for filter_ in request.filters):
        return request
    bound = tuple(filter_ for filter_ in request.filters if filter_.is_bound)
    return msgspec.structs.replace(request, filters=bound)


def _fetch(request: Resubscribe, junction: NodeId) -> Fetch:
    copied = {name: getattr(request, name) for name in Request.__struct_fields__}
    return Fetch(**copied, junction=junction)


def _belongings(replay: Replay) -> Belongings:
    """What a replay brings."""
    return Belongings(**{name: getattr(replay, name) for name in Belongings.__struct_fields__})
