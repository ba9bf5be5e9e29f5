"""Whatever is published after a subscription was confirmed is delivered, wherever and however."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.handover.options import HandoverOptions
from sterna.core.routing.options import Strategy
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.script import Script
from tests.scale import examples
from tests.sim.confirmations import Eager, asking
from tests.sim.judging import run_rightly
from tests.sim.overlay import RELOCATION
from tests.sim.test_roaming_campaign import plans

RUNS = 30
"""Per strategy, with and without advertisements, with and without faults: 720 altogether."""


@pytest.mark.spec("RT-1", "RT-3", "PM-4", "QU-1", "LV-2")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("faults", ["none", "heavy"])
def test_what_is_published_after_a_confirmation_is_delivered(
    strategy: Strategy, faults: str, advertisements: bool
) -> None:
    """No need to wait until the network has settled, however clients roam and connections break."""
    seen: Counter[str] = Counter()
    shapes = plans(strategy, FAULTS[faults], advertisements=advertisements, leaves=(0, 0, 1))

    @examples(RUNS)
    @given(shapes, st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        made: list[Eager] = []

        def make(script: Script) -> Eager:
            made.append(Eager(script))
            return made[-1]

        outcome = run_rightly(asking(generate(plan, seed), seed), make)
        seen.update(
            runs=1,
            known=made[0].known,
            sharper=outcome.owed - made[0].before.owed(),
            echoes=outcome.messages["Echo"],
        )

    runs()
    print(seen)
    assert seen["known"] > RUNS
    assert seen["sharper"] > RUNS  # Events were owed that nobody could demand before.
    assert seen["echoes"] > RUNS
