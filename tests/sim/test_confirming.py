"""Whatever is published after a subscription was confirmed is delivered, wherever and however."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.inputs import Attach, MoveTo, SetVariable, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.script import AnyStep, Do, Drop, LinkModel, Script, Wait
from sterna.sim.topology import from_parents
from tests.scale import examples
from tests.sim.confirmations import ROOMS, Eager, asking
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
    assert seen["known"] > RUNS
    assert seen["sharper"] > RUNS  # Events were owed that nobody could demand before.
    assert seen["echoes"] > RUNS


# ---- Subscriptions that depend on where the client is

STREET = PlacesOptions(edges=tuple(pairwise(ROOMS)), dwell=Dwell.FIXED, dwell_us=100_000)


@st.composite
def walks(draw: st.DrawFn) -> Script:
    """Clients that subscribe to what is around them, walk on now and then, and roam."""
    count = draw(st.integers(2, 6))
    parents = [draw(st.integers(0, child - 1)) for child in range(1, count)]
    topology = from_parents(parents)
    clients = {name: draw(st.sampled_from(topology.brokers)) for name in ("c1", "c2", "c3")}
    steps: list[AnyStep] = []
    for number in range(draw(st.integers(2, 5))):
        client = draw(st.sampled_from(sorted(clients)))
        text = draw(st.sampled_from(("room IN myloc", "room IN myloc(1) AND zone < $limit")))
        subscribe = Subscribe(subscription=str(number), filter=Filter(text))
        if draw(st.booleans()):
            a, b = draw(st.sampled_from(topology.links))
            steps.append(Drop(a=a, b=b, us=draw(st.sampled_from((2_000, 30_000)))))
        steps += [Do(client=client, what=subscribe), Wait(us=draw(st.integers(0, 3_000)))]
        if draw(st.booleans()):  # Maybe before the answer is there.
            limit = SetVariable(name="limit", value=draw(st.integers(1, 4)))
            steps.append(Do(client=client, what=limit))
        steps.append(Wait(us=draw(st.integers(0, 20_000))))
        if draw(st.booleans()):
            where = MoveTo(location=draw(st.sampled_from(ROOMS)))
            steps += [Wait(us=100_000), Do(client=client, what=where)]
        if draw(st.booleans()):
            broker = draw(st.sampled_from(topology.brokers))
            steps.append(Do(client=client, what=Attach(broker=broker)))
    limits = tuple(Do(client=c, what=SetVariable(name="limit", value=2)) for c in clients)
    return Script(
        topology=topology,
        clients=clients,
        steps=(*limits, *steps),
        routing=RoutingOptions(strategy=draw(st.sampled_from(Strategy))),
        handover=RELOCATION,
        places=STREET,
        locations={name: draw(st.sampled_from(ROOMS)) for name in clients},
        link=LinkModel(latency_us=1_000, jitter_us=draw(st.sampled_from((0, 2_000)))),
        seed=draw(st.integers(0, 2**32)),
    )


@pytest.mark.spec("LM-5", "LM-7", "LV-2")
def test_so_it_is_with_subscriptions_that_depend_on_the_client() -> None:
    seen: Counter[str] = Counter()

    @examples(150)
    @given(walks(), st.integers(0, 2**32))
    def runs(script: Script, seed: int) -> None:
        eager = Eager(asking(script, seed))
        outcome = eager.run()
        assert outcome.findings == []
        sharper = outcome.owed - eager.before.owed()
        seen.update(known=eager.known, sharper=sharper, moves=outcome.messages["MovingChange"])

    runs()
    assert min(seen["known"], seen["sharper"], seen["moves"]) > 300
