"""Queue policies in whole networks: whoever hands clients over, a client that was away gets what
one queue with its policies would have kept, and everything else is stated as purged.
"""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Subscribe
from sterna.core.mobility import MobilityOptions
from sterna.core.names import LocalProtocolError
from sterna.core.terms.messages import TERMS, Order, Terms
from sterna.sim.generate import FAULTS, Faults, Plan, generate
from sterna.sim.script import Crash, Do, Partition, Script
from sterna.sim.topology import line, random_tree
from tests.mobility import model_of
from tests.queueing import POLICIES, Came, kept
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.overlay import Overlay
from tests.sim.test_disconnected_campaign import VARIANTS, with_strategy
from tests.wire.test_snapshots import Twins

STRATEGIES: dict[str, tuple[Handover, dict[str, Any], int]] = {
    "relocation": (Handover.RELOCATION, {}, 0),
    **VARIANTS,
}
BROKERS = ("B1", "B2", "B3")
Moves = dict[tuple[str, str], int]
MOVES: Moves = {(a, b): 1 for a in BROKERS for b in BROKERS if a != b}
LAST = Terms(keep="last_per(k)")


def overlay(
    variant: str, keeps: tuple[str, ...], moves: Moves | None = None, *, slow_us: int = 0
) -> Overlay:
    """C is at B2, P and Q are at the ends; C has one subscription for each policy."""
    handover, options, _ = STRATEGIES[variant]
    run = Overlay(
        line(3),
        {"C": "B2", "P": "B3", "Q": "B1"},
        handover=HandoverOptions(protocol=handover),
        options={handover: options},
        protocols=(TERMS, "past"),
        crashing=BROKERS,
        latencies=[("B2", "B3", slow_us)] if slow_us else (),
        mobility=MobilityOptions(model=model_of(moves or MOVES).to_bytes()),
    )
    for number, keep in enumerate(keeps):
        run.subscribe("C", f"s{number} = 1", str(number), terms=Terms(keep=keep))
    return run.settle()


def purged(run: Overlay) -> list[tuple[str, str]]:
    """What brokers state as purged, and by which policy."""
    stated = [fact for fact in run.facts.all if isinstance(fact, facts.Discarded)]
    return [
        (f"{event.publisher}#{event.seq}", fact.policy) for fact in stated for event in fact.events
    ]


PUBLISHING = st.tuples(
    st.sampled_from("PQ"),
    st.integers(0, 2),
    st.integers(0, 9),
    st.sets(st.sampled_from((0, 1)), min_size=1),
)
AWAY = st.lists(
    st.one_of(PUBLISHING, PUBLISHING, st.integers(1, 7), st.sampled_from(BROKERS)),
    min_size=3,
    max_size=12,
)


@pytest.mark.spec("RE-3")
@pytest.mark.parametrize("variant", STRATEGIES)
def test_a_client_gets_what_one_queue_would_have_kept(variant: str) -> None:
    """Brokers crash while it is away; it comes back elsewhere, again and again."""
    seen: Counter[str] = Counter()

    @examples(12)
    @given(
        st.tuples(st.sampled_from(POLICIES[1:]), st.sampled_from(POLICIES)),
        st.lists(st.tuples(AWAY, st.sampled_from(BROKERS)), min_size=1, max_size=4),
    )
    def runs(keeps: tuple[str, str], stays: list[tuple[list[Any], str]]) -> None:
        run = overlay(variant, keeps)
        every: list[str] = []
        expected: list[str] = []
        for steps, back in stays:
            run.detach("C").settle()
            came: dict[int, list[Came]] = {0: [], 1: []}
            names: dict[int, str] = {}
            for step in steps:
                match step:
                    case str():
                        run.fault(Crash(broker=step, us=5_000)).settle()
                    case int():
                        run.wait(step * 1_000_000)
                    case (publisher, k, v, matching):
                        number = len(every) + 1
                        for each in matching:
                            came[each].append(Came(number, {"k": k, "v": v}, run.now))
                        flags = {f"s{each}": 1 for each in matching}
                        run.publish(publisher, k=k, v=v, **flags).settle()
                        fact = run.facts_of(facts.Published)[-1]
                        names[number] = f"{fact.at}#{fact.events[0].seq}"  # type: ignore[attr-defined]
                        every.append(names[number])
            # Whether what takes some milliseconds is within a time is not what matters.
            run.wait(500_000)
            queues = [kept(keeps[each], came[each], run.now) for each in came]
            expected += [names[number] for number in sorted(queues[0] | queues[1])]
            run.attach("C", back).settle()
        assert run.received("C") == expected
        gone = purged(run)
        assert sorted({name for name, _ in gone}) == sorted({*every} - {*expected})
        assert all(policy in keeps and policy for _, policy in gone)
        assert run.outcome().findings == []
        assert run.facts_of(facts.Missed) == []
        seen.update(expected=len(expected), purged=len(gone))

    runs()
    assert seen["expected"] > 10
    assert seen["purged"] > 10


@pytest.mark.spec("RE-3")
@pytest.mark.parametrize("variant", [each for each in STRATEGIES if each != "home"])
def test_where_queues_meet_they_are_one(variant: str) -> None:
    """While the old broker is asked, an event comes to the new one that makes an older one idle."""
    held = 0
    for when_us in range(20_000, 620_000, 100_000):
        run = overlay(variant, ("last_per(k)",), {("B2", "B1"): 1}, slow_us=100_000)
        run.detach("C").settle()
        run.publish("P", k=1, s0=1).publish("P", k=2, s0=1).settle()
        run.attach("C", "B3").wait(when_us).publish("P", k=1, s0=1).settle()

        (meeting,) = run.facts_of(facts.HandoverFinished)[-1:]
        if meeting.held:  # type: ignore[attr-defined]
            held += 1
            assert run.received("C") == ["P#2", "P#3"]
            assert purged(run) == [("P#1", "last_per(k)")]
        assert run.received("C")[-2:] == ["P#2", "P#3"]
        assert run.outcome().findings == []
    assert held > 0


@pytest.mark.spec("RE-3")
@pytest.mark.parametrize("variant", STRATEGIES)
def test_a_client_that_is_connected_gets_everything(variant: str) -> None:
    run = overlay(variant, ("ring(1)",)).attach("C", "B1").settle()
    for n in range(5):
        run.publish("P", n=n, s0=1)
    assert run.settle().received("C") == [f"P#{n}" for n in range(1, 6)]
    assert purged(run) == []


@pytest.mark.spec("RE-3")
def test_times_add_up_from_broker_to_broker() -> None:
    """An event that has waited for 6 s at one broker, and for 6 s at another."""
    run = overlay("prefetching", ("ttl(10s)",), {("B2", "B1"): 1})
    run.publish("P", s0=1).settle()
    run.fault(Partition(brokers=("B1",), us=6_000_000)).detach("C").wait(100_000)
    run.publish("P", s0=1).wait(5_000_000).publish("P", s0=1).wait(6_000_000)

    assert purged(run) == [("P#2", "ttl(10s)")]
    assert run.attach("C", "B1").settle().received("C") == ["P#1", "P#3"]
    assert run.outcome().findings == []


@pytest.mark.spec("RE-3")
def test_what_has_waited_too_long_is_let_go_while_nothing_happens() -> None:
    run = overlay("relocation", ("ttl(10s)",)).detach("C").settle().publish("P", s0=1).settle()
    run.wait(11_000_000)
    assert purged(run) == [("P#1", "ttl(10s)")]


@pytest.mark.spec("RE-3", "RE-2")
def test_what_came_ahead_counts_as_the_last_one() -> None:
    """The older one of its key, which the client has missed, does not follow it."""
    run = Overlay(
        line(3), {"C": "B1", "P": "B3"},
        handover=HandoverOptions(protocol=Handover.RELOCATION),
        options={"terms": {"clocks_differ_s": 0.0}}, protocols=(TERMS,),
    )  # fmt: skip
    run.subscribe("C", "TRUE", terms=Terms(keep="last_per(k)", order=Order.AVAILABLE)).settle()
    run.publish("P", k=0).settle().detach("C").wait(10_000)
    run.publish("P", k=1).publish("P", k=2).wait(10_000)
    run.fault(Partition(brokers=("B1",), us=400_000)).attach("C", "B3").wait(10_000)
    run.publish("P", k=1).settle()
    assert run.received("C") == ["P#1", "P#4", "P#3"]
    assert run.outcome().findings == []


@pytest.mark.spec("RE-3")
def test_a_policy_that_a_broker_does_not_know_keeps_everything() -> None:
    """It may be one of a later release, or nonsense of a client that does not check it."""
    run = overlay("relocation", ("last_per(k)",))
    agreements: Any = run.broker("B2").part(TERMS)
    agreements.replace("C", (("C/0", Terms(keep="latest((")),), run.now)
    run.detach("C").settle().publish("P", k=1, s0=1).publish("P", k=1, s0=1).settle()
    assert run.attach("C", "B2").settle().received("C") == ["P#1", "P#2"]


@pytest.mark.spec("RE-3")
def test_a_policy_that_is_none_is_refused() -> None:
    run = overlay("relocation", ())
    with pytest.raises(LocalProtocolError, match=r"'ring\(0\)' is no queue policy: .*; write ttl"):
        run.subscribe("C", "TRUE", "x", terms=Terms(keep="ring(0)"))
    assert run.facts_of(facts.Subscribed) == []


def with_policies(script: Script) -> Script:
    """The same script, but most subscriptions have a policy."""
    keeps = ("", "last_per(kind)", "max(speed)", "ring(2)", "ttl(1s)", "min(zone * 2)", "ring(1)")
    steps = list(script.steps)
    asked = 0
    for place, step in enumerate(steps):
        if isinstance(step, Do) and isinstance(step.what, Subscribe):
            asked += 1
            terms = msgspec.structs.replace(step.what.terms, keep=keeps[asked % len(keeps)])
            what = msgspec.structs.replace(step.what, terms=terms)
            steps[place] = msgspec.structs.replace(step, what=what)
    return msgspec.structs.replace(script, steps=tuple(steps))


def plan_of(handover: Handover, faults: Faults, size: int, **more: Any) -> Plan:
    return Plan(
        topology=random_tree(1 + size, size),
        clients=4,
        subscriptions=8,
        available=0.2,
        events=60,
        moves=16,
        naps=6,
        variety=2,
        wait_us=20_000,
        settle=0.05,
        faults=faults,
        handover=HandoverOptions(protocol=handover),
        **more,
    )


@pytest.mark.spec("RE-3", "PM-4")
@pytest.mark.parametrize("variant", STRATEGIES)
def test_nothing_else_is_lost_or_comes_twice_and_the_order_holds(variant: str) -> None:
    handover, options, _ = STRATEGIES[variant]
    seen: Counter[str] = Counter()

    @examples(15)
    @given(
        st.sampled_from((FAULTS["none"], FAULTS["heavy"])),
        st.integers(1, 5),
        st.integers(0, 2**32),
    )
    def runs(faults: Faults, size: int, seed: int) -> None:
        plan = with_strategy(plan_of(handover, faults, size), handover, options, seed)
        outcome = run_rightly(with_policies(generate(plan, seed)))
        assert outcome.missed == 0
        seen.update(owed=outcome.owed, delivered=outcome.delivered)

    runs()
    assert seen["owed"] > 100


@pytest.mark.spec("RE-3", "LV-9")
@pytest.mark.parametrize("handover", [Handover.RELOCATION, Handover.LOGGING, Handover.PREFETCHING])
def test_restored_nodes_keep_the_same(handover: Handover) -> None:
    """Beside each node works one that is restored from its snapshot again and again."""
    for seed in range(2):
        plan = with_strategy(plan_of(handover, FAULTS["heavy"], 3), handover, {}, seed)
        twins = Twins(with_policies(generate(plan, seed)), every=7)
        assert twins.run().findings == []
        assert twins.restored
