"""Clients that disconnect and reconnect elsewhere at random, with every strategy of Burcea et al.:
whatever they do and whatever goes wrong, nothing is lost, nothing comes twice, the order holds, and
nobody keeps anything of a client that is elsewhere, nor do brokers that were predicted.

What is checked each time a network has settled stands in `tests/sim/judging.py`.
"""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.script import Script
from sterna.sim.topology import random_tree
from sterna.wire.codec import from_json
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.strategies import BROKER, BROKERS, DEVICE, random_predictor
from tests.sim.test_roaming_campaign import plans

VARIANTS: dict[str, tuple[Handover, dict[str, Any], int]] = {
    "standard": (Handover.STANDARD, BROKER, 250),
    "standard-device": (Handover.STANDARD, DEVICE, 250),
    "logging": (Handover.LOGGING, BROKER, 250),
    "logging-device": (Handover.LOGGING, DEVICE, 250),
    "prefetching": (Handover.PREFETCHING, BROKER, 170),
    "prefetching-device": (Handover.PREFETCHING, DEVICE, 165),
    "prefetching-set": (Handover.PREFETCHING, BROKERS, 165),
    "home": (Handover.HOME, {}, 500),
}
"""The strategy, its options, and how many runs: 500 of each strategy. In the long campaign there
are 20 times as many, and three times as many again."""

TRANSFERS = {
    Handover.STANDARD: "EventsFound",
    Handover.LOGGING: "IdsFound",
    Handover.PREFETCHING: "Prefetch",
    Handover.HOME: "Registered",
}
"""A message that shows that the strategy was at work."""


def with_strategy(plan: Plan, handover: Handover, options: dict[str, Any], seed: int) -> Plan:
    """The plan with a strategy; brokers that predict are right by chance only."""
    rng = random.Random(seed)  # noqa: S311 - reproducible.
    mobility = random_predictor(rng, handover, plan.topology.brokers)
    return msgspec.structs.replace(plan, options={handover: options}, mobility=mobility)


@pytest.mark.spec("PM-4", "DO-1", "DO-2", "DO-3", "DO-4", "DO-5", "DO-6")
@pytest.mark.parametrize("variant", VARIANTS)
def test_disconnected_clients_get_everything_once_and_in_order(variant: str) -> None:
    handover, options, count = VARIANTS[variant]
    seen: Counter[str] = Counter()

    @examples(count, long=3)
    @given(
        st.tuples(st.sampled_from(Strategy), st.sampled_from(["none", "heavy"]), st.booleans())
        .flatmap(
            lambda drawn: plans(
                drawn[0],
                FAULTS[drawn[1]],
                HandoverOptions(protocol=handover),
                advertisements=drawn[2],
                leaves=(0, 0, 1, 5),
            )
        ),
        st.integers(0, 2**32),
    )  # fmt: skip
    def runs(plan: Plan, seed: int) -> None:
        outcome = run_rightly(generate(with_strategy(plan, handover, options, seed), seed))
        seen.update(runs=1, owed=outcome.owed, transfers=outcome.messages[TRANSFERS[handover]])
        seen.update(farewells=outcome.messages["Farewell"])

    runs()
    assert seen["runs"] >= count
    assert seen["owed"] > count  # The runs had something to show.
    assert seen["transfers"] > count
    assert seen["farewells"] > count / 3


@pytest.mark.spec("PM-4", "DO-1", "DO-2", "DO-3", "DO-4")
@pytest.mark.parametrize("variant", ["standard", "logging", "prefetching-set", "home"])
def test_larger_networks_with_disconnected_clients(variant: str) -> None:
    handover, options, _ = VARIANTS[variant]
    plan = Plan(
        topology=random_tree(30, 1),
        clients=40,
        subscriptions=120,
        events=150,
        moves=150,
        naps=40,
        settle=0.02,
        routing=RoutingOptions(strategy=Strategy.COVERING),
        faults=FAULTS["heavy"],
        handover=HandoverOptions(protocol=handover),
    )
    outcome = run_rightly(generate(with_strategy(plan, handover, options, 1), 1))
    assert outcome.owed > 200
    assert outcome.messages[TRANSFERS[handover]] > 100


@pytest.mark.spec("PM-3", "PM-4")
@pytest.mark.parametrize("variant", VARIANTS)
def test_strategies_go_on_with_bounded_caches(variant: str) -> None:
    """What a bound discards is counted; nothing else is lost."""
    handover, options, _ = VARIANTS[variant]
    bounded = HandoverOptions(protocol=handover, cache_events_max=2)
    seen: Counter[str] = Counter()

    @examples(30)
    @given(plans(Strategy.COVERING, FAULTS["heavy"], bounded, advertisements=False),
           st.integers(0, 2**32))  # fmt: skip
    def runs(plan: Plan, seed: int) -> None:
        outcome = run_rightly(generate(with_strategy(plan, handover, options, seed), seed))
        seen.update(runs=1, missed=outcome.missed)

    runs()
    assert seen["runs"] >= 30


FOUND = sorted((Path(__file__).parent / "found").iterdir())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_long_campaigns_have_found(path: Path) -> None:
    run_rightly(from_json(path.read_bytes(), Script))
