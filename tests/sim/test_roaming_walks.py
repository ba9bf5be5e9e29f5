"""Clients that roam from broker to broker and walk from location to location at the same time.

An event is for a client if it matches where the client is when it arrives there, or, if it comes
to the client's broker while the client is away, where the client was last known to be.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.client import ClientOptions
from sterna.core.inputs import Advertise, Attach, Detach, MoveTo, Publish, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.names import NodeId
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.script import Do, Doing, Script
from sterna.sim.topology import from_parents, line
from tests.scale import examples
from tests.sim.judging import Checked
from tests.sim.overlay import RELOCATION, Overlay
from tests.sim.walks import TICK_US, Walk, delay_us

RUNS = 30
"""Per strategy, with and without advertisements: 360 pairs of runs."""


ROOMS = 30
DWELL = 20
"""In ticks: long beside the delays, so that a few steps suffice for a client that is there."""


@st.composite
def journeys(draw: st.DrawFn, routing: RoutingOptions) -> Walk:
    """A client walks along a ring of rooms, goes offline now and then, and comes back anywhere.

    Much is published about where it is when it comes back, to arrive there about then; and the
    publisher moves, too.
    """
    topology = from_parents(
        [draw(st.integers(0, child - 1)) for child in range(1, draw(st.integers(1, 5)))]
    )
    brokers = st.sampled_from(topology.brokers)
    clients = {"ann": draw(brokers), "pat": draw(brokers)}
    latency = st.integers(0, 8).map(lambda ticks: ticks * TICK_US)
    latencies = tuple((a, b, draw(latency)) for a, b in (*topology.links, *clients.items()))
    rooms = [f"r{number}" for number in range(ROOMS)]
    at, ticks = 0, 0
    happenings: list[tuple[int, NodeId, Doing]] = []
    walk: dict[int, int] = {0: 0}
    for _ in range(draw(st.integers(4, 14))):
        ticks += DWELL + draw(st.sampled_from((0, 0, 1, 9)))
        at = walk[ticks] = (at + draw(st.sampled_from((1, 1, 1, -1)))) % ROOMS
        happenings.append((ticks, "ann", MoveTo(location=rooms[at])))
    end, ticks = ticks, draw(st.integers(0, 30))
    while ticks < end:
        happenings.append((ticks, "ann", Detach()))
        ticks += draw(st.sampled_from((0, 5, 40, 90, 130)))
        there = draw(brokers)
        happenings.append((ticks, "ann", Attach(broker=there)))
        here = rooms[walk[max(moved for moved in walk if moved <= ticks)]]
        for late in draw(st.lists(st.integers(-12, 20), min_size=2, max_size=8)):
            event = Publish(attributes={"room": here})
            way = delay_us(latencies, "pat", there) // TICK_US
            happenings.append((max(0, ticks + late - way), "pat", event))
        ticks += draw(st.integers(10, 80))
    happenings += [
        (draw(st.integers(0, end)), "pat", Attach(broker=draw(brokers)))
        for _ in range(draw(st.integers(0, 2)))
    ]
    advertise = Advertise(advertisement="1", filter=Filter("room IS NOT NULL"))
    subscribe = Subscribe(subscription="1", filter=Filter("room IN myloc"))
    base = Script(
        topology=topology,
        clients=clients,
        steps=(Do(client="pat", what=advertise), Do(client="ann", what=subscribe)),
        routing=routing,
        client=ClientOptions(advertisements=routing.advertisements, quenching=draw(st.booleans())),
        latencies=latencies,
        handover=RELOCATION,
        places=PlacesOptions(
            edges=tuple((rooms[n], rooms[(n + 1) % ROOMS]) for n in range(ROOMS)),
            dwell=Dwell.FIXED,
            dwell_us=DWELL * TICK_US,
        ),
        locations={"ann": rooms[0]},
    )
    return Walk(base, {}, DWELL, tuple(sorted(happenings, key=lambda each: each[0])))


def deliveries(walk: Walk, rule: StepRule) -> dict[NodeId, list[EventId]]:
    """What each client is given under a rule, in order."""
    simulation = Checked(walk.script(rule))
    outcome = simulation.run()
    assert outcome.findings == []
    return {client: simulation.oracle.received(client) for client in walk.base.clients}


@pytest.mark.spec("LM-5", "LM-3", "PM-4")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
@pytest.mark.parametrize("strategy", Strategy)
def test_who_roams_and_walks_gets_what_flooding_would_bring(
    strategy: Strategy, advertisements: bool
) -> None:
    seen: Counter[str] = Counter()
    routing = RoutingOptions(strategy=strategy, advertisements=advertisements)

    @examples(RUNS)
    @given(journeys(routing))
    def runs(walk: Walk) -> None:
        flooded = deliveries(walk, StepRule.EVERYWHERE)
        assert deliveries(walk, StepRule.SAFE) == flooded
        seen.update(runs=1, delivered=sum(map(len, flooded.values())))

    runs()
    assert seen["delivered"] > seen["runs"]


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
    run.publish("pat", room="r3").wait(1_000)  # Nobody has said yet that this is wanted …
    run.attach("ann", "B1").settle()  # … but when it comes to B1, the client is there.

    assert run.received("ann") == ["pat#1"]
