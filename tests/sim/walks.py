"""Random towns with clients that walk about in them, and what flooding brings to such clients."""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import pairwise
from statistics import mean, quantiles

import msgspec
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.inputs import Advertise, MoveTo, Publish, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import STAYS_MAX, Dwell
from sterna.core.location.steps import StepRule
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model import mobility
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.model.location import LocationSpace, MovementGraph
from sterna.model.mobility import MobilityModel
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import (
    AnyStep,
    Crash,
    Do,
    Doing,
    Drop,
    LinkModel,
    Partition,
    Script,
    Settle,
    Wait,
)
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


class Known(StrEnum):
    """Where brokers have a dwell time from."""

    FIXED = "fixed"
    """It was told, and nothing is measured."""
    TOLD = "told"
    """It was told, and stays are measured as well."""
    MINED = "mined"
    """It is the shortest stay in a model of these very movements."""
    MEASURED = "measured"
    """Each client has paced up and down before, and measured that."""
    UNKNOWN = "unknown"
    """Nobody knows it."""


@dataclass(frozen=True, eq=False)
class Walk:
    """A run but for the rule by which steps are counted, and what is known of dwell times."""

    base: Script
    offers: dict[NodeId, str]
    """What each publisher advertises."""
    dwell: int
    """How many ticks clients stay everywhere, at least."""
    happenings: tuple[tuple[int, NodeId, Doing], ...]
    """After so many ticks since the network has settled, this client does that; in order."""
    faults: tuple[tuple[int, Drop | Crash | Partition], ...] = ()
    """After so many ticks, this goes wrong."""

    def script(self, rule: StepRule, known: Known = Known.FIXED) -> Script:
        """The run under a rule."""
        steps = (*self.base.steps, Settle(), *self._pacing(known), *self._timed())
        return msgspec.structs.replace(self.base, places=self.places(rule, known), steps=steps)

    def flooding(self) -> Script:
        """The same run with events that go everywhere, and clients that want them all.

        A publisher that quenches asks for what is wanted, and waits for the answer, here as there.
        """
        everything = Subscribe(subscription="1", filter=Filter("TRUE"))
        return msgspec.structs.replace(
            self.base,
            routing=RoutingOptions(strategy=Strategy.FLOODING),
            client=ClientOptions(quenching=self.base.client.quenching),
            steps=(
                *(Do(client=client, what=everything) for client in self.base.locations),
                Settle(),
                *self._timed(),
            ),
        )

    def places(self, rule: StepRule, known: Known) -> PlacesOptions:
        """Where clients can be, and what is known of how long they stay there."""
        told_us: Time | None = self.dwell * TICK_US
        match known:
            case Known.MINED:
                told_us = mined(self).least_dwell_us
            case Known.MEASURED | Known.UNKNOWN:
                told_us = None
        how = Dwell.FIXED if known is Known.FIXED else Dwell.LEAST
        assert self.base.places is not None
        return msgspec.structs.replace(self.base.places, rule=rule, dwell=how, dwell_us=told_us)

    def settles(self, known: Known) -> int:
        """How often the network settles before the first thing happens."""
        return 1 + (known is Known.MEASURED)

    def _pacing(self, known: Known) -> list[AnyStep]:
        """Clients go to and fro until they have measured enough; in the end they are back."""
        if known is not Known.MEASURED:
            return []
        assert self.base.places is not None
        space = self.base.places.space()
        assert isinstance(space, MovementGraph)
        pause = Wait(us=self.dwell * TICK_US)
        steps: list[AnyStep] = [pause]
        for number in range(STAYS_MAX):
            for client, start in self.base.locations.items():
                away = next(each for each in space.locations if each != start)
                there = MoveTo(location=start if number % 2 else away)
                steps.append(Do(client=client, what=there))
            steps.append(pause)
        return [*steps, Settle()]

    def _timed(self) -> list[AnyStep]:
        """What happens, with the time between."""
        plan: list[tuple[int, AnyStep]] = [
            *((ticks, Do(client=client, what=what)) for ticks, client, what in self.happenings),
            *self.faults,
        ]
        steps: list[AnyStep] = []
        before = 0
        for ticks, step in sorted(plan, key=lambda each: each[0]):
            if ticks > before:
                steps.append(Wait(us=(ticks - before) * TICK_US))
            before = ticks
            steps.append(step)
        return steps

    def moves(self, client: NodeId) -> list[tuple[Time, str]]:
        """Where a client is, from when on."""
        moved = [
            (ticks * TICK_US, what.location)
            for ticks, who, what in self.happenings
            if who == client and isinstance(what, MoveTo)
        ]
        return [(0, self.base.locations[client]), *moved]

    def places_between(self, client: NodeId, begin_us: Time, end_us: Time) -> list[str]:
        """Where a client is from one time to another; where it moves just then, both count."""
        moves = self.moves(client)
        ends = [us for us, _ in moves[1:]] + [max(end_us, moves[-1][0])]
        return [
            place
            for (us, place), left_us in zip(moves, ends, strict=True)
            if us <= end_us and left_us >= begin_us
        ]

    def wants(self, client: NodeId, place: str) -> tuple[Filter, ...]:
        """What a client's subscriptions mean at a place."""
        return _wants(self, client, place)

    def wanted(self, client: NodeId, publisher: NodeId, place: str) -> tuple[Event, ...]:
        """All events of a publisher that a client wants at a place."""
        return _wanted(self, client, publisher, place)


@cache
def _wants(walk: Walk, client: NodeId, place: str) -> tuple[Filter, ...]:
    assert walk.base.places is not None
    space = walk.base.places.space()
    return tuple(
        step.what.filter.bind(location=place, space=space)
        for step in walk.base.steps
        if isinstance(step, Do) and step.client == client and isinstance(step.what, Subscribe)
    )


@cache
def _wanted(walk: Walk, client: NodeId, publisher: NodeId, place: str) -> tuple[Event, ...]:
    assert walk.base.places is not None
    space = walk.base.places.space()
    assert isinstance(space, MovementGraph)
    events = [
        Event(publisher=publisher, seq=1, time_us=0, attributes={"kind": kind, "room": room})
        for kind in OFFERS[walk.offers[publisher]]
        for room in space.locations
    ]
    filters = walk.wants(client, place)
    return tuple(e for e in events if any(f.matches(e.attributes) for f in filters))


def mined(walk: Walk) -> MobilityModel:
    """A model of where clients went and how long they stayed, as mining would make it."""
    stays: dict[str, list[float]] = {}
    for client in walk.base.locations:
        for (came_us, place), (left_us, _) in pairwise(walk.moves(client)[1:]):
            stays.setdefault(place, []).append((left_us - came_us) / 1e6)
    document = mobility.Document(
        sizes=mobility.Sizes(places=len(stays), clients=0, moves=0, counts=0),
        until_us=0,
        grid="",
        near=0.0,
        places=list(stays),
        clients=[],
        popularity=[0] * len(stays),
        contexts=[],
        predictors=[],
        moves=[],
        dwell={number: _stayed(seconds) for number, seconds in enumerate(stays.values())},
    )
    return MobilityModel(document)


def _stayed(seconds: list[float]) -> mobility.Dwell:
    tenths = quantiles(seconds * 2, n=10, method="inclusive")
    return mobility.Dwell(
        count=len(seconds),
        mean_s=mean(seconds),
        p10_s=tenths[0],
        p50_s=tenths[4],
        p90_s=tenths[8],
        min_s=min(seconds),
    )


# ---- Random walks


@st.composite
def walks(
    draw: st.DrawFn,
    routing: RoutingOptions,
    *,
    moves_max: int = 6,
    jitter_us: Time = 0,
    quenching: bool = True,
    hurried: bool = False,
    far: bool = False,
) -> Walk:
    """Up to 6 brokers, 3 clients that walk and 2 that publish, 8 rooms, links of up to 300 ms.

    Clients that are hurried go along a row of rooms and may stay shorter than the dwell time. If
    they may get far, the row is longer than brokers look, and links are of up to 50 ms.
    With jitter, each link is measured in steps that are coarser than the jitter, so that no frame
    is ever slower than was measured.
    """
    rooms = [f"r{n}" for n in range(15 if far else 9 if hurried else draw(st.integers(2, 8)))]
    back = st.integers(1, 1 if hurried or far else 3)
    edges = [(rooms[max(0, n - draw(back))], rooms[n]) for n in range(1, len(rooms))]
    edges += draw(st.lists(st.tuples(*[st.sampled_from(rooms)] * 2), max_size=1))
    topology = from_parents(
        [draw(st.integers(0, child - 1)) for child in range(1, draw(st.integers(1, 6)))]
    )
    walkers = [f"ann{n}" for n in range(draw(st.integers(1, 3)))]
    publishers = [f"pat{n}" for n in range(draw(st.integers(1, 2)))]
    clients = {
        client: draw(st.sampled_from(topology.brokers)) for client in (*walkers, *publishers)
    }
    latency = st.integers(0, 5 if far else 30).map(lambda ticks: ticks * TICK_US + jitter_us // 2)
    links = [*topology.links, *clients.items()]
    dwell = draw(st.sampled_from((3, 5, 10, 20, 40)))
    directed = draw(st.booleans())
    grain_us = 5 * jitter_us if jitter_us else PlacesOptions().grain_us
    places = PlacesOptions(edges=tuple(edges), directed=directed, grain_us=grain_us)
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
        longer = (dwell, dwell, dwell, dwell + 1, dwell + 7)
        stays = st.sampled_from((1, 2, 3, *longer[1:]) if hurried else longer)
        moves += draw(_moves(client, locations[client], places.space(), stays, moves_max))
    happenings: list[tuple[int, NodeId, Doing]] = [*moves]
    last = [[move for move in moves if move[1] == client][-1] for client in walkers]
    latencies = tuple((a, b, draw(latency)) for a, b in links)
    for _ in range(draw(st.integers(5, 25))):
        client = draw(st.sampled_from(publishers))
        kind = draw(st.sampled_from(OFFERS[offers[client]]))
        # It reaches one of the walkers when that one comes to where it matters, or about then; or
        # long after, if the walker has come far and stays there.
        if far and draw(st.booleans()):
            ticks, walker, move = draw(st.sampled_from(last))
            ticks += 90
        else:
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
        client=ClientOptions(
            advertisements=routing.advertisements, quenching=quenching and draw(st.booleans())
        ),
        link=LinkModel(jitter_us=jitter_us),
        latencies=latencies,
        places=places,
        locations=locations,
    )
    return Walk(base, offers, dwell, tuple(sorted(happenings, key=lambda each: each[0])))


@st.composite
def _moves(
    draw: st.DrawFn,
    client: NodeId,
    at: str,
    space: LocationSpace,
    stays: st.SearchStrategy[int],
    moves_max: int,
) -> list[tuple[int, NodeId, MoveTo]]:
    """A walk that goes where the movement graph leads, and stays everywhere for some ticks."""
    moves: list[tuple[int, NodeId, MoveTo]] = []
    ticks = draw(st.integers(0, 10))
    before = at
    for _ in range(draw(st.integers(1, moves_max))):
        near = space.ploc(at, 1)
        onward = sorted(near - {at, before}) or sorted(near)
        before, at = at, draw(st.sampled_from([*onward, *onward, at]))
        moves.append((ticks, client, MoveTo(location=at)))
        ticks += draw(stays)
    return moves


@st.composite
def troubled(draw: st.DrawFn, walk: Walk) -> Walk:
    """A walk with up to 4 broken links, brokers that crash and come back from their logs, and parts
    of the network that are cut off, each for up to 600 ms, when somebody moves.
    """
    moved = [ticks for ticks, _, what in walk.happenings if isinstance(what, MoveTo)]
    brokers = walk.base.topology.brokers
    faults: list[tuple[int, Drop | Crash | Partition]] = []
    for _ in range(draw(st.integers(1, 4))):
        us = draw(st.integers(1, 60)) * TICK_US
        kind = draw(st.sampled_from((Drop, Crash, Partition)))
        fault: Drop | Crash | Partition
        if kind is Drop:
            a, b, _ = draw(st.sampled_from(walk.base.latencies))
            fault = Drop(a=a, b=b, us=us)
        elif kind is Crash:
            fault = Crash(broker=draw(st.sampled_from(brokers)), us=us)
        else:
            cut = draw(st.lists(st.sampled_from(brokers), min_size=1, unique=True))
            fault = Partition(brokers=tuple(sorted(cut)), us=us)
        faults.append((max(0, draw(st.sampled_from(moved)) - draw(st.integers(0, 60))), fault))
    return replace(walk, faults=tuple(faults))


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


# ---- What clients get

Delivery = tuple[NodeId, Time, EventId]
"""Who was given which event, and how long after the network had settled and things began."""


class Deliveries(Observer):
    """Notes what clients are given."""

    def __init__(self) -> None:
        self.all: list[Delivery] = []
        self._start_us: Time = 0
        self._has_begun = False

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Published():
                self._has_begun = True
            case facts.Settled() if not self._has_begun:
                self._start_us = fact.time
            case facts.Delivered():
                after_us = fact.time - self._start_us
                self.all += [(fact.at, after_us, e.id) for e in fact.events if self.counts(fact, e)]

    def counts(self, fact: facts.Delivered, event: Event) -> bool:
        """Whether the application wants it."""
        del fact, event
        return True


class Flooded(Deliveries):
    """Filters at the client: of all events, what matches where the client is when they arrive."""

    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self._walk = walk
        self._at: dict[NodeId, str] = {}

    def fact(self, fact: Fact) -> None:
        super().fact(fact)
        if isinstance(fact, facts.Moved):
            self._at[fact.at] = fact.location

    def counts(self, fact: facts.Delivered, event: Event) -> bool:
        wants = self._walk.wants(fact.at, self._at[fact.at])
        return any(each.matches(event.attributes) for each in wants)


def deliveries(script: Script) -> list[Delivery]:
    """All of a run, which must be right for what stood still long enough."""
    seen = Deliveries()
    outcome = Simulation(script, [seen]).run()
    assert outcome.findings == []
    return sorted(seen.all)


def flooded(walk: Walk) -> list[Delivery]:
    """What flooding brings, with filters at the clients only. No moving subscription is in it."""
    seen = Flooded(walk)
    simulation = Simulation(walk.flooding(), [seen])
    assert simulation.run().findings == []
    assert not simulation.outcome().messages["MovingChange"]
    return sorted(seen.all)
