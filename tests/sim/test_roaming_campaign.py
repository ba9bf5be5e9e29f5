"""Clients that roam at random: whatever they do and whatever goes wrong, nothing is lost,
nothing comes twice, the order holds, and no broker keeps anything of a client that is elsewhere.

What is checked each time a network has settled stands in `tests/sim/judging.py`.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Leave, Publish, Subscribe, Unsubscribe
from sterna.core.link import LinkTiming
from sterna.core.names import NodeId
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Faults, Plan, generate
from sterna.sim.oracle import Oracle
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, LinkModel, Script, Settle
from sterna.sim.topology import from_parents, random_tree
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.overlay import RELOCATION, Facts

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
    leaves: Sequence[int] = (0,),
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
        leaves=draw(st.sampled_from(leaves)),
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
    shapes = plans(strategy, FAULTS[faults], advertisements=advertisements, leaves=(0, 0, 1, 5))

    @examples(RUNS, long=3)
    @given(shapes, st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        outcome = run_rightly(generate(plan, seed))
        seen.update(runs=1, owed=outcome.owed, replays=outcome.messages["Replay"])
        seen.update(farewells=outcome.messages["Farewell"])

    runs()
    assert seen["runs"] >= RUNS
    assert seen["owed"] > RUNS  # The runs had something to show.
    assert seen["replays"] > RUNS
    assert seen["farewells"] > RUNS / 2


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

BOUNDED = {
    "ring": HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=2),
    "ttl": HandoverOptions(protocol=Handover.RELOCATION, cache_ttl_us=5_000),
}


def bounded_plans(bound: str, faults: str) -> st.SearchStrategy[Plan]:
    return st.sampled_from(Strategy).flatmap(
        lambda strategy: plans(strategy, FAULTS[faults], BOUNDED[bound], advertisements=False)
    )


@pytest.mark.spec("PM-3", "PM-4")
@pytest.mark.parametrize("faults", ["none", "heavy"])
@pytest.mark.parametrize("bound", ["ring", "ttl"])
def test_what_a_bounded_cache_discards_is_counted_exactly(bound: str, faults: str) -> None:
    """All that clients are owed they got, or were told that they miss it; and nothing is both.

    While a subscription comes or goes, more may be missed than is owed, but nothing unasked.
    """
    seen: Counter[str] = Counter()

    @examples(100)
    @given(bounded_plans(bound, faults), st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        script = generate(plan, seed)
        account = Account(script)
        assert account.owed <= account.got | account.missed
        assert not account.got & account.missed
        assert account.missed <= asked(script)
        seen.update(runs=1, missed=len(account.missed))

    runs()
    assert seen["missed"] > seen["runs"] / 10


@pytest.mark.spec("PM-3", "PM-4")
@pytest.mark.parametrize("faults", ["none", "heavy"])
@pytest.mark.parametrize("bound", ["ring", "ttl"])
def test_what_was_got_and_what_was_missed_is_what_was_owed(bound: str, faults: str) -> None:
    """No more and no less, where subscriptions have settled before and clients are back after."""
    seen: Counter[str] = Counter()

    @examples(100)
    @given(bounded_plans(bound, faults), st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        account = Account(subscribed_first(generate(plan, seed)))
        assert account.got | account.missed == account.owed
        assert not account.got & account.missed
        seen.update(runs=1, missed=len(account.missed), got=len(account.got))

    runs()
    assert seen["missed"] > seen["runs"] / 10
    assert seen["got"] > seen["runs"]


Deliveries = set[tuple[NodeId, EventId]]


class Account:
    """Who got what in a run, who was told to miss what, and who is owed what."""

    def __init__(self, script: Script) -> None:
        stated = Facts()
        simulation = Simulation(script, [stated])
        assert simulation.run().findings == []
        clients = script.clients
        self.got = {(c, id_) for c in clients for id_ in simulation.oracle.received(c)}
        missed = [
            (fact.at, id_)
            for fact in stated.all
            if isinstance(fact, facts.Missed)
            for id_ in fact.events
        ]
        assert len(set(missed)) == len(missed), "something is counted twice"
        self.missed: Deliveries = set(missed)
        oracle = Oracle(clients)  # It hears of no discards.
        for fact in stated.all:
            if not isinstance(fact, facts.Discarded):
                oracle.fact(fact)
        self.owed: Deliveries = {(c, id_) for c in clients for id_ in oracle._owed(c)}


def asked(script: Script) -> Deliveries:
    """What matches something that a client has ever subscribed to."""
    wishes: dict[NodeId, list[Filter]] = {}
    events: dict[EventId, Publish] = {}
    last: Counter[NodeId] = Counter()
    for step in script.steps:
        match step:
            case Do(client=client, what=Subscribe(filter=filter_)):
                wishes.setdefault(client, []).append(filter_)
            case Do(client=client, what=Publish() as event):
                last[client] += 1
                events[EventId(client, last[client])] = event
            case _:
                pass
    return {
        (client, id_)
        for client, filters in wishes.items()
        for id_, event in events.items()
        if any(each.matches(event.attributes) for each in filters)
    }


def subscribed_first(script: Script) -> Script:
    """The script with all subscriptions at its beginning, for good, and all clients at its end."""
    first: dict[tuple[NodeId, str], AnyStep] = {}
    rest: list[AnyStep] = []
    for step in script.steps:
        if isinstance(step, Do) and isinstance(step.what, Subscribe):
            first.setdefault((step.client, step.what.subscription), step)
        elif not isinstance(step, Do) or not isinstance(step.what, Unsubscribe | Leave):
            rest.append(step)
    back = [Do(client=client, what=Attach(broker=b)) for client, b in script.clients.items()]
    steps = (*first.values(), Settle(), *rest, Settle(), *back, Settle())
    return msgspec.structs.replace(script, steps=steps)
