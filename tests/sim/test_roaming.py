"""Clients that roam: whatever they do meanwhile and whatever goes wrong, nothing is lost, nothing
comes twice, the order holds, and no broker keeps anything of a client that is elsewhere.

What is checked each time a network has settled stands in `tests/sim/judging.py`.
"""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.client import ClientOptions
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.link import LinkTiming
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Faults, Plan, generate
from sterna.sim.oracle import Oracle
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, LinkModel, Script, Settle, Wait
from sterna.sim.topology import from_parents, line, random_tree
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.overlay import RELOCATION, Facts, Overlay

RUNS = 90
"""Per strategy, with and without advertisements, with and without faults: 2,160 altogether. In the
long campaign three times as many again, so that there are more than 100,000."""


@st.composite
def plans(
    draw: st.DrawFn,
    strategy: Strategy,
    faults: Faults,
    handover: HandoverOptions = RELOCATION,
    *,
    advertisements: bool,
) -> Plan:
    """Small networks of up to nine brokers where clients move all the time, and often back."""
    count = draw(st.integers(1, 9))
    parents = [draw(st.integers(0, child - 1)) for child in range(1, count)]
    return Plan(
        topology=from_parents(parents),
        clients=draw(st.integers(1, 5)),
        subscriptions=draw(st.integers(2, 10)),
        events=draw(st.integers(5, 30)),
        moves=draw(st.integers(1, 8)),
        naps=draw(st.integers(0, 5)),
        variety=draw(st.sampled_from((2, 3, 5))),
        settle=draw(st.sampled_from((0.05, 0.1, 0.3))),
        wait_us=draw(st.sampled_from((500, 3_000, 20_000, 60_000))),
        routing=RoutingOptions(
            strategy=strategy,
            advertisements=advertisements,
            hierarchical=draw(st.sampled_from((False, False, False, True))),
            merge_members_max=draw(st.sampled_from((2, 3, 16))),
        ),
        client=ClientOptions(
            advertisements=advertisements,
            quenching=draw(st.sampled_from((False, False, False, True))),
        ),
        link=LinkModel(
            latency_us=draw(st.sampled_from((100, 1_000))),
            jitter_us=draw(st.sampled_from((0, 0, 2_000))),
        ),
        latency_max_us=draw(st.sampled_from((None, 10_000, 60_000))),
        timing=LinkTiming(ack_delay_us=draw(st.sampled_from((0, 2_000, 20_000)))),
        faults=faults,
        handover=handover,
    )


@pytest.mark.spec("PM-4", "PM-2", "PM-3")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("faults", ["none", "heavy"])
def test_roaming_clients_get_everything_once_and_in_order(
    strategy: Strategy, faults: str, advertisements: bool
) -> None:
    seen: Counter[str] = Counter()
    shapes = plans(strategy, FAULTS[faults], advertisements=advertisements)

    @examples(RUNS, long=3)
    @given(shapes, st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        outcome = run_rightly(generate(plan, seed))
        seen.update(runs=1, owed=outcome.owed, replays=outcome.messages["Replay"])

    runs()
    assert seen["runs"] >= RUNS
    assert seen["owed"] > RUNS  # The runs had something to show.
    assert seen["replays"] > RUNS


@pytest.mark.spec("PM-4")
@pytest.mark.parametrize("strategy", Strategy)
def test_larger_networks_with_roaming_clients(strategy: Strategy) -> None:
    plan = Plan(
        topology=random_tree(30, 1),
        clients=40,
        subscriptions=120,
        events=150,
        moves=150,
        naps=40,
        settle=0.02,
        routing=RoutingOptions(strategy=strategy),
        faults=FAULTS["heavy"],
        handover=RELOCATION,
    )
    outcome = run_rightly(generate(plan, 1))
    assert outcome.owed > 200
    assert outcome.messages["Replay"] > 200


# ---- Bounds


@pytest.mark.spec("PM-3", "PM-4")
@pytest.mark.parametrize("faults", ["none", "heavy"])
@pytest.mark.parametrize("bound", ["ring", "ttl"])
def test_what_a_bounded_cache_discards_is_counted_exactly(bound: str, faults: str) -> None:
    """What is missing in the end is what clients were told that they miss, event by event."""
    seen: Counter[str] = Counter()
    handover = HandoverOptions(
        protocol=Handover.RELOCATION,
        cache_events_max=2 if bound == "ring" else 10_000,
        cache_ttl_us=5_000 if bound == "ttl" else None,
    )

    @examples(100)
    @given(
        st.sampled_from(Strategy).flatmap(
            lambda strategy: plans(strategy, FAULTS[faults], handover, advertisements=False)
        ),
        st.integers(0, 2**32),
    )
    def runs(plan: Plan, seed: int) -> None:
        stated = Facts()
        script = generate(plan, seed)
        simulation = Simulation(script, [stated])
        outcome = simulation.run()
        assert outcome.findings == []
        reported = {
            (fact.at, id_)
            for fact in stated.all
            if isinstance(fact, facts.Missed)
            for id_ in fact.events
        }
        total = sum(len(fact.events) for fact in stated.all if isinstance(fact, facts.Missed))
        assert len(reported) == total  # Nothing is counted twice.
        assert missing(script, stated) <= reported
        assert not reported & received(simulation)
        seen.update(runs=1, missed=total)

    runs()
    assert seen["missed"] > seen["runs"] / 10


def received(simulation: Simulation) -> set[tuple[str, EventId]]:
    clients = simulation.script.clients
    return {(client, id_) for client in clients for id_ in simulation.oracle.received(client)}


def missing(script: Script, stated: Facts) -> set[tuple[str, EventId]]:
    """What an oracle that knows of no discards says is lost."""
    oracle = Oracle(script.clients)
    for fact in stated.all:
        if not isinstance(fact, facts.Discarded):
            oracle.fact(fact)
    return {(finding.client, finding.event) for finding in oracle.findings()}


@pytest.mark.spec("PM-3")
def test_the_ring_keeps_the_latest_of_each_subscription() -> None:
    small = HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=2)
    run = Overlay(line(2), {"C": "B1", "P": "B2"}, handover=small)
    run.subscribe("C", "price > 0", "all").subscribe("C", "price > 90", "dear").settle()
    run.detach("C").wait(1_000)
    for price in (95, 1, 2, 3):
        run.publish("P", price=price)
    run.settle().attach("C", "B2").settle()

    assert run.received("C") == ["P#1", "P#3", "P#4"]  # The first is still in the other ring.
    assert run.facts_of(facts.Missed) == [
        facts.Missed(at="C", time=run.facts_of(facts.Missed)[0].time, events=(EventId("P", 2),))
    ]


@pytest.mark.spec("PM-3")
def test_the_news_of_what_was_missed_is_not_missed_itself() -> None:
    """It is on the air when the client leaves again."""
    small = HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=1)
    run = Overlay(line(2), {"C": "B1", "P": "B2"}, handover=small)
    run.subscribe("C", "price > 0").settle().detach("C").wait(1_000)
    run.publish("P", price=1).publish("P", price=2).settle()
    run.attach("C", "B1").wait(1_500).attach("C", "B2").settle()

    assert run.received("C") == ["P#2"]
    (missed,) = run.facts_of(facts.Missed)
    assert isinstance(missed, facts.Missed)
    assert missed.events == (EventId("P", 1),)


@pytest.mark.spec("PM-3")
def test_what_one_broker_discarded_and_another_kept_is_not_missed() -> None:
    """D wants the event at B3, too, so that it is held there for C, who is just coming."""
    small = HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=1)
    far = (("B1", "B2", 10_000), ("B2", "B3", 10_000))
    clients = {"C": "B1", "D": "B3", "P": "B2", "Q": "B1"}
    run = Overlay(line(3), clients, handover=small, latencies=far)
    run.subscribe("C", "price > 0").subscribe("D", "price = 1").settle()
    run.detach("C").publish("P", price=1).wait(500)
    run.attach("C", "B3").wait(11_500).publish("Q", price=2).settle()

    assert sorted(run.received("C")) == ["P#1", "Q#1"]
    assert len(run.facts_of(facts.Discarded)) == 1
    assert run.facts_of(facts.Missed) == []


@pytest.mark.parametrize("bounds", [{"cache_events_max": 0}, {"cache_ttl_us": 0}])
def test_a_cache_that_keeps_nothing_is_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        HandoverOptions(protocol=Handover.RELOCATION, **bounds)


@pytest.mark.spec("PM-3")
def test_what_is_kept_too_long_is_discarded_when_its_time_has_come() -> None:
    short = HandoverOptions(protocol=Handover.RELOCATION, cache_ttl_us=1_000_000)
    run = Overlay(line(2), {"C": "B1", "P": "B2"}, handover=short)
    run.subscribe("C", "price > 0").settle().detach("C").wait(1_000)
    run.publish("P", price=1).wait(600_000).publish("P", price=2).wait(500_000)

    assert len(run.relocation("B1").guests["C"].cache) == 1
    run.attach("C", "B2").settle()
    assert run.received("C") == ["P#2"]


# ---- Single stories


def roaming(clients: dict[str, str], brokers: int = 5) -> Overlay:
    run = Overlay(line(brokers), clients, handover=RELOCATION)
    return run.subscribe("C", "price > 0").settle()


@pytest.mark.spec("PM-3")
def test_moving_after_suspension() -> None:
    """A.1, situation 4: suspended here, resumed there."""
    run = roaming({"C": "B1", "P": "B3"})
    run.detach("C").wait(1_000).publish("P", price=1).settle()
    run.attach("C", "B5").settle().publish("P", price=2).settle()

    assert run.received("C") == ["P#1", "P#2"]


@pytest.mark.spec("PM-4")
def test_back_and_forth_before_anything_is_answered() -> None:
    run = roaming({"C": "B1", "P": "B3"})
    for broker in ("B5", "B1", "B5", "B1"):
        run.attach("C", broker).wait(2_500).publish("P", price=1)
    run.settle()

    assert run.received("C") == ["P#1", "P#2", "P#3", "P#4"]
    assert "C" in run.relocation("B1").guests
    assert "C" not in run.relocation("B5").guests


def slow_line(clients: dict[str, str], brokers: int = 6, hop_us: int = 10_000) -> Overlay:
    """Brokers far from each other, with clients close to all of them, but at 5 ms from B2."""
    names = [f"B{number}" for number in range(1, brokers + 1)]
    hops = tuple((a, b, hop_us) for a, b in pairwise(names))
    air = tuple((c, b, 5_000 if b == "B2" else 100) for c in clients for b in names)
    run = Overlay(line(brokers), clients, handover=RELOCATION, latencies=hops + air)
    subscriber = next(iter(clients))
    return run.subscribe(subscriber, "price > 0").settle()


@pytest.mark.spec("PM-4")
def test_the_request_of_a_broker_that_the_client_has_left_comes_to_where_it_is() -> None:
    """It gets what it asks for; the client is sent away, and comes back with a new request."""
    run = slow_line({"C": "B1", "P": "B6"})
    run.attach("C", "B6").wait(1_000)  # Its request is 50 ms from B1 …
    run.attach("C", "B2").wait(41_000)  # … and comes to B2 when C has just been welcomed there.
    run.publish("P", price=1).settle()

    assert run.received("C") == ["P#1"]
    assert "C" in run.relocation("B2").guests
    assert "C" not in run.relocation("B6").guests


@pytest.mark.spec("PM-4")
def test_an_event_on_the_air_while_two_requests_cross() -> None:
    run = slow_line({"C": "B1", "P": "B6"})
    run.publish("P", price=1).wait(2_500)
    run.attach("C", "B6").wait(1_000).attach("C", "B2").wait(39_500)
    run.attach("C", "B6").wait(1_000).publish("P", price=2).settle()

    assert run.received("C") == ["P#1", "P#2"]


@pytest.mark.spec("PM-4", "RT-5")
def test_a_publisher_whose_requests_cross() -> None:
    run = slow_line({"S": "B6", "P": "B1"})
    run.attach("P", "B6").wait(1_000).attach("P", "B2").wait(55_000)
    run.publish("P", price=1).wait(21_000)
    run.attach("P", "B6").publish("P", price=2).settle()

    assert run.received("S") == ["P#1", "P#2"]


@pytest.mark.spec("PM-4")
def test_a_request_that_speaks_of_an_older_stay() -> None:
    """What was confirmed since is not counted against what was not."""
    run = slow_line({"C": "B1", "P": "B2"}, hop_us=20_000)
    run.attach("C", "B6").wait(1_000)
    run.attach("C", "B2").wait(46_500)
    run.publish("P", price=1).wait(27_500)
    run.publish("P", price=2).publish("P", price=3).wait(5_500)
    run.detach("C").settle().attach("C", "B2").settle()

    assert run.received("C") == ["P#1", "P#2", "P#3"]


@pytest.mark.spec("PM-4", "RT-5")
def test_back_where_it_was_not_welcomed_before_that_broker_knows_where_it_was() -> None:
    steps = (
        Do(client="P", what=Detach()),
        Do(client="S", what=Subscribe(subscription="1", filter=Filter("price > 0"))),
        Settle(),
        Do(client="P", what=Attach(broker="B1")),
        Wait(us=250),  # B1 knows it …
        Do(client="P", what=Attach(broker="B2")),
        Wait(us=1_000),  # … but B2 welcomes it first.
        Do(client="P", what=Publish(attributes={"price": 1})),
        Wait(us=25_000),
        Do(client="P", what=Attach(broker="B1")),  # It takes 50 ms until B1 hears of that.
        Do(client="P", what=Publish(attributes={"price": 2})),
    )
    script = Script(
        topology=line(2),
        clients={"P": "B1", "S": "B1"},
        steps=steps,
        handover=RELOCATION,
        latencies=(("B1", "B2", 50_000), ("P", "B1", 100), ("P", "B2", 100)),
    )
    assert run_rightly(script).delivered == 2


@pytest.mark.spec("PM-3", "PM-4")
def test_leaving_before_the_first_welcome() -> None:
    """B1 has announced the client, who never heard of it; only what B5 says of it counts."""
    script = Script(topology=line(5), clients={"C": "B1", "P": "B3"}, steps=(), handover=RELOCATION)
    simulation = Simulation(script)
    simulation.do(Wait(us=2_500))  # The client is known at B1, but B1 not to the client.
    simulation.do(Do(client="C", what=Attach(broker="B5")))
    simulation.do(Do(client="C", what=Subscribe(subscription="1", filter=Filter("price > 0"))))
    simulation.settle()
    simulation.do(Do(client="C", what=Attach(broker="B2")))
    simulation.settle()
    simulation.do(Do(client="P", what=Publish(attributes={"price": 1})))
    simulation.settle()

    assert [id_.seq for id_ in simulation.oracle.received("C")] == [1]
    for broker in ("B1", "B3", "B4", "B5"):
        assert "C" not in simulation.network.hosts[broker].node.peers


@pytest.mark.spec("PM-4", "RT-5")
def test_a_publisher_that_moves_keeps_its_order() -> None:
    """What it publishes at the new place waits until all from the old place is on its way."""
    run = Overlay(line(5), {"C": "B1", "P": "B1"}, handover=RELOCATION)
    run.subscribe("C", "price > 0").settle()
    run.attach("P", "B5").settle()
    run.publish("P", price=1).wait(500).attach("P", "B2").publish("P", price=2).settle()

    assert run.received("C") == ["P#1", "P#2"]
    assert run.outcome().findings == []


@pytest.mark.spec("PM-4")
def test_a_client_that_does_not_say_goodbye_is_forgotten_where_it_was() -> None:
    run = roaming({"C": "B1", "P": "B3"})
    run.attach("C", "B5").settle()

    assert run.broker("B1").peers.keys() == {"B2"}
    assert run.table("B1") == {"B2": ["price > 0"]}


@pytest.mark.spec("PM-4")
def test_a_broker_that_forgets_hears_again_where_clients_are() -> None:
    run = Overlay(line(5), {"C": "B1", "P": "B1"}, handover=RELOCATION, crashing=["B3"])
    run.subscribe("C", "price > 0").settle()
    run.fault(Crash(broker="B3", us=1_000, forgets=True)).settle()
    run.detach("C").wait(1_000).publish("P", price=1).settle()

    run.attach("C", "B5").settle().publish("P", price=2).settle()

    assert run.received("C") == ["P#1", "P#2"]


@pytest.mark.spec("PM-5")
def test_a_handover_asks_only_the_brokers_on_the_way() -> None:
    """However many others there are."""
    run = Overlay(random_tree(30, 3), {"C": "B1", "P": "B3"}, handover=RELOCATION)
    run.subscribe("C", "price > 0").settle()
    near = run.simulation.script.topology.links[0]
    assert near[0] == "B1"
    run.attach("C", near[1]).settle()

    assert run.sent("Resubscribe") + run.sent("Fetch") == run.sent("Replay") == 1
