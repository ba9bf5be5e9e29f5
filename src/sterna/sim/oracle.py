"""The oracle: reads the facts of a run and says which deliveries were wrong."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.names import NodeId, Time
from sterna.model.delivery import (
    FOREVER,
    Fault,
    Span,
    faults_of_order,
    is_allowed,
    is_owed,
    is_settled,
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
    """The hops the event took, as far as brokers stated them."""

    def __str__(self) -> str:
        way = ", ".join(self.path) or "it never left its publisher"
        event = f"{self.event.publisher} #{self.event.seq}"
        return f"{self.fault}: event {event} for {self.client} ({way})"


@dataclass
class Ask:
    """A subscription or an advertisement, and how long it held."""

    filter: Filter
    span: Span


class Oracle(Observer):
    """Collects the facts of a run and judges them by the rules of `sterna.model.delivery`."""

    def __init__(self, *, advertisements: bool = False) -> None:
        self._advertisements = advertisements
        self._subscribed: dict[NodeId, dict[str, Ask]] = defaultdict(dict)
        self._advertised: dict[NodeId, dict[str, Ask]] = defaultdict(dict)
        self._past: dict[NodeId, list[Ask]] = defaultdict(list)
        self._past_offers: dict[NodeId, list[Ask]] = defaultdict(list)
        self._published: list[tuple[Event, Time]] = []
        self._received: dict[NodeId, list[tuple[Event, Time, bool]]] = defaultdict(list)
        self._purged: set[EventId] = set()
        self.quenched = 0
        """How many events were discarded at their source because nobody wants them."""
        self._settled: list[Time] = []
        self._hops: dict[EventId, list[str]] = defaultdict(list)

    @property
    def published(self) -> int:
        return len(self._published)

    @property
    def delivered(self) -> int:
        return sum(not stray for events in self._received.values() for _, _, stray in events)

    def received(self, client: NodeId) -> list[EventId]:
        """What a client's application was given, in order."""
        return [event.id for event, _, stray in self._received[client] if not stray]

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Forwarded():
                for link, events in fact.to.items():
                    for event in events:
                        self._hops[event.id].append(f"{fact.at} → {link}")
            case facts.Delivered():
                self._received[fact.at] += [(event, fact.time, False) for event in fact.events]
            case facts.Stray():
                self._received[fact.at] += [(event, fact.time, True) for event in fact.events]
            case facts.Published():
                self._published += [(event, fact.time) for event in fact.events]
            case facts.Subscribed():
                self._subscribed[fact.at][fact.subscription] = Ask(fact.filter, Span(fact.time))
            case facts.Unsubscribed():
                ask = self._subscribed[fact.at].pop(fact.subscription)
                ask.span = replace(ask.span, ended_us=fact.time)
                self._past[fact.at].append(ask)
            case facts.Advertised():
                self._advertised[fact.at][fact.advertisement] = Ask(fact.filter, Span(fact.time))
            case facts.Unadvertised():
                ask = self._advertised[fact.at].pop(fact.advertisement)
                ask.span = replace(ask.span, ended_us=fact.time)
                self._past_offers[fact.at].append(ask)
            case facts.Quenched():
                self.quenched += len(fact.events)
            case facts.Purged():
                self._purged.update(event.id for event in fact.events)
            case facts.Settled():
                self._settle(fact.time)
            case _:
                pass

    def _settle(self, now: Time) -> None:
        self._settled.append(now)
        for asks in (*self._subscribed.values(), *self._advertised.values()):
            for ask in asks.values():
                if ask.span.settled_us == FOREVER:
                    ask.span = replace(ask.span, settled_us=now)

    def findings(self) -> list[Finding]:
        """Every wrong delivery, in a fixed order."""
        clients = sorted({*self._subscribed, *self._past, *self._received})
        return [finding for client in clients for finding in self._judge(client)]

    def _judge(self, client: NodeId) -> list[Finding]:
        asks = [*self._past[client], *self._subscribed[client].values()]
        received = self._received[client]
        found = list(faults_of_order(event.id for event, _, stray in received if not stray))
        for event, time, stray in received:
            matching = [ask for ask in asks if ask.filter.matches(event.attributes)]
            if stray:
                # Nothing but a subscription that ended on the way explains why it was sent.
                allowed = any(ask.span.asked_us <= time for ask in matching)
            else:
                allowed = any(is_allowed(ask.span, time) for ask in matching)
            if not allowed:
                found.append((Fault.UNASKED, event.id))
        got = {event.id for event, _, stray in received if not stray}
        found += [(Fault.LOST, id_) for id_ in self._owed(asks) if id_ not in got]
        return [Finding(fault, id_, client, tuple(self._hops.get(id_, ()))) for fault, id_ in found]

    def owed(self) -> int:
        """How many deliveries had to be made."""
        clients = dict.fromkeys([*self._subscribed, *self._past])
        return sum(
            len(self._owed([*self._past[client], *self._subscribed[client].values()]))
            for client in clients
        )

    def _owed(self, asks: list[Ask]) -> list[EventId]:
        return [event.id for event, time in self._published if self._is_owed(event, time, asks)]

    def _is_owed(self, event: Event, published: Time, asks: list[Ask]) -> bool:
        if event.id in self._purged:
            return False
        calm = self._calm(published)
        if not any(
            is_owed(ask.span, published, calm) and ask.filter.matches(event.attributes)
            for ask in asks
        ):
            return False
        if not self._advertisements:
            return True
        offers = [*self._past_offers[event.publisher], *self._advertised[event.publisher].values()]
        return any(
            is_settled(offer.span, published) and offer.filter.matches(event.attributes)
            for offer in offers
        )

    def _calm(self, published: Time) -> Time:
        """When everything that an event caused has arrived."""
        place = bisect_right(self._settled, published)
        return self._settled[place] if place < len(self._settled) else FOREVER
