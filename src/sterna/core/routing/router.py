"""The router: keeps the table, tells neighbours what is wanted here, and forwards events.

For each neighbour, the filters from all *other* links are reduced by the strategy, and the
difference to what the neighbour was told before is sent. (DESIGN: a strategy is a reduction;
withdrawal is the same difference.) Each filter gets a name of this broker when it comes in: the
names that neighbours and clients give are theirs, and two of them may be the same.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, cast

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.facts import Forwarded
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import AdvertisementChange, Message, Route, SubscriptionChange
from sterna.core.names import LinkId, Peer, RouteId, Time
from sterna.core.routing.advertisements import Advertised
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.routing.stages import (
    EVERYTHING,
    Chain,
    Difference,
    Everything,
    Fan,
    KeptDifference,
)
from sterna.core.routing.strategies import KeptStage, difference, stages
from sterna.core.routing.table import KeptTable, RoutingTable
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter


class Told(NamedTuple):
    """What one neighbour is told of subscriptions or advertisements."""

    chain: Chain
    """Where filters from other links go in. Publishers share one, for they all hear the same."""
    difference: Difference


class Neighbour(NamedTuple):
    """All that one neighbour is told."""

    subscriptions: Told
    advertisements: Told | None = None
    """None if it is told of none."""
    gate: Advertised | None = None
    """Where its own advertisements admit subscriptions; None if it hears of them all."""
    sends_everything: bool = False
    """It was asked for all events, whatever the subscriptions."""


class KeptNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of what one neighbour is told."""

    subscriptions: list[KeptStage]
    """Empty for a publisher: all publishers share one chain."""
    difference: KeptDifference
    advertisements: list[KeptStage] = []
    offers: KeptDifference | None = None


class KeptRouter(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of routing."""

    subscriptions: KeptTable
    advertisements: dict[LinkId, dict[RouteId, Route]]
    neighbours: dict[LinkId, KeptNeighbour]
    advertising: dict[LinkId, bool]
    interest: list[KeptStage] | None
    publishers: list[Route]
    names: int


IMPLICIT = ""
"""The name of the advertisement that stands for a peer which does not advertise: it may publish
anything. No peer can give this name, for theirs begin with their own."""


class Router(BrokerComponent):
    """Routing on an acyclic overlay of brokers, after the strategy that the options name."""

    name = "routing"
    handles = (SubscriptionChange, AdvertisementChange)
    Kept = KeptRouter

    def __init__(self, options: RoutingOptions) -> None:
        self.options = options
        self.subscriptions = RoutingTable()
        self.advertisements: dict[LinkId, dict[RouteId, Route]] = {}
        self._neighbours: dict[LinkId, Neighbour] = {}
        self._interest: Chain | None = None
        self._publishers = Fan()
        self._advertising: dict[LinkId, bool] = {}
        """Whether neighbouring brokers route by advertisements, where they have told, and clients
        know that they have to advertise."""
        self._named = 0

    # ---- Settings

    def configure(self, settings: Settings, now: Time) -> None:
        """Route in another way: neighbours are told the difference, so that there is no gap."""
        before, self.options = self.options, settings.routing
        if before == self.options:
            return
        if self.options.by_advertisements and not before.by_advertisements:
            self._presume_advertisements(now)
        for link, peer in self.broker.peers.items():
            if peer is Peer.BROKER and link in self._neighbours:
                self._begin_again(link)
        if self._interest is not None:
            self._share_interest()
        self.tell(now)

    def advertising(self, link: LinkId, *, is_known: bool | None, now: Time) -> None:
        """A neighbouring broker routes by advertisements, or does not; None if it did not say.

        A client knows that it has to advertise, or does not.
        """
        if is_known is None or self._advertising.get(link) == is_known:
            return
        self._advertising[link] = is_known
        if link in self._neighbours and self.broker.peers[link] is Peer.BROKER:
            self._presume_peer(link, now)
            self._begin_again(link)

    def _presume_advertisements(self, now: Time) -> None:
        """Peers that have advertised nothing so far may publish anything, until they advertise."""
        for link, peer in self.broker.peers.items():
            if peer is Peer.CLIENT:  # Whatever it was told before, it has not been told of this.
                self._advertising[link] = False
            self._presume_peer(link, now)

    def _presume_peer(self, link: LinkId, now: Time) -> None:
        if (
            self.options.by_advertisements
            and link not in self.advertisements
            and not self._advertises(link)
        ):
            self._add_advertisement(link, Route(IMPLICIT, EVERYTHING))
            for changed in self.broker.at_advertisements_changed:
                changed(link, now)

    def _advertises(self, link: LinkId) -> bool:
        """Whether a peer advertises what comes from it, as far as it is known."""
        return self._advertising.get(link, self.options.by_advertisements)

    def _begin_again(self, link: LinkId) -> None:
        """Tell a neighbouring broker in another way what it was told so far."""
        before = self._neighbours.pop(link)
        self._begin(link)
        after = self._neighbours[link]
        after.subscriptions.difference.follow(before.subscriptions.difference)
        if before.advertisements is not None:
            if after.advertisements is None:
                # It may route by advertisements still: from here, anything may come.
                offers = self._offering_everything()
                self._neighbours[link] = after = after._replace(advertisements=offers)
            after.advertisements.difference.follow(before.advertisements.difference)  # type: ignore[union-attr]

    def _offering_everything(self) -> Told:
        offers = Difference()
        return Told(Chain([Everything(self._name)], offers), offers)

    # ---- Events

    def route(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        """Forward events that have come over a link to everyone who wants them."""
        broker = self.broker
        to = self.subscriptions.match(events)
        if link in to and broker.peers[link] is Peer.BROKER:
            del to[link]  # It has them; a client gets its own events back if it wants them.
        if to:
            broker.state(Forwarded(at=broker.id, time=now, source=link, to=to))
            for target, wanted in to.items():
                broker.send_events(wanted, target, now)

    def told(self, link: LinkId) -> int:
        """How many filters a neighbour knows from here."""
        return len(self._neighbours[link].subscriptions.difference.told)

    def told_filters(self, link: LinkId) -> dict[RouteId, Filter]:
        """What a neighbour knows from here, by the names it has there."""
        told = self._neighbours[link].subscriptions.difference.told
        return {id_: route.filter for id_, route in told.items()}

    # ---- Messages

    def on_subscription_change(self, message: SubscriptionChange, link: LinkId, now: Time) -> None:
        for said in message.added:
            if not said.filter.is_bound:
                continue  # It means nothing here.
            known = self.subscriptions.routes(link).get(said.id)
            if known is not None:  # Said twice: the last word counts.
                if known.filter == said.filter:
                    continue
                self._remove_subscription(link, said.id)
            route = Route(self._name(), said.filter)
            self.subscriptions.add(link, said.id, route)
            for chain in self._told_about(link):
                chain.add(route)
        for id_ in message.removed:
            self._remove_subscription(link, id_)
        for changed in self.broker.at_subscriptions_changed:
            changed(message, link, now)
        self.tell(now)

    def on_advertisement_change(
        self, message: AdvertisementChange, link: LinkId, now: Time
    ) -> None:
        for said in message.added:
            if not said.filter.is_bound:
                continue
            known = self.advertisements.get(link, {}).get(said.id)
            if known is not None:
                if known.filter == said.filter:
                    continue
                self._remove_advertisement(link, said.id)
            self._add_advertisement(link, said)
        for id_ in (*message.removed, IMPLICIT) if message.added else message.removed:
            self._remove_advertisement(link, id_)
        for changed in self.broker.at_advertisements_changed:
            changed(link, now)
        self.tell(now)

    # ---- Entries that a component answers for

    def enter(self, link: LinkId, id_: RouteId, filter_: Filter, widest: Filter) -> None:
        """Route events that match a filter to a link, and tell no broker of it.

        A component does that in its own way. Publishers that quench hear of `widest`, which covers
        whatever the component may replace the filter with.
        """
        route = self.subscriptions.withdraw(link, id_)
        if route is None or route.filter != widest:  # Else publishers know all there is to know.
            if route is not None and self._interest is not None:
                self._interest.remove(route)
            route = Route(self._name(), widest)
            if self._interest is not None:
                self._interest.add(route)
        self.subscriptions.enter(link, id_, filter_, route)

    def withdraw(self, link: LinkId, id_: RouteId) -> None:
        """End such an entry, if there is one; after the last change of a turn, call `tell`."""
        route = self.subscriptions.withdraw(link, id_)
        if route is not None and self._interest is not None:
            self._interest.remove(route)

    def must_hear(self, link: LinkId, filter_: Filter) -> bool:
        """Whether a neighbouring broker has to know a filter for its events to come here."""
        neighbour = self._neighbours.get(link)
        if neighbour is None or self.broker.peers[link] is not Peer.BROKER:
            return False
        if neighbour.gate is not None:
            return neighbour.gate.overlaps(filter_)
        return not neighbour.sends_everything

    def sources(self, filter_: Filter) -> list[LinkId]:
        """The links over which matching events may come, of those whose other end is told filters.

        They lead to neighbouring brokers, and to publishers that discard what nobody wants.
        """
        return [
            link
            for link, neighbour in self._neighbours.items()
            if neighbour.gate is None or neighbour.gate.overlaps(filter_)
        ]

    def is_offered(self, filters: Sequence[Filter], but_not: Collection[LinkId | None]) -> bool:
        """Whether events that match one of some filters were advertised over other links."""
        for link, routes in self.advertisements.items():
            if link in but_not:
                continue
            gate = self._neighbours[link].gate if link in self._neighbours else None
            for filter_ in filters:
                if gate is not None and gate.overlaps(filter_):
                    return True
                if gate is None and any(r.filter.overlaps(filter_) for r in routes.values()):
                    return True
        return False

    # ---- Links

    def link_new(self, link: LinkId, now: Time) -> None:
        if not any(keeps(link) for keeps in self.broker.at_keeps):
            self._forget(link, now)
        if link in self._neighbours:
            neighbour = self._neighbours[link]
            neighbour.subscriptions.difference.forget()
            if neighbour.advertisements is not None:
                neighbour.advertisements.difference.forget()
        elif self.broker.peers[link] is Peer.BROKER:
            self._begin(link)
        self._presume_peer(link, now)
        self.tell(now)

    def link_up(self, _link: LinkId, now: Time) -> None:
        self.tell(now)

    def link_gone(self, link: LinkId, _unconfirmed: list[Message], now: Time) -> None:
        self._advertising.pop(link, None)
        gone = self._neighbours.pop(link, None)
        if gone is not None and gone.subscriptions.chain is self._interest:
            self._publishers.leave(gone.subscriptions.difference)
        self._forget(link, now)
        self.tell(now)

    def tell_interest(self, link: LinkId, now: Time) -> None:
        """From now on a publisher hears what is wanted: the c_all of quenching."""
        if self._interest is None:
            self._share_interest()
        if link not in self._neighbours:
            told = difference(Strategy.MERGING)
            self._publishers.join(told)
            self._neighbours[link] = Neighbour(Told(cast("Chain", self._interest), told))
        self.tell(now)

    def _share_interest(self) -> None:
        """Begin to reduce for publishers what is wanted, or begin again with other options."""
        publishers = [link for link, each in self._neighbours.items() if self._is_publisher(each)]
        self._publishers = Fan()
        self._interest = self._interest_chain()
        for source in self.subscriptions.links():
            for route in self.subscriptions.routes(source).values():
                self._interest.add(route)
        for route in self.subscriptions.widest():
            self._interest.add(route)
        self._interest.flush()
        for link in publishers:
            before, told = self._neighbours[link].subscriptions, difference(Strategy.MERGING)
            self._publishers.join(told)
            told.follow(before.difference)
            self._neighbours[link] = Neighbour(Told(self._interest, told))

    def _interest_chain(self, *, begins: bool = True) -> Chain:
        reduction = stages(
            Strategy.MERGING, self._name, members_max=self.options.interest_members_max
        )
        return Chain(reduction, self._publishers, begins=begins)

    def _is_publisher(self, neighbour: Neighbour) -> bool:
        return neighbour.subscriptions.chain is self._interest

    def introduced(
        self,
        subscriptions: Sequence[Route],
        advertisements: Sequence[Route],
        link: LinkId,
        now: Time,
    ) -> None:
        """A client says all it wants and offers; whatever else it said before holds no more."""
        for said, known, change in (
            (subscriptions, self.subscriptions.routes(link), SubscriptionChange),
            (advertisements, self.advertisements.get(link, {}), AdvertisementChange),
        ):
            names = {route.id for route in said}
            removed = tuple(id_ for id_ in known if id_ not in names and id_ != IMPLICIT)
            if said or removed:
                self.broker.message_arrived(change(added=tuple(said), removed=removed), link, now)

    def _neighbour(self, link: LinkId, *, begins: bool = True) -> Neighbour:
        """What a neighbouring broker is told, as the options have it."""
        options = self.options
        strategy = options.strategy
        advertising = options.by_advertisements
        upwards = options.hierarchical and link == options.parent
        downwards = options.hierarchical and not upwards
        gate = Advertised() if advertising and not upwards else None
        reduction = stages(strategy, self._name, members_max=options.merge_members_max)
        if downwards and not advertising:
            reduction = [Everything(self._name)]  # All events come up.
        sends_everything = any(isinstance(stage, Everything) for stage in reduction)
        if gate is not None:
            reduction = [gate, *reduction]
        end = difference(strategy, gate)
        advertisements = None
        if advertising and not downwards:
            offers = difference(strategy)
            offering = stages(strategy, self._name, members_max=options.merge_members_max)
            advertisements = Told(Chain(offering, offers, begins=begins), offers)
        elif not advertising and self._advertises(link):
            advertisements = self._offering_everything()
        told = Told(Chain(reduction, end, begins=begins), end)
        return Neighbour(told, advertisements, gate, sends_everything)

    def _begin(self, link: LinkId) -> None:
        """Start to tell a neighbouring broker what is known already."""
        neighbour = self._neighbours[link] = self._neighbour(link)
        for source in self.subscriptions.links():
            if source != link:
                for route in self.subscriptions.routes(source).values():
                    neighbour.subscriptions.chain.add(route)
        for source, routes in self.advertisements.items():
            if source != link and neighbour.advertisements is not None:
                for route in routes.values():
                    neighbour.advertisements.chain.add(route)
            if source == link and neighbour.gate is not None:
                for route in routes.values():
                    neighbour.gate.advertise(route)

    def _forget(self, link: LinkId, now: Time) -> None:
        """Nothing that was heard over a link holds any more."""
        forgotten = tuple(self.subscriptions.routes(link))
        for id_ in forgotten:
            self._remove_subscription(link, id_)
        for id_ in list(self.advertisements.get(link, {})):
            self._remove_advertisement(link, id_)
        for told in self.broker.at_advertisements_changed:
            told(link, now)
        if forgotten:
            for changed in self.broker.at_subscriptions_changed:
                changed(SubscriptionChange(removed=forgotten), link, now)

    # ---- What changes where

    def _told_about(self, link: LinkId) -> list[Chain]:
        """The chains that filters from a link go into: all other brokers', and the publishers'."""
        chains = [
            neighbour.subscriptions.chain
            for other, neighbour in self._neighbours.items()
            if other != link and neighbour.subscriptions.chain is not self._interest
        ]
        return chains if self._interest is None else [*chains, self._interest]

    def _remove_subscription(self, link: LinkId, id_: RouteId) -> None:
        route = self.subscriptions.remove(link, id_)
        if route is not None:
            for chain in self._told_about(link):
                chain.remove(route)

    def _add_advertisement(self, link: LinkId, said: Route) -> None:
        route = Route(self._name(), said.filter)
        self.advertisements.setdefault(link, {})[said.id] = route
        for other, neighbour in self._neighbours.items():
            if other == link and neighbour.gate is not None:
                neighbour.gate.advertise(route)
                neighbour.subscriptions.difference.look_again()
            if other != link and neighbour.advertisements is not None:
                neighbour.advertisements.chain.add(route)

    def _remove_advertisement(self, link: LinkId, id_: RouteId) -> None:
        route = self.advertisements.get(link, {}).pop(id_, None)
        if route is None:
            return
        if not self.advertisements[link]:
            del self.advertisements[link]
        for other, neighbour in self._neighbours.items():
            if other == link and neighbour.gate is not None:
                neighbour.gate.unadvertise(route)
            if other != link and neighbour.advertisements is not None:
                neighbour.advertisements.chain.remove(route)

    def tell(self, now: Time) -> None:
        """Send each neighbour the difference, if its link stands; else it gathers until then."""
        for link, neighbour in self._neighbours.items():
            subscriptions, advertisements = neighbour.subscriptions, neighbour.advertisements
            subscriptions.chain.flush()
            if advertisements is not None:
                advertisements.chain.flush()
            if link not in self.broker.up:
                continue
            message: Message
            if subscriptions.difference.is_due:
                added, removed = subscriptions.difference.take()
                message = SubscriptionChange(added=added, removed=removed)
                self.broker.send(link, message, now)
            if advertisements is not None and advertisements.difference.is_due:
                added, removed = advertisements.difference.take()
                message = AdvertisementChange(added=added, removed=removed)
                self.broker.send(link, message, now)

    def _name(self) -> RouteId:
        self._named += 1
        return f"{self.broker.id}#{self._named}"

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptRouter:
        del writer
        return KeptRouter(
            subscriptions=self.subscriptions.keep(),
            advertisements={link: dict(routes) for link, routes in self.advertisements.items()},
            neighbours={link: self._kept(each) for link, each in self._neighbours.items()},
            advertising=dict(self._advertising),
            interest=None if self._interest is None else self._interest.keep(),
            publishers=self._publishers.keep(),
            names=self._named,
        )

    def _kept(self, neighbour: Neighbour) -> KeptNeighbour:
        told, offers = neighbour.subscriptions, neighbour.advertisements
        return KeptNeighbour(
            subscriptions=[] if self._is_publisher(neighbour) else told.chain.keep(),
            difference=told.difference.keep(),
            advertisements=[] if offers is None else offers.chain.keep(),
            offers=None if offers is None else offers.difference.keep(),
        )

    def restore(self, kept: KeptRouter, reader: Reader) -> None:
        del reader
        self.subscriptions.restore(kept.subscriptions)
        self.advertisements = {link: dict(each) for link, each in kept.advertisements.items()}
        self._advertising = dict(kept.advertising)
        if kept.interest is not None:
            self._interest = self._interest_chain(begins=False)
            self._interest.restore(kept.interest)
            self._publishers.restore(kept.publishers)
        for link, each in kept.neighbours.items():
            self._neighbours[link] = self._restored(link, each)
        self._named = kept.names

    def _restored(self, link: LinkId, kept: KeptNeighbour) -> Neighbour:
        if self.broker.peers[link] is not Peer.BROKER:
            told = difference(Strategy.MERGING)
            told.restore(kept.difference)
            self._publishers.rejoin(told)
            return Neighbour(Told(cast("Chain", self._interest), told))
        neighbour = self._neighbour(link, begins=False)
        neighbour.subscriptions.chain.restore(kept.subscriptions)
        neighbour.subscriptions.difference.restore(kept.difference)
        if kept.offers is not None:
            offers = neighbour.advertisements or self._offering_everything()
            offers.chain.restore(kept.advertisements)
            offers.difference.restore(kept.offers)
            neighbour = neighbour._replace(advertisements=offers)
        return neighbour
