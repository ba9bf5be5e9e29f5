"""Random towns with clients that walk about in them, and a look at every state of a network."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import msgspec
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.facts import Fact
from sterna.core.inputs import Advertise, MoveTo, Publish, Subscribe
from sterna.core.location.messages import MovingRoute
from sterna.core.location.moving import Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.location.whereabouts import Whereabouts
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter, merge
from sterna.model.location import LocationSpace, MovementGraph
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, Doing, Script, Settle, Wait
from sterna.sim.topology import from_parents

TICK_US = 10_000
"""All times are multiples of this, so that much happens at the same time."""

MOVING = (
    "room IN myloc",
    "room IN myloc(1)",
    "kind = 'x' AND room IN myloc",
    "kind = 'y' AND NOT room IN myloc",
    "room IN myloc OR kind = 'y' AND room IN myloc(2)",
)

OFFERS = {"TRUE": "xy", "kind = 'x'": "x", "kind = 'y' AND room IS NOT NULL": "y"}
"""What publishers advertise, and the kinds of events that they publish then."""


@dataclass(frozen=True, eq=False)
class Walk:
    """A run but for the rule by which steps are counted."""

    base: Script
    offers: dict[NodeId, str]
    """What each publisher advertises."""
    happenings: tuple[tuple[int, NodeId, Doing], ...]
    """After so many ticks since the network has settled, this client does that; in order."""

    def script(self, rule: StepRule) -> Script:
        """The run under a rule."""
        steps: list[AnyStep] = [*self.base.steps, Settle()]
        before = 0
        for ticks, client, what in self.happenings:
            if ticks > before:
                steps.append(Wait(us=(ticks - before) * TICK_US))
            before = ticks
            steps.append(Do(client=client, what=what))
        assert self.base.places is not None
        places = msgspec.structs.replace(self.base.places, rule=rule)
        return msgspec.structs.replace(self.base, places=places, steps=tuple(steps))

    def places_at(self, client: NodeId, us: Time) -> list[str]:
        """Where a client is at a time: at two places if it moves just then."""
        before = at = self.base.locations[client]
        for ticks, who, what in self.happenings:
            if who == client and isinstance(what, MoveTo) and ticks * TICK_US <= us:
                before, at = (at if ticks * TICK_US == us else what.location), what.location
        return [before, at]

    def wanted(self, client: NodeId, publisher: NodeId, place: str) -> tuple[Event, ...]:
        """All events of a publisher that a client wants at a place for a moving subscription."""
        return _wanted(self, client, publisher, place)


@cache
def _wanted(walk: Walk, client: NodeId, publisher: NodeId, place: str) -> tuple[Event, ...]:
    assert walk.base.places is not None
    space = walk.base.places.space()
    assert isinstance(space, MovementGraph)
    filters = [
        step.what.filter.bind(location=place, space=space)
        for step in walk.base.steps
        if isinstance(step, Do) and step.client == client and isinstance(step.what, Subscribe)
    ]
    events = [
        Event(publisher=publisher, seq=1, time_us=0, attributes={"kind": kind, "room": room})
        for kind in OFFERS[walk.offers[publisher]]
        for room in space.locations
    ]
    return tuple(e for e in events if any(f.matches(e.attributes) for f in filters))


@st.composite
def walks(draw: st.DrawFn, routing: RoutingOptions) -> Walk:
    """Up to 6 brokers, 3 clients that walk and 2 that publish, 8 rooms, links of up to 300 ms."""
    rooms = [f"r{n}" for n in range(draw(st.integers(2, 8)))]
    edges = [(rooms[max(0, n - draw(st.integers(1, 3)))], rooms[n]) for n in range(1, len(rooms))]
    edges += draw(st.lists(st.tuples(*[st.sampled_from(rooms)] * 2), max_size=1))
    topology = from_parents(
        [draw(st.integers(0, child - 1)) for child in range(1, draw(st.integers(1, 6)))]
    )
    walkers = [f"ann{n}" for n in range(draw(st.integers(1, 3)))]
    publishers = [f"pat{n}" for n in range(draw(st.integers(1, 2)))]
    clients = {
        client: draw(st.sampled_from(topology.brokers)) for client in (*walkers, *publishers)
    }
    latency = st.integers(0, 30).map(lambda ticks: ticks * TICK_US)
    links = [*topology.links, *clients.items()]
    dwell = draw(st.sampled_from((3, 5, 10, 20, 40)))
    directed = draw(st.booleans())
    places = PlacesOptions(
        edges=tuple(edges), directed=directed, dwell=Dwell.FIXED, dwell_us=dwell * TICK_US
    )
    offers = {client: draw(st.sampled_from(sorted(OFFERS))) for client in publishers}
    beginning: list[AnyStep] = [
        Do(client=client, what=Advertise(advertisement="1", filter=Filter(text)))
        for client, text in offers.items()
    ]
    for client in walkers:
        wants = draw(st.lists(st.sampled_from(MOVING), min_size=1, max_size=2, unique=True))
        wants += draw(st.lists(st.just("kind = 'y' AND room = 'r0'"), max_size=1))
        for number, text in enumerate(wants):
            what = Subscribe(subscription=str(number), filter=Filter(text))
            beginning.append(Do(client=client, what=what))
    locations = {client: draw(st.sampled_from(rooms)) for client in walkers}
    moves: list[tuple[int, NodeId, MoveTo]] = []
    for client in walkers:
        moves += draw(_moves(client, locations[client], places.space(), dwell))
    happenings: list[tuple[int, NodeId, Doing]] = [*moves]
    latencies = tuple((a, b, draw(latency)) for a, b in links)
    for _ in range(draw(st.integers(5, 25))):
        client = draw(st.sampled_from(publishers))
        kind = draw(st.sampled_from(OFFERS[offers[client]]))
        # It reaches one of the walkers when that one comes to where it matters, or about then.
        ticks, walker, move = draw(st.sampled_from(moves))
        ticks += draw(st.sampled_from((-1, 0, 0, 0, 1, 2, 9)))
        ticks -= delay_us(latencies, client, walker) // TICK_US
        room = draw(st.sampled_from((move.location, move.location, *rooms)))
        event = Publish(attributes={"kind": kind, "room": room})
        happenings.append((max(0, ticks), client, event))
    base = Script(
        topology=topology,
        clients=clients,
        steps=tuple(beginning),
        routing=routing,
        client=ClientOptions(advertisements=routing.advertisements, quenching=draw(st.booleans())),
        latencies=latencies,
        places=places,
        locations=locations,
    )
    return Walk(base, offers, tuple(sorted(happenings, key=lambda each: each[0])))


@st.composite
def _moves(
    draw: st.DrawFn, client: NodeId, at: str, space: LocationSpace, dwell: int
) -> list[tuple[int, NodeId, MoveTo]]:
    """A walk that goes where the movement graph leads, and stays everywhere for the dwell time."""
    moves: list[tuple[int, NodeId, MoveTo]] = []
    ticks = draw(st.integers(0, 10))
    before = at
    for _ in range(draw(st.integers(1, 6))):
        near = space.ploc(at, 1)
        onward = sorted(near - {at, before}) or sorted(near)
        before, at = at, draw(st.sampled_from([*onward, *onward, at]))
        moves.append((ticks, client, MoveTo(location=at)))
        ticks += dwell + draw(st.sampled_from((0, 0, 0, 1, 7)))
    return moves


Latencies = tuple[tuple[NodeId, NodeId, Time], ...]


@cache
def way(latencies: Latencies, a: NodeId, b: NodeId) -> tuple[NodeId, ...]:
    """The nodes from one to another, both included; there is one way."""
    ways: dict[NodeId, tuple[NodeId, ...]] = {a: (a,)}
    while b not in ways:
        for one, other, _ in (*latencies, *((y, x, us) for x, y, us in latencies)):
            if one in ways:
                ways.setdefault(other, (*ways[one], other))
    return ways[b]


@cache
def delay_us(latencies: Latencies, a: NodeId, b: NodeId) -> Time:
    """How long something takes from one node to another."""
    each = {frozenset((x, y)): us for x, y, us in latencies}
    return sum(each[frozenset(hop)] for hop in pairwise(way(latencies, a, b)))


class Deliveries(Observer):
    """Who was given which event, and how long after the network had settled first."""

    def __init__(self) -> None:
        self.all: list[tuple[NodeId, Time, EventId]] = []
        self._start_us: Time | None = None

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, facts.Settled) and self._start_us is None:
            self._start_us = fact.time
        if isinstance(fact, facts.Delivered) and self._start_us is not None:
            after_us = fact.time - self._start_us
            self.all += [(fact.at, after_us, event.id) for event in fact.events]


def deliveries(script: Script) -> list[tuple[NodeId, Time, EventId]]:
    """All of a run, which must be right for what stood still long enough."""
    seen = Deliveries()
    outcome = Simulation(script, [seen]).run()
    assert outcome.findings == []
    return sorted(seen.all)


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
      does: F_{i+1} ⊇ F_i. While a move is on its way between the two, the sets belong to different
      locations. Then the nearer one may admit something that the farther does not yet, and needs
      not: whatever the farther lets through now gets to the nearer one as late as the move got
      from there, and the first point holds for each of them.
    """

    def __init__(self, walk: Walk, rule: StepRule) -> None:
        super().__init__(walk.script(rule))
        self.states = 0
        """How many were looked at."""
        self._walk = walk
        self._nested: set[tuple[MovingRoute, ...]] = set()
        """What was told and what it was told of, as far as they were compared."""
        self._start_us: Time | None = None
        self._step = self.network.kernel.step
        self.network.kernel.step = self._look  # type: ignore[method-assign]

    def settle(self) -> None:
        super().settle()
        if self._start_us is None:
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
        self.states += 1
        for client in self._walk.base.locations:
            for publisher, broker in self._watched(client):
                self._check_effect(client, publisher, broker)
        for broker in self.script.topology.brokers:
            self._check_sets(broker)

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
        for place in self._walk.places_at(client, arrival_us - self._start_us):
            for event in self._walk.wanted(client, publisher, place):
                assert onward[1] in table.match([event]), (
                    f"{broker} stops an event about {event.attributes}, but {client} will be at "
                    f"{place}"
                )

    def _check_sets(self, broker: NodeId) -> None:
        moving = moving_at(self._node(broker))
        for neighbour, telling in moving._told.items():
            heard = moving_at(self._node(neighbour)).table.get(broker, {})
            for (link, id_), (likeness, _) in telling.places.items():
                route, share = moving.table[link][id_], telling.shares[likeness]
                told = [
                    msgspec.structs.replace(share.routes[at], id=name)
                    for at, name in share.told_as.items()
                ]
                if not told or any(heard.get(each.id) != each for each in told):
                    continue  # On its way, or nothing that the neighbour has to hear.
                if (*told, route) not in self._nested:
                    self._nested.add((*told, route))
                    assert all(_at_least(moving.steps(e), moving.steps(route)) for e in told)
                    wider = merge([moving.instance(each) for each in told])
                    assert wider.covers(moving.instance(route))

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
