"""Huang and Garcia-Molina 2001, 4.3: exactly once, by a log of connections.

B1, B2, B3 in a row; C has been at B1, and P publishes at B3. B1 cannot be reached when C comes to
B3: what C missed is at B1, or on its way there.
"""

import pytest

from sterna.core.facts import Overtook
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.names import Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.terms.messages import Order, Terms
from sterna.sim.script import Partition
from sterna.sim.topology import line
from tests.goldens import assert_golden
from tests.sim.overlay import Overlay

AVAILABLE = Terms(order=Order.AVAILABLE)
HOP_US: Time = 1_000
UNREACHABLE_US: Time = 200_000
EXACT = {"terms": {"clocks_differ_s": 0.0}}
"""All clocks of a simulation are the same."""


def network(protocol: Handover = Handover.RELOCATION) -> Overlay:
    """C and P before C has subscribed."""
    is_standard = protocol is Handover.STANDARD
    more = {"standard": {"subscriptions": "device"}} if is_standard else {}
    return Overlay(
        line(3),
        {"C": "B1", "P": "B3"},
        RoutingOptions(strategy=Strategy.SIMPLE),
        handover=HandoverOptions(protocol=protocol),
        options={**EXACT, **more},
        protocols=("terms",),
    )


def cut_off(run: Overlay) -> Overlay:
    """C gets an event at B1, goes offline, misses one, and comes to B3 while B1 is cut off."""
    run.settle().publish("P", price=1).settle().detach("C").wait(10 * HOP_US)
    run.fault(Partition(brokers=("B1",), us=UNREACHABLE_US)).publish("P", price=2)
    return run.wait(10 * HOP_US).attach("C", "B3").wait(10 * HOP_US)


def overtaken(run: Overlay) -> list[str]:
    """The events that are stated to have overtaken others."""
    return [
        f"{id_.publisher}#{id_.seq}"
        for fact in run.facts.all
        if isinstance(fact, Overtook)
        for id_ in fact.events
    ]


@pytest.mark.spec("RE-2")
@pytest.mark.parametrize("protocol", [Handover.RELOCATION, Handover.STANDARD])
def test_new_events_come_at_once_and_the_others_when_the_old_broker_is_heard(
    protocol: Handover,
) -> None:
    """Two hops after it was published, and one after its broker has it, C has a new event."""
    run = network(protocol).subscribe("C", "price > 0", terms=AVAILABLE)
    cut_off(run).publish("P", price=3).wait(2 * HOP_US)

    assert run.received("C") == ["P#1", "P#3"]
    assert overtaken(run) == ["P#3"]

    run.publish("P", price=4).settle().publish("P", price=5).settle()

    assert run.received("C") == ["P#1", "P#3", "P#4", "P#2", "P#5"]
    assert run.outcome().findings == []


@pytest.mark.spec("RE-2")
def test_the_messages_of_an_arrival_while_the_old_broker_is_cut_off() -> None:
    run = network().subscribe("C", "price > 0", terms=AVAILABLE)
    lines = len(run.trace.lines)

    cut_off(run).publish("P", price=3).settle()

    text = "".join(f"{line}\n" for line in run.trace.lines[lines:])
    assert run.received("C") == ["P#1", "P#3", "P#2"]
    assert_golden("huang-exactly-once.txt", text)


@pytest.mark.spec("RE-2", "PM-4")
def test_with_a_strict_order_everything_waits() -> None:
    run = network().subscribe("C", "price > 0")
    cut_off(run).publish("P", price=3).wait(UNREACHABLE_US // 2)

    assert run.received("C") == ["P#1"]

    run.settle()

    assert run.received("C") == ["P#1", "P#2", "P#3"]
    assert overtaken(run) == []


@pytest.mark.spec("RE-2", "PM-4")
def test_what_a_strict_subscription_wants_as_well_waits() -> None:
    """The order holds for that one; what only the other one wants comes at once."""
    run = network().subscribe("C", "price > 0", terms=AVAILABLE)
    run.subscribe("C", "price BETWEEN 1 AND 3", name="2")
    cut_off(run).publish("P", price=3).publish("P", price=4).wait(10 * HOP_US)

    assert run.received("C") == ["P#1", "P#4"]

    run.settle()

    assert run.received("C") == ["P#1", "P#4", "P#2", "P#3"]
    assert run.outcome().findings == []


@pytest.mark.spec("RE-2")
def test_what_may_have_been_delivered_before_waits_for_the_old_broker() -> None:
    """It was published before C's last connection ended, so B1 may have delivered it."""
    run = network().subscribe("C", "price > 0", terms=AVAILABLE).settle()
    run.publish("P", price=1).wait(HOP_US // 2)  # It is not at C yet.
    run.fault(Partition(brokers=("B1",), us=UNREACHABLE_US))
    run.attach("C", "B3").wait(10 * HOP_US).publish("P", price=2).wait(10 * HOP_US)

    assert run.received("C") == overtaken(run) == ["P#2"]

    run.settle()

    assert run.received("C") == ["P#2", "P#1"]
    assert run.outcome().findings == []


@pytest.mark.spec("RE-2")
def test_clocks_that_may_differ_let_events_wait() -> None:
    """Published only a little after the last connection, by clocks that may differ by more."""
    run = Overlay(
        line(3),
        {"C": "B1", "P": "B3"},
        handover=HandoverOptions(protocol=Handover.RELOCATION),
        options={"terms": {"clocks_differ_s": 0.1}},
        protocols=("terms",),
    ).subscribe("C", "price > 0", terms=AVAILABLE)
    cut_off(run).publish("P", price=3).wait(10 * HOP_US)
    assert run.received("C") == ["P#1"]

    run.wait(100 * HOP_US).publish("P", price=4).wait(10 * HOP_US)
    assert run.received("C") == ["P#1", "P#4"]

    run.settle()
    assert run.received("C") == ["P#1", "P#4", "P#2", "P#3"]


@pytest.mark.spec("RE-2")
def test_nothing_comes_twice_where_the_client_goes_next() -> None:
    """C moves on while B1 is cut off. What came ahead at B3 has also gone towards B1."""
    run = network().subscribe("C", "price > 0", terms=AVAILABLE)
    cut_off(run).publish("P", price=3).wait(10 * HOP_US)
    run.attach("C", "B2").wait(10 * HOP_US).publish("P", price=4).wait(10 * HOP_US)

    assert run.received("C") == ["P#1", "P#3", "P#4"]

    run.settle().publish("P", price=5).settle()

    assert run.received("C") == ["P#1", "P#3", "P#4", "P#2", "P#5"]
    assert run.outcome().findings == []
