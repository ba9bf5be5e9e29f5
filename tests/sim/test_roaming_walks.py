"""Clients that roam from broker to broker and walk from location to location at the same time.

An event is for a client if it matches where the client is when it arrives there, or, if it comes
to the client's broker while the client is away, where the client was last known to be.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Advertise, Attach, Detach, MoveTo, Publish, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.names import NEVER, NodeId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.script import Do, Doing, Script
from sterna.sim.topology import from_parents, line
from tests.scale import examples
from tests.sim.judging import Checked
from tests.sim.overlay import RELOCATION, Overlay
from tests.sim.walks import TICK_US, Known, Latencies, Walk, delay_us, troubled

RUNS = 15
"""Per strategy, with and without advertisements: 180 pairs of runs."""


ROOMS = tuple(f"r{number}" for number in range(30))
DWELL = 20
"""In ticks: long beside the delays, so that a few steps suffice for a client that is there."""


@st.composite
def journeys(draw: st.DrawFn, routing: RoutingOptions, *, walkers_max: int = 1) -> Walk:
    """Clients walk along a ring of rooms, go offline now and then, and come back anywhere.

    Much is published about where they are when they come back, to arrive there about then; and the
    publisher moves, too. If there may be several clients, they are connected for longer, on faster
    links, and something is published at other times as well.
    """
    topology = from_parents(
        [draw(st.integers(0, child - 1)) for child in range(1, draw(st.integers(1, 5)))]
    )
    brokers = st.sampled_from(topology.brokers)
    walkers = [f"ann{number}" for number in range(draw(st.integers(1, walkers_max)))]
    clients = {client: draw(brokers) for client in (*walkers, "pat")}
    latency = st.integers(0, 8 if walkers_max == 1 else 3).map(lambda ticks: ticks * TICK_US)
    latencies = tuple((a, b, draw(latency)) for a, b in (*topology.links, *clients.items()))
    happenings: list[tuple[int, NodeId, Doing]] = []
    for walker in walkers:
        connected = st.integers(10, 80) if walkers_max == 1 else st.integers(40, 200)
        happenings += draw(_journey(walker, brokers, latencies, connected))
    end = max(ticks for ticks, _, _ in happenings)
    moves = [(ticks, what) for ticks, _, what in happenings if isinstance(what, MoveTo)]
    for _ in range(5 * walkers_max - 5):
        ticks, move = draw(st.sampled_from(moves))
        event = Publish(attributes={"room": move.location})
        happenings.append((ticks + draw(st.integers(0, DWELL)), "pat", event))
    happenings += [
        (draw(st.integers(0, end)), "pat", Attach(broker=draw(brokers)))
        for _ in range(draw(st.integers(0, 2)))
    ]
    advertise = Advertise(advertisement="1", filter=Filter("room IS NOT NULL"))
    subscribe = Subscribe(subscription="1", filter=Filter("room IN myloc"))
    base = Script(
        topology=topology,
        clients=clients,
        steps=(
            Do(client="pat", what=advertise),
            *(Do(client=walker, what=subscribe) for walker in walkers),
        ),
        routing=routing,
        client=ClientOptions(advertisements=routing.advertisements, quenching=draw(st.booleans())),
        latencies=latencies,
        handover=RELOCATION,
        places=PlacesOptions(
            edges=tuple((ROOMS[n], ROOMS[(n + 1) % len(ROOMS)]) for n in range(len(ROOMS)))
        ),
        locations=dict.fromkeys(walkers, ROOMS[0]),
    )
    return Walk(base, {}, DWELL, tuple(sorted(happenings, key=lambda each: each[0])))


@st.composite
def _journey(
    draw: st.DrawFn,
    client: NodeId,
    brokers: st.SearchStrategy[NodeId],
    latencies: Latencies,
    connected: st.SearchStrategy[int],
) -> list[tuple[int, NodeId, Doing]]:
    """What one client does, and what is published about where it comes back."""
    happenings: list[tuple[int, NodeId, Doing]] = []
    at, ticks = 0, 0
    walk: dict[int, int] = {0: 0}
    for _ in range(draw(st.integers(4, 14))):
        ticks += DWELL + draw(st.sampled_from((0, 0, 1, 9)))
        at = walk[ticks] = (at + draw(st.sampled_from((1, 1, 1, -1)))) % len(ROOMS)
        happenings.append((ticks, client, MoveTo(location=ROOMS[at])))
    end, ticks = ticks, draw(st.integers(0, 30))
    while ticks < end:
        happenings.append((ticks, client, Detach()))
        ticks += draw(st.sampled_from((0, 5, 40, 90, 130)))
        there = draw(brokers)
        happenings.append((ticks, client, Attach(broker=there)))
        here = ROOMS[walk[max(moved for moved in walk if moved <= ticks)]]
        for late in draw(st.lists(st.integers(-12, 20), min_size=2, max_size=8)):
            event = Publish(attributes={"room": here})
            way = delay_us(latencies, "pat", there) // TICK_US
            happenings.append((max(0, ticks + late - way), "pat", event))
        ticks += draw(connected)
    return happenings


def flooding(walk: Walk) -> Walk:
    """The same with events that go everywhere."""
    routing = RoutingOptions(strategy=Strategy.FLOODING)
    client = ClientOptions(quenching=walk.base.client.quenching)
    return replace(walk, base=msgspec.structs.replace(walk.base, routing=routing, client=client))


def deliveries(
    walk: Walk, rule: StepRule, known: Known = Known.FIXED
) -> dict[NodeId, list[EventId]]:
    """What each client is given under a rule, in order."""
    simulation = Checked(walk.script(rule, known))
    outcome = simulation.run()
    assert outcome.findings == []
    return {client: simulation.oracle.received(client) for client in walk.base.clients}


KNOWN = st.sampled_from((Known.FIXED, Known.TOLD, Known.UNKNOWN))


@pytest.mark.spec("LM-5", "LM-3", "PM-4")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
@pytest.mark.parametrize("strategy", Strategy)
def test_who_roams_and_walks_misses_nothing_because_steps_are_limited(
    strategy: Strategy, advertisements: bool
) -> None:
    """Alone in a network, it gets the same if brokers ask for what is about any place."""
    seen: Counter[str] = Counter()
    routing = RoutingOptions(strategy=strategy, advertisements=advertisements)

    @examples(RUNS, long=2)
    @given(journeys(routing), KNOWN)
    def runs(walk: Walk, known: Known) -> None:
        expected = deliveries(walk, StepRule.EVERYWHERE)
        assert deliveries(walk, StepRule.SAFE, known) == expected
        seen.update(runs=1, delivered=sum(map(len, expected.values())))

    runs()
    assert seen["delivered"] > seen["runs"]


@pytest.mark.spec("LM-5", "LM-3", "PM-4")
@pytest.mark.parametrize("faults", [False, True], ids=["", "faults"])
@pytest.mark.parametrize("strategy", Strategy)
def test_clients_that_roam_and_walk_get_what_flooding_brings(
    strategy: Strategy, faults: bool
) -> None:
    """All but what was on its way together with the client, to another broker and another place.

    With faults, links break, brokers crash and come back from their logs, and the network is cut in
    parts; then it is all but what was on its way meanwhile, if the client moved.
    """
    seen: Counter[str] = Counter()
    calm = st.booleans().flatmap(
        lambda ads: journeys(RoutingOptions(strategy=strategy, advertisements=ads), walkers_max=3)
    )

    @examples(RUNS, long=2)
    @given(calm.flatmap(troubled) if faults else calm, KNOWN)
    def runs(walk: Walk, known: Known) -> None:
        seen.update(runs=1, **compared(walk, deliveries(walk, StepRule.SAFE, known)))

    runs()
    assert seen["delivered"] > seen["sure"] > 2 * seen["runs"]


@pytest.mark.spec("LM-5", "PM-4", "DO-1", "DO-2", "DO-3", "DO-4")
@pytest.mark.parametrize(
    "protocol", [Handover.STANDARD, Handover.LOGGING, Handover.PREFETCHING, Handover.HOME]
)
def test_so_it_is_with_every_handover_strategy(protocol: Handover) -> None:
    """Whichever way their events come, in networks that have troubles."""
    seen: Counter[str] = Counter()
    calm = st.sampled_from(Strategy).flatmap(
        lambda strategy: journeys(RoutingOptions(strategy=strategy), walkers_max=3)
    )

    @examples(RUNS, long=8)
    @given(calm.flatmap(troubled), KNOWN)
    def runs(walk: Walk, known: Known) -> None:
        handover = HandoverOptions(protocol=protocol)
        handed = replace(walk, base=msgspec.structs.replace(walk.base, handover=handover))
        seen.update(runs=1, **compared(handed, deliveries(handed, StepRule.SAFE, known)))

    runs()
    assert seen["delivered"] > seen["sure"] > 2 * seen["runs"]


def compared(walk: Walk, found: dict[NodeId, list[EventId]]) -> dict[str, int]:
    """Hold what clients got against what flooding brings to them."""
    flooded = deliveries(flooding(walk), StepRule.EVERYWHERE)
    sure = 0
    for client in walk.base.locations:
        got, expected = set(found[client]), set(flooded[client])
        for id_, us in published(walk).items():
            if is_sure(walk, client, us):
                sure += id_ in expected
                assert (id_ in got) is (id_ in expected), f"{client} and {id_}"
    return {"delivered": sum(map(len, flooded.values())), "sure": sure}


def published(walk: Walk) -> dict[EventId, Time]:
    """What is published, and when."""
    at = [ticks * TICK_US for ticks, _, what in walk.happenings if isinstance(what, Publish)]
    return {EventId("pat", number): us for number, us in enumerate(at, 1)}


def is_sure(walk: Walk, client: NodeId, published_us: Time) -> bool:
    """Whether nothing was under way together with an event, or the client stood still meanwhile.

    Under way are clients between two brokers and what is broken, until all is as before. An event
    waits for its publisher, and for what is broken; whether it is kept for a client that is away is
    decided when it comes to the client's broker.
    """
    nodes = (*walk.base.topology.brokers, *walk.base.clients)
    across_us = 10_000 + max(delay_us(walk.base.latencies, a, b) for a in nodes for b in nodes)
    faults = [(ticks * TICK_US, ticks * TICK_US + fault.us) for ticks, fault in walk.faults]
    begin, end = published_us, published_us + across_us
    meanwhile: set[tuple[Time, Time]] = set()
    while more := _touching([*_absences(walk, "pat"), *faults], begin, end, across_us) - meanwhile:
        meanwhile |= more
        begin = min(begin, *(w[0] for w in more))
        end = max(end, *(w[1] for w in more))
    meanwhile |= _touching(_absences(walk, client), begin, end, across_us)
    begin = min([begin, *(w[0] for w in meanwhile)])
    end = max([end, *(w[1] for w in meanwhile)])
    places = walk.places_between(client, begin - 2 * across_us, end + across_us)
    return not meanwhile or len(set(places)) == 1


def _touching(
    windows: Sequence[tuple[Time, Time]], begin: Time, end: Time, across_us: Time
) -> set[tuple[Time, Time]]:
    """Those of some windows that touch a time, with what it takes to be as before after each."""
    settled = {(broke, well + 4 * across_us) for broke, well in windows}
    return {(broke, well) for broke, well in settled if broke <= end and well >= begin}


def _absences(walk: Walk, client: NodeId) -> list[tuple[Time, Time]]:
    """From when to when a client is at no broker."""
    own = [(ticks * TICK_US, what) for ticks, who, what in walk.happenings if who == client]
    found, left = [], None
    for us, what in own:
        if isinstance(what, Detach):
            left = us
        elif isinstance(what, Attach):
            found.append((us if left is None else left, us))
            left = None
    return found if left is None else [*found, (left, NEVER)]


# ---- Single stories


def corridor() -> Overlay:
    """Rooms in a row, a client in the first, and a publisher three brokers away."""
    places = PlacesOptions(
        edges=tuple((f"r{n}", f"r{n + 1}") for n in range(20)),
        dwell=Dwell.FIXED,
        dwell_us=1_000_000,
    )
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B3"},
        handover=RELOCATION,
        places=places,
        locations={"ann": "r0"},
    )
    return run.subscribe("ann", "room IN myloc").settle()


@pytest.mark.spec("LM-5", "PM-3")
@pytest.mark.parametrize("broker", ["B1", "B2"], ids=["resumed", "relocated"])
def test_what_is_kept_is_for_where_the_client_was_last(broker: str) -> None:
    """While it is away nobody knows where it is; its broker keeps what is for the old place."""
    run = corridor()
    run.detach("ann").wait(5_000)
    run.publish("pat", room="r0").publish("pat", room="r1").wait(1_000_000)
    run.move("ann", "r1").publish("pat", room="r0").publish("pat", room="r1").settle()

    run.attach("ann", broker).settle()
    assert run.received("ann") == ["pat#1", "pat#3"]

    run.publish("pat", room="r0").publish("pat", room="r1").settle()
    assert run.received("ann") == ["pat#1", "pat#3", "pat#6"]


@pytest.mark.spec("LM-5", "PM-4")
def test_what_is_kept_for_one_subscription_is_not_delivered_for_another() -> None:
    run = corridor().subscribe("ann", "kind = 'y'", "2").settle()
    run.detach("ann").wait(5_000).publish("pat", room="r9", kind="y").settle()
    run.unsubscribe("ann", "2").attach("ann", "B2").settle()

    assert run.received("ann") == []


@pytest.mark.spec("LM-4")
def test_after_a_break_only_changes_are_told_again() -> None:
    run = corridor().subscribe("ann", "kind = 'x' AND room IN myloc", "2").settle()
    run.detach("ann").wait(5_000).attach("ann", "B1").settle()
    before = len(run.trace.lines)
    run.unsubscribe("ann", "2").settle()

    (told,) = [line for line in run.trace.lines[before:] if "ann → B1" in line]
    assert told.endswith("MovingChange -ann/2")


@pytest.mark.spec("LM-4", "LM-5")
def test_a_client_that_is_away_is_looked_for_farther_and_farther_off() -> None:
    """One step for each dwell time, up to a limit; and no more when it is back."""
    run = corridor()

    def rooms() -> int:
        (entered,) = run.broker("B3").router.subscriptions.entered("B2").values()
        return sum(entered.matches({"room": f"r{n}"}) for n in range(21))

    present = rooms()
    run.detach("ann").wait(10_000)
    reach = [rooms()]
    for _ in range(12):
        run.wait(1_000_000)
        reach.append(rooms())
    assert reach == [present + n for n in (1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8, 8)]

    run.attach("ann", "B1").settle()
    assert rooms() == present


@pytest.mark.spec("LM-5")
def test_no_blackout_when_a_client_comes_back_somewhere_else() -> None:
    """Three rooms further: what is published about that room just then is delivered."""
    run = corridor()
    run.detach("ann").wait(1_000_000)
    for room in ("r1", "r2", "r3"):
        run.move("ann", room).wait(1_000_000)
    run.publish("pat", room="r3").wait(1_000)  # No broker knows yet that this is wanted.
    run.attach("ann", "B1").settle()  # When it comes to B1, the client is there.

    assert run.received("ann") == ["pat#1"]
