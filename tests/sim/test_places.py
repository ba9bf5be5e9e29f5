"""Subscriptions that follow their clients, in whole networks."""

import pytest
from hypothesis import given

from sterna.core.location.steps import StepRule
from sterna.core.routing.options import RoutingOptions, Strategy
from tests.scale import examples
from tests.sim.walks import Walk, Watched, deliveries, walks

RUNS = 25
"""Per strategy, with and without advertisements: 300 altogether."""


@pytest.mark.spec("LM-3", "LM-5")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
@pytest.mark.parametrize("strategy", Strategy)
def test_deliveries_are_as_if_flooding(strategy: Strategy, advertisements: bool) -> None:
    """Whoever keeps to the movement graph and the dwell time gets what flooding would bring."""
    routing = RoutingOptions(strategy=strategy, advertisements=advertisements)

    @given(walk=walks(routing))
    @examples(RUNS)
    def check(walk: Walk) -> None:
        assert deliveries(walk.script(StepRule.SAFE)) == deliveries(
            walk.script(StepRule.EVERYWHERE)
        )

    check()


@pytest.mark.spec("LM-1", "LM-3")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
def test_filters_are_nested_at_all_times(advertisements: bool) -> None:
    """In every state of every run; see `Watched` for what that means while a move is on its way."""

    @given(walk=walks(RoutingOptions(advertisements=advertisements)))
    @examples(40)
    def check(walk: Walk) -> None:
        Watched(walk, StepRule.SAFE).run()

    check()
