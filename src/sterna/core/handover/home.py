"""The home broker: a client's subscriptions stay at its first broker. (Burcea et al., 3.2.3)

As in Mobile IP, the home broker gets the client's events through the regular multicast, and sends
them to the broker where the client is, by unicast, also while the client is connected there. No
subscription migrates, and no tree is rebuilt.

The client is a *visitor* elsewhere: that broker subscribes nothing for it, and registers it at
home. Before the home broker sends anything to a new place, it has the old place release the client,
and send back what the client did not get there. So the events of one publisher keep their order,
and so do those that the client publishes.

A client whose home is gone is handed over as in the standard algorithm, and has a new home.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from sterna.core import facts
from sterna.core.actions import Disconnect
from sterna.core.confirming.messages import Confirmation, ConfirmationAsked
from sterna.core.handover.fetching import is_over
from sterna.core.handover.guests import Guest, Presence
from sterna.core.handover.messages import Arrival, Introduction
from sterna.core.handover.missed import Missed
from sterna.core.handover.options import HandoverOptions
from sterna.core.handover.promises import Belongings
from sterna.core.handover.roaming import Roaming
from sterna.core.handover.standard import KeptStandard, Standard, belongings_in
from sterna.core.handover.transfer_messages import (
    ConfirmationFound,
    ConfirmationSought,
    HomeChange,
    HomeEnded,
    HomeEvents,
    MemoryLost,
    PastBrought,
    PastSought,
    Question,
    Registered,
    Registration,
    SubscriptionsAsked,
    Suspended,
    UnsubscribeAsked,
)
from sterna.core.handover.transfers import Transfer
from sterna.core.history.messages import SEARCH, HistoryAsked, PastAsked
from sterna.core.history.searching import Found
from sterna.core.keeping import Reader, Writer
from sterna.core.location.messages import MovingChange
from sterna.core.location.moving import OTHER_PLACES, Moving
from sterna.core.messages import Events, Message, SubscriptionChange
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Kind, Protocol
from sterna.core.sizes import batches
from sterna.core.terms.messages import TermsChange
from sterna.model.event import Event

if TYPE_CHECKING:
    from sterna.core.history.search import Searches
    from sterna.core.presubscribing.replicator import Presubscribing


class Visiting(msgspec.Struct, frozen=True, array_like=True):
    """Where a client is that has its home here."""

    broker: NodeId
    visit: int
    number: int
    """The number of its registration at that broker."""
    is_connected: bool = True

    def is_answered(self, asked: Registration) -> bool:
        """Whether this is the registration that was answered last."""
        mine = self.broker, self.visit, self.number
        return self.is_connected and mine == (asked.sender, asked.visit, asked.number)


class Sought(msgspec.Struct, frozen=True, array_like=True):
    """Who waits for what a search finds: a broker where a client is that has its home here."""

    broker: NodeId
    client: NodeId
    number: int
    """The number of the search there."""


class KeptHome(KeptStandard, frozen=True, kw_only=True):
    """What a snapshot holds of the brokers' part."""

    visiting: dict[NodeId, Visiting]
    sought: tuple[tuple[int, Sought], ...] = ()


class Home(Standard):
    """The brokers' part with home brokers."""

    name = "home"
    handles = (
        *Standard.handles,
        *(Registered, Suspended, HomeChange, HomeEnded),
        *(ConfirmationSought, ConfirmationFound, MemoryLost),
        *(PastSought, PastBrought),
    )
    Kept = KeptHome

    def __init__(self, handover: HandoverOptions | None = None) -> None:
        super().__init__(handover)
        self.visiting: dict[NodeId, Visiting] = {}
        """Where the clients are that have their home here, and are not here."""
        self.sought: dict[int, Sought] = {}
        """The searches for these clients, by number."""
        self._told: dict[NodeId, None] = {}
        """The clients elsewhere whose brokers were told that this is no home any more."""

    # ---- Where the client is: register it at home

    def on_arrival(self, message: Arrival, link: LinkId, now: Time) -> None:
        """A client has arrived here: as a visitor, or at home."""
        guest = self.guests.get(link)
        is_late = message.visit < self.left.get(link, 0)
        if guest is None or is_late or not message.born:
            super().on_arrival(message, link, now)
        elif guest.born < message.born or is_over(message, guest.born, guest.visit):
            self.visiting.pop(link, None)  # That was another life of it.
            super().on_arrival(message, link, now)
        elif guest.home:
            guest.lost = self.guests.not_received(
                self.broker, link, message.stay, message.received, guest.lost
            )
            guest.stay, guest.sent = 0, len(guest.lost)
            guest.arrive(message)
            self._register(link, guest, message, now)
        else:
            visiting = self.visiting.get(link)
            if visiting is not None and guest.transfer is None:  # It was elsewhere.
                guest.visit = message.visit
                self.broker.state(facts.HandoverStarted(at=self.broker.id, time=now, client=link))
                self._release(link, guest, message, visiting, now)
            super().on_arrival(message, link, now)

    def is_at_home(self, guest: Guest, arrival: Arrival) -> bool:
        if not guest.visit:
            return super().is_at_home(guest, arrival)
        is_home = arrival.home in {"", self.broker.id} and not guest.home
        is_same = guest.born >= arrival.born and not is_over(arrival, guest.born, guest.visit)
        return is_home and is_same

    def places_before(self, arrival: Arrival, client: NodeId) -> list[NodeId]:
        home = [arrival.home] if arrival.home and arrival.home != self.broker.id else []
        return list(dict.fromkeys((*home, *super().places_before(arrival, client))))

    def introduce(self, message: Arrival, client: NodeId, now: Time) -> None:
        """Who routes for moving subscriptions is known when the home broker is asked, or not."""
        is_visitor = message.home not in {"", self.broker.id}
        super().introduce(
            msgspec.structs.replace(message, others=()) if is_visitor else message, client, now
        )

    def _register(self, client: NodeId, guest: Guest, arrival: Arrival, now: Time) -> None:
        """Have a visitor's events sent here; what it did not confirm comes first."""
        self.broker.state(facts.HandoverStarted(at=self.broker.id, time=now, client=client))
        self.come_first(guest, self.take(client, now))
        guest.transfer = Transfer(arrival, [guest.home, *super().places_before(arrival, client)])
        self.ask_next(client, guest, guest.transfer, now)

    def begin_asking(self, client: NodeId, guest: Guest, transfer: Transfer, now: Time) -> None:
        """At home, ask for the events; elsewhere, for everything, as in the standard algorithm.

        What the client may publish is known here before that, so that subscriptions have come back
        from all brokers on the way when the answer comes.
        """
        arrival = transfer.arrival
        if guest.previous == (guest.home or arrival.home):
            self.broker.router.introduced((), arrival.advertisements, client, now)
            guest.home = guest.previous
            self._take_others(arrival, client, now)
            stay, received = arrival.stay, arrival.received
            self.ask(client, guest, Registration, now, stay=stay, received=received)
        else:
            guest.home = ""
            self._take_others(arrival, client, now)
            super().begin_asking(client, guest, transfer, now)

    def _take_others(self, arrival: Arrival, client: NodeId, now: Time) -> None:
        for other in arrival.others:
            self.broker.message_arrived(other, client, now)

    def on_registered(self, message: Registered, _link: LinkId, now: Time) -> None:
        """The home broker sends a visitor its events from now on."""
        client, guest = message.client, self.guests.get(message.client)
        is_visitor = guest is not None and guest.home == message.sender
        if guest is not None and is_visitor and message.is_here and guest.awaits != message.number:
            # It was registered again since: what was sent for the registration before comes first.
            guest.missed.add(message.missed)
            self.come_first(guest, message.events)
            return
        waiting = (
            guest is not None and guest.transfer is not None and guest.awaits == message.number
        )
        if guest is not None and waiting and message.sender in message.elsewhere:
            # It is no home any more, but has everything.
            self._fetch_from_home(client, guest, message.sender, now)
            return
        guest = self.answered(message, Registration, now)
        if guest is not None:
            if guest.has_changed or guest.known != message.known:
                guest.is_unaware = True  # It announces what its home has forgotten.
            since = guest.names if guest.has_changed else ()
            guest.names = dict.fromkeys((*message.names, *since))
            guest.known, guest.has_changed = message.known, False
            self.receive(client, guest, belongings_in(message), now)

    def on_home_events(self, message: HomeEvents, _link: LinkId, now: Time) -> None:
        """Events for a visitor have come from its home broker."""
        guest = self.guests.get(message.client)
        if guest is None or not (guest.home or guest.waits):
            return
        if guest.is_served:
            guest.sent += len(message.events)
            self.broker.send(message.client, Events(events=message.events), now)
        elif guest.waits:
            super().on_home_events(message, _link, now)
        else:
            self.keep_for(message.client, message.events, now)

    def link_down(self, link: LinkId, now: Time) -> None:
        super().link_down(link, now)
        guest = self.guests.get(link)
        if guest is not None and not guest.waits:
            self._suspend(link, guest, now)

    def _suspend(self, client: NodeId, guest: Guest, now: Time) -> None:
        """Have a visitor's events stay at its home until it is connected again."""
        if guest.home and guest.presence is Presence.AWAY:
            suspended = Suspended(
                to=guest.home, sender=self.broker.id, client=client, visit=guest.visit
            )
            self.broker.post.send(suspended, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        """A visitor whose connection is back needs no arrival, but has to be registered again."""
        guest = self.guests.get(link)
        is_away = guest is not None and guest.presence is Presence.AWAY
        if guest is not None and is_away and guest.home and guest.transfer is None:
            self._register_again(link, guest, now)
        super().link_up(link, now)

    def _register_again(self, client: NodeId, guest: Guest, now: Time) -> None:
        """Register a visitor that has not gone anywhere."""
        self._register(client, guest, self._arrival_of(client, guest, home=guest.home), now)

    def _arrival_of(
        self, client: NodeId, guest: Guest, *, home: NodeId = "", before: tuple[NodeId, ...] = ()
    ) -> Arrival:
        """What a visitor would send if it arrived now."""
        moving, terms = self.broker.part("moving"), self.terms_of(client)
        routes = moving.announced_by(client) if isinstance(moving, Moving) else {}
        others: list[Message] = []
        if routes:
            others.append(MovingChange(added=tuple(routes.values()), anew=True))
        if terms:
            others.append(TermsChange(added=tuple(terms.items()), anew=True))
        return Arrival(
            visit=guest.visit,
            born=guest.born,
            stay=guest.visit,
            received=0,
            brings=False,
            home=home,
            before=before,
            advertisements=self.broker.router.announced_by(client)[1],
            others=tuple(others),
        )

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """A neighbour has lost its memory, or has an old one: it is the home of some, maybe."""
        super().link_reset(link, unconfirmed, now)
        if self.broker.peers[link] is Peer.BROKER:
            self.on_memory_lost(MemoryLost(broker=link), link, now)

    def on_memory_lost(self, message: MemoryLost, link: LinkId, now: Time) -> None:
        """Register visitors again whose home is where memory was lost, or behind that.

        Who is not known there any more has a new home, here.
        """
        self.announce(message, link, now)
        for client, guest in list(self.guests.items()):
            is_visitor = bool(guest.home) and guest.is_served
            if is_visitor and self.broker.post.members.way_to(guest.home) in {None, link}:
                self._register_again(client, guest, now)

    def on_subscriptions_asked(self, message: SubscriptionsAsked, link: LinkId, now: Time) -> None:
        """A visitor's subscriptions are not here."""
        guest = self.guests.get(message.client)
        if guest is not None and guest.home and guest.visit <= message.visit:
            self.broker.post.send(message.nothing(published=guest.published), now)
        else:
            super().on_subscriptions_asked(message, link, now)

    def on_unsubscribe_asked(self, message: UnsubscribeAsked, link: LinkId, now: Time) -> None:
        """A client is elsewhere: a visitor is released, whatever it waits for from its home."""
        client, guest = message.client, self.guests.get(message.client)
        visiting = self.visiting.get(client)
        if guest is not None and guest.home and guest.visit <= message.visit:
            guest.transfer = guest.awaits = None
        if guest is not None and visiting is not None and guest.visit < message.visit:
            # A broker with another strategy asks: first, what the client did not get elsewhere.
            if guest.transfer is None:
                arrival = Arrival(
                    visit=message.visit,
                    born=guest.born,
                    stay=message.stay,
                    received=message.received,
                )
                guest.visit = message.visit
                self._release(client, guest, arrival, visiting, now, message)
            else:
                guest.transfer.defer(message)
            return
        super().on_unsubscribe_asked(message, link, now)

    def on_home_ended(self, message: HomeEnded, _link: LinkId, now: Time) -> None:
        """A visitor has its home here from now on."""
        guest = self.guests.get(message.client)
        if guest is not None and guest.home == message.sender and guest.transfer is None:
            self._fetch_from_home(message.client, guest, guest.home, now)

    def _fetch_from_home(self, client: NodeId, guest: Guest, home: NodeId, now: Time) -> None:
        """Have a visitor's home here, with all that its home has for it."""
        transfer = guest.transfer
        if transfer is None:
            self.come_first(guest, self.take(client, now))
            arrival = self._arrival_of(client, guest, before=(home,))
        else:
            before = tuple(dict.fromkeys((home, *transfer.arrival.places)))
            arrival = msgspec.structs.replace(transfer.arrival, home="", before=before)
        guest.home, guest.brings, guest.is_unaware = "", False, True
        self.fetch(client, guest, arrival, now)

    # ---- What a visitor subscribes to is for its home broker

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        guest = self.guests.get(link)
        if guest is None or not guest.home:
            super().subscriptions_changed(change, link, now)
            return
        self.broker.router.drop([route.id for route in change.added], link)
        guest.names |= dict.fromkeys(route.id for route in change.added)
        for id_ in change.removed:
            guest.names.pop(id_, None)
        self._tell_home(link, guest, now, added=change.added, removed=change.removed)

    def advertisements_changed(self, link: LinkId, now: Time) -> None:
        guest = self.guests.get(link)
        if guest is not None and guest.home:
            _, advertisements = self.broker.router.announced_by(link)
            self._tell_home(link, guest, now, advertisements=advertisements)

    def on_introduction(self, message: Introduction, link: LinkId, now: Time) -> None:
        guest = self.guests.get(link)
        if guest is None or not guest.home:
            super().on_introduction(message, link, now)
            return
        subscriptions, advertisements = message.subscriptions, message.advertisements
        self.broker.router.introduced((), advertisements, link, now)
        guest.names = dict.fromkeys(route.id for route in subscriptions)
        self._tell_home(
            link, guest, now, added=subscriptions, advertisements=advertisements, replaces=True
        )

    def claimed(self, link: LinkId) -> Sequence[tuple[str, Collection[RouteId]]]:
        """A visitor's subscriptions are not here, but count as if they were."""
        guest = self.guests.get(link)
        return [("subscription", guest.names.keys())] if guest is not None and guest.home else ()

    def is_kept_elsewhere(self, link: LinkId) -> bool:
        guest = self.guests.get(link)
        return guest is not None and bool(guest.home)

    def goes_elsewhere(self, message: Message, link: LinkId, now: Time) -> bool:
        """The home broker routes for a visitor as it moves, and confirms its subscriptions.

        Events that came to the visitor directly would overtake others of the same publisher.
        """
        guest, visiting = self.guests.get(link), self.visiting.get(link)
        if isinstance(message, Confirmation) and visiting is not None:
            found = ConfirmationFound(
                to=visiting.broker,
                sender=self.broker.id,
                client=link,
                number=message.number,
                but_not=message.but_not,
            )
            self.broker.post.send(found, now)
        elif guest is None or not guest.home:
            return False
        elif isinstance(message, MovingChange):
            self._tell_home(link, guest, now, moving=message.added)
        elif isinstance(message, TermsChange):
            self._send_home(link, guest, now, terms=message.added)
        elif isinstance(message, ConfirmationAsked):
            sought = ConfirmationSought(
                to=guest.home,
                sender=self.broker.id,
                client=link,
                visit=guest.visit,
                subscription=message.subscription,
                number=message.number,
            )
            self.broker.post.send(sought, now)
        elif isinstance(message, PastAsked):
            past_sought = PastSought(
                to=guest.home,
                sender=self.broker.id,
                client=link,
                visit=guest.visit,
                route=message.route,
                number=message.number,
                events_max=message.events_max,
                since_us=message.since_us,
                is_here=message.is_here,
            )
            self.broker.post.send(past_sought, now)
        return True

    def on_past_brought(self, message: PastBrought, _link: LinkId, now: Time) -> None:
        """What a visitor's subscription begins with."""
        guest, searches = self.guests.get(message.client), self._searches
        if guest is not None and guest.home == message.sender and searches is not None:
            searches.brought(message.number, message.client, message.events, now, more=message.more)

    def on_confirmation_found(self, message: ConfirmationFound, _link: LinkId, now: Time) -> None:
        """Every broker that matters knows a subscription of a visitor."""
        guest = self.guests.get(message.client)
        if guest is not None and guest.home == message.sender and guest.is_here:
            answer = Confirmation(number=message.number, but_not=message.but_not)
            self.broker.send(message.client, answer, now)

    def _tell_home(self, client: NodeId, guest: Guest, now: Time, **changed: object) -> None:
        guest.has_changed = True
        self._send_home(client, guest, now, **changed)

    def _send_home(self, client: NodeId, guest: Guest, now: Time, **changed: object) -> None:
        change = HomeChange(
            to=guest.home,
            sender=self.broker.id,
            client=client,
            visit=guest.visit,
            **changed,  # type: ignore[arg-type]
        )
        self.broker.post.send(change, now)

    # ---- At home

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Send a client's events to where it is, by unicast."""
        visiting = self.visiting.get(link)
        if (
            visiting is None
            or not visiting.is_connected
            or self.guests[link].waits
            or self.broker.post.members.way_to(visiting.broker) is None
        ):
            return super().events_leaving(events, link, now)
        sent = HomeEvents(
            to=visiting.broker, sender=self.broker.id, client=link, events=tuple(events)
        )
        self.broker.post.send(sent, now)
        return ()

    def on_registration(self, message: Registration, _link: LinkId, now: Time) -> None:
        """A client that has its home here is elsewhere."""
        client, guest = message.client, self.guests.get(message.client)
        if guest is None or guest.home:
            self.left[client] = max(message.visit, self.left.get(client, 0))
            published = self.trails.last_published(client)
            self.broker.post.send(message.nothing(published=published), now)
        elif guest.visit > message.visit:
            self.broker.post.send(message.nothing(later=guest.visit), now)
        else:
            guest.visit = message.visit
            visiting = self.visiting.get(client)
            arrival = Arrival(
                visit=message.visit,
                born=guest.born,
                stay=message.stay,
                received=message.received,
            )
            if guest.transfer is not None:
                guest.transfer.defer(message)
                guest.transfer.arrival = arrival
            elif visiting is not None and visiting.is_answered(message):
                # It was asked twice, or by a broker that does not remember the answer.
                again = message.answered(**self._subscribed_for(client), published=guest.published)
                self.broker.post.send(again, now)
            elif visiting is not None and visiting.broker != message.sender:
                self._release(client, guest, arrival, visiting, now, message)
            else:
                self._send_to(message, guest, now)

    def _release(
        self, client: NodeId, guest: Guest, arrival: Arrival, visiting: Visiting, now: Time,
        *waiting: Question,
    ) -> None:  # fmt: skip
        """Have the broker where a client was send back what the client did not get there."""
        guest.transfer = Transfer(arrival, [visiting.broker], deferred=list(waiting))
        guest.brings = True  # Its subscriptions are here.
        self.ask_next(client, guest, guest.transfer, now)
        guest.brings = False

    def fetch(self, client: NodeId, guest: Guest, arrival: Arrival, now: Time) -> None:
        visiting, transfer = self.visiting.get(client), guest.transfer
        if visiting is None or transfer is None:
            super().fetch(client, guest, arrival, now)
        elif any((q.sender, q.visit) == (visiting.broker, guest.visit) for q in transfer.deferred):
            guest.transfer = guest.awaits = None  # It is there again: nobody has to release it.
            self.answer_deferred(transfer, now)
        else:
            self._release(client, guest, arrival, visiting, now, *transfer.deferred)

    def _send_to(self, asked: Registration, guest: Guest, now: Time) -> None:
        """Send a client's events to where it is, from now on."""
        client = asked.client
        found = cast("Belongings", self.hand_over(client, asked, asked.stay, asked.received, now))
        registered = asked.answered(**msgspec.structs.asdict(found), **self._subscribed_for(client))
        guest.lost, guest.missed, guest.moving = [], Missed(), {}
        self.visiting[client] = Visiting(asked.sender, asked.visit, asked.number)
        if client in self.broker.peers:
            if self.broker.is_connected(client):
                self.broker.act(Disconnect(client))
            self.broker.disown(client, now)
        guest.presence, guest.away_since = Presence.FORGETFUL, None  # It would introduce itself.
        self.broker.post.send(registered, now)

    def _subscribed_for(self, client: NodeId) -> dict[str, Any]:
        """What the broker where a client is has to know of its subscriptions."""
        router = self.broker.router
        names = tuple(router.subscriptions.routes(client))
        return {"known": router.digest_of(client), "names": names}

    def on_suspended(self, message: Suspended, _link: LinkId, now: Time) -> None:
        """A client is not connected where it was: its events stay here until it is."""
        client, guest = message.client, self.guests.get(message.client)
        visiting = self.visiting.get(client)
        if guest is None or visiting is None or visiting.broker != message.sender:
            return
        if visiting.visit == message.visit:
            self.visiting[client] = msgspec.structs.replace(visiting, is_connected=False)
            if not guest.is_here:  # Else it has come home since, and is not away at all.
                guest.away_since = now
                self.look_for(guest, now)

    def on_home_change(self, message: HomeChange, _link: LinkId, now: Time) -> None:
        """A client has changed its subscriptions or advertisements elsewhere."""
        client, guest = message.client, self.guests.get(message.client)
        if guest is None or guest.home or message.visit < guest.visit:
            return
        if message.terms is not None:
            if self.agreements is not None:
                self.agreements.replace(client, message.terms, now)
            return
        if message.moving is not None:
            # Nobody knows how soon a move is known here, so the client may be anywhere.
            moving = [msgspec.structs.replace(each, places=OTHER_PLACES) for each in message.moving]
            change = MovingChange(added=tuple(moving), anew=True)
            self.broker.message_arrived(change, client, now)
            return
        subscriptions, advertisements = self.broker.router.announced_by(client)
        if message.advertisements is not None:
            advertisements = message.advertisements
        kept = {} if message.replaces else {route.id: route for route in subscriptions}
        kept |= {route.id: route for route in message.added}
        for id_ in message.removed:
            kept.pop(id_, None)
        most = self.guests.options.filters_max
        is_more = len(kept) > len(subscriptions)
        if most is not None and is_more and len(kept) + len(advertisements) > most:
            # It was announced before it was known there how many there are. The client is going to
            # learn what is known here, to introduce itself once more, and to be refused.
            return
        self.enter(client, tuple(kept.values()), advertisements, now)

    def on_confirmation_sought(self, message: ConfirmationSought, _link: LinkId, now: Time) -> None:
        """A client asks elsewhere who knows a subscription."""
        guest = self.guests.get(message.client)
        if guest is not None and not guest.home and message.visit >= guest.visit:
            asked = ConfirmationAsked(subscription=message.subscription, number=message.number)
            self.broker.message_arrived(asked, message.client, now)

    def on_past_sought(self, message: PastSought, _link: LinkId, now: Time) -> None:
        """A client begins a subscription elsewhere, and this broker has announced it."""
        client, searches = message.client, self._searches
        guest = self.guests.get(client)
        sought = Sought(message.sender, client, message.number)
        is_known = guest is not None and not guest.home and message.visit >= guest.visit
        if not is_known or searches is None or not message.route.filter.is_bound:
            self._bring(sought, (), now)
            return
        expected = self._expected(message)
        if expected is not None:
            self._bring(sought, expected, now)
            return
        asked = HistoryAsked(
            path=(),
            number=0,
            filter=message.route.filter,
            events_max=message.events_max,
            since_us=message.since_us,
            search=searches.options.search,
        )
        number = searches.begin_search(asked, client, message.route.id, now, self.name)
        self.sought[number] = sought
        found = searches.result(number)
        if found is not None:
            self.searched(number, found, now)

    def _expected(self, sought: PastSought) -> list[Event] | None:
        """What was kept for a client that was expected at a place; None if that is not all."""
        part = self.broker.part("presubscribing") if sought.is_here else None
        if part is None:
            return None
        asked = PastAsked(
            route=sought.route, events_max=sought.events_max, since_us=sought.since_us
        )
        return cast("Presubscribing", part).answer(asked, sought.client)

    def searched(self, number: int, found: Found, now: Time) -> None:
        """A search for a client that is elsewhere has ended."""
        sought = self.sought.pop(number, None)
        if sought is not None:
            self._bring(sought, found.events, now)

    def _bring(self, sought: Sought, events: Sequence[Event], now: Time) -> None:
        *parts, last = list(batches(events)) or [()]
        for part, more in (*((part, True) for part in parts), (last, False)):
            brought = PastBrought(
                to=sought.broker,
                sender=self.broker.id,
                client=sought.client,
                number=sought.number,
                events=part,
                more=more,
            )
            self.broker.post.send(brought, now)

    @property
    def _searches(self) -> "Searches | None":
        return cast("Searches | None", self.broker.part(SEARCH))

    # ---- Both

    def nothing_found(self, client: NodeId, guest: Guest) -> Belongings:
        """A client at home has lost nothing if another broker has nothing for it."""
        found = super().nothing_found(client, guest)
        if client in self.visiting:
            return msgspec.structs.replace(found, forgotten=False)
        return found

    def moved_on(self, client: NodeId, guest: Guest, visit: int, now: Time) -> None:
        transfer, is_visitor = guest.transfer, bool(guest.home and guest.known)
        if transfer is not None and (is_visitor or client in self.visiting):
            # At home: it is at the same place again, and is going to be registered there. As a
            # visitor that was registered before: its home broker has it released.
            guest.transfer = guest.awaits = None
            guest.visit = guest.visit if is_visitor else visit
            self.answer_deferred(transfer, now)
        else:
            super().moved_on(client, guest, visit, now)

    def receive(self, client: NodeId, guest: Guest, brought: Belongings, now: Time) -> None:
        self.visiting.pop(client, None)
        if brought.forgotten and guest.home and guest.transfer is not None:
            guest.home, guest.is_unaware = "", True  # It has a new home here.
            self._take_others(guest.transfer.arrival, client, now)
        super().receive(client, guest, brought, now)
        if self.guests.get(client) is guest:
            self._suspend(client, guest, now)

    def finished(self, client: NodeId, guest: Guest, replayed: int, held: int, now: Time) -> None:
        """A client that goes from one place to another is handed over there, not at home."""
        if guest.home or guest.presence is not Presence.FORGETFUL:
            super().finished(client, guest, replayed, held, now)

    def known_of(self, client: NodeId, guest: Guest) -> int:
        return guest.known if guest.home else super().known_of(client, guest)

    def home_of(self, guest: Guest) -> NodeId:
        return guest.home or self.broker.id

    def bear(self, client: NodeId, guest: Guest, now: Time) -> bool:
        guest.home = ""
        self.visiting.pop(client, None)
        return super().bear(client, guest, now)

    def forget(self, client: NodeId, now: Time, *, taken_over: bool = False) -> None:
        if self.visiting.pop(client, None) is not None:
            self.broker.end_conversations(client, now)
        super().forget(client, now, taken_over=taken_over)

    def learned(self, client: NodeId, now: Time) -> None:
        """A client that has left elsewhere is forgotten at home, and the other way around."""
        super().learned(client, now)
        guest = self.guests.get(client)
        if guest is not None and 0 < guest.visit <= self.trails.last_departure(client):
            self.forget(client, now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        super().link_gone(link, unconfirmed, now)
        self.visiting.pop(link, None)

    def end(self, now: Time) -> bool:
        """Visitors have their home where they are from now on: another protocol goes on there.

        At home, events are sent to where a client is until that has taken place.
        """
        for client, guest in list(self.guests.items()):
            if guest.home and guest.transfer is None:
                self._fetch_from_home(client, guest, guest.home, now)
        for client, visiting in self.visiting.items():
            if client not in self._told:
                self._told[client] = None
                ended = HomeEnded(
                    to=visiting.broker, sender=self.broker.id, client=client, visit=visiting.visit
                )
                self.broker.post.send(ended, now)
        return super().end(now) and not self.visiting

    def resume(self, now: Time) -> None:
        super().resume(now)
        self._told.clear()

    def may_go(self, client: NodeId) -> bool:
        """Events go to where a client is until it has its home there."""
        return super().may_go(client) and client not in self.visiting

    def taken_over(self) -> None:
        super().taken_over()
        self.visiting.clear()

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptHome:
        kept = msgspec.structs.asdict(super().keep(writer))
        return KeptHome(**kept, visiting=dict(self.visiting), sought=tuple(self.sought.items()))

    def restore(self, kept: KeptStandard, reader: Reader) -> None:
        super().restore(kept, reader)
        self.visiting = dict(cast("KeptHome", kept).visiting)
        self.sought = dict(cast("KeptHome", kept).sought)


HOME = Protocol(
    name="home",
    kind=Kind.HANDOVER,
    broker=Home,
    client=Roaming,
    needs=("overlay", "post"),
)
