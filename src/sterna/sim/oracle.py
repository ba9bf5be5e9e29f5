"""The oracle: reads the facts of a run and decides which deliveries were wrong."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sterna.core import facts
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.facts import Fact
from sterna.core.names import NodeId
from sterna.core.terms.messages import Order
from sterna.model.delivery import (
    FOREVER,
    Fault,
    Lifetime,
    faults_of_order,
    is_allowed,
    is_explained,
    is_owed,
    is_settled,
    was_published,
)
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.sim.network import Observer


@dataclass(frozen=True)
class Finding:
    """One wrong delivery."""

    fault: Fault
    event: EventId
    client: NodeId
    path: tuple[str, ...]
    """The hops of the event, as far as brokers stated them."""

    def __str__(self) -> str:
        way = ", ".join(self.path) or "it never left its publisher"
        event = f"{self.event.publisher} #{self.event.seq}"
        return f"{self.fault}: event {event} for {self.client} ({way})"


@dataclass
class Ask:
    """A subscription or an advertisement, and how long it was in force."""

    filter: Filter
    span: Lifetime
    order: str = ""
    """The order of a subscription's events, if it is not the usual one."""


@dataclass(frozen=True)
class ArrivedEvent:
    """An event that reached a client."""

    event: Event
    moment: int
    is_stray: bool
    anywhere: bool = False
    """Whether it was kept for the client, for a place where it was then."""


class Oracle(Observer):
    """Collects the facts of a run and judges them by the rules of `sterna.model.delivery`."""

    def __init__(self, clients: Iterable[NodeId] = (), *, advertisements: bool = False) -> None:
        self._advertisements = advertisements
        self._moment = 0
        """The place in the stream of facts."""
        self._subscribed: dict[NodeId, dict[str, Ask]] = defaultdict(dict)
        self._advertised: dict[NodeId, dict[str, Ask]] = defaultdict(dict)
        self._subscriptions: dict[NodeId, list[Ask]] = defaultdict(list)
        self._following: dict[NodeId, dict[str, Ask]] = defaultdict(dict)
        """Subscriptions that depend on a client: everything that they may mean while they last."""
        self._strays: dict[NodeId, list[Ask]] = defaultdict(list)
        """What a client may receive in vain because of such subscriptions."""
        self._offers: dict[NodeId, list[Ask]] = defaultdict(list)
        self._unsettled: list[tuple[NodeId, Ask]] = []
        self._published: dict[EventId, tuple[Event, int]] = {}
        self._arrived: dict[NodeId, list[ArrivedEvent]] = defaultdict(list)
        self._overtook: dict[NodeId, dict[EventId, int]] = defaultdict(dict)
        """When clients got events that earlier ones of their publishers may follow."""
        self._purged: set[tuple[NodeId, EventId]] = set()
        self._settled: list[int] = []
        self._away = set(clients)
        """Clients that are not connected: no broker knows yet what they announce and publish."""
        self._missed: set[tuple[NodeId, int]] = set()
        """The clients that were away when the network settled."""
        self._forgotten: dict[NodeId, list[int]] = defaultdict(list)
        """When a client was forgotten, with what it had advertised."""
        self._accepted: dict[EventId, int] = {}
        """When events left their publishers, where advertisements count."""
        self._left: dict[NodeId, list[tuple[int, int]]] = defaultdict(list)
        """When a client left for good, and its last event that was at a broker by then."""
        self._hops: dict[EventId, list[str]] = defaultdict(list)
        self.quenched = 0
        """How many events were discarded at their source because nobody wants them."""
        self.missed = 0
        """How many events clients never got, because a cache discarded them."""

    @property
    def published(self) -> int:
        return len(self._published)

    @property
    def delivered(self) -> int:
        return sum(len(self.received(client)) for client in list(self._arrived))

    def received(self, client: NodeId) -> list[EventId]:
        """The events that a client's application was given, in order."""
        return [each.event.id for each in self._arrived[client] if not each.is_stray]

    def owed(self) -> int:
        """How many deliveries had to be made."""
        return sum(len(self._owed(client)) for client in list(self._subscriptions))

    def fact(self, fact: Fact) -> None:
        self._moment += 1
        match fact:
            case facts.Forwarded():
                for link, events in fact.to.items():
                    for event in events:
                        self._hops[event.id].append(f"{fact.at} → {link}")
            case facts.Delivered() | facts.Stray():
                is_stray = isinstance(fact, facts.Stray)
                anywhere = not isinstance(fact, facts.Stray) and fact.anywhere
                self._arrived[fact.at] += [
                    ArrivedEvent(event, self._moment, is_stray, anywhere) for event in fact.events
                ]
            case facts.Published():
                self._published |= {event.id: (event, self._moment) for event in fact.events}
            case facts.Subscribed() if fact.filter.is_bound:
                self._subscribe(fact.at, fact.subscription, fact.filter, fact.order)
            case facts.Subscribed():
                ask = self._ask(fact.at, fact.filter.widen({}).anywhere, fact.order)
                self._following[fact.at][fact.subscription] = ask
                self._strays[fact.at].append(ask)
            case facts.Adapted():
                self._adapt(fact)
            case facts.Unsubscribed():
                self._end(fact.at, self._subscribed[fact.at].pop(fact.subscription))
                if fact.subscription in self._following[fact.at]:
                    self._end(fact.at, self._following[fact.at].pop(fact.subscription))
            case SubscriptionKnown() if not fact.but_not:
                self._known(self._subscribed[fact.at][fact.subscription])
            case facts.Advertised():
                ask = self._ask(fact.at, fact.filter)
                self._advertised[fact.at][fact.advertisement] = ask
                self._offers[fact.at].append(ask)
            case facts.Unadvertised():
                self._end(fact.at, self._advertised[fact.at].pop(fact.advertisement))
            case facts.Accepted() | facts.Quenched():
                self._take_over(fact)
            case facts.Overtook():
                self._overtook[fact.at] |= dict.fromkeys(fact.events, self._moment)
            case facts.Purged():
                self._purged |= {(fact.at, event.id) for event in fact.events}
            case facts.Missed():
                self.missed += len(fact.events)
            case facts.Discarded():
                self._purged |= {(fact.client, event.id) for event in fact.events}
            case facts.ClientForgotten():
                self._forget(fact.client)
            case facts.Left():
                self._left[fact.at].append((self._moment, fact.published))
            case facts.Attached() | facts.Detached():
                self._come_or_go(fact)
            case facts.Settled():
                self._settle()
            case _:
                pass

    def _adapt(self, fact: facts.Adapted) -> None:
        subscribed = self._subscribed[fact.at]
        if fact.subscription in subscribed:
            self._end(fact.at, subscribed.pop(fact.subscription))
        order = self._following[fact.at][fact.subscription].order
        self._subscribe(fact.at, fact.subscription, fact.filter, order)

    def _subscribe(self, client: NodeId, subscription: str, filter_: Filter, order: str) -> None:
        ask = self._ask(client, filter_, order)
        self._subscribed[client][subscription] = ask
        self._subscriptions[client].append(ask)

    def _ask(self, client: NodeId, filter_: Filter, order: str = "") -> Ask:
        ask = Ask(filter_, Lifetime(self._moment), order)
        self._unsettled.append((client, ask))
        return ask

    def _known(self, ask: Ask) -> None:
        """The network claims that all brokers know it: hold it to that at once."""
        if ask.span.settled == FOREVER:
            ask.span = replace(ask.span, settled=self._moment)

    def _end(self, client: NodeId, ask: Ask) -> None:
        ask.span = replace(ask.span, ended=self._moment)
        self._unsettled.append((client, ask))

    def _take_over(self, fact: facts.Accepted | facts.Quenched) -> None:
        if isinstance(fact, facts.Quenched):
            self.quenched += len(fact.events)
        if self._advertisements:
            for event in fact.events:
                self._accepted.setdefault(event.id, self._moment)

    def _forget(self, client: NodeId) -> None:
        """The network has to learn again what a client still wants."""
        self._forgotten[client].append(self._moment)
        for name, ask in list(self._subscribed[client].items()):
            self._end(client, ask)
            self._subscribe(client, name, ask.filter, ask.order)
        for name, ask in list(self._advertised[client].items()):
            self._end(client, ask)
            anew = self._advertised[client][name] = self._ask(client, ask.filter)
            self._offers[client].append(anew)

    def _come_or_go(self, fact: facts.Attached | facts.Detached) -> None:
        if isinstance(fact, facts.Attached):
            self._away.discard(fact.at)
        else:
            self._away.add(fact.at)

    def _settle(self) -> None:
        self._settled.append(self._moment)
        self._missed |= {(client, self._moment) for client in self._away}
        for client, ask in self._unsettled:
            if client in self._away:
                continue
            if ask.span.settled == FOREVER:
                ask.span = replace(ask.span, settled=self._moment)
            if ask.span.ended != FOREVER:
                ask.span = replace(ask.span, forgotten=self._moment)
        self._unsettled = [each for each in self._unsettled if each[0] in self._away]

    # ---- Verdicts

    def findings(self) -> list[Finding]:
        """Every wrong delivery, in a fixed order."""
        clients = sorted({*self._subscriptions, *self._arrived})
        return [
            Finding(fault, id_, client, tuple(self._hops.get(id_, ())))
            for client in clients
            for fault, id_ in self._judge(client)
        ]

    def _judge(self, client: NodeId) -> Iterator[tuple[Fault, EventId]]:
        received = self.received(client)
        yield from faults_of_order(received, self._may_overtake(client))
        for arrival in self._arrived[client]:
            published, moment = self._published.get(arrival.event.id, (None, 0))
            if published != arrival.event or not was_published(moment, arrival.moment):
                yield Fault.UNPUBLISHED, arrival.event.id
            elif not self._is_permitted(arrival, moment, client):
                yield Fault.UNASKED, arrival.event.id
        got = set(received)
        yield from ((Fault.LOST, id_) for id_ in self._owed(client) if id_ not in got)

    def _may_overtake(self, client: NodeId) -> set[EventId]:
        """The events that came before earlier ones, but for those that a strict subscription wants.

        If the network did not know that one yet, it could not know that they have to wait.
        """
        asks = self._subscriptions[client]
        strict = [ask for ask in asks if ask.order != Order.AVAILABLE]
        return {
            id_
            for id_, moment in self._overtook[client].items()
            if id_ in self._published and not self._is_wanted(id_, moment, strict)
        }

    def _is_wanted(self, id_: EventId, delivered: int, asks: list[Ask]) -> bool:
        event, published = self._published[id_]
        return any(
            is_owed(ask.span, published, delivered) and ask.filter.matches(event.attributes)
            for ask in asks
        )

    def _is_permitted(self, arrival: ArrivedEvent, published: int, client: NodeId) -> bool:
        asks = self._subscriptions[client] + self._strays[client] * arrival.is_stray
        matching = (ask.span for ask in asks if ask.filter.matches(arrival.event.attributes))
        if arrival.is_stray:
            return any(is_explained(span, published, arrival.moment) for span in matching)
        return any(is_allowed(span, arrival.moment, anywhere=arrival.anywhere) for span in matching)

    def _owed(self, client: NodeId) -> list[EventId]:
        asks = self._subscriptions[client]
        return [
            id_
            for id_, (event, published) in self._published.items()
            if (client, id_) not in self._purged and self._is_owed(event, published, client, asks)
        ]

    def _is_owed(self, event: Event, published: int, client: NodeId, asks: list[Ask]) -> bool:
        if (event.publisher, event.id) in self._purged:
            return False  # Its publisher had no room for it, and stated that.
        calm = self._calm(event, published, client)
        if calm is None or not any(
            is_owed(ask.span, published, calm) and ask.filter.matches(event.attributes)
            for ask in asks
        ):
            return False
        return not self._advertisements or (
            not self._was_forgotten(event, published)
            and any(
                is_settled(offer.span, published) and offer.filter.matches(event.attributes)
                for offer in self._offers[event.publisher]
            )
        )

    def _was_forgotten(self, event: Event, published: int) -> bool:
        """Whether the publisher was forgotten while it kept the event: then nobody is owed it."""
        accepted = self._accepted.get(event.id, FOREVER)
        return any(published <= moment < accepted for moment in self._forgotten[event.publisher])

    def _calm(self, event: Event, published: int, client: NodeId) -> int | None:
        """When an event had left its publisher and reached a client; None if one is still away."""
        out = self._present(event.publisher, published)
        for left, last in self._left[event.publisher]:
            if left > published and event.seq <= last:
                out = left if out is None else min(left, out)
                break
        return None if out is None else self._present(client, out)

    def _present(self, client: NodeId, after: int) -> int | None:
        """The first time the network had settled, from a moment on, with a client connected."""
        for moment in self._settled[bisect_left(self._settled, after) :]:
            if (client, moment) not in self._missed:
                return moment
        return None if client in self._away else FOREVER
