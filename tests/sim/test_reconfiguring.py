"""Settings change broker by broker while clients roam, and nothing is lost."""

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.broker import Broker
from sterna.core.catalogue import LIVE
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Advertise, MoveTo, Publish, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.mobility import MobilityOptions
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions, HistoryOptions, Settings
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.oracle import Finding
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, Doing, Reconfigure, Script, Settle
from sterna.sim.topology import line, random_tree
from tests.mobility import model_of
from tests.scale import examples
from tests.sim.overlay import Overlay

STRATEGIES = st.sampled_from(Strategy)
MANY = 10_000


def routings() -> st.SearchStrategy[RoutingOptions]:
    return st.builds(
        RoutingOptions,
        strategy=STRATEGIES,
        advertisements=st.booleans(),
        merge_members_max=st.sampled_from((16, 2)),
        interest_members_max=st.sampled_from((2, 4)),
    )


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    """Anything that a network of roaming clients may be configured with."""
    routing = draw(routings())
    return Settings(
        routing=routing,
        client=ClientOptions(advertisements=routing.advertisements, quenching=draw(st.booleans())),
        handover=HandoverOptions(
            protocol=Handover.RELOCATION,
            cache_events_max=draw(st.sampled_from((MANY, 100_000))),
            cache_bytes_max=draw(st.sampled_from((None, 10**9))),
            cache_ttl_us=draw(st.sampled_from((None, 10**12))),
            away_max_us=draw(st.sampled_from((None, 10**12))),
        ),
        history=HistoryOptions(events_max=draw(st.sampled_from((10, MANY)))),
        protocols=draw(st.sampled_from(((), LIVE))),
    )


def changing(script: Script, later: list[Settings], seed: int) -> Script:
    """A script in which brokers get other settings now and then, one after the other.

    All clients are known to the network before that: with advertisements, events that follow the
    first one of a new client at once may come too early for brokers far away (RT-3).
    """
    rng = random.Random(f"changes {seed}")  # noqa: S311 - reproducible.
    steps: list[AnyStep] = list(script.steps)
    changes = [(broker, each) for each in later for broker in script.topology.brokers]
    places = sorted(rng.randrange(len(steps) + 1) for _ in changes)
    for place, (broker, each) in reversed(list(zip(places, changes, strict=True))):
        change = Reconfigure(broker=broker, settings=each, tells=rng.random() < 0.5)
        steps[place:place] = [change, Settle()] if rng.random() < 0.2 else [change]
    return msgspec.structs.replace(script, steps=(Settle(), *steps))


def with_advertisements(each: Settings, *, used: bool) -> Settings:
    """The same settings, with or without advertisements."""
    replace = msgspec.structs.replace
    return replace(
        each,
        routing=replace(each.routing, advertisements=used),
        client=replace(each.client, advertisements=used),
    )


def findings(
    first: Settings, later: list[Settings], faults: str, brokers: int, seed: int, *, roams: bool
) -> list[Finding]:
    """What is wrong with a run that begins with some settings and goes on with others."""
    plan = plan_for(first, faults, brokers, seed, roams=roams)
    script = msgspec.structs.replace(generate(plan, seed), protocols=first.protocols)
    return Simulation(changing(script, later, seed)).run().findings


def plan_for(first: Settings, faults: str, brokers: int, seed: int, *, roams: bool) -> Plan:
    """A run that begins with some settings."""
    return Plan(
        topology=random_tree(brokers, seed),
        clients=4,
        subscriptions=16,
        events=40,
        moves=10 if roams else 0,
        naps=5 if roams else 0,
        variety=4,
        routing=first.routing,
        client=first.client,
        handover=first.handover,
        faults=FAULTS[faults],
    )


LATER = st.lists(settings(), min_size=1, max_size=3)
TROUBLE = st.sampled_from(("none", "light", "heavy"))
BROKERS = st.integers(1, 4)
SEEDS = st.integers(0, 2**32)


@pytest.mark.spec("LV-9", "PM-4", "RT-1")
@examples(50, long=25)
@given(settings(), LATER, TROUBLE, BROKERS, SEEDS)
def test_settings_change_broker_by_broker_while_clients_roam(
    first: Settings, later: list[Settings], faults: str, brokers: int, seed: int
) -> None:
    """Any settings after any others, while clients roam, sleep, subscribe and publish."""
    used = first.routing.advertisements
    later = [with_advertisements(each, used=used) for each in later]

    assert findings(first, later, faults, brokers, seed, roams=True) == []


@pytest.mark.spec("LV-9", "RT-1", "RT-3")
@examples(50, long=25)
@given(settings(), LATER, TROUBLE, BROKERS, SEEDS)
def test_advertisements_come_and_go_broker_by_broker(
    first: Settings, later: list[Settings], faults: str, brokers: int, seed: int
) -> None:
    """Nothing is lost between brokers with and without, whatever breaks meanwhile."""
    assert findings(first, later, faults, brokers, seed, roams=False) == []


@pytest.mark.spec("LV-9", "LV-3")
@examples(50, long=25)
@given(
    settings(),
    st.lists(st.tuples(settings(), st.sampled_from((Handover.NONE, Handover.RELOCATION)))),
    *(TROUBLE, BROKERS, SEEDS),
)
def test_handover_is_switched_on_and_off(
    first: Settings, later: list[tuple[Settings, Handover]], faults: str, brokers: int, seed: int
) -> None:
    """What is kept for clients that are away reaches them, as long as they do not move."""
    replace = msgspec.structs.replace
    changes = [
        replace(each, handover=replace(each.handover, protocol=protocol))
        for each, protocol in later[:3]
    ]
    assert findings(first, changes, faults, brokers, seed, roams=False) == []


# ---- Places and models


ROOMS = tuple(f"r{number}" for number in range(6))
GRAPHS = (
    tuple(pairwise(ROOMS)),
    (*pairwise(ROOMS[::2]), *pairwise(ROOMS[1::2]), ("r0", "r5")),
)
"""The same rooms, with different ways between them."""

MODELS = tuple(
    MobilityOptions(model=model_of(dict.fromkeys(graph, 1) | {graph[0]: 9}, 0.01).to_bytes())
    for graph in GRAPHS
)

FOLLOWING = (
    "room IN myloc",
    "room IN myloc(1)",
    "kind = 'car' AND room IN myloc",
    "kind <> 'car' AND room IN myloc(2)",
)


@st.composite
def settings_with_places(draw: st.DrawFn) -> Settings:
    """Any settings with one of two graphs, any rule, any dwell time and perhaps a model."""
    told = st.sampled_from((None, 1_000, 50_000, 10**9))
    places = PlacesOptions(
        edges=draw(st.sampled_from(GRAPHS)),
        directed=draw(st.booleans()),
        rule=draw(st.sampled_from(StepRule)),
        dwell=draw(st.sampled_from(Dwell)),
        dwell_us=draw(told),
        away_steps_max=draw(st.sampled_from((0, 8))),
        grain_us=draw(st.sampled_from((1, 1_000))),
    )
    mobility = draw(st.sampled_from((None, *MODELS)))
    return msgspec.structs.replace(draw(settings()), places=places, mobility=mobility)


def walking(script: Script, seed: int) -> Script:
    """The script with clients that go from room to room, and events about rooms."""
    rng = random.Random(f"walks {seed}")  # noqa: S311 - reproducible.
    clients = list(script.clients)
    offer = Advertise(advertisement="rooms", filter=Filter("room IS NOT NULL"))
    first: list[AnyStep] = [Do(client=client, what=offer) for client in clients]
    for client in clients:
        for number, text in enumerate(rng.sample(FOLLOWING, 2)):
            what = Subscribe(subscription=f"room {number}", filter=Filter(text))
            first.append(Do(client=client, what=what))
    steps: list[AnyStep] = list(script.steps)
    for _ in range(60):
        room, kind = rng.choice(ROOMS), rng.choice(("car", "bus"))
        event = Publish(attributes={"room": room, "kind": kind, "zone": rng.randrange(4)})
        happening: Doing = MoveTo(location=room) if rng.random() < 0.2 else event
        steps.insert(rng.randrange(len(steps) + 1), Do(client=rng.choice(clients), what=happening))
    locations = {client: rng.choice(ROOMS) for client in clients}
    return msgspec.structs.replace(script, steps=(*first, *steps), locations=locations)


def guesses(given: Settings) -> list[tuple[str, ...]]:
    return [tuple(place for place, _ in given.predictor().next(room)) for room in ROOMS]


@pytest.mark.spec("LV-9", "LM-3", "PM-4", "PL-4")
@examples(50, long=25)
@given(
    settings_with_places(),
    st.lists(settings_with_places(), min_size=1, max_size=3),
    *(TROUBLE, BROKERS, SEEDS),
)
def test_places_and_models_change_broker_by_broker_while_clients_roam_and_walk(
    first: Settings, later: list[Settings], faults: str, brokers: int, seed: int
) -> None:
    """What stands still long enough is right, and each broker predicts by its own settings."""
    later = [with_advertisements(each, used=first.routing.advertisements) for each in later]
    plan = plan_for(first, faults, brokers, seed, roams=True)
    script = msgspec.structs.replace(
        generate(plan, seed),
        protocols=first.protocols,
        places=first.places,
        mobility=first.mobility,
    )
    simulation = Simulation(changing(walking(script, seed), later, seed))

    assert simulation.run().findings == []
    for broker in script.topology.brokers:
        host = simulation.network.hosts[broker]
        assert isinstance(host.node, Broker)
        found = [host.node.predictor.next(room) for room in ROOMS]
        assert [tuple(place for place, _ in each) for each in found] == guesses(host.settings)


@pytest.mark.spec("LV-9", "RT-1")
def test_what_was_told_in_the_old_way_ends() -> None:
    """With another strategy, a neighbour knows what that strategy tells, and nothing else."""
    run = Overlay(line(2), {"ann": "B1", "bob": "B1"}, routing=simple())
    run.subscribe("ann", "zone > 1").subscribe("bob", "zone > 2").settle()
    assert run.table("B2") == {"B1": ["zone > 1", "zone > 2"]}

    for strategy, told in (("covering", ["zone > 1"]), ("flooding", ["TRUE"])):
        routing = RoutingOptions(strategy=Strategy(strategy))
        for broker in ("B1", "B2"):
            run.simulation.do(Reconfigure(broker=broker, settings=Settings(routing=routing)))
        run.settle()
        assert run.table("B2") == {"B1": told}


def simple() -> RoutingOptions:
    return RoutingOptions(strategy=Strategy.SIMPLE)
