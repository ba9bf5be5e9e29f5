"""The standard algorithm for disconnected operation: Burcea et al., section 3.1 (movein, moveout).

While a client is disconnected, its old broker stores its events. When it reconnects elsewhere:

1. The client notifies the new broker where it was before (`Arrival.before`).
2. The new broker retrieves the client's subscriptions from there.
3. It subscribes, and then sends the old broker a request to unsubscribe (REQUNSUB).
4. It stores new events for the client.
5. The old broker sends the events that it has stored, and forgets the client.
6. The new broker replays those, and then the new ones; what is in both, once.

A client that brings its subscriptions (3.2.4) saves step 2.

**Why nothing is lost.** The overlay is a tree, so the request of step 3 follows the subscriptions
on the same way, link by link. An event that passes a broker on the way before the request goes to
the old broker, and is there before it; one that passes after it goes to the new broker.

**Who has what.** What is kept for a client is at one broker, or on its way to the next. A client
may move on before that has arrived, or before a broker has noticed it at all. So it names all
brokers where it has been since it was last welcomed, the latest first, and the new broker asks one
after the other. One that waits for a part of it itself promises it. One that has been asked on a
later visit takes no notice of an earlier one.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import msgspec

from sterna.core import facts
from sterna.core.actions import Disconnect
from sterna.core.handover.fetching import Fetching, is_of_another, is_over
from sterna.core.handover.guests import Guest, KeptGuest
from sterna.core.handover.hosting import Hosting
from sterna.core.handover.messages import Arrival
from sterna.core.handover.options import HandoverOptions
from sterna.core.handover.promises import Belongings, KeptPromise, Key, Promise
from sterna.core.handover.roaming import NEWS_US, Roaming
from sterna.core.handover.trails import KeptTrails
from sterna.core.handover.transfer_messages import (
    Answer,
    EventsFound,
    HomeEvents,
    IdsAsked,
    Question,
    Registration,
    SubscriptionsAsked,
    SubscriptionsFound,
    UnsubscribeAsked,
)
from sterna.core.handover.transfer_options import TransferOptions, transfer_options
from sterna.core.handover.transfers import Transfer
from sterna.core.keeping import Reader, Writer
from sterna.core.lives import Earlier
from sterna.core.messages import Message
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.protocol import Kind, Protocol
from sterna.core.settings import Settings
from sterna.model.event import Event


class KeptStandard(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of the brokers' part."""

    guests: list[KeptGuest]
    trails: KeptTrails
    promises: list[KeptPromise]
    returning: dict[NodeId, tuple[int, Time]]
    held: dict[LinkId, list[int]]
    left: dict[NodeId, int]
    number: int


class Standard(Fetching):
    """The brokers' part in the standard algorithm."""

    name = "standard"
    handles: ClassVar[tuple[type[Message], ...]] = (
        *Fetching.handles,
        *(Arrival, SubscriptionsAsked, SubscriptionsFound, UnsubscribeAsked, EventsFound),
        *(IdsAsked, Registration, HomeEvents),
    )
    sends_ids: ClassVar[bool] = False
    """Whether the identities of events follow a client's subscriptions."""
    Kept: ClassVar[Any] = KeptStandard

    @classmethod
    def make(cls, settings: Settings) -> Self:
        made = cls(settings.handover)
        made.options = transfer_options(settings)
        return made

    def __init__(self, handover: HandoverOptions | None = None) -> None:
        super().__init__(handover)
        self.options = TransferOptions()
        self.left: dict[NodeId, int] = {}
        """The last visit of clients that were asked for: they are elsewhere, or back since."""

    def configure(self, settings: Settings, now: Time) -> None:
        super().configure(settings, now)
        self.options = transfer_options(settings)

    def take_over(self, other: Hosting, now: Time) -> None:
        """Go on for another strategy that ends, also with what it has not finished."""
        if not isinstance(other, Standard):
            super().take_over(other, now)
            return
        self._number = max(self._number, other._number)
        self.trails.restore(other.trails.keep())
        self.left |= other.left
        self.promises.update(other.promises)
        self.returning.update(other.returning)
        self.guests.update(other.guests)
        other.taken_over()
        for client, guest in list(self.guests.items()):
            if not guest.is_here and guest.away_since is None:
                guest.away_since = now  # Whoever was a visitor elsewhere fetches this, or never.
                self.look_for(guest, now)
            transfer = guest.transfer
            if transfer is not None and (guest.home or not transfer.awaits_events):
                guest.home = ""
                self.fetch(client, guest, transfer.arrival, now)
        self.guests.configure(self.guests.options, now)
        self.wake_by(now)  # The other one's deadline has ended with it.

    def taken_over(self) -> None:
        """Another strategy has everything that this one had."""
        for taken in (self.promises, self.returning, self.guests):
            taken.clear()

    # ---- Step 1: a client reconnects, and notifies the new broker where it was before

    def on_arrival(self, message: Arrival, link: LinkId, now: Time) -> None:
        """A client has arrived at this broker."""
        client, guest = link, self.guests.get(link)
        self.returning.pop(client, None)
        if message.visit < self.left.get(client, 0):  # It has been seen elsewhere since.
            self._send_away(client, now)
        elif not message.born:
            self.receive_new(client, message, now)
        elif guest is None or not self.is_at_home(guest, message):
            published = 0 if guest is None else guest.published
            guest = self.guests.admit(client, message.visit, message.born)
            guest.numbered, guest.published = message.numbered, published
            guest.brings = message.brings
            self.introduce(message, client, now)
            self.broker.state(facts.HandoverStarted(at=self.broker.id, time=now, client=client))
            self.fetch(client, guest, message, now)
        else:
            if guest.transfer is not None:
                guest.transfer.arrival = message
            self.receive_back(client, guest, message, now)

    def is_at_home(self, guest: Guest, arrival: Arrival) -> bool:
        """Whether what a client has left behind is here, or on its way here."""
        if not guest.visit:  # It was a guest before this protocol was in force.
            return self.broker.id in arrival.places
        if guest.transfer is not None:
            return arrival.stay <= guest.transfer.arrival.stay
        return guest.born >= arrival.born and not is_of_another(guest, arrival)

    def _send_away(self, client: NodeId, now: Time) -> None:
        if client in self.guests:
            self.forget(client, now)
        else:
            self.broker.act(Disconnect(client))
            self.broker.forget(client, now)

    def fetch(self, client: NodeId, guest: Guest, arrival: Arrival, now: Time) -> None:
        """Ask for what a client has left behind, where it was before.

        Whose name has had another life since has nothing left.
        """
        last = self.trails.last_life(client)
        places = [] if is_over(arrival, last, last) else self.places_before(arrival, client)
        guest.transfer = Transfer(arrival, places)
        self.ask_next(client, guest, guest.transfer, now)

    def places_before(self, arrival: Arrival, client: NodeId) -> list[NodeId]:
        """The brokers to ask, in this order."""
        del client
        return [broker for broker in arrival.sources if broker != self.broker.id]

    def ask_next(self, client: NodeId, guest: Guest, transfer: Transfer, now: Time) -> None:
        """Ask the next broker; if there is none, nothing was kept."""
        if not transfer.to_ask:
            self.receive(client, guest, self.nothing_found(client, guest), now)
            return
        self._number += 1
        guest.awaits, guest.previous = self._number, transfer.to_ask.pop(0)
        transfer.asked[guest.previous] = None
        transfer.logged = []
        self.begin_asking(client, guest, transfer, now)

    def begin_asking(self, client: NodeId, guest: Guest, transfer: Transfer, now: Time) -> None:
        """Ask a broker first what has to be known before its events."""
        del transfer
        if guest.brings:
            self.subscribed(client, guest, now)
        else:
            self.ask(client, guest, SubscriptionsAsked, now)

    def nothing_found(self, client: NodeId, guest: Guest) -> Belongings:
        """What a guest gets if nobody has anything for it."""
        published = 0 if guest.transfer is None else guest.transfer.published
        published = max(published, self.trails.last_published(client))
        return Belongings(published=published, forgotten=True)

    def ask(
        self, client: NodeId, guest: Guest, kind: type[Question], now: Time, **more: Any
    ) -> None:
        """Ask the old broker something about a client."""
        transfer = cast("Transfer", guest.transfer)
        transfer.question = kind(
            to=guest.previous,
            sender=self.broker.id,
            client=client,
            number=guest.awaits or 0,
            visit=guest.visit,
            **more,
        )
        transfer.since = now
        self.look_again_by(now + NEWS_US, NEWS_US, now)
        self.broker.post.send(transfer.question, now)

    # ---- Step 2: the new broker retrieves the subscriptions

    def on_subscriptions_asked(self, message: SubscriptionsAsked, _link: LinkId, now: Time) -> None:
        """A client of this broker is elsewhere: send its subscriptions there."""
        if self.is_asked_for(message, now):
            subscriptions, advertisements = self.broker.router.announced_by(message.client)
            found = message.answered(
                subscriptions=subscriptions,
                advertisements=advertisements,
                ids_follow=self.sends_ids,
            )
            self.broker.post.send(found, now)

    def on_ids_asked(self, message: IdsAsked, _link: LinkId, now: Time) -> None:
        """A broker with another strategy would spare this one some events: it sends all."""
        if self.is_asked_for(message, now):
            self.broker.post.send(message.answered(), now)

    def on_registration(self, message: Registration, _link: LinkId, now: Time) -> None:
        """A broker with another strategy believes that a client has its home here.

        What the client has left here is here for the asking, as for any other broker.
        """
        if message.client in self.guests or self.is_with_another(message.client):
            self.broker.post.send(message.nothing(elsewhere=(self.broker.id,)), now)
        else:
            self._send_nothing(message, now)

    def has(self, question: Question) -> bool:
        """Whether this broker has what is asked for, now."""
        guest = self.guests.get(question.client)
        return (
            guest is not None
            and guest.visit <= question.visit
            and (guest.transfer is None or guest.transfer.awaits_events)
            and not self._is_promised(question)
        )

    def is_asked_for(self, question: Question, now: Time) -> bool:
        """Whether this broker has what is asked for; if not, it answers that, or will answer."""
        client, guest = question.client, self.guests.get(question.client)
        if self._is_promised(question) or self.is_with_another(client):
            return False  # It is answered later: who asks repeats that until then.
        if guest is None:
            self.left[client] = max(question.visit, self.left.get(client, 0))
            self._send_nothing(question, now)
            return False
        if guest.visit > question.visit:
            self.broker.post.send(question.nothing(later=guest.visit), now)
            return False
        if guest.transfer is not None and not guest.transfer.awaits_events:
            guest.transfer.defer(question)
            return False
        return True

    def _send_nothing(self, question: Question, now: Time, later: int = 0) -> None:
        """Answer that nothing is here, and who may have it."""
        client = question.client
        nothing = question.nothing(
            later=later,
            elsewhere=self.elsewhere(client),
            published=self.trails.last_published(client),
        )
        self.broker.post.send(nothing, now)

    def elsewhere(self, client: NodeId) -> tuple[NodeId, ...]:
        """The brokers that have what a client left behind here."""
        del client
        return ()

    def _is_promised(self, question: Question) -> bool:
        """Whether the answer is on its way: the question was asked twice."""
        return any(promise.request == question for _, promise in self.promises.of(question.client))

    # ---- Step 3: it subscribes, and asks the old broker to unsubscribe

    def on_subscriptions_found(self, message: SubscriptionsFound, _link: LinkId, now: Time) -> None:
        """The subscriptions of a new guest have come."""
        guest = self.answered(message, SubscriptionsAsked, now)
        if guest is not None:
            client = message.client
            self.enter(client, message.subscriptions, message.advertisements, now)
            self.subscribed(client, guest, now, ids_follow=message.ids_follow)

    def subscribed(
        self, client: NodeId, guest: Guest, now: Time, *, ids_follow: bool = False
    ) -> None:
        """Go on when this broker has subscribed for a guest."""
        del ids_follow
        self.ask_for_events(client, guest, now)

    def ask_for_events(self, client: NodeId, guest: Guest, now: Time) -> None:
        """Ask the old broker to unsubscribe, and to send the events but those in the log."""
        transfer = cast("Transfer", guest.transfer)
        self.ask(
            *(client, guest, UnsubscribeAsked, now),
            stay=transfer.arrival.stay,
            received=transfer.arrival.received,
            logged=tuple(event.id for event in transfer.logged),
            prefetch=transfer.prefetch,
        )
        self.answer_deferred(transfer, now)

    def answer_deferred(self, transfer: Transfer, now: Time) -> None:
        """Answer what others have asked while this broker knew nothing itself."""
        questions, transfer.deferred = transfer.deferred, []
        for question in questions:
            self.broker.message_arrived(question, self.broker.id, now)

    def answered(
        self, answer: Answer, to: type[Question] | tuple[type[Question], ...], now: Time
    ) -> Guest | None:
        """The guest that an answer is for, if the old broker has what was asked for."""
        client, guest = answer.client, self.guests.get(answer.client)
        if guest is None or guest.transfer is None or guest.awaits != answer.number:
            return None
        transfer = guest.transfer
        if not isinstance(transfer.question, to):
            return None  # It was asked twice.
        if answer.is_here:
            return guest
        if answer.later > guest.visit:
            self.moved_on(client, guest, answer.later, now)
        elif answer.later:  # It was there, and is back.
            self.fetch(client, guest, transfer.arrival, now)
        else:
            transfer.published = max(answer.published, transfer.published)
            others = [each for each in answer.elsewhere if each not in transfer.asked]
            transfer.to_ask[:0] = self.broker.post.members.nearest(others)
            self.ask_next(client, guest, transfer, now)
        return None

    def moved_on(self, client: NodeId, guest: Guest, visit: int, now: Time) -> None:
        """A guest that waits is elsewhere, on a later visit."""
        del guest
        self.left[client] = max(visit, self.left.get(client, 0))
        self.forget(client, now)

    # ---- Step 4: it stores new events for the client (`Hosting.events_leaving`)

    # ---- Step 5: the old broker sends the events that it has stored

    def on_unsubscribe_asked(self, message: UnsubscribeAsked, _link: LinkId, now: Time) -> None:
        """The new broker has subscribed: send it what was kept, and unsubscribe."""
        client = message.client
        if not self.is_asked_for(message, now):
            return
        guest = self.guests[client]
        found = self.hand_over(client, message, message.stay, message.received, now)
        if found is not None:
            self.send_events_found(message, found, now)
        self.left[client] = message.visit
        # A later visit than this one has asked, if it was welcomed on this one before.
        is_later = guest.stay == guest.visit <= message.stay
        self.forget(client, now, taken_over=is_later and guest.is_here)

    def send_events_found(self, asked: UnsubscribeAsked, found: Belongings, now: Time) -> None:
        """Send a client's belongings to its new broker."""
        if asked.logged:
            found = found.without(set(asked.logged))
        self.broker.post.send(asked.answered(**msgspec.structs.asdict(found)), now)

    # ---- Step 6: the new broker replays both

    def on_events_found(self, message: EventsFound, _link: LinkId, now: Time) -> None:
        """What a guest missed has arrived."""
        client = message.client
        promise = self.promises.pop((client, message.number), None)
        if promise is not None:
            asked = cast("UnsubscribeAsked", promise.request)
            if message.is_here:
                self.send_events_found(asked, promise.kept_with(belongings_in(message)), now)
            else:
                self._send_nothing(asked, now, later=message.later)
            return
        guest = self.answered(message, UnsubscribeAsked, now)
        if guest is not None:
            self.receive(client, guest, belongings_in(message), now)

    def on_home_events(self, message: HomeEvents, _link: LinkId, _now: Time) -> None:
        """A home broker does not know yet that its client is no visitor any more."""
        guest = self.guests.get(message.client)
        if guest is not None and guest.waits:
            self.come_first(guest, message.events)

    def come_first(self, guest: Guest, events: Sequence[Event]) -> None:
        """Have events sent to a guest that waits, before those that it waits for."""
        guest.lost += events
        guest.sent += len(events)

    def receive(self, client: NodeId, guest: Guest, brought: Belongings, now: Time) -> None:
        """Serve a guest what it has waited for."""
        transfer, guest.transfer = cast("Transfer", guest.transfer), None
        if transfer.logged:
            brought = brought.and_logged(transfer.logged)
        self.receive_belongings(client, guest, brought, now)
        self.answer_deferred(transfer, now)

    # ---- Clients that leave, or live again

    def forget(self, client: NodeId, now: Time, *, taken_over: bool = False) -> None:
        transfer = self.guests[client].transfer
        super().forget(client, now, taken_over=taken_over)
        if transfer is not None:
            self.answer_deferred(transfer, now)

    def learned(self, client: NodeId, now: Time) -> None:
        """Nobody waits any more for what a client missed in a life that has ended."""
        last = self.trails.last_life(client)
        for key, promise in self.promises.of(client):
            question = cast("UnsubscribeAsked", promise.request)
            if question.visit < last:
                del self.promises[key]
                self.broker.post.send(question.nothing(later=last), now)
        if self.left.get(client, last + 1) <= last:
            del self.left[client]

    def earlier(self, client: LinkId, now: Time) -> Earlier:
        return super().earlier(client, now).join(Earlier(self.left.get(client, 0)))

    # ---- Time

    def wake(self, now: Time) -> None:
        super().wake(now)
        for client, guest in list(self.guests.items()):
            transfer = guest.transfer
            if transfer is not None:
                if transfer.since + NEWS_US <= now:
                    self._ask_again(client, guest, transfer, now)
                self.look_again_by(transfer.since + NEWS_US, NEWS_US, now)
        for key, promise in list(self.promises.items()):
            if promise.question is not None:
                if promise.since + NEWS_US <= now:
                    self._ask_again_for(key, promise, promise.question, now)
                else:
                    self.look_again_by(promise.since + NEWS_US, NEWS_US, now)

    def _ask_again(self, client: NodeId, guest: Guest, transfer: Transfer, now: Time) -> None:
        """A broker may have lost what it was asked; one that has left the overlay never answers."""
        question = transfer.question
        if question is None or self.broker.post.members.way_to(question.to) is None:
            self.ask_next(client, guest, transfer, now)
        else:
            transfer.since = now
            self.broker.post.send(question, now)

    def _ask_again_for(self, key: Key, promise: Promise, question: Question, now: Time) -> None:
        """The same for what is promised; if nobody is going to answer, nothing is owed any more."""
        if self.broker.post.members.way_to(question.to) is None:
            del self.promises[key]
            self._send_nothing(cast("Question", promise.request), now)
        else:
            self.promises[key] = msgspec.structs.replace(promise, since=now)
            self.look_again_by(now + NEWS_US, NEWS_US, now)
            self.broker.post.send(question, now)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether no client and no broker waits for anything."""
        return not (self.promises or self.returning) and not any(
            guest.waits for guest in self.guests.values()
        )

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptStandard:
        return KeptStandard(
            guests=self.guests.keep_all(writer),
            trails=self.trails.keep(),
            promises=self.promises.keep(writer),
            returning={
                client: (writer.message(arrival), since)
                for client, (arrival, since) in self.returning.items()
            },
            held=self.courier.keep(writer),
            left=dict(self.left),
            number=self._number,
        )

    def restore(self, kept: KeptStandard, reader: Reader) -> None:
        self.guests.restore(kept.guests, reader)
        self.trails.restore(kept.trails)
        self.promises.restore(kept.promises, reader, UnsubscribeAsked)
        for client, (number, since) in kept.returning.items():
            self.returning[client] = reader.message(number, Arrival), since
        self.courier.restore(kept.held, reader)
        self.left, self._number = dict(kept.left), kept.number


STANDARD = Protocol(
    name="standard",
    kind=Kind.HANDOVER,
    broker=Standard,
    client=Roaming,
    needs=("overlay", "post"),
)


def belongings_in(found: EventsFound) -> Belongings:
    """What an answer brings."""
    return Belongings(**{name: getattr(found, name) for name in Belongings.__struct_fields__})
