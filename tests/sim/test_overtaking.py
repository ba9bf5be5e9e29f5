"""Subscriptions that let new events overtake what other brokers have kept, at random: nothing is
lost and nothing comes twice, whatever cannot be reached; for all other subscriptions the order
holds. What is checked each time a network has settled stands in `tests/sim/judging.py`.
"""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.facts import Delivered, Missed, Overtook
from sterna.core.handover import roaming
from sterna.core.handover.cache import read
from sterna.core.handover.hosting import Hosting
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.keeping import Writer
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.terms.messages import Order, Terms
from sterna.sim.generate import FAULTS, Faults, Plan, generate
from sterna.sim.script import Crash, Drop, Partition
from sterna.sim.topology import Topology, line, random_tree
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.overlay import RELOCATION, Overlay
from tests.sim.test_disconnected_campaign import VARIANTS, with_strategy
from tests.wire.test_snapshots import Twins

AVAILABLE = Terms(order=Order.AVAILABLE)
CUT_OFF = msgspec.structs.replace(FAULTS["heavy"], partitions=10)
EXACT = {"terms": {"clocks_differ_s": 0.0}}
STRATEGIES = {**VARIANTS, "relocation": (Handover.RELOCATION, {}, 500)}


@st.composite
def plans(draw: st.DrawFn, faults: Faults, handover: Handover) -> Plan:
    """Clients that roam while brokers are cut off, and others publish."""
    return Plan(
        topology=random_tree(draw(st.integers(2, 6)), draw(st.integers(0, 2**16))),
        clients=draw(st.integers(2, 5)),
        subscriptions=draw(st.sampled_from((4, 8, 12))),
        available=draw(st.sampled_from((0.5, 0.8, 1.0))),
        events=draw(st.sampled_from((30, 60))),
        moves=draw(st.sampled_from((4, 8, 16))),
        naps=draw(st.integers(0, 4)),
        variety=draw(st.sampled_from((1, 2, 3))),
        wait_us=draw(st.sampled_from((3_000, 30_000))),
        settle=draw(st.sampled_from((0.02, 0.1))),
        routing=RoutingOptions(strategy=draw(st.sampled_from(Strategy))),
        faults=faults,
        handover=HandoverOptions(protocol=handover),
    )


@pytest.mark.spec("RE-2", "PM-4")
@pytest.mark.parametrize("variant", STRATEGIES)
def test_nothing_is_lost_or_comes_twice_and_a_strict_order_holds(variant: str) -> None:
    handover, options, _ = STRATEGIES[variant]
    seen: Counter[str] = Counter()

    @examples(50)
    @given(
        st.sampled_from((FAULTS["none"], CUT_OFF, CUT_OFF)).flatmap(lambda f: plans(f, handover)),
        st.integers(0, 2**32),
        st.sampled_from((0.0, 0.005)),
    )
    def runs(plan: Plan, seed: int, differ_s: float) -> None:
        plan = with_strategy(plan, handover, options, seed)
        more = {**plan.options, "terms": {"clocks_differ_s": differ_s}}
        outcome = run_rightly(generate(msgspec.structs.replace(plan, options=more), seed))
        seen.update(runs=1, owed=outcome.owed, overtaking=outcome.messages["Overtaking"])

    runs()
    assert seen["owed"] > seen["runs"] >= 50
    # Who has its subscriptions at a broker that cannot be reached has none here.
    brings = handover is Handover.RELOCATION or options.get("subscriptions") == "device"
    assert seen["overtaking"] > 20 * brings


# ---- Against an oracle that knows every queue

HOP_US = 1_000
CALM_US = 30 * HOP_US
"""Longer than anything takes that can go on while a broker cannot be reached."""


def waiting(run: Overlay) -> dict[str, dict[str, int]]:
    """At each broker, what it keeps for C, with the times of these events."""
    kept: dict[str, dict[str, int]] = {}
    for name in run.simulation.script.topology.brokers:
        broker = run.broker(name)
        (host,) = (each for each in broker.components if isinstance(each, Hosting))
        guest = host.guests.get("C")
        events = [] if guest is None else [*read(guest.cache.events(), broker.depot), *guest.lost]
        kept[name] = {f"{e.publisher}#{e.seq}": e.time_us for e in events}
    return kept


def on_their_way(run: Overlay) -> set[str]:
    """The events in messages that the other end of some link has not confirmed."""
    return {
        f"{event.publisher}#{event.seq}"
        for host in run.simulation.network.hosts.values()
        for link in host.node.peers
        for message in host.node.unconfirmed(link)
        for event in getattr(message, "events", ())
    }


def way(topology: Topology, a: str, b: str) -> list[str]:
    """The brokers on the way from one to another."""
    above: dict[str, list[str]] = {each: [each] for each in (a, b)}
    for path in above.values():
        while (parent := topology.parent(path[-1])) is not None:
            path.append(parent)
    meet = next(broker for broker in above[a] if broker in above[b])
    return [
        *above[a][: above[a].index(meet) + 1],
        *reversed(above[b][: above[b].index(meet)]),
    ]


@pytest.mark.spec("RE-2")
@pytest.mark.parametrize("protocol", [Handover.RELOCATION, Handover.STANDARD])
def test_what_cannot_be_a_duplicate_comes_within_a_hop_and_the_rest_waits_somewhere(
    protocol: Handover,
) -> None:
    """C roams while some of its brokers cannot be reached.

    At each place, the oracle looks into every queue: what was published after the last connection
    of C to another broker ended, and is here, C has. What it has not got yet is kept at some
    broker, or on its way to one. A new event comes as soon as its way takes, and one hop.
    """
    seen: Counter[str] = Counter()
    options = {"subscriptions": "device"} if protocol is Handover.STANDARD else {}

    @examples(60)
    @given(st.data())
    def runs(data: st.DataObject) -> None:
        count = data.draw(st.integers(3, 7), label="brokers")
        topology = random_tree(count, data.draw(st.integers(0, 2**16), label="tree"))
        anywhere = st.sampled_from(topology.brokers)
        homes = {client: data.draw(anywhere, label=client) for client in "CPQ"}
        run = Overlay(
            topology,
            homes,
            RoutingOptions(strategy=Strategy.SIMPLE),
            handover=HandoverOptions(protocol=protocol),
            options={**EXACT, protocol.value: options},
            protocols=("terms", "past"),
        )
        run.subscribe("C", "n > 0", terms=AVAILABLE).settle()
        every: list[str] = []
        numbers: Counter[str] = Counter()

        def publish(publisher: str) -> str:
            numbers[publisher] += 1
            run.publish(publisher, n=1)
            every.append(f"{publisher}#{numbers[publisher]}")
            return every[-1]

        here, ended = homes["C"], 0
        dark: set[str] = set()
        for _ in range(data.draw(st.integers(1, 4), label="places")):
            for publisher in data.draw(st.lists(st.sampled_from("PQ"), max_size=3)):
                publish(publisher)
                run.wait(data.draw(st.sampled_from((0, 500, 3_000, CALM_US))))
            before, here = here, data.draw(anywhere, label="next")
            run.detach("C").wait(2 * HOP_US)
            if before != here:
                ended = run.now
            cut_off = data.draw(st.sampled_from([before] * 3 * count + [*topology.brokers]))
            if cut_off != here and data.draw(st.sampled_from((True, True, False))):
                run.fault(Partition(brokers=(cut_off,), us=100 * CALM_US))
                dark.add(cut_off)
            for publisher in data.draw(st.lists(st.sampled_from("PQ"), max_size=2)):
                publish(publisher)
            run.wait(data.draw(st.sampled_from((500, CALM_US)))).attach("C", here)
            for publisher in data.draw(st.lists(st.sampled_from("PQ"), max_size=3)):
                run.wait(2 * HOP_US)
                publish(publisher)

            got = run.wait(CALM_US).received("C")
            assert len(got) == len({*got})
            kept = waiting(run)
            somewhere = {*got, *on_their_way(run)}.union(*kept.values())
            assert {*every} <= somewhere
            assert {id_ for id_, time in kept[here].items() if time > ended} <= {*got}

            passed = way(topology, homes["P"], here)
            if not dark & {*passed}:
                new = publish("P")
                run.wait((1 + len(passed)) * HOP_US)
                assert new in run.received("C")
                seen["ahead"] += new in waiting(run)[here]
            seen["places"] += 1
        run.settle()
        assert sorted(run.received("C")) == sorted(every)
        assert run.outcome().findings == []

    runs()
    assert seen["places"] > seen["ahead"] > 10


def network() -> Overlay:
    """C is at B1, P at B3, and B1 is cut off when C comes to B3; its broker may crash."""
    return Overlay(
        line(3),
        {"C": "B1", "P": "B3"},
        handover=RELOCATION,
        options=EXACT,
        protocols=("terms", "past"),
        crashing=("B3",),
    )


def cut_off(run: Overlay) -> Overlay:
    run.settle().publish("P", n=1).settle().detach("C").wait(10_000)
    run.fault(Partition(brokers=("B1",), us=400_000)).publish("P", n=2).wait(10_000)
    return run.attach("C", "B3").wait(10_000)


@pytest.mark.spec("RE-2", "LV-2")
def test_a_broker_that_crashes_remembers_what_it_has_sent_ahead() -> None:
    run = cut_off(network().subscribe("C", "n > 0", terms=AVAILABLE))
    run.publish("P", n=3).wait(10_000).fault(Crash(broker="B3", us=5_000)).wait(20_000)
    run.publish("P", n=4).wait(10_000)

    assert run.received("C") == ["P#1", "P#3", "P#4"]

    run.settle()

    assert run.received("C") == ["P#1", "P#3", "P#4", "P#2"]
    assert run.outcome().findings == []
    replayed = [line for line in run.trace.lines if "Replayed" in line]
    assert [line.split("Replayed ")[1] for line in replayed] == ["P#2"], "C has confirmed the rest"


@pytest.mark.spec("RE-2", "LV-9")
def test_restored_nodes_remember_what_came_ahead_and_when_connections_ended() -> None:
    """Beside each node works one that is restored from its snapshot again and again."""
    sent = 0
    for seed in range(6):
        plan = Plan(
            topology=random_tree(4, seed),
            clients=4,
            subscriptions=12,
            available=0.8,
            events=60,
            moves=16,
            naps=4,
            variety=2,
            wait_us=10_000,
            settle=0.02,
            faults=CUT_OFF,
            handover=RELOCATION,
            options=EXACT,
        )
        twins = Twins(generate(plan, seed), every=3)
        sent += twins.run().messages["Overtaking"]
        assert twins.restored
    assert sent > 10


@pytest.mark.spec("RE-2")
def test_what_was_lost_on_its_way_ahead_comes_after_all() -> None:
    """C leaves over a connection that is broken, and is back before its new broker has asked."""
    run = cut_off(network().subscribe("C", "n > 0", terms=AVAILABLE))
    run.publish("P", n=3).wait(1_500).fault(Drop(a="C", b="B3", us=1_000)).attach("C", "B2")
    run.wait(500).attach("C", "B3").settle()

    assert run.sent("Overtaking", "B3 → C") == 2
    assert sorted(run.received("C")) == ["P#1", "P#2", "P#3"]
    assert run.outcome().findings == []


@pytest.mark.spec("RE-2")
def test_who_naps_while_it_waits_gets_at_once_what_came_meanwhile() -> None:
    run = cut_off(network().subscribe("C", "n > 0", terms=AVAILABLE))
    run.detach("C").wait(10_000).publish("P", n=3).wait(10_000).attach("C", "B3").wait(5_000)

    assert run.received("C") == ["P#1", "P#3"]

    run.settle()

    assert run.received("C") == ["P#1", "P#3", "P#2"]
    assert run.outcome().findings == []


@pytest.mark.spec("RE-2", "PA-1")
def test_what_the_past_had_does_not_come_again_because_other_events_came_ahead() -> None:
    """The past that C got at B1 has the first event, which B1 has kept for it as well."""
    run = network()
    run.subscribe("P", "n > 0").settle().publish("P", n=1).settle()
    run.subscribe("C", "n > 0", past=5, terms=AVAILABLE).wait(2_100).detach("C").wait(10_000)
    run.fault(Partition(brokers=("B1",), us=400_000)).attach("C", "B3").wait(10_000)
    run.publish("P", n=2).settle().publish("P", n=3).settle()

    given = [*run.recalled("C"), *run.received("C")]
    assert sorted(given) == sorted(set(given))
    assert {"P#2", "P#3"} <= set(given)
    assert run.outcome().findings == []


@pytest.mark.spec("RE-2")
def test_a_client_forgets_what_came_ahead_if_it_is_too_much_and_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It can no longer tell what it has had, so it takes nothing earlier: never twice."""
    monkeypatch.setattr(roaming, "AHEAD_MAX", 2)
    run = cut_off(network().subscribe("C", "n > 0", terms=AVAILABLE))
    for n in range(3, 7):
        run.publish("P", n=n)
    run.settle().publish("P", n=7).settle()

    assert run.received("C") == ["P#1", "P#3", "P#4", "P#5", "P#6", "P#7"]
    missed = [id_.seq for fact in run.facts.all if isinstance(fact, Missed) for id_ in fact.events]
    assert 2 in missed


@pytest.mark.spec("RE-2")
def test_a_client_forgets_what_came_ahead_when_its_order_has_caught_up() -> None:
    """Each time that C is cut off, two events come ahead; those of earlier times are not kept."""
    run = network().subscribe("C", "n > 0", terms=AVAILABLE)
    for time in range(5):
        cut_off(run).publish("P", n=3).publish("P", n=4).settle()
        assert run.sent("Overtaking") == 2 * (time + 1)
        run.detach("C").settle().attach("C", "B1").settle()

    client = run.client("C").part("relocation")
    assert isinstance(client, roaming.Roaming)
    assert len(client.keep(Writer()).ahead) <= 2
    assert run.outcome().findings == []


@pytest.mark.spec("RE-2")
def test_a_broker_remembers_no_more_than_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends some again, and the client drops them."""
    monkeypatch.setattr("sterna.core.handover.overtaking.AHEAD_MAX", 2)
    run = cut_off(network().subscribe("C", "n > 0", terms=AVAILABLE))
    for n in range(3, 7):
        run.publish("P", n=n)
    run.wait(10_000).detach("C").wait(10_000).attach("C", "B3").wait(10_000)
    assert run.sent("Overtaking") > 4, "when C is back, it gets some again"
    run.settle().publish("P", n=7).settle()

    assert run.received("C") == ["P#1", "P#3", "P#4", "P#5", "P#6", "P#2", "P#7"]
    assert run.outcome().findings == []


@pytest.mark.spec("RE-2")
def test_each_delivery_that_overtakes_is_stated_as_such() -> None:
    run = cut_off(network().subscribe("C", "n > 0", terms=AVAILABLE))
    run.publish("P", n=3).publish("P", n=4).settle()

    stated = [fact for fact in run.facts.all if isinstance(fact, Delivered | Overtook)]
    for before, fact in pairwise(stated):
        if isinstance(fact, Overtook):
            assert isinstance(before, Delivered)
            assert fact.events == tuple(event.id for event in before.events)
    assert sum(len(fact.events) for fact in stated if isinstance(fact, Overtook)) == 2
