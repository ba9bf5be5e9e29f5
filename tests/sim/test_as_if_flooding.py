"""Clients that walk about get what flooding brings: Fiege, 3.3 and Fig. 4.

Flooding itself is the measure: events go everywhere, clients subscribe to everything, and the test
filters what arrives by where the client is just then. No moving subscription takes part in that.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import STAYS_MAX
from sterna.core.location.steps import StepRule
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.sim.script import LinkModel
from sterna.sim.topology import line
from tests.scale import examples
from tests.sim.epochs import Epochs
from tests.sim.overlay import Overlay
from tests.sim.walks import TICK_US, Known, Walk, delay_us, deliveries, flooded, troubled, walks
from tests.sim.watching import Watched

RUNS = 40
"""Per strategy, with and without advertisements: 480 altogether."""

KNOWN = st.sampled_from(Known)

ROUTINGS = st.builds(
    RoutingOptions,
    strategy=st.sampled_from(Strategy),
    advertisements=st.booleans(),
    hierarchical=st.booleans(),
)


@pytest.mark.spec("LM-3", "LM-5")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
@pytest.mark.parametrize("strategy", Strategy)
def test_deliveries_are_as_if_flooding(strategy: Strategy, advertisements: bool) -> None:
    """Clients that keep to the movement graph and the dwell time get the same at the same time."""
    flat = RoutingOptions(strategy=strategy, advertisements=advertisements)
    tree = msgspec.structs.replace(flat, hierarchical=True)

    @given(walk=walks(flat) | walks(flat) | walks(tree), known=KNOWN)
    @examples(RUNS)
    def check(walk: Walk, known: Known) -> None:
        assert deliveries(walk.script(StepRule.SAFE, known)) == flooded(walk)

    check()


@pytest.mark.spec("LM-3")
@pytest.mark.parametrize("known", Known)
def test_deliveries_are_as_if_flooding_wherever_the_dwell_time_is_from(known: Known) -> None:
    """It was told, mined or measured; if it is not known, clients may be as fast as they like."""
    hurried = known is Known.UNKNOWN
    seen: Counter[str] = Counter()

    @given(walk=ROUTINGS.flatmap(lambda routing: walks(routing, hurried=hurried)))
    @examples(40)
    def check(walk: Walk) -> None:
        expected = flooded(walk)
        assert deliveries(walk.script(StepRule.SAFE, known)) == expected
        seen.update(runs=1, delivered=len(expected))

    check()
    assert seen["delivered"] > seen["runs"]


@pytest.mark.spec("LM-3")
@pytest.mark.parametrize("strategy", [Strategy.FLOODING, Strategy.COVERING])
def test_the_scheme_without_a_limit_is_flooding(strategy: Strategy) -> None:
    """Fiege, Table 3: flooding with filters at the clients is an instance of the scheme."""

    @given(walk=walks(RoutingOptions(strategy=strategy)))
    @examples(20)
    def check(walk: Walk) -> None:
        assert deliveries(walk.script(StepRule.EVERYWHERE)) == flooded(walk)

    check()


# ---- Jitter and faults


@pytest.mark.spec("LM-3")
@pytest.mark.parametrize("known", Known)
@pytest.mark.parametrize(
    ("jitter_us", "faults"),
    [(2_000, False), (0, True), (2_000, True)],
    ids=["jitter", "faults", "jitter and faults"],
)
def test_jitter_and_faults_make_deliveries_late_and_no_others(
    known: Known, jitter_us: Time, faults: bool
) -> None:
    """What is about a place where a client stays long enough is delivered; nothing else is.

    Links break, brokers crash and come back from their logs, and the network is cut in parts. Where
    none of that is on the way of an event, it is delivered or not exactly as with flooding.
    """
    calm = ROUTINGS.flatmap(
        lambda routing: walks(routing, moves_max=12, jitter_us=jitter_us, quenching=False, far=True)
    )
    seen: Counter[object] = Counter()

    @given(walk=calm.flatmap(troubled) if faults else calm)
    @examples(20)
    def check(walk: Walk) -> None:
        epochs = Epochs(walk, known)
        flood = {(client, id_) for client, _, id_ in flooded(walk)}
        found = {(c, id_) for c, _, id_ in deliveries(walk.script(StepRule.SAFE, known))}
        for client, id_ in [(c, id_) for c in walk.base.locations for id_ in epochs.events]:
            got = (client, id_) in found
            verdict = epochs.verdict(id_, client)
            if verdict is not None:
                assert ((client, id_) in flood) is verdict, "the windows of the test are too narrow"
                assert got is verdict, f"{client} and {id_}"
            if epochs.is_exact(id_, client):
                assert got is ((client, id_) in flood), f"{client} and {id_}"
                seen["exact"] += 1
            seen[verdict] += 1

    check()
    assert min(seen[True], seen[False]) > seen[None]
    assert jitter_us or seen["exact"] > 20


# ---- Dwell times that clients break


def hurries(walk: Walk, client: NodeId, *, told: bool) -> Iterator[Time]:
    """When a client moves on before the dwell time in force is over."""
    stays = [walk.dwell * TICK_US] * (1 if told else STAYS_MAX)
    moves = [us for us, _ in walk.moves(client)]
    for came, left in pairwise(moves[1:]):
        least = min(stays[:1] * told + stays[-STAYS_MAX:])
        if left - came < least:
            yield left
        stays.append(left - came)


@pytest.mark.spec("LM-3", "LM-4")
@pytest.mark.parametrize("known", [Known.TOLD, Known.MEASURED])
def test_a_stay_that_is_too_short_costs_at_most_what_arrives_within_a_round_trip(
    known: Known,
) -> None:
    """It cannot be undone: what was filtered for a slower client is gone. Then the client is known
    to be fast, and gets what flooding brings again.
    """
    seen: Counter[str] = Counter()

    @given(walk=walks(RoutingOptions(), moves_max=12, hurried=True))
    @examples(60)
    def check(walk: Walk) -> None:
        expected, found = flooded(walk), deliveries(walk.script(StepRule.SAFE, known))
        assert set(found) <= set(expected)
        for client, arrived, id_ in set(expected) - set(found):
            trip_us = 2 * delay_us(walk.base.latencies, id_.publisher, client)
            broken = hurries(walk, client, told=known is Known.TOLD)
            assert any(us <= arrived <= us + trip_us for us in broken), f"{client} and {id_}"
        clients = walk.base.locations
        seen.update(
            delivered=len(found),
            hurries=sum(len(list(hurries(walk, c, told=known is Known.TOLD))) for c in clients),
        )

    check()
    assert min(seen["delivered"], seen["hurries"]) > 60


@pytest.mark.spec("LM-3", "LM-4")
def test_what_a_client_measures_says_nothing_about_a_faster_move() -> None:
    """After 16 stays of a second it leaves a room after 50 ms: brokers have not looked that far.

    Before it had measured anything it could be as fast as it liked; and the next time the broker
    knows better.
    """
    overlay = Overlay(
        line(2),
        {"ann": "B1", "pat": "B2"},
        link=LinkModel(latency_us=100_000),
        places=PlacesOptions(edges=(("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))),
        locations={"ann": "a"},
    )
    overlay.subscribe("ann", "room IN myloc").settle()

    def hurry() -> list[str]:
        """To b and at once to c, where an event arrives that passed all brokers before that."""
        before = len(overlay.received("ann"))
        overlay.publish("pat", room="c").wait(200_000).move("ann", "b")
        overlay.wait(50_000).move("ann", "c").settle()
        overlay.wait(1_000_000).move("ann", "d").wait(1_000_000).move("ann", "a").wait(1_000_000)
        return overlay.received("ann")[before:]

    assert hurry() == ["pat#1"]
    for _ in range(STAYS_MAX // 4):
        for room in "bcda":
            overlay.move("ann", room).wait(1_000_000)
    assert hurry() == []
    assert hurry() == ["pat#3"]


# ---- Nested filters


@pytest.mark.spec("LM-1", "LM-3")
@pytest.mark.parametrize("advertisements", [False, True], ids=["", "advertisements"])
def test_filters_are_nested_in_effect_always_and_as_sets_once_a_move_has_arrived(
    advertisements: bool,
) -> None:
    """In every state of every run; `Watched` says what that means while a move is on its way."""
    counts: Counter[str] = Counter()

    @given(walk=walks(RoutingOptions(advertisements=advertisements)), known=KNOWN)
    @examples(70)
    def check(walk: Walk, known: Known) -> None:
        watched = Watched(walk, StepRule.SAFE, known)
        watched.run()
        counts.update(watched.counts)

    check()
    assert counts["states"] > 10_000
    assert counts["moving"] > 1_000
    assert counts["compared"] > 1_000
