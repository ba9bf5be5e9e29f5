"""A look at every state of a network in which clients walk about."""

from collections import Counter

import msgspec

from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.location.messages import MovingRoute
from sterna.core.location.moving import Moving
from sterna.core.location.steps import StepRule
from sterna.core.location.whereabouts import Whereabouts
from sterna.core.names import NodeId, Time
from sterna.model.event import Event
from sterna.model.filters import Filter, merge
from sterna.model.location import MovementGraph
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Wait
from tests.sim.walks import Known, Walk, delay_us, way


def moving_at(broker: Broker) -> Moving:
    return next(each for each in broker.components if isinstance(each, Moving))


def whereabouts_of(client: Client) -> Whereabouts:
    return next(each for each in client.components if isinstance(each, Whereabouts))


class Watched(Simulation):
    """Looks at all tables after every single thing that happens, once the network has settled.

    - *In effect*: an event that passes a broker now is let through to a client if it is about a
      place where the client will be when the event arrives there. The script knows where that is:
      for a move at that very moment, both places count. This is what nested filters are for.
    - *As sets*: steps do not decrease from a broker to the next on the way to a publisher, and a
      broker that knows what the one before it has told lets everything through that the latter
      does: F_{i+1} ⊇ F_i, where F_0 is what the client filters by. While a move is on its way
      between the two, the sets belong to different locations. Then the nearer one may admit
      something that the farther does not yet, and needs not: whatever the farther lets through now
      gets to the nearer one as late as the move got from there, and the first point holds for each
      of them.
    """

    def __init__(self, walk: Walk, rule: StepRule, known: Known = Known.FIXED) -> None:
        super().__init__(walk.script(rule, known))
        self.counts: Counter[str] = Counter()
        """How many states were looked at; in how many of them a move was on its way; and how many
        filters were compared with the next ones, as sets."""
        self._walk = walk
        self._settles = walk.settles(known)
        self._nested: set[tuple[MovingRoute, ...]] = set()
        """What was told and what it was told of, as far as they were compared."""
        self._start_us: Time | None = None
        self._step = self.network.kernel.step
        self.network.kernel.step = self._look  # type: ignore[method-assign]

    def settle(self) -> None:
        super().settle()
        self._settles -= 1
        if self._settles == 0:
            self._start_us = self.network.kernel.now

    def do(self, step: AnyStep) -> None:
        if not isinstance(step, Wait):
            super().do(step)
            self.check()
            return
        kernel = self.network.kernel
        until = kernel.now + step.us
        while len(kernel) and kernel._planned[0][0] <= until:
            kernel.step()
        kernel.run(until)

    def _look(self) -> None:
        self._step()
        self.check()

    def check(self) -> None:
        if self._start_us is None:
            return
        for client in self._walk.base.locations:
            for publisher, broker in self._watched(client):
                self._check_effect(client, publisher, broker)
        clients, brokers = self._walk.base.locations, self.script.topology.brokers
        arrived = [
            *(self._check_first_set(client) for client in clients),
            *(self._check_sets(broker) for broker in brokers),
        ]
        self.counts.update(states=1, moving=not all(arrived))

    def _watched(self, client: NodeId) -> list[tuple[NodeId, NodeId]]:
        """The brokers on the ways from each publisher to a client."""
        return [
            (publisher, broker)
            for publisher in self._walk.offers
            for broker in way(self.script.latencies, publisher, client)[1:-1]
        ]

    def _check_effect(self, client: NodeId, publisher: NodeId, broker: NodeId) -> None:
        assert self._start_us is not None
        onward = way(self.script.latencies, broker, client)
        arrival_us = self.network.kernel.now + delay_us(self.script.latencies, broker, client)
        table = self._node(broker).router.subscriptions
        arrival_us -= self._start_us
        for place in self._walk.places_between(client, arrival_us, arrival_us):
            for event in self._walk.wanted(client, publisher, place):
                assert onward[1] in table.match([event]), (
                    f"{broker} stops an event about {event.attributes}, but {client} will be at "
                    f"{place}"
                )

    def _check_first_set(self, client: NodeId) -> bool:
        """F_1 ⊇ F_0; whether the border broker knows what the client has told it."""
        node = self.network.hosts[client].node
        assert isinstance(node, Client)
        assert node.link is not None
        whereabouts, moving = whereabouts_of(node), moving_at(self._node(node.link))
        heard = moving.table.get(client, {})
        if heard != whereabouts._told:
            return False
        for name, filter_ in node.subscriptions.items():
            route = heard.get(node.route(name))
            if route is not None:
                self.counts["compared"] += 1
                assert moving.instance(route).covers(whereabouts.context.exact(filter_))
        return True

    def _check_sets(self, broker: NodeId) -> bool:
        """F_{i+1} ⊇ F_i; whether all neighbours know what the broker has told them."""
        has_arrived = True
        moving = moving_at(self._node(broker))
        for neighbour, telling in moving._told.items():
            heard = moving_at(self._node(neighbour)).table.get(broker, {})
            for (link, id_), (likeness, _) in telling.places.items():
                route, share = moving.table[link][id_], telling.shares[likeness]
                told = [
                    msgspec.structs.replace(share.routes[at], id=name)
                    for at, name in share.told_as.items()
                ]
                if not told:
                    continue  # Nothing that the neighbour has to hear.
                if any(heard.get(each.id) != each for each in told):
                    has_arrived = False
                elif (*told, route) not in self._nested:
                    self._nested.add((*told, route))
                    self.counts["compared"] += 1
                    assert all(_at_least(moving.steps(e), moving.steps(route)) for e in told)
                    wider = merge([moving.instance(each) for each in told])
                    assert wider.covers(moving.instance(route))
        return has_arrived

    def _node(self, broker: NodeId) -> Broker:
        node = self.network.hosts[broker].node
        assert isinstance(node, Broker)
        return node


def _at_least(steps: int | None, others: int | None) -> bool:
    return steps is None or (others is not None and steps >= others)


def assert_by_definition(simulation: Simulation, walk: Walk) -> None:
    """For each way out of each broker, the tables admit what the definition says, computed anew.

    That is, for each client on that way: its filters for all places within as many steps from where
    it is as the sum of the round trips asks for.
    """
    script = simulation.script
    assert script.places is not None
    space = script.places.space()
    assert isinstance(space, MovementGraph)
    events = [
        Event(publisher="pat", seq=1, time_us=0, attributes={"kind": kind, "room": room})
        for kind in "xy"
        for room in space.locations
    ]
    for broker in script.topology.brokers:
        node = simulation.network.hosts[broker].node
        assert isinstance(node, Broker)
        for link in node.peers:
            wanted = []
            for client, (at, filters) in _wishes(simulation, walk).items():
                onward = way(script.latencies, broker, client)
                if onward[1] == link:
                    steps = script.places.rule.steps(
                        2 * delay_us(script.latencies, broker, client), script.places.dwell_us
                    )
                    assert steps is not None
                    wanted += [filter_.around(at, space, steps) for filter_ in filters]
            found = node.router.subscriptions.entered(link).values()
            for event in events:
                assert any(f.matches(event.attributes) for f in found) == any(
                    f.matches(event.attributes) for f in wanted
                ), f"{broker} to {link}: {event.attributes}"


def _wishes(simulation: Simulation, walk: Walk) -> dict[NodeId, tuple[str, list[Filter]]]:
    """Where each client is, and its moving subscriptions."""
    wishes = {}
    for client in walk.base.locations:
        node = simulation.network.hosts[client].node
        assert isinstance(node, Client)
        at = whereabouts_of(node).context.location
        assert at is not None
        wishes[client] = at, [f for f in node.subscriptions.values() if f.uses_myloc]
    return wishes
