"""Wall clocks that jump, and clients that begin anew without their state: nothing is lost, nothing
comes twice, the order holds, and nobody is forgotten too early.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Detach, Leave, Publish, Subscribe
from sterna.core.names import Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, JUMP_US, Faults, Plan, generate
from sterna.sim.network import Observer
from sterna.sim.run import Simulation, run
from sterna.sim.script import (
    AnyStep,
    ClockJump,
    Crash,
    Do,
    LiveAgain,
    Partition,
    Script,
    Settle,
    Wait,
)
from sterna.sim.topology import from_parents, line
from tests.scale import examples
from tests.sim.judging import run_rightly

RUNS = 60
AWAY_US: Time = 60_000_000


class Forgotten(Observer):
    """When clients were forgotten, in the time of the simulator."""

    def __init__(self) -> None:
        self.clients: list[str] = []

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, facts.ClientForgotten):
            self.clients.append(fact.client)


@st.composite
def plans(draw: st.DrawFn, faults: Faults) -> Plan:
    count = draw(st.integers(1, 6))
    parents = [draw(st.integers(0, child - 1)) for child in range(1, count)]
    return Plan(
        topology=from_parents(parents),
        clients=draw(st.integers(2, 5)),
        subscriptions=draw(st.integers(4, 14)),
        events=draw(st.integers(10, 40)),
        moves=draw(st.integers(0, 8)),
        naps=draw(st.integers(0, 3)),
        leaves=draw(st.sampled_from((0, 0, 2))),
        variety=2,
        routing=RoutingOptions(strategy=draw(st.sampled_from(Strategy))),
        faults=faults,
        handover=HandoverOptions(protocol=Handover.RELOCATION, away_max_us=AWAY_US),
    )


@pytest.mark.spec("PM-1", "LV-2")
def test_deliveries_are_right_whatever_the_clocks_show() -> None:
    seen: Counter[str] = Counter()

    @examples(RUNS)
    @given(plans(FAULTS["clocks"]), st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        script = generate(plan, seed)
        outcome = run_rightly(script)
        seen.update(owed=outcome.owed, lives=sum(isinstance(s, LiveAgain) for s in script.steps))

    runs()
    assert seen["owed"] > 2 * RUNS  # The runs had something to show.
    assert seen["lives"] > RUNS


@pytest.mark.spec("PM-3")
def test_nobody_is_forgotten_because_a_clock_jumps() -> None:
    """The runs take a few seconds, and clocks jump by up to an hour."""

    @examples(RUNS // 2)
    @given(plans(Faults(drops=2, jumps=12)), st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        script, forgotten = generate(plan, seed), Forgotten()
        Simulation(script, [forgotten]).run()
        leaving = {
            step.client
            for step in script.steps
            if isinstance(step, Do) and isinstance(step.what, Leave)
        }
        assert set(forgotten.clients) <= leaving

    runs()


def roaming(*steps: AnyStep, away_us: Time = AWAY_US) -> Script:
    """`ann` subscribes to everything, and `pat` publishes."""
    everything = Subscribe(subscription="1", filter=Filter("TRUE"))
    return Script(
        topology=line(2),
        clients={"ann": "B1", "pat": "B1"},
        steps=(Do(client="ann", what=everything), Settle(), *steps),
        handover=HandoverOptions(protocol=Handover.RELOCATION, away_max_us=away_us),
    )


PUBLISH = tuple(Do(client="pat", what=Publish(attributes={"n": n})) for n in range(5))


@pytest.mark.spec("PM-3")
@pytest.mark.parametrize(
    ("jump", "crashes"),
    [(-JUMP_US, False), (JUMP_US, False), (-JUMP_US, True), (0, True)],
    ids=["back", "forward", "back during a restart", "a restart"],
)
def test_an_absence_ends_in_time(jump: Time, crashes: bool) -> None:
    """The clock of the broker is set while the client is away."""
    gone: tuple[AnyStep, ...] = (Do(client="ann", what=Detach()), Settle())
    restart: tuple[AnyStep, ...] = (Crash(broker="B1", us=1_000), ClockJump(node="B1", us=jump))
    set_: tuple[AnyStep, ...] = restart if crashes else restart[1:]

    too_early, in_time = Forgotten(), Forgotten()
    run(roaming(*gone, *set_, Wait(us=AWAY_US * 9 // 10)), [too_early])
    run(roaming(*gone, *set_, Wait(us=AWAY_US * 12 // 10)), [in_time])

    assert (too_early.clients, in_time.clients) == ([], ["ann"])


@pytest.mark.spec("PM-1", "LV-2")
@pytest.mark.parametrize("broker", ["B1", "B2"])
@pytest.mark.parametrize("leaves", [True, False], ids=["after a farewell", "after a crash"])
def test_a_life_whose_clock_was_set_back_publishes_above_the_earlier_one(
    broker: str, leaves: bool
) -> None:
    farewell: tuple[AnyStep, ...] = ()
    if leaves:
        farewell = Do(client="pat", what=Leave()), Settle()
    outcome = run_rightly(
        roaming(
            ClockJump(node="pat", us=JUMP_US),
            LiveAgain(client="pat", broker="B1"),
            *(*PUBLISH, Settle(), *farewell),
            ClockJump(node="pat", us=-JUMP_US),
            LiveAgain(client="pat", broker=broker),
            *PUBLISH,
        )
    )
    assert (outcome.owed, outcome.delivered) == (10, 10)


@pytest.mark.spec("LV-2")
def test_a_life_that_published_nothing_does_not_hide_the_one_before() -> None:
    leaves: tuple[AnyStep, ...] = (Do(client="pat", what=Leave()), Settle())
    outcome = run_rightly(
        roaming(
            ClockJump(node="pat", us=JUMP_US),
            LiveAgain(client="pat", broker="B1"),
            *(*PUBLISH, Settle(), *leaves),
            ClockJump(node="pat", us=-JUMP_US),
            LiveAgain(client="pat", broker="B2"),
            *(Settle(), *leaves),
            LiveAgain(client="pat", broker="B1"),
            *PUBLISH,
        )
    )
    assert (outcome.owed, outcome.delivered) == (10, 10)


@pytest.mark.spec("LV-2")
def test_who_hears_late_of_an_earlier_life_with_a_clock_ahead_goes_on() -> None:
    """The two lives are on both sides of a cut: it connects, and what follows is delivered."""
    late = run(
        roaming(
            ClockJump(node="pat", us=JUMP_US),
            Partition(brokers=("B2",), us=100_000),
            LiveAgain(client="pat", broker="B1"),
            Wait(us=10_000),
            ClockJump(node="pat", us=-JUMP_US),
            LiveAgain(client="pat", broker="B2"),
            Settle(),
            *PUBLISH,
        )
    )
    assert (late.owed, late.delivered, late.findings) == (5, 5, [])


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (ClockJump(node="nobody", us=1), "no node nobody"),
        (LiveAgain(client="B1", broker="B1"), "no client B1"),
        (LiveAgain(client="ann", broker="pat"), "no broker pat"),
    ],
)
def test_steps_name_what_there_is(step: AnyStep, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        roaming(step)
