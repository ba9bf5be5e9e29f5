"""Brokers that move with all that is behind them: in the end, tables are those of a fresh start."""

import pytest

from sterna.core.facts import Discarded, Settled
from sterna.core.handover.options import HandoverOptions
from sterna.core.inputs import Attach, Leave, Publish, Subscribe, Unsubscribe
from sterna.core.mobile.simple import SimpleRouting
from sterna.core.names import LocalProtocolError
from sterna.core.routing.options import RoutingOptions
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, EndLink, Migrate, Script, Slow, Wait
from sterna.sim.topology import from_edges, line
from tests.scale import CAMPAIGN, many_seeds
from tests.sim.moving import Moving
from tests.sim.overlay import Facts


@pytest.mark.spec("MB-7")
def test_events_do_not_go_to_and_fro_in_a_part_without_their_subscriber() -> None:
    """B1 knows of a later visit than B2, and has lost the way."""
    script = Script(
        topology=from_edges([("B1", "B2"), ("B1", "B3")]),
        clients={"s": "B2", "p": "B1"},
        steps=(),
        routing=RoutingOptions(announces=False),
        protocols=("reversing",),
        handover=HandoverOptions(protocol="phoenix"),
    )
    simulation = Simulation(script)
    simulation.do(Do(client="s", what=Subscribe(subscription="1", filter=Filter("f > 0"))))
    simulation.settle()
    simulation.do(EndLink(a="B1", b="B2"))
    simulation.do(Do(client="s", what=Attach(broker="B3")))
    simulation.settle()
    simulation.do(EndLink(a="B1", b="B3"))
    simulation.do(Do(client="p", what=Publish(attributes={"f": 1})))
    simulation.settle()
    simulation.do(Migrate(broker="B1", before="B3", to="B2"))
    simulation.settle()
    assert simulation.oracle.received("s") == []
    simulation.do(Migrate(broker="B3", before="B1", to="B2"))
    simulation.settle()
    assert len(simulation.oracle.received("s")) == 1


@pytest.mark.spec("MB-5", "MB-7")
@pytest.mark.parametrize("handover", ["none", "phoenix"])
def test_a_broker_that_has_lost_its_memory_is_right_about_its_own_subscriber(handover: str) -> None:
    """What the others know is of a time that the broker has forgotten."""
    script = Script(
        topology=line(3),
        clients={"s1": "B1", "s3": "B3"},
        steps=(Crash(broker="B1", us=5_000, forgets=True),),
        routing=RoutingOptions(announces=False),
        protocols=("reversing",),
        handover=HandoverOptions(protocol=handover),
    )
    simulation = Simulation(script)
    for name in ("a", "b", "c"):
        what = Subscribe(subscription=name, filter=Filter("f > 0"))
        simulation.do(Do(client="s1", what=what))
        simulation.settle()  # Three changes: what others know has a greater number.
    simulation.do(Slow(a="B1", b="B2", latency_us=50_000))  # The subscriber comes first.
    simulation.do(Crash(broker="B1", us=5_000, forgets=True))
    for wanted in (["s1/a", "s1/b", "s1/c"], ["s1/b", "s1/c"], ["s1/c"]):
        simulation.settle()
        for broker, next_hop in (("B1", "s1"), ("B2", "B1"), ("B3", "B2")):
            part = simulation.network.hosts[broker].node.part("reversing")
            assert isinstance(part, SimpleRouting)
            each = part.subscribers["s1"]
            assert (each.next_hop, each.is_lost, sorted(each.filters)) == (next_hop, False, wanted)
        if len(wanted) > 1:
            ended = Unsubscribe(subscription=wanted[0].removeprefix("s1/"))
            simulation.do(Do(client="s1", what=ended))
    simulation.do(Do(client="s3", what=Publish(attributes={"f": 1})))
    simulation.settle()
    assert len(simulation.oracle.received("s1")) == 1


@pytest.mark.spec("MB-5", "MB-7")
def test_events_come_to_a_broker_that_does_not_know_yet_what_their_subscriber_wants() -> None:
    """B1 has lost the way to s, and leaves s to B2. That one has no memory, and asks first."""
    script = Script(
        topology=from_edges([("B1", "B2"), ("B1", "B3")]),
        clients={"s": "B3", "p": "B1"},
        steps=(),
        routing=RoutingOptions(announces=False),
        protocols=("reversing",),
        handover=HandoverOptions(protocol="phoenix"),
    )
    simulation = Simulation(script)
    simulation.do(Do(client="s", what=Subscribe(subscription="1", filter=Filter("f > 0"))))
    simulation.settle()
    simulation.do(EndLink(a="B1", b="B3"))
    simulation.settle()
    simulation.do(Slow(a="B1", b="B2", latency_us=50_000))
    simulation.do(Crash(broker="B2", us=5_000, forgets=True))
    for _ in range(30):  # While B1 introduces itself, is asked, and answers.
        simulation.do(Do(client="p", what=Publish(attributes={"f": 1})))
        simulation.do(Do(client="p", what=Publish(attributes={"f": 0})))
        simulation.do(Wait(us=10_000))
    simulation.settle()
    simulation.do(Migrate(broker="B3", before="B1", to="B2"))
    simulation.settle()
    got = [id_.seq for id_ in simulation.oracle.received("s")]
    assert got == list(range(1, 60, 2))
    assert simulation.oracle.findings() == []


@pytest.mark.spec("MB-7")
@pytest.mark.parametrize("protocol", ["modular", "reversing"])
def test_queues_are_bounded_and_what_they_drop_is_counted(protocol: str) -> None:
    script = Script(
        topology=line(3),
        clients={"s": "B3", "p": "B1"},
        steps=(),
        routing=RoutingOptions(announces=False),
        protocols=(protocol,),
        handover=HandoverOptions(protocol="phoenix", cache_events_max=3),
    )
    facts = Facts()
    simulation = Simulation(script, [facts])
    simulation.do(Do(client="s", what=Subscribe(subscription="1", filter=Filter("f > 0"))))
    simulation.settle()
    simulation.do(EndLink(a="B2", b="B3"))
    for number in range(1, 6):
        simulation.do(Do(client="p", what=Publish(attributes={"f": number})))
    simulation.settle()
    simulation.do(Migrate(broker="B3", before="B2", to="B1"))
    simulation.settle()
    assert [id_.seq for id_ in simulation.oracle.received("s")] == [3, 4, 5]
    dropped = [fact for fact in facts.all if isinstance(fact, Discarded)]
    assert [(fact.at, event.seq) for fact in dropped for event in fact.events] == [
        ("B2", 1),
        ("B2", 2),
    ]
    assert simulation.oracle.findings() == []


@pytest.mark.spec("MB-3")
def test_phoenix_needs_tables_of_subscribers() -> None:
    script = Script(
        topology=line(2),
        clients={},
        steps=(),
        handover=HandoverOptions(protocol="phoenix"),
    )
    with pytest.raises(LocalProtocolError, match="phoenix needs tables of subscribers"):
        Simulation(script)


@pytest.mark.spec("MB-3")
def test_a_client_that_leaves_is_forgotten_everywhere() -> None:
    run = Moving(3, "reversing", roams=True)
    for _ in range(8):
        run.subscribe()
    run.settle()
    name = next(name for name in sorted(run.known) if run.wanted[name])
    run.simulation.do(Do(client=name, what=Leave()))
    run.settle()
    run.wanted[name] = set()
    assert run.is_right()
    assert name not in run.simulation.network.hosts[run.homes[name]].node.peers


@pytest.mark.spec("MB-5")
def test_what_was_published_in_another_partition_waits_where_the_way_ends() -> None:
    run = Moving(5, "reversing")
    names = sorted(run.homes)
    run.wanted[names[0]].add("1")
    run.known.add(names[0])
    what = Subscribe(subscription="1", filter=Filter("f = 1"))
    run.simulation.do(Do(client=names[0], what=what))
    run.settle()
    home = run.homes[names[0]]
    link = next(link for link in sorted(run.links, key=sorted) if home in link)
    (beside,) = link - {home}
    run.links.remove(link)
    run.simulation.do(EndLink(a=home, b=beside))
    far = next(n for n in names if run.homes[n] in run.part_of(beside))
    run.simulation.do(Do(client=far, what=Publish(attributes={"f": 1})))
    run.settle()
    assert [len(run.subscribers(b)[names[0]].queue) for b in run.brokers if b == beside] == [1]
    run.links.add(link)
    run.simulation.do(Migrate(broker=home, before=beside, to=beside))
    run.settle()
    assert run.lost_events() == []
    assert run.is_right()


@pytest.mark.spec("MB-5")
@pytest.mark.parametrize("protocol", ["reversing", "modular"])
def test_after_one_migration_at_a_time_all_ways_are_right(protocol: str) -> None:
    for seed in range(200 * CAMPAIGN):
        run = Moving(seed, protocol)
        for _ in range(8):
            run.subscribe()
        for _ in range(5):
            run.settle()
            run.migrate()
        run.settle()
        assert run.is_right(), f"seed {seed}"


@pytest.mark.spec("MB-5")
def test_whatever_moves_at_the_same_time_all_ways_are_right_in_the_end() -> None:
    for seed in range(600 * CAMPAIGN):
        run = Moving(seed, "reversing")
        for _ in range(run.rng.randint(1, 25)):
            run.rng.choice([run.subscribe, run.cut, run.join, run.migrate])()
            run.rng.choice([run.wait, run.wait, run.wait, run.settle])()
        run.meet()
        assert run.is_right(), f"seed {seed}"


@pytest.mark.spec("MB-5")
def test_whatever_moves_no_event_is_lost_and_none_waits_in_the_end() -> None:
    """Some come twice; clients that roam drop these."""
    for seed in range(300 * CAMPAIGN):
        run = Moving(seed, "reversing")
        for _ in range(8):
            run.subscribe()
        run.settle()
        for _ in range(run.rng.randint(1, 25)):
            run.rng.choice([run.publish, run.cut, run.join, run.migrate])()
            run.publish()
            run.rng.choice([run.wait, run.wait, run.wait, run.settle])()
        run.meet()
        assert run.is_right(), f"seed {seed}"
        assert run.lost_events() == [], f"seed {seed}"
        queues = [each.queue for b in run.brokers for each in run.subscribers(b).values()]
        assert not any(queues), f"seed {seed}"


@pytest.mark.spec("MB-5", "MB-7")
def test_whatever_moves_crashes_and_meets_tables_are_those_of_a_fresh_start() -> None:
    """Branches move, links break, brokers crash with their memory and without, clients roam."""
    for seed in many_seeds(1_000):
        run = Moving(seed, "reversing", roams=True)
        for _ in range(8):
            run.subscribe()
        run.anything(run.rng.randint(1, 25))
        run.meet(publishes=False)
        assert run.is_right(), f"seed {seed}"
        assert run.waiting() == [], f"seed {seed}"


@pytest.mark.spec("RE-4", "MB-7")
def test_what_a_part_of_the_network_has_forgotten_it_learns_again() -> None:
    """A subscriber that others have lost may be elsewhere, or be just coming back."""
    for seed in many_seeds(300):
        run = Moving(seed, "reversing", roams=True)
        for _ in range(8):
            run.subscribe()
        for _ in range(run.rng.randint(1, 25)):
            what = [run.cut, run.join, run.migrate, run.roam, run.vanish, run.subscribe]
            run.rng.choice([*what, run.crash, *[run.forget_lost] * 5])()
            run.wait()
        run.meet(publishes=False)
        assert run.is_right(), f"seed {seed}"
        assert run.waiting() == [], f"seed {seed}"


@pytest.mark.spec("MB-7", "RT-1")
def test_our_usual_routing_has_the_tables_of_a_fresh_start_as_well() -> None:
    """Filters are announced over each link that is made, and end with it. (Covering)"""
    for seed in many_seeds(1_000):
        run = Moving(seed, protocol="")
        for _ in range(8):
            run.subscribe()
        for _ in range(run.rng.randint(1, 25)):
            run.rng.choice([run.subscribe, run.cut, run.join, run.migrate, run.crash])()
            run.wait()
        run.meet(publishes=False)
        assert run.is_right(), f"seed {seed}"


@pytest.mark.spec("MB-4", "MB-7")
def test_one_change_at_a_time_modular_tables_are_those_of_a_fresh_start() -> None:
    for seed in many_seeds(1_000):
        run = Moving(seed, "modular", roams=True, one_by_one=True)
        for _ in range(8):
            run.subscribe()
        run.anything(run.rng.randint(1, 25))
        run.meet(publishes=False)
        assert run.is_right(), f"seed {seed}"
        assert run.waiting() == [], f"seed {seed}"


@pytest.mark.spec("MB-7")
@pytest.mark.parametrize(
    ("protocol", "one_by_one", "runs"), [("reversing", False, 400), ("modular", True, 200)]
)
def test_events_come_once_and_in_order_or_count_as_too_late(
    protocol: str, one_by_one: bool, runs: int
) -> None:
    """Brokers and clients move, links break, brokers restart from their logs."""
    for seed in many_seeds(runs):
        run = Moving(seed, protocol, roams=True, one_by_one=one_by_one)
        for _ in range(8):
            run.subscribe()
        run.settle()
        run.anything(run.rng.randint(1, 25), publishes=True)
        run.meet()
        assert run.is_right(), f"seed {seed}"
        assert run.waiting() == [], f"seed {seed}"
        assert run.lost_events() == [], f"seed {seed}"
        assert run.out_of_order() == [], f"seed {seed}"
        assert run.miscounted() == [], f"seed {seed}"
        assert run.simulation.oracle.findings() == [], f"seed {seed}"


@pytest.mark.spec("MB-7")
@pytest.mark.parametrize(
    ("protocol", "one_by_one", "runs"), [("reversing", False, 80), ("modular", True, 30)]
)
def test_what_short_queues_drop_is_stated_by_name_whatever_moves(
    protocol: str, one_by_one: bool, runs: int
) -> None:
    """Each event that a subscriber lacks was dropped for it somewhere, and nothing else is missing.

    A copy that was dropped need not be the last one: another broker may have delivered the event.
    """
    lost = 0
    for seed in many_seeds(runs):
        run = Moving(seed, protocol, roams=True, one_by_one=one_by_one, queue_max=1 + seed % 3)
        for _ in range(8):
            run.subscribe()
        run.settle()
        run.anything(run.rng.randint(1, 25), publishes=True)
        run.meet()
        lacks = set(run.lost_events())
        assert lacks <= run.discarded(), f"seed {seed}"
        assert run.is_right(), f"seed {seed}"
        assert run.waiting() == [], f"seed {seed}"
        assert run.out_of_order() == [], f"seed {seed}"
        assert run.simulation.oracle.findings() == [], f"seed {seed}"
        lost += len(lacks)
    assert lost > runs


@pytest.mark.spec("MB-7")
def test_the_oracle_agrees_while_subscriptions_change_in_different_parts() -> None:
    """An event is owed to whom all brokers knew when it was published, once all of them meet."""
    owed = 0
    for seed in many_seeds(400):
        run = Moving(seed, "reversing", roams=True)
        for _ in range(8):
            run.subscribe()
        run.settle()
        run.anything(run.rng.randint(1, 25), publishes=True, subscribes=True)
        run.meet()
        assert run.simulation.oracle.findings() == [], f"seed {seed}"
        owed += run.simulation.oracle.owed()
    assert owed > 5_000


@pytest.mark.spec("MB-7")
def test_a_network_in_parts_has_not_settled() -> None:
    run = Moving(5, "reversing")
    settled = [fact for fact in run.facts.all if isinstance(fact, Settled)]
    run.cut()
    run.settle()
    assert [fact for fact in run.facts.all if isinstance(fact, Settled)] == settled
    run.meet()
    assert len([fact for fact in run.facts.all if isinstance(fact, Settled)]) == len(settled) + 1


@pytest.mark.spec("MB-2", "MB-3")
def test_on_a_tree_that_stands_clients_that_move_are_found() -> None:
    """Phoenix: each client rests somewhere before it moves on."""
    for seed in many_seeds(300):
        run = Moving(seed, "simple-routing", roams=True, one_by_one=True)
        for _ in range(8):
            run.subscribe()
        run.settle()
        for _ in range(run.rng.randint(1, 25)):
            run.rng.choice([run.roam, run.vanish, run.publish])()
            run.publish()
            run.wait()
        run.come_back()
        run.settle()
        assert run.is_right(), f"seed {seed}"
        assert run.lost_events() == [], f"seed {seed}"
        assert run.out_of_order() == [], f"seed {seed}"
        assert run.waiting() == [], f"seed {seed}"


@pytest.mark.spec("MB-5")
def test_the_printed_rule_does_not_converge() -> None:
    """One migration among eight brokers: about one in three ends with wrong tables."""
    wrong = 0
    for seed in range(400):
        run = Moving(seed, "efficient", brokers=8)
        for _ in range(8):
            run.subscribe()
        run.settle()
        run.migrate()
        run.settle()
        wrong += not run.is_right()
    assert 20 < wrong < 200, wrong


@pytest.mark.spec("MB-4", "MB-5")
@pytest.mark.parametrize(("protocol", "low", "high"), [("modular", 1, 30), ("efficient", 60, 200)])
def test_what_is_printed_does_not_converge_when_much_happens_at_once(
    protocol: str, low: int, high: int
) -> None:
    """Of 200 random runs, so many end with wrong tables: nothing says which news is later."""
    wrong = 0
    for seed in range(200):
        run = Moving(seed, protocol, roams=protocol == "modular")
        for _ in range(8):
            run.subscribe()
        if protocol == "modular":
            run.anything(run.rng.randint(1, 25))
        else:
            for _ in range(5):
                run.migrate()
                run.wait()
        run.meet(publishes=False)
        wrong += not run.is_right()
    assert low <= wrong <= high, wrong
