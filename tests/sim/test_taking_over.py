"""One handover protocol takes the place of another, and clients that stay until then lose nothing:
not what was kept for them when they were away, and nothing on their next move, wherever they go.
"""

import random
from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.handover.hosting import Hosting
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.settings import Settings
from sterna.sim.generate import generate
from sterna.sim.script import Crash, Do, Drop, LiveAgain, Reconfigure, Settle
from sterna.sim.topology import line
from tests.scale import examples
from tests.sim.overlay import Overlay
from tests.sim.test_changing_handover import begin, mixed_in, stays
from tests.sim.test_reconfiguring import BROKERS, SEEDS, TROUBLE, plan_for, settings

LINE = ("B1", "B2", "B3")
FIVE = (
    *(Handover.RELOCATION, Handover.STANDARD, Handover.LOGGING, Handover.PREFETCHING),
    Handover.HOME,
)
PAIRS = list(permutations(FIVE, 2))
"""All protocols that hand clients over, one after the other."""


def with_handover(each: Settings, protocol: Handover) -> Settings:
    """The same settings with one of the protocols."""
    handover = msgspec.structs.replace(each.handover, protocol=protocol)
    return msgspec.structs.replace(each, handover=handover)


def moved(protocol: Handover) -> Overlay:
    """Ann was welcomed at B1 for the first time, and is at B3; pat publishes at B2."""
    run = Overlay(line(3), {"ann": "B1", "pat": "B2"}, handover=HandoverOptions(protocol=protocol))
    run.subscribe("ann", "x > 0").settle()
    return run.detach("ann").settle().attach("ann", "B3").settle()


def change(run: Overlay, broker: str, protocol: Handover) -> Overlay:
    later = Settings(handover=HandoverOptions(protocol=protocol))
    run.simulation.do(Reconfigure(broker=broker, settings=later, tells=True))
    return run


def check(run: Overlay) -> None:
    """Ann has all events of pat, each once and in order, and knows of no loss."""
    published = run.client("pat").published
    assert run.received("ann") == [f"pat#{number}" for number in range(1, published + 1)]
    assert run.facts_of(facts.Forgotten) == []


# ---- Clients that stay until all brokers have changed


@pytest.mark.spec("LV-9", "PM-4", "LV-3")
@pytest.mark.parametrize("way", [("B3",), ("B2", "B1", "B3")], ids="-".join)
@pytest.mark.parametrize("is_away", [False, True], ids=["connected", "away"])
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_clients_keep_their_events_in_whichever_order_brokers_change(
    before: Handover, after: Handover, is_away: bool, way: tuple[str, ...]
) -> None:
    """Also those kept while they were away, when they come back to the same broker or another."""
    for order in permutations(LINE):
        run = moved(before)
        if is_away:
            run.detach("ann").settle()
        for broker in order:
            change(run, broker, after).publish("pat", x=1).wait(5_000)
        run.settle()
        for place in way:
            run.detach("ann").settle().publish("pat", x=1).settle()
            run.attach("ann", place).settle().publish("pat", x=1).settle()

        check(run)
        for broker in LINE:
            parts = [each for each in run.broker(broker).components if isinstance(each, Hosting)]
            assert [part.name for part in parts] == [after], order


@pytest.mark.spec("LV-9", "PM-4")
@pytest.mark.parametrize("before", [each for each in FIVE if each is not Handover.RELOCATION])
def test_relocation_follows_clients_after_several_changes(before: Handover) -> None:
    """Each time it begins, the trails lead to where clients have moved without it."""
    run = moved(before)
    for after, place in (
        (Handover.RELOCATION, "B2"),
        (before, "B1"),
        (before, "B3"),
        (Handover.RELOCATION, "B1"),
        (Handover.RELOCATION, "B2"),
    ):
        for broker in LINE:
            change(run, broker, after)
        run.settle().detach("ann").settle().publish("pat", x=1).settle()
        run.attach("ann", place).settle().publish("pat", x=1).settle()

    check(run)


@pytest.mark.spec("LV-9", "LV-1")
@pytest.mark.parametrize("after", [Handover.STANDARD, Handover.RELOCATION])
def test_a_broker_that_crashes_after_the_change_has_what_was_kept_before(after: Handover) -> None:
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B2"},
        handover=HandoverOptions(protocol=Handover.LOGGING),
        crashing=["B3"],
    )
    run.subscribe("ann", "x > 0").settle().detach("ann").settle().attach("ann", "B3").settle()
    run.detach("ann").settle().publish("pat", x=1).settle()
    for broker in LINE:
        change(run, broker, after)
    run.settle().fault(Crash(broker="B3", us=100_000)).wait(2_000_000).publish("pat", x=1).settle()

    run.attach("ann", "B1").settle()

    check(run)


# ---- While brokers differ


@pytest.mark.spec("LV-9", "PM-4", "DO-1", "DO-2", "DO-3", "DO-4")
@pytest.mark.parametrize("is_away", [False, True], ids=["connected", "away"])
@pytest.mark.parametrize(
    ("before", "after"), [pair for pair in PAIRS if Handover.RELOCATION not in pair]
)
def test_strategies_that_go_by_name_hand_clients_over_to_each_other(
    before: Handover, after: Handover, is_away: bool
) -> None:
    """Those of Burcea et al.: brokers may differ for a while, and clients go back and forth."""
    for changed in (("B1",), ("B2",), ("B3",), ("B1", "B2"), ("B2", "B3"), ("B1", "B3")):
        run = moved(before)
        if is_away:
            run.detach("ann").settle()
        for broker in changed:
            change(run, broker, after).publish("pat", x=1).wait(5_000)
        run.settle()
        for place in ("B2", "B1", "B3", "B2"):
            run.detach("ann").settle().publish("pat", x=1).settle()
            run.attach("ann", place).settle().publish("pat", x=1).settle()

        check(run)


@pytest.mark.spec("LV-9", "DO-4", "PM-4")
@pytest.mark.parametrize(
    "after", [each for each in FIVE if each not in {Handover.RELOCATION, Handover.HOME}]
)
def test_a_visitor_whose_home_has_changed_subscribes_and_reconnects(after: Handover) -> None:
    """It has its home where it is from then on, although its broker has not changed."""
    run = change(moved(Handover.HOME), "B1", after).settle()
    assert run.table("B3")["ann"] == ["x > 0"]
    assert "ann" not in run.table("B1")

    run.subscribe("ann", "y > 0", "2").settle().publish("pat", y=1).settle()
    run.fault(Drop(a="ann", b="B3", us=100_000)).wait(10_000).publish("pat", x=1).settle()

    check(run)


@pytest.mark.spec("LV-9", "DO-4", "PM-4")
@pytest.mark.parametrize("changed", ["B1", "B3"])
@pytest.mark.parametrize("after", [each for each in FIVE if each is not Handover.HOME])
def test_what_is_kept_where_a_visitor_was_comes_before_what_is_kept_at_home(
    after: Handover, changed: str
) -> None:
    """It was on its way when the visitor disconnected; later events stay at home."""
    run = moved(Handover.HOME).publish("pat", x=1).wait(3_500).detach("ann").settle()
    run.publish("pat", x=1).settle()
    assert run.broker("B3").kept("ann").events == run.broker("B1").kept("ann").events == 1

    for broker in (changed, *LINE):
        change(run, broker, after).settle()
    run.attach("ann", "B3").settle()

    check(run)


@pytest.mark.spec("LV-9", "DO-4", "PM-4")
def test_a_visitor_goes_on_to_a_broker_with_another_strategy() -> None:
    """Its home first takes back what it did not get at the broker where it was."""
    run = change(moved(Handover.HOME), "B2", Handover.STANDARD).settle()
    run.publish("pat", x=1).wait(3_500).detach("ann").settle().publish("pat", x=1).settle()
    assert run.broker("B3").kept("ann").events == run.broker("B1").kept("ann").events == 1

    run.attach("ann", "B2").settle().publish("pat", x=1).settle()

    check(run)
    assert [broker for broker in LINE if "ann" in run.broker(broker).peers] == ["B2"]
    assert run.broker("B3").hosted() == run.broker("B1").hosted() == []


@pytest.mark.spec("LV-9", "LV-6", "DO-4")
def test_a_home_that_has_changed_does_not_keep_for_ever_what_nobody_fetches() -> None:
    """The broker where the client was never comes back."""
    run = moved(Handover.HOME)
    run.fault(Drop(a="B2", b="B3", us=10**11)).wait(10_000)
    away = HandoverOptions(protocol=Handover.STANDARD, away_max_us=60_000_000)
    run.simulation.do(Reconfigure(broker="B1", settings=Settings(handover=away), tells=True))
    run.wait(30_000_000).publish("pat", x=1).wait(100_000)
    assert run.broker("B1").kept("ann").events == 1

    run.wait(60_000_000)

    assert run.broker("B1").kept("ann").events == 0
    assert "ann" not in run.table("B1")


@pytest.mark.spec("LV-9", "DO-4", "PM-4")
def test_a_visitor_registers_at_a_home_that_has_changed_while_it_was_out_of_reach() -> None:
    """It is told to ask for what is there, as any other broker would."""
    run = moved(Handover.HOME).detach("ann").settle().publish("pat", x=1).settle()
    run.fault(Drop(a="B1", b="B2", us=3_000_000)).wait(10_000)
    run.attach("ann", "B3").wait(100_000)
    change(run, "B1", Handover.STANDARD).wait(100_000).publish("pat", x=1).settle()

    check(run)
    assert run.table("B3")["ann"] == ["x > 0"]


# ---- Clients whose handover is under way


def waiting(before: Handover) -> Overlay:
    """Ann was at B3 and has come to B1, which waits for what B3 has kept for her."""
    run = moved(before).publish("pat", x=1).settle().detach("ann").settle()
    run.publish("pat", x=1).settle()
    run.fault(Drop(a="B2", b="B3", us=5_000_000)).attach("ann", "B1").wait(100_000)
    return run.publish("pat", x=1).wait(100_000)


@pytest.mark.spec("LV-9", "PM-4")
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_client_that_waits_gets_everything_from_the_protocol_that_comes_next(
    before: Handover, after: Handover
) -> None:
    """Its new broker has changed, and the connection to the old one comes back."""
    run = change(waiting(before), "B1", after).publish("pat", x=1).wait(10_000_000)
    for broker in ("B3", "B2"):
        change(run, broker, after)
    run.settle().detach("ann").settle().publish("pat", x=1).settle()
    run.attach("ann", "B2").settle().publish("pat", x=1).settle()

    check(run)


@pytest.mark.spec("LV-9", "PM-4")
@pytest.mark.parametrize("place", ["B1", "B2"])
@pytest.mark.parametrize(
    ("before", "after"), [pair for pair in PAIRS if Handover.RELOCATION in pair]
)
def test_a_client_that_goes_on_before_it_has_everything_gets_it_there(
    before: Handover, after: Handover, place: str
) -> None:
    """What it waits for comes to B1 by the earlier protocol, which then leaves it to the later."""
    run = waiting(before)
    for broker in ("B1", "B2"):
        change(run, broker, after)
    run.detach("ann").wait(100_000).publish("pat", x=1).wait(100_000)
    run.attach("ann", place).wait(20_000_000)
    change(run, "B3", after).settle().publish("pat", x=1).settle()

    check(run)


# ---- Anything at any time


@pytest.mark.spec("LV-9", "PM-4", "DO-1", "DO-3", "DO-4")
@examples(80, long=10)
@given(settings(), st.sampled_from(PAIRS), TROUBLE, BROKERS, SEEDS)
def test_handover_changes_broker_by_broker_between_two_times_of_roaming(
    options: Settings, pair: tuple[Handover, Handover], faults: str, brokers: int, seed: int
) -> None:
    """Clients roam; brokers change one by one while clients publish, subscribe, are away, and
    brokers crash; clients roam again. Nothing is lost, nothing comes twice, the order holds.
    """
    before, after = (with_handover(options, protocol) for protocol in pair)
    rng = random.Random(f"taking over {seed}")  # noqa: S311 - reproducible.
    script = generate(plan_for(before, faults, brokers, seed, roams=True), seed)
    third = len(script.steps) // 3
    parts = script.steps[:third], script.steps[third : 2 * third], script.steps[2 * third :]
    calm = [step for step in parts[1] if stays(step) or not isinstance(step, Do | LiveAgain)]
    order = rng.sample(script.topology.brokers, brokers)
    changes = [Reconfigure(broker=each, settings=after, tells=rng.random() < 0.5) for each in order]
    script = msgspec.structs.replace(script, protocols=options.protocols)
    simulation = begin(script, before.handover)
    # A broker that is down when it is to change does so afterwards.
    middle = [Settle(), *mixed_in(calm, changes, rng), Settle(), *changes, Settle()]
    for step in (*parts[0], *middle, *parts[2], Settle()):
        simulation.do(step)

    assert simulation.outcome().findings == []
