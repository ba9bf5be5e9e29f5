"""The router: keeps the table, tells neighbours what is wanted here, and forwards events.

For each neighbour, the filters from all *other* links are reduced by the strategy, and the
difference to what the neighbour was told before is sent. (DESIGN: a strategy is a reduction;
withdrawal is the same difference.)
"""

from collections.abc import Sequence
from itertools import count

from sterna.core.component import Component
from sterna.core.facts import Forwarded
from sterna.core.messages import AdvertisementChange, Message, Route, SubscriptionChange
from sterna.core.names import LinkId, Peer, RouteId, Time
from sterna.core.routing.advertisements import Advertised
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.routing.stages import Chain, Everything, Stage
from sterna.core.routing.strategies import stages
from sterna.core.routing.table import RoutingTable
from sterna.model.event import Event


class Neighbour:
    """What one neighbour is told."""

    def __init__(
        self, subscriptions: Chain, advertisements: Chain | None, gate: Advertised | None
    ) -> None:
        self.subscriptions = subscriptions
        self.advertisements = advertisements
        """None if it is told of none."""
        self.gate = gate
        """Where its own advertisements admit subscriptions; None if it hears of them all."""


class Router(Component):
    """Routing on an acyclic overlay of brokers, after the strategy that the options name."""

    handles = (SubscriptionChange, AdvertisementChange)

    def __init__(self, options: RoutingOptions) -> None:
        self.options = options
        self.subscriptions = RoutingTable()
        self.advertisements: dict[LinkId, dict[RouteId, Route]] = {}
        self._neighbours: dict[LinkId, Neighbour] = {}
        self._names = count(1)

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

    # ---- Messages

    def on_subscription_change(self, message: SubscriptionChange, link: LinkId, now: Time) -> None:
        for route in message.added:
            self._remove_subscription(link, route.id)  # Said twice: the last word counts.
            self.subscriptions.add(link, route)
            for chain in self._told_about(link):
                chain.add(route)
        for id_ in message.removed:
            self._remove_subscription(link, id_)
        for changed in self.broker.at_subscriptions_changed:
            changed(message, link, now)
        self._tell(now)

    def on_advertisement_change(
        self, message: AdvertisementChange, link: LinkId, now: Time
    ) -> None:
        for route in message.added:
            self._remove_advertisement(link, route.id)
            self._add_advertisement(link, route)
        for id_ in message.removed:
            self._remove_advertisement(link, id_)
        self._tell(now)

    # ---- Links

    def link_new(self, link: LinkId, now: Time) -> None:
        self._forget(link)
        if link in self._neighbours:
            neighbour = self._neighbours[link]
            neighbour.subscriptions.difference.forget()
            if neighbour.advertisements is not None:
                neighbour.advertisements.difference.forget()
        elif self.broker.peers[link] is Peer.BROKER:
            self._begin(link, self._neighbour(link))
        self._tell(now)

    def link_up(self, _link: LinkId, now: Time) -> None:
        self._tell(now)

    def link_gone(self, link: LinkId, now: Time) -> None:
        self._neighbours.pop(link, None)
        self._forget(link)
        self._tell(now)

    def tell_interest(self, link: LinkId, now: Time) -> None:
        """From now on a publisher hears what is wanted: the c_all of quenching."""
        if link not in self._neighbours:
            simplified = stages(Strategy.MERGING, self.options, self._name)
            self._begin(link, Neighbour(Chain(simplified), None, None))
        self._tell(now)

    def _neighbour(self, link: LinkId) -> Neighbour:
        """What a neighbouring broker is told, as the options have it."""
        options = self.options
        strategy = options.strategy
        advertising = options.advertisements and strategy is not Strategy.FLOODING
        upwards = options.hierarchical and link == options.parent
        downwards = options.hierarchical and not upwards
        reduction: list[Stage] = stages(strategy, options, self._name)
        gate = None
        if downwards and not advertising:
            reduction = [Everything(self._name)]  # All events come up.
        elif advertising and not upwards:
            gate = Advertised()
            reduction = [gate, *reduction]
        advertisements = None
        if advertising and not downwards:
            advertisements = Chain(stages(strategy, options, self._name))
        return Neighbour(Chain(reduction), advertisements, gate)

    def _begin(self, link: LinkId, neighbour: Neighbour) -> None:
        """Start to tell a neighbour what is known already."""
        self._neighbours[link] = neighbour
        for source in self.subscriptions.links():
            if neighbour.subscriptions in self._told_about(source):
                for route in self.subscriptions.routes(source).values():
                    neighbour.subscriptions.add(route)
        if neighbour.advertisements is not None:
            for source, routes in self.advertisements.items():
                if source != link:
                    for route in routes.values():
                        neighbour.advertisements.add(route)

    def _forget(self, link: LinkId) -> None:
        """Nothing that was heard over a link holds any more."""
        for id_ in list(self.subscriptions.routes(link)):
            self._remove_subscription(link, id_)
        for id_ in list(self.advertisements.get(link, {})):
            self._remove_advertisement(link, id_)

    # ---- What changes where

    def _told_about(self, link: LinkId) -> list[Chain]:
        """The chains that filters from a link go into: all others' and, if a client, its own."""
        own = self.broker.peers[link] is Peer.CLIENT
        return [
            neighbour.subscriptions
            for other, neighbour in self._neighbours.items()
            if own or other != link
        ]

    def _remove_subscription(self, link: LinkId, id_: RouteId) -> None:
        route = self.subscriptions.remove(link, id_)
        if route is not None:
            for chain in self._told_about(link):
                chain.remove(route)

    def _add_advertisement(self, link: LinkId, route: Route) -> None:
        self.advertisements.setdefault(link, {})[route.id] = route
        for other, neighbour in self._neighbours.items():
            if other == link and neighbour.gate is not None:
                neighbour.gate.advertise(route)
            if other != link and neighbour.advertisements is not None:
                neighbour.advertisements.add(route)

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
                neighbour.advertisements.remove(route)

    def _tell(self, now: Time) -> None:
        """Send each neighbour the difference, if its link stands; else it gathers until then."""
        for link, neighbour in self._neighbours.items():
            if link not in self.broker.up:
                continue
            message: Message
            if neighbour.subscriptions.difference:
                added, removed = neighbour.subscriptions.difference.take()
                message = SubscriptionChange(added=added, removed=removed)
                self.broker.send(link, message, now)
            if neighbour.advertisements is not None and neighbour.advertisements.difference:
                added, removed = neighbour.advertisements.difference.take()
                message = AdvertisementChange(added=added, removed=removed)
                self.broker.send(link, message, now)

    def _name(self) -> RouteId:
        return f"{self.broker.id}#{next(self._names)}"
