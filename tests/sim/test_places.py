"""Subscriptions that follow their clients, in whole networks."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.handover.options import HandoverOptions
from sterna.core.inputs import MoveTo, SetVariable, Subscribe
from sterna.core.location.messages import MovingRoute
from sterna.core.location.moving import Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.filters import Filter
from sterna.model.location import HexGrid
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Crash, Do, Drop, LinkModel, Script, Settle, Slow, Wait
from sterna.sim.topology import Topology, from_edges, line
from sterna.wire.codec import from_json, to_json
from tests.goldens import assert_golden
from tests.scale import examples
from tests.sim.overlay import Overlay
from tests.sim.walks import Walk, walks
from tests.sim.watching import assert_by_definition, moving_at

# ---- The rule for steps

LATE_MS = 500
"""When the event of a worst case reaches the broker."""


def worst_case(rule: StepRule, *, away_ms: int, dwell_ms: int) -> Overlay:
    """A client moves as often as it can while its broker does not know where an event finds it.

    The client is so far from the only broker, and walks along a row of rooms. The event comes to
    the broker just before the first move does, and to the client just after the last.
    """
    rooms = [f"r{n:02}" for n in range(12)]
    overlay = Overlay(
        line(1),
        {"ann": "B1", "pat": "B1"},
        places=PlacesOptions(
            edges=tuple(pairwise(rooms)),
            rule=rule,
            dwell=Dwell.FIXED,
            dwell_us=dwell_ms * 1_000,
        ),
        locations={"ann": rooms[0]},
        latencies=[("ann", "B1", away_ms * 1_000), ("pat", "B1", LATE_MS * 1_000)],
    )
    overlay.subscribe("ann", "room IN myloc").settle()
    network = overlay.simulation.network
    start_us = network.kernel.now
    moves_ms = range(LATE_MS - away_ms, LATE_MS + away_ms + 1, dwell_ms)
    for number, ms in enumerate(moves_ms, 1):
        move = MoveTo(location=rooms[number])
        network.kernel.at(start_us + ms * 1_000, network.give, "ann", move)
    return overlay.publish("pat", room=rooms[len(moves_ms)]).settle()


@pytest.mark.spec("LM-3")
@pytest.mark.parametrize("away_ms", [0, 20, 50, 60, 100, 130, 200])
def test_the_safe_rule_is_the_smallest(away_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the worst case it suffices, and with one step less the event is missed."""
    assert worst_case(StepRule.SAFE, away_ms=away_ms, dwell_ms=50).received("ann") == ["pat#1"]

    safe = Moving.steps

    def fewer(self: Moving, route: MovingRoute) -> int | None:
        steps = safe(self, route)
        return None if steps is None else steps - 1

    monkeypatch.setattr(Moving, "steps", fewer)

    assert worst_case(StepRule.SAFE, away_ms=away_ms, dwell_ms=50).received("ann") == []


@pytest.mark.spec("LM-3")
@pytest.mark.parametrize("rule", [StepRule.FLOOR, StepRule.CEIL, StepRule.SUB_UNSUB])
def test_the_papers_rules_miss_events(rule: StepRule) -> None:
    """A client that is 60 ms away and stays for 100 ms everywhere: the broker knows r00 still.

    When the event gets to the client, it has moved to r01 and on to r02. Ceil asks for one step
    around r00, floor and sub/unsub for none.
    """
    overlay = worst_case(rule, away_ms=60, dwell_ms=100)

    assert_golden(f"location-missed-{rule}.txt", told(overlay))
    assert overlay.received("ann") == []
    assert worst_case(StepRule.EVERYWHERE, away_ms=60, dwell_ms=100).received("ann") == ["pat#1"]
    assert worst_case(StepRule.SAFE, away_ms=60, dwell_ms=100).received("ann") == ["pat#1"]


@pytest.mark.spec("LM-3")
def test_sub_unsub_is_blind_for_two_delays() -> None:
    """Fiege, Fig. 3a: after a move nothing published there arrives before 2 · t_d have passed."""
    arrived: dict[StepRule, list[int]] = {StepRule.SUB_UNSUB: [], StepRule.SAFE: []}
    for rule, after_ms in arrived.items():
        overlay = street(line(3), rule=rule, latency_ms=20)  # 80 ms from ann to pat.
        overlay.subscribe("ann", "room IN myloc").settle().move("ann", "r01")
        start_us = overlay.simulation.network.kernel.now
        for _ in range(25):
            overlay.publish("pat", room="r01").wait(10_000)
        overlay.settle()
        after_ms += [(fact.time - start_us) // 1_000 for fact in overlay.facts_of(facts.Delivered)]

    assert min(arrived[StepRule.SUB_UNSUB]) == 120, "60 ms to the broker of pat, and 60 back"
    assert min(arrived[StepRule.SAFE]) == 80


def told(overlay: Overlay) -> str:
    """The trace without measurements."""
    return "".join(f"{line}\n" for line in overlay.trace.lines if " Probe" not in line)


def street(
    topology: Topology,
    clients: dict[str, str] | None = None,
    *,
    rule: StepRule = StepRule.SAFE,
    latency_ms: int = 10,
    dwell_ms: int = 100,
    rooms: int = 12,
    routing: RoutingOptions | None = None,
    handover: HandoverOptions | None = None,
    client: ClientOptions | None = None,
) -> Overlay:
    """Rooms in a row; ann and the like are in the first, at the first broker, pat at the last."""
    clients = clients or {"ann": "B1", "pat": topology.brokers[-1]}
    names = [f"r{n:02}" for n in range(rooms)]
    return Overlay(
        topology,
        clients,
        routing,
        client,
        link=LinkModel(latency_us=latency_ms * 1_000),
        handover=handover,
        places=PlacesOptions(
            edges=tuple(pairwise(names)),
            rule=rule,
            dwell=Dwell.FIXED,
            dwell_us=dwell_ms * 1_000,
        ),
        locations={name: names[0] for name in clients if name.startswith("ann")},
    )


# ---- Adaptivity


def steps(overlay: Overlay, broker: str, nearer: str) -> int | None:
    """How far around its client a broker asks for events."""
    moving = moving_at(overlay.broker(broker))
    (route,) = moving.table[nearer].values()
    return moving.steps(route)


@pytest.mark.spec("LM-4")
def test_steps_follow_the_delays_of_links() -> None:
    overlay = street(line(3)).subscribe("ann", "room IN myloc").settle()
    ways = (("B1", "ann"), ("B2", "B1"), ("B3", "B2"))
    seen = [[steps(overlay, *each) for each in ways]]

    overlay.fault(Slow(a="B1", b="B2", latency_us=200_000)).wait(4_000_000)
    seen.append([steps(overlay, *each) for each in ways])
    overlay.fault(Slow(a="B1", b="B2", latency_us=10_000)).wait(60_000_000)
    seen.append([steps(overlay, *each) for each in ways])

    assert seen == [[1, 1, 1], [1, 5, 5], [1, 1, 1]]


@pytest.mark.spec("LM-4")
def test_steps_follow_the_stays_of_a_client() -> None:
    """The shortest of the last 16 stays counts, and what was told if that is shorter."""
    overlay = Overlay(
        line(2),
        {"ann": "B1"},
        link=LinkModel(latency_us=100_000),
        places=PlacesOptions(edges=(("a", "b"), ("b", "c"), ("c", "d")), dwell_us=10_000_000),
        locations={"ann": "a"},
    )
    overlay.subscribe("ann", "room IN myloc").settle()
    assert steps(overlay, "B2", "B1") == 1

    overlay.wait(100_000).move("ann", "b").wait(150_000).move("ann", "a").wait(1_000_000)
    assert steps(overlay, "B2", "B1") == 400 // 150 + 1
    for place in "bababababababababa":
        overlay.move("ann", place).wait(1_000_000)

    assert steps(overlay, "B2", "B1") == 1


@pytest.mark.spec("LM-4")
def test_nobody_is_told_where_nothing_changes() -> None:
    """Fiege, 5.4: in a stable network propagation stops where the set of locations is the same.

    12 rooms in a row and a line of 12 brokers, each 50 ms further away: the k-th asks for k + 1
    steps. From r05 and r06 the 5th reaches all rooms, from r06 and r07 the 6th: no broker behind
    hears of such moves. If all heard of all, there would be 96 messages.
    """
    overlay = street(line(12), latency_ms=50, clients={"ann": "B1"})
    for room in range(7):
        overlay.move("ann", f"r{room:02}")
    overlay.subscribe("ann", "room IN myloc").settle()
    before = overlay.sent("MovingChange")
    for room in (5, 6, 7, 6, 5, 6, 7, 6):
        overlay.move("ann", f"r{room:02}").settle()

    assert overlay.sent("MovingChange") - before == 2 * (4 + 4 + 5 + 5)


@pytest.mark.spec("LM-4")
def test_measuring_ends_with_the_last_moving_subscription() -> None:
    overlay = street(line(2)).subscribe("ann", "room IN myloc").settle().wait(5_000_000)
    assert overlay.sent("Probe", "B1 → B2") > 4
    overlay.unsubscribe("ann").settle()
    sent = overlay.sent("Probe")

    overlay.wait(20_000_000)

    assert overlay.sent("Probe") == sent


@pytest.mark.spec("LM-4")
@pytest.mark.parametrize("latency_ms", [100, 300, 900])
def test_slow_links_are_measured_and_the_network_comes_to_rest(latency_ms: int) -> None:
    overlay = street(line(3), latency_ms=latency_ms).subscribe("ann", "room IN myloc").settle()
    overlay.fault(Slow(a="B2", b="B3", latency_us=20_000))

    for _ in range(5):
        overlay.wait(1_234_000).settle()


# ---- Sharing


@pytest.mark.spec("LM-5")
@pytest.mark.parametrize(
    ("strategy", "routes", "messages"),
    [(Strategy.SIMPLE, 6, 2), (Strategy.IDENTITY, 3, 0), (Strategy.COVERING, 3, 0)],
)
def test_clients_that_are_alike_share_a_route(
    strategy: Strategy, routes: int, messages: int
) -> None:
    """Two clients each in three rooms are three routes; when two change places, nobody is told."""
    clients = {f"ann{n}": "B1" for n in range(6)} | {"pat": "B3"}
    overlay = street(line(3), clients, routing=RoutingOptions(strategy=strategy))
    for n in range(6):
        overlay.move(f"ann{n}", f"r{n // 2:02}").subscribe(f"ann{n}", "room IN myloc")
    overlay.settle()
    assert len(overlay.broker("B2").router.subscriptions.entered("B1")) == routes

    before = overlay.sent("MovingChange", "B1 → B2")
    overlay.move("ann2", "r02").move("ann4", "r01").settle()
    assert overlay.sent("MovingChange", "B1 → B2") == before + messages

    for room in range(3):
        overlay.publish("pat", room=f"r{room:02}")
    overlay.settle()
    for n, room in enumerate((0, 0, 2, 1, 1, 2)):
        assert overlay.received(f"ann{n}") == [f"pat#{room + 1}"]


@pytest.mark.spec("LM-5")
def test_flooding_needs_no_word_about_moves() -> None:
    flooding = RoutingOptions(strategy=Strategy.FLOODING)
    overlay = street(line(3), routing=flooding).subscribe("ann", "room IN myloc").settle()
    overlay.move("ann", "r01").publish("pat", room="r01").settle()

    assert overlay.sent("MovingChange") == overlay.sent("MovingChange", "ann → B1") == 2
    assert overlay.received("ann") == ["pat#1"]


@pytest.mark.spec("LM-5")
def test_moves_go_where_something_matching_is_advertised() -> None:
    topology = from_edges([("B1", "B2"), ("B2", "B3"), ("B2", "B4")])
    advertised = RoutingOptions(advertisements=True)
    overlay = street(
        topology,
        {"ann": "B1", "pat": "B3", "pam": "B4"},
        routing=advertised,
        client=ClientOptions(advertisements=True),
    )
    overlay.subscribe("ann", "kind = 'x' AND room IN myloc").settle()
    assert overlay.sent("MovingChange") == 1

    overlay.advertise("pat", "kind = 'x'").advertise("pam", "kind = 'y'").settle()
    overlay.move("ann", "r01").settle().publish("pat", kind="x", room="r01").settle()
    assert overlay.sent("MovingChange", "B2 → B3") == 2
    assert overlay.sent("MovingChange", "B2 → B4") == 0
    assert overlay.received("ann") == ["pat#1"]

    overlay.unadvertise("pat").settle()
    assert not overlay.broker("B3").router.subscriptions.entered("B2")


@pytest.mark.spec("LM-5")
def test_publishers_that_quench_hear_nothing_of_moves() -> None:
    quenching = ClientOptions(quenching=True)
    overlay = street(line(2), client=quenching).subscribe("ann", "room IN myloc").settle()
    overlay.publish("pat", room="r00").publish("pat", hall="r00").settle()
    before = overlay.sent("SubscriptionChange", "B2 → pat")

    overlay.move("ann", "r01").settle().publish("pat", room="r01").settle()

    assert overlay.received("ann") == ["pat#1", "pat#3"]
    assert overlay.sent("SubscriptionChange", "B2 → pat") == before


# ---- Links that break


@pytest.mark.spec("LM-3")
def test_moves_are_told_as_soon_as_a_broken_link_stands_again() -> None:
    """The client stays where it has come meanwhile; nothing else makes its broker speak."""
    overlay = street(line(2), rooms=20).subscribe("ann", "room IN myloc").settle()
    overlay.fault(Drop(a="B1", b="B2", us=600_000)).wait(10_000)
    for room in range(1, 6):
        overlay.move("ann", f"r{room:02}").wait(100_000)
    overlay.publish("pat", room="r05").wait(190_000).publish("pat", room="r05").settle()

    assert overlay.received("ann") == ["pat#2"], "the first was filtered for where ann had been"


@pytest.mark.spec("LM-1", "LM-5")
@pytest.mark.parametrize("strategy", [s for s in Strategy if s is not Strategy.FLOODING])
def test_after_any_trouble_the_tables_are_those_of_the_definition(strategy: Strategy) -> None:
    @given(walk=walks(RoutingOptions(strategy=strategy)), data=st.data())
    @examples(20)
    def check(walk: Walk, data: st.DataObject) -> None:
        script = walk.script(StepRule.SAFE)
        steps = list(script.steps)
        for _ in range(data.draw(st.integers(1, 4), label="troubles")):
            place = data.draw(st.integers(0, len(steps)), label="place")
            steps.insert(place, data.draw(troubles(script), label="trouble"))
        quiet = (Wait(us=5_000_000), Settle(), Wait(us=400_000_000), Settle())
        script = msgspec.structs.replace(script, steps=(*steps, *quiet))
        simulation = Simulation(script)

        findings = simulation.run().findings

        if not any(isinstance(step, Crash) and step.forgets for step in steps):
            assert findings == []
        assert_by_definition(simulation, walk)

    check()


def troubles(script: Script) -> st.SearchStrategy[AnyStep]:
    """A link that breaks, or a broker that crashes, for up to two seconds."""
    links = [(a, b) for a, b, _ in script.latencies]
    us = st.integers(1, 200).map(lambda ticks: ticks * 10_000)
    drops = st.builds(
        lambda ends, us: Drop(a=ends[0], b=ends[1], us=us), st.sampled_from(links), us
    )
    crashes = st.builds(
        Crash, broker=st.sampled_from(script.topology.brokers), us=us, forgets=st.booleans()
    )
    return drops | crashes


# ---- Variables


@pytest.mark.spec("LM-7")
@given(data=st.data())
@examples(60)
def test_changes_within_the_range_are_as_if_flooding(data: st.DataObject) -> None:
    """Whatever the routing strategy, and however fast the changes are."""
    changes = st.tuples(st.integers(0, 40), st.integers(5, 20))
    events = st.tuples(st.integers(0, 40), st.integers(0, 25))
    set_at = sorted(data.draw(st.lists(changes, max_size=10), label="changes"))
    published_at = sorted(data.draw(st.lists(events, min_size=1, max_size=20), label="events"))
    text = data.draw(
        st.sampled_from(
            (
                "price < $budget",
                "price = $budget",
                "NOT price BETWEEN $budget AND 15",
                "price > $budget AND room IN myloc",
            )
        ),
        label="filter",
    )

    def received(strategy: Strategy, low: int, high: int) -> list[str]:
        overlay = street(line(3), routing=RoutingOptions(strategy=strategy))
        overlay.set("ann", "budget", 10, low=low, high=high).subscribe("ann", text).settle()
        for tick in range(41):
            for when, value in set_at:
                if when == tick:
                    overlay.set("ann", "budget", value)
            for when, price in published_at:
                if when == tick:
                    overlay.publish("pat", price=price, room="r00")
            overlay.wait(5_000)
        assert overlay.settle().outcome().findings == []
        return overlay.received("ann")

    flooded = received(Strategy.FLOODING, -1_000, 1_000)
    for strategy in (Strategy.SIMPLE, Strategy.COVERING, Strategy.MERGING):
        assert received(strategy, 5, 20) == flooded


@pytest.mark.spec("LM-7")
def test_a_change_without_a_range_is_blind_for_a_while() -> None:
    """Which is why ranges are declared."""
    received = {}
    for high in (10, 20):
        overlay = street(line(3)).set("ann", "budget", 10, high=high)
        overlay.subscribe("ann", "price < $budget").settle()
        overlay.publish("pat", price=15).set("ann", "budget", 20).settle()
        received[high] = overlay.received("ann")

    assert received == {10: [], 20: ["pat#1"]}


# ---- Grids


@pytest.mark.spec("LM-1", "LM-4")
def test_a_drive_over_hexagons() -> None:
    """H3 cells of about 0.1 km², and a car that is in another one every two seconds."""
    grid = HexGrid(9)
    overlay = Overlay(
        line(3),
        {"car": "B1", "pat": "B3"},
        link=LinkModel(latency_us=400_000),
        places=PlacesOptions(h3_resolution=9, dwell=Dwell.FIXED, dwell_us=2_000_000),
        locations={"car": grid.locate(52.5, 13.3)},
    )
    overlay.subscribe("car", "cell IN myloc(1)").settle()
    assert [steps(overlay, *each) for each in (("B1", "car"), ("B2", "B1"), ("B3", "B2"))] == [
        1,
        1,
        2,
    ]
    cells = [grid.locate(52.5, 13.3 + n * 0.003) for n in range(8)]
    for cell in cells:
        overlay.move("car", cell).publish("pat", cell=cell, kind="here").wait(2_000_000)
    overlay.settle()

    assert len(set(cells)) > 4
    assert overlay.received("car") == [f"pat#{n}" for n in range(1, 9)]


@pytest.mark.spec("LM-1")
def test_more_places_than_a_filter_holds_are_anywhere() -> None:
    """200 steps in a grid: brokers ask for all cells, and the client filters."""
    overlay = Overlay(
        line(2),
        {"car": "B1", "pat": "B2"},
        link=LinkModel(latency_us=100_000),
        places=PlacesOptions(h3_resolution=9, dwell=Dwell.FIXED, dwell_us=1_000),
        locations={"car": HexGrid(9).locate(52.5, 13.3)},
    )
    overlay.subscribe("car", "cell IN myloc").settle()

    entered = overlay.broker("B2").router.subscriptions.entered("B1")
    assert [str(filter_) for filter_ in entered.values()] == ["cell IS NOT NULL"]


def test_a_script_with_places_is_a_complete_record() -> None:
    script = Script(
        topology=line(2),
        clients={"ann": "B1"},
        steps=(
            Do(client="ann", what=SetVariable(name="budget", value=10, low=2.5, high=20)),
            Do(client="ann", what=Subscribe(subscription="1", filter=Filter("room IN myloc"))),
            Do(client="ann", what=MoveTo(location="b")),
        ),
        places=PlacesOptions(edges=(("a", "b"),), rule=StepRule.CEIL, dwell=Dwell.AVERAGE),
        locations={"ann": "a"},
    )

    assert from_json(to_json(script), Script) == script
    with pytest.raises(ValueError, match="bob is no client"):
        msgspec.structs.replace(script, locations={"bob": "a"})
