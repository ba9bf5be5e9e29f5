"""Random overlays: every strategy delivers what a centralized matcher would, each event
once, in the order of its publisher, whatever goes wrong below the link sessions.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.sim.generate import FAULTS, Faults, Plan, generate
from sterna.sim.script import LinkModel
from sterna.sim.topology import from_parents, random_tree
from tests.scale import examples
from tests.sim.judging import run_rightly

RUNS = 45
"""Per strategy, with and without advertisements, with and without faults: 1,080 altogether."""


@st.composite
def plans(draw: st.DrawFn, strategy: Strategy, faults: Faults, *, advertisements: bool) -> Plan:
    """Small networks of up to 12 brokers, in all shapes and with all options."""
    count = draw(st.integers(1, 12))
    parents = [draw(st.integers(0, child - 1)) for child in range(1, count)]
    latency = draw(st.sampled_from((100, 1_000)))
    return Plan(
        topology=from_parents(parents),
        clients=draw(st.integers(1, 6)),
        subscriptions=draw(st.integers(1, 15)),
        events=draw(st.integers(1, 20)),
        variety=draw(st.sampled_from((2, 3, 5))),
        settle=draw(st.sampled_from((0.1, 0.3))),
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
        link=LinkModel(latency_us=latency, jitter_us=draw(st.sampled_from((0, 2_000)))),
        faults=faults,
    )


@pytest.mark.spec("RT-1", "RT-2", "RT-3", "RT-4", "RT-5", "QU-1")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("faults", ["none", "heavy"])
def test_deliveries_are_those_of_a_centralized_matcher(
    strategy: Strategy, faults: str, advertisements: bool
) -> None:
    seen: Counter[str] = Counter()
    shapes = plans(strategy, FAULTS[faults], advertisements=advertisements)

    @examples(RUNS)
    @given(shapes, st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        outcome = run_rightly(generate(plan, seed))
        seen.update(runs=1, owed=outcome.owed, delivered=outcome.delivered)

    runs()
    assert seen["runs"] >= RUNS
    assert seen["owed"] > 2 * RUNS  # The runs had something to show.


@pytest.mark.spec("RT-1")
@pytest.mark.parametrize("strategy", Strategy)
def test_larger_networks_deliver_rightly_too(strategy: Strategy) -> None:
    """Enough filters at a broker for the compiled index, and chains with many members."""
    for seed in range(2):
        plan = Plan(
            topology=random_tree(30, seed),
            clients=40,
            subscriptions=300,
            events=150,
            variety=8,
            settle=0.02,
            routing=RoutingOptions(strategy=strategy),
            faults=FAULTS["heavy"],
        )
        outcome = run_rightly(generate(plan, seed))
        assert outcome.owed > 500
