"""The network model: time, order, bandwidth, and everything that goes wrong."""

import msgspec
import pytest

from sterna.core import facts
from sterna.core.inputs import LinkGone, Publish, Subscribe
from sterna.core.routing.merging import Merged
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.kernel import Kernel
from sterna.sim.run import Simulation, run
from sterna.sim.script import Crash, Do, Drop, LinkModel, Partition, Pause, Script, Settle
from sterna.sim.topology import line, random_tree
from sterna.wire.codec import from_json, to_json
from tests.sim.overlay import Overlay


def overlay(link: LinkModel | None = None, crashing: tuple[str, ...] = ()) -> Overlay:
    made = Overlay(line(3), {"ann": "B1", "pat": "B3"}, link=link, crashing=crashing)
    return made.subscribe("ann", "x > 0").settle()


def time_of(run: Overlay, kind: type[facts.Fact]) -> int:
    return run.facts_of(kind)[-1].time


def test_things_happen_in_the_order_of_time_and_then_of_planning() -> None:
    kernel, happened = Kernel(), list[object]()
    kernel.at(5, happened.append, "late")
    kernel.at(1, happened.append, "early")
    kernel.at(5, happened.append, "later")

    kernel.run(until=3)
    assert (happened, kernel.now, len(kernel)) == (["early"], 3, 2)
    kernel.run()
    assert (happened, kernel.now) == (["early", "late", "later"], 5)


def test_an_event_takes_the_latency_of_every_link() -> None:
    run = overlay(LinkModel(latency_us=700))

    run.publish("pat", x=1).settle()

    assert time_of(run, facts.Delivered) - time_of(run, facts.Published) == 4 * 700


def test_a_narrow_link_takes_its_time() -> None:
    fast = overlay(LinkModel(bytes_per_s=10_000_000)).publish("pat", x=1).settle()
    slow = overlay(LinkModel(bytes_per_s=10_000)).publish("pat", x=1).settle()

    def took(run: Overlay) -> int:
        return time_of(run, facts.Delivered) - time_of(run, facts.Published)

    assert took(slow) > took(fast) + 4 * 4_000  # Some 50 bytes over four links of 10 kB/s.


def test_jitter_does_not_change_the_order_on_a_link() -> None:
    run = overlay(LinkModel(jitter_us=50_000))

    for x in range(1, 20):
        run.publish("pat", x=x).wait(500)
    run.settle()

    assert run.received("ann") == [f"pat#{n}" for n in range(1, 20)]


def test_lost_and_repeated_frames_cost_time_but_no_event() -> None:
    run = overlay(LinkModel(loss=0.4, duplication=0.4))

    for x in range(1, 20):
        run.publish("pat", x=x)
    run.settle()

    assert run.received("ann") == [f"pat#{n}" for n in range(1, 20)]
    outcome = run.outcome()
    assert outcome.frames > 2 * sum(outcome.messages.values())


def test_a_broken_connection_holds_events_up_until_it_stands_again() -> None:
    run = overlay().fault(Drop(a="B1", b="B2", us=80_000))

    run.publish("pat", x=1).wait(70_000)
    assert run.received("ann") == []

    assert run.settle().received("ann") == ["pat#1"]


def test_what_was_on_its_way_when_a_connection_broke_is_sent_again() -> None:
    run = overlay().publish("pat", x=1).wait(2_500)  # Between B2 and B1.

    run.fault(Drop(a="B2", b="B1", us=10_000)).settle()

    assert run.received("ann") == ["pat#1"]


def test_a_paused_broker_does_nothing_and_then_all_of_it() -> None:
    run = overlay().fault(Pause(broker="B2", us=80_000)).publish("pat", x=1).wait(70_000)
    assert run.received("ann") == []

    assert run.settle().received("ann") == ["pat#1"]


def test_a_crashed_broker_starts_again_from_the_log_of_its_inputs() -> None:
    run = overlay(crashing=("B2",))
    before = run.broker("B2")

    run.publish("pat", x=1).wait(2_500).fault(Crash(broker="B2", us=80_000)).settle()

    assert run.broker("B2") is not before
    assert run.received("ann") == ["pat#1"]
    assert run.table("B2") == {"B1": ["x > 0"]}


def test_a_broker_that_forgets_everything_is_told_again() -> None:
    """What it had taken and not passed on is lost; what is published later arrives."""
    run = overlay(crashing=("B2",))

    run.fault(Crash(broker="B2", us=20_000, forgets=True)).settle()

    assert run.table("B2") == {"B1": ["x > 0"]}
    assert run.table("B3") == {"B2": ["x > 0"]}
    assert len(run.facts_of(facts.LinkReset)) == 2
    assert run.publish("pat", x=1).settle().received("ann") == ["pat#1"]
    run.unsubscribe("ann").settle()
    assert run.table("B3") == {}


def test_what_a_broker_said_before_it_forgot_does_not_hold() -> None:
    """In its new life it may use other names for the same."""
    run = overlay(crashing=("B2",))
    run.subscribe("ann", "y > 0", "2").settle().unsubscribe("ann").settle()

    run.fault(Crash(broker="B2", us=20_000, forgets=True)).settle()

    assert run.table("B3") == {"B2": ["y > 0"]}
    assert run.unsubscribe("ann", "2").settle().table("B3") == {}


@pytest.mark.parametrize("strategy", Strategy)
def test_what_came_and_went_while_a_link_was_down_is_never_told(strategy: Strategy) -> None:
    run = Overlay(line(2), {"ann": "B1"}, RoutingOptions(strategy=strategy))
    before = run.sent("SubscriptionChange", "B1 → B2")
    run.fault(Drop(a="B1", b="B2", us=500_000)).wait(1_000)

    run.subscribe("ann", "x = 1").wait(100_000).unsubscribe("ann").settle()

    assert run.sent("SubscriptionChange", "B1 → B2") == before


def test_nothing_gathers_for_a_link_that_is_down_but_the_difference() -> None:
    """However much comes and goes: groups that merging made are gone with their members."""
    run = Overlay(line(2), {"ann": "B1"}, RoutingOptions(strategy=Strategy.MERGING))
    run.fault(Drop(a="B1", b="B2", us=5_000_000)).wait(1_000)

    for number in range(0, 40, 2):
        for name in (number, number + 1):
            run.subscribe("ann", f"x = {name} AND y = {number}", str(name)).wait(5_000)
        for name in (number, number + 1):
            run.unsubscribe("ann", str(name)).wait(5_000)

    (told,) = run.broker("B1").router._neighbours._told.values()
    (merged,) = [s for s in told.subscriptions.chain._stages if isinstance(s, Merged)]
    assert (merged._open, merged._changed, merged._group_of, merged._alone) == ({}, {}, {}, {})
    assert not told.subscriptions.difference.added


@pytest.mark.parametrize("strategy", Strategy)
def test_a_border_broker_that_forgets_hears_from_its_clients_again(strategy: Strategy) -> None:
    run = Overlay(
        line(2),
        {"ann": "B1", "pat": "B2"},
        RoutingOptions(strategy=strategy, advertisements=True),
        ClientOptions(advertisements=True, quenching=True),
        crashing=("B1", "B2"),
    )
    run.advertise("pat", "x >= 0").subscribe("ann", "x > 0").settle()

    for broker in ("B1", "B2"):
        run.fault(Crash(broker=broker, us=20_000, forgets=True)).settle()

    assert run.publish("pat", x=1).settle().received("ann") == ["pat#1"]


def test_a_broker_that_forgets_one_link_is_told_again() -> None:
    """It says so: a session that begins anew has a name that no session had before."""
    run = overlay()
    network = run.simulation.network
    network._turn(network.hosts["B2"], LinkGone(link="B1"))
    assert run.table("B2") == {}

    run.fault(Drop(a="B1", b="B2", us=1_000)).settle()

    assert run.table("B2") == {"B1": ["x > 0"]}
    assert run.publish("pat", x=1).settle().received("ann") == ["pat#1"]


def test_events_published_without_a_connection_survive_a_broker_that_forgets() -> None:
    run = Overlay(line(1), {"ann": "B1", "pat": "B1"}, crashing=("B1",))
    run.subscribe("ann", "x > 0").settle()

    run.fault(Crash(broker="B1", us=50_000, forgets=True)).publish("pat", x=1).settle()

    assert all(fact.given_up == 0 for fact in run.facts_of(facts.LinkReset))  # type: ignore[attr-defined]


def test_a_network_has_not_settled_while_two_ends_look_for_each_other() -> None:
    run = overlay(LinkModel(loss=0.7), crashing=("B2",))

    run.fault(Crash(broker="B2", us=1_000, forgets=True)).settle()

    assert run.table("B2") == {"B1": ["x > 0"]}


@pytest.mark.parametrize("strategy", Strategy)
def test_names_that_look_alike_are_different_routes(strategy: Strategy) -> None:
    run = Overlay(line(2), {"a": "B1", "a/b": "B1", "pat": "B2"}, RoutingOptions(strategy=strategy))
    run.subscribe("a", "x = 1", "b/c").subscribe("a/b", "x = 2", "c").settle()

    run.unsubscribe("a/b", "c").settle()

    assert run.publish("pat", x=1).settle().received("a") == ["pat#1"]


def test_partitions_work_on_and_join_again() -> None:
    run = Overlay(line(4), {"ann": "B1", "bob": "B4", "pat": "B2"})
    run.subscribe("ann", "x > 0").subscribe("bob", "x > 0").settle()

    run.fault(Partition(brokers=("B1", "B2"), us=100_000)).publish("pat", x=1).wait(50_000)
    assert run.received("ann") == ["pat#1"]
    assert run.received("bob") == []

    assert run.settle().received("bob") == ["pat#1"]


def test_troubles_may_overlap() -> None:
    run = overlay(crashing=("B2",))
    run.fault(Drop(a="B1", b="B2", us=100_000)).fault(Partition(brokers=("B1",), us=50_000))
    run.fault(Crash(broker="B2", us=20_000)).fault(Pause(broker="B2", us=10_000))

    run.publish("pat", x=1).wait(90_000)
    assert run.received("ann") == []
    assert run.settle().received("ann") == ["pat#1"]


def test_counters_count_messages_by_type_link_and_broker() -> None:
    run = overlay().publish("pat", x=1).settle()
    outcome = run.outcome()

    assert outcome.messages == {"SubscriptionChange": 3, "Events": 4}
    assert outcome.by_link["B2 → B1"] == {"Events": 1}
    assert outcome.by_broker["B2"] == {"Events": 1, "SubscriptionChange": 1}
    assert outcome.control_messages == 3
    assert [sizes.total for sizes in outcome.tables] == [0, 3, 3]
    assert outcome.tables[-1].largest == 1


def test_a_script_survives_being_written_down() -> None:
    script = generate(Plan(topology=random_tree(5, 1), faults=FAULTS["heavy"]), 3)

    again = from_json(to_json(script), Script)

    assert again == script
    assert run(again).messages == run(script).messages


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"clients": {"ann": "B9"}}, "client ann is at B9, which is no broker"),
        ({"clients": {"B1": "B1"}}, "B1 is both a client and a broker"),
        ({"steps": (Pause(broker="B9", us=1),)}, "step 1: there is no broker B9"),
        ({"steps": (Settle(), Drop(a="B1", b="ann", us=1))}, "step 2: there is no link B1 - ann"),
        ({"steps": (Partition(brokers=("B1", "B8"), us=1),)}, "there is no broker B8"),
        ({"steps": (Do(client="x", what=Publish(attributes={})),)}, "there is no client x"),
    ],
)
def test_a_script_that_cannot_be_is_refused(change: dict[str, object], problem: str) -> None:
    script = Script(topology=line(2), clients={}, steps=())

    with pytest.raises(ValueError, match=problem):
        msgspec.structs.replace(script, **change)


def test_a_broker_without_a_log_cannot_start_again() -> None:
    simulation = Simulation(Script(topology=line(1), clients={}, steps=()))
    simulation.network.crash("B1", 10, forgets=False)

    with pytest.raises(ValueError, match="B1 has no log to start from"):
        simulation.settle()


def test_generated_scripts_are_valid_and_busy() -> None:
    plan = Plan(topology=line(3), subscriptions=9, events=20, faults=FAULTS["heavy"])
    kinds = {type(step) for step in generate(plan, 1).steps}
    inputs = {type(step.what) for step in generate(plan, 1).steps if isinstance(step, Do)}

    assert {Drop, Pause, Crash, Partition} <= kinds
    assert {Subscribe, Publish} <= inputs
    assert Filter("TRUE").matches({})
