"""Too many clients are away: some are forgotten early, at all brokers, and can come back."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.routing.options import Strategy
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.topology import line
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.overlay import Overlay
from tests.sim.test_leaving import kept
from tests.sim.test_roaming_campaign import plans


@pytest.mark.spec("LV-6", "PM-4")
def test_nothing_stays_of_a_name_that_had_to_be_forgotten() -> None:
    """No broker has a guest, a trail, a link or a route of it; the others miss nothing."""
    names = [f"name{n}" for n in range(6)]
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B3", **dict.fromkeys(names, "B1")},
        handover=HandoverOptions(protocol=Handover.RELOCATION, away_clients_max=3),
    )
    run.subscribe("ann", "kind = 'x'").settle().detach("ann").wait(1_000)
    for name in names:
        run.detach(name).wait(1_000)
    run.publish("pat", kind="x").settle()

    early = run.facts_of(facts.ForgottenEarly)
    assert [fact.client for fact in early if isinstance(fact, facts.ForgottenEarly)] == names[:4]
    assert [name for name in names if kept(run, name)] == names[4:]
    assert run.sent("Departed") == 2 * len(early)
    run.attach("ann", "B2").attach("name0", "B3").subscribe("name0", "kind = 'x'").settle()
    run.publish("pat", kind="x").settle()
    assert run.received("ann") == ["pat#1", "pat#2"]
    assert run.received("name0") == ["pat#2"]
    (told,) = run.facts_of(facts.Forgotten)
    assert told.at == "name0"


@pytest.mark.spec("LV-6", "PM-4")
@pytest.mark.parametrize("faults", ["none", "heavy"])
def test_whoever_is_forgotten_early_goes_on(faults: str) -> None:
    """Whatever crosses on the way: all brokers agree, nobody hangs, and whoever has learned that it
    was forgotten gets everything from then on, once and in order.
    """
    seen: Counter[str] = Counter()

    @examples(40, long=2)
    @given(
        st.tuples(
            st.sampled_from(Strategy),
            st.sampled_from((None, 0, 1, 2)),
            st.sampled_from((None, 0, 2)),
            st.booleans(),
        ).flatmap(
            lambda drawn: plans(
                drawn[0],
                FAULTS[faults],
                HandoverOptions(
                    protocol=Handover.RELOCATION,
                    away_clients_max=drawn[1],
                    away_filters_max=drawn[2],
                ),
                advertisements=drawn[3],
                leaves=(0, 2),
            )
        ),
        st.integers(0, 2**32),
    )
    def runs(plan: Plan, seed: int) -> None:
        outcome = run_rightly(generate(plan, seed))
        seen.update(runs=1, owed=outcome.owed, departed=outcome.messages["Departed"])

    runs()
    assert seen["owed"] > seen["runs"]
    assert seen["departed"] > seen["runs"]
