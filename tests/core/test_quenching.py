"""Quenching: publishers discard what nobody wants, and never what somebody does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.facts import Purged, Quenched
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.quenching import Interest, Outbox
from sterna.core.routing.options import ARCHITECTURES, RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.script import Drop
from sterna.sim.topology import line, star
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.overlay import Overlay


def overlay(events_max: int = 100, brokers: int = 1) -> Overlay:
    return Overlay(
        line(brokers),
        {"pat": "B1", "ann": f"B{brokers}", "bob": f"B{brokers}"},
        RoutingOptions(strategy=Strategy.COVERING),
        ClientOptions(quenching=True, buffer_events_max=events_max),
    )


def discarded(run: Overlay) -> list[int]:
    """The numbers of pat's events that she discarded because nobody wanted them."""
    return [e.seq for f in run.facts_of(Quenched) if isinstance(f, Quenched) for e in f.events]


def purged(run: Overlay) -> list[int]:
    return [e.seq for f in run.facts_of(Purged) if isinstance(f, Purged) for e in f.events]


@pytest.mark.spec("QU-1")
def test_what_nobody_wants_does_not_leave_its_source() -> None:
    run = overlay().subscribe("ann", "x > 10").settle()

    run.publish("pat", x=5).publish("pat", x=15).settle()

    assert discarded(run) == [1]
    assert run.sent("Events", "pat → B1") == 1
    assert run.received("ann") == ["pat#2"]


@pytest.mark.spec("QU-1")
def test_the_publisher_knows_the_wants_of_a_whole_network() -> None:
    run = overlay(brokers=3).subscribe("ann", "x > 10").settle()

    run.publish("pat", x=5).publish("pat", x=15).settle()

    assert discarded(run) == [1]
    assert run.received("ann") == ["pat#2"]


@pytest.mark.spec("QU-1")
def test_what_is_wanted_is_simplified_by_covering_and_merging() -> None:
    """Huang, 3.2, footnote: of value > 10 and value > 20, the first is enough to test."""
    run = overlay().publish("pat", value=0).settle()
    run.subscribe("ann", "value > 10").subscribe("bob", "value > 20").settle()
    assert run.sent("SubscriptionChange", "B1 → pat") == 1

    run.subscribe("bob", "value = 1", "2").subscribe("bob", "value = 2", "3").settle()

    assert run.broker("B1").router.told("pat") == 2
    run.publish("pat", value=2).publish("pat", value=3).settle()
    assert discarded(run) == [1, 3]


@pytest.mark.spec("QU-1")
def test_an_ended_subscription_is_wanted_no_more() -> None:
    run = overlay().publish("pat", x=0).settle().subscribe("ann", "x > 10").settle()
    run.unsubscribe("ann").settle()

    run.publish("pat", x=15).settle()

    assert discarded(run) == [1, 2]


@pytest.mark.spec("QU-1")
def test_a_publisher_hears_of_its_own_wants() -> None:
    run = overlay().subscribe("pat", "x > 10").settle()

    assert run.publish("pat", x=15).settle().received("pat") == ["pat#1"]


@pytest.mark.spec("QU-2")
def test_a_disconnected_publisher_keeps_everything_while_there_is_room() -> None:
    """A subscription that it cannot hear of may want any of it. (Huang, 3.2)"""
    run = overlay().subscribe("ann", "x > 10").settle()
    run.fault(Drop(a="pat", b="B1", us=100_000)).wait(1_000)
    run.subscribe("bob", "x < 3").wait(5_000)

    run.publish("pat", x=1).publish("pat", x=5).publish("pat", x=15).settle()

    assert run.received("bob") == ["pat#1"]
    assert run.received("ann") == ["pat#3"]
    assert discarded(run) == [2]
    assert purged(run) == []


@pytest.mark.spec("QU-2")
def test_when_its_buffer_is_full_what_nobody_wanted_goes_first() -> None:
    run = overlay(events_max=3).subscribe("ann", "x > 10").publish("pat", x=0).settle()
    run.fault(Drop(a="pat", b="B1", us=100_000)).wait(1_000)

    for x in (20, 1, 30, 2, 40, 50):
        run.publish("pat", x=x)
    run.settle()

    assert purged(run) == [3, 5, 2]  # The unwanted, oldest first; then the oldest.
    assert run.received("ann") == ["pat#4", "pat#6", "pat#7"]
    assert run.outcome().findings == []


@pytest.mark.spec("QU-1", "QU-2")
def test_an_old_answer_does_not_count_for_a_new_question() -> None:
    """The answer was on its way when the link broke; it comes before what changed meanwhile."""
    run = overlay().publish("pat", x=0).wait(1_500)  # B1 has answered.
    run.fault(Drop(a="pat", b="B1", us=500_000)).wait(1_000)
    run.subscribe("ann", "x = 1").wait(100_000)

    run.publish("pat", x=1).settle()

    assert run.received("ann") == ["pat#2"]


@pytest.mark.spec("QU-2")
def test_only_publishers_are_told() -> None:
    run = overlay().subscribe("ann", "x > 10").settle()
    assert run.sent("InterestAsked") == 0

    run.publish("pat", x=5).settle().subscribe("bob", "x < 0").settle()

    assert run.sent("SubscriptionChange", "B1 → pat") == 2
    assert run.sent("SubscriptionChange", "B1 → ann") == 0


@pytest.mark.spec("QU-2")
def test_changes_are_counted_against_what_they_save() -> None:
    run = Overlay(
        line(1),
        {"pat": "B1", "ann": "B1"},
        client=ClientOptions(quenching=True),
        count_bytes=True,
    )
    run.subscribe("ann", "x > 10").settle()
    run.publish("pat", x=5).settle()

    (down,) = [
        pipe for pipe in run.simulation.network.connections[0].pipes if pipe.source.node.id == "B1"
    ]
    told = {kind.__name__ for kind in down.bytes if kind is not None and down.bytes[kind]}
    assert told == {"SubscriptionChange", "InterestKnown"}


@pytest.mark.spec("QU-1", "QU-2", "RT-6")
@pytest.mark.parametrize("faults", ["none", "light", "heavy"])
def test_no_wanted_event_is_ever_discarded(faults: str) -> None:
    """Whatever happens: what is owed is delivered, though publishers discard what they can."""
    quenched = 0

    @examples(60)
    @given(st.integers(1, 6), st.integers(1, 4), st.sampled_from((2, 3, 5)), st.integers(0, 2**32))
    def runs(clients: int, brokers: int, variety: int, seed: int) -> None:
        nonlocal quenched
        plan = Plan(
            topology=star(brokers),
            clients=clients,
            subscriptions=6,
            events=15,
            variety=variety,
            settle=0.3,
            client=ClientOptions(quenching=True),
            faults=FAULTS[faults],
        )
        outcome = run_rightly(generate(plan, seed))
        quenched += outcome.quenched

    runs()
    assert quenched > 100  # There was something to discard.


# ---- The parts alone


def event(seq: int, **attributes: int) -> Event:
    return Event(publisher="pat", seq=seq, time_us=0, attributes=attributes)


@examples(200)
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 5))
def test_a_full_buffer_drops_what_the_policy_says(values: list[int], room: int) -> None:
    """Against the policy in plain words."""
    interest = Interest()
    interest.change(SubscriptionChange(added=(Route("1", Filter("x >= 2")),)))
    outgoing = Outbox(room, interest)
    kept: list[Event] = []
    for seq, x in enumerate(values, 1):
        kept.append(event(seq, x=x))
        victim = outgoing.put(kept[-1])
        if len(kept) <= room:
            assert victim is None
        else:
            unwanted = [e for e in kept if not e.attributes["x"] >= 2]  # type: ignore[operator]
            assert victim == (unwanted or kept)[0]
            kept.remove(victim)
    assert [e for part in outgoing.take() if isinstance(part, tuple) for e in part] == kept


def test_interest_follows_changes() -> None:
    interest = Interest()
    interest.change(SubscriptionChange(added=(Route("1", Filter("x = 1")),)))
    interest.change(SubscriptionChange(added=(Route("1", Filter("x = 2")),), removed=("?",)))

    assert not interest.wants(event(1, x=1))
    assert interest.wants(event(1, x=2))


@pytest.mark.spec("RT-6")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_huangs_architectures_are_configurations(name: str) -> None:
    """Huang, 3, 3.2, 4.1 and 4.2: the same parts, the same deliveries, other paths."""
    routing, quenching = ARCHITECTURES[name]
    brokers = 1 if name.startswith("centralized") else 4
    run = Overlay(
        star(brokers),
        {"pat": "B1", "ann": f"B{min(2, brokers)}", "bob": f"B{min(3, brokers)}"},
        routing,
        ClientOptions(quenching=quenching),
    )
    run.subscribe("ann", "x > 10").subscribe("bob", "x > 20").settle()

    for x in (5, 15, 25):
        run.publish("pat", x=x).settle()

    assert run.received("ann") == ["pat#2", "pat#3"]
    assert run.received("bob") == ["pat#3"]
    published = run.sent("Events", "pat → B1")
    match name:
        case "centralized":
            assert published == 3
        case "centralized-quenching":
            assert published == 2
        case "distributed-broadcast":  # Every event reaches every broker.
            assert [run.sent("Events", f"B1 → B{n}") for n in (2, 3, 4)] == [3, 3, 3]
        case "distributed-multicast":  # Branches without interest are pruned.
            assert [run.sent("Events", f"B1 → B{n}") for n in (2, 3, 4)] == [2, 1, 0]
