"""Burcea et al. 2004, section 3: each strategy for disconnected operation, message by message."""

from typing import Any

import pytest

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.mobility import MobilityOptions
from sterna.core.names import Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.sim.script import Drop
from sterna.sim.topology import tree
from tests.goldens import assert_golden
from tests.mobility import model_of
from tests.sim.overlay import Overlay

HIERARCHY = RoutingOptions(strategy=Strategy.SIMPLE, hierarchical=True)
"""As in the paper's Fig. 1: subscriptions go up to the root."""


def network(
    protocol: Handover, to: str = "", *, away_max_us: Time | None = None, **options: Any
) -> Overlay:
    """B1 above B2 and B3, leaves B4 to B7. C is at B4, D at B7, P publishes at B5.

    C and D want the same, and have got an event. If the network predicts, C goes `to` that broker.
    """
    run = Overlay(
        tree(2, 3),
        {"C": "B4", "D": "B7", "P": "B5"},
        HIERARCHY,
        handover=HandoverOptions(protocol=protocol, away_max_us=away_max_us),
        mobility=MobilityOptions(model=model_of({("B4", to): 1}).to_bytes()) if to else None,
        options={protocol: options} if options else {},
    )
    run.subscribe("C", "price > 10").subscribe("D", "price > 10").settle()
    return run.publish("P", price=20).settle()


def story(run: Overlay, move: str) -> str:
    """C disconnects, misses an event, and reconnects elsewhere while another one is on its way."""
    lines = len(run.trace.lines)
    run.detach("C").wait(20_000).publish("P", price=30).settle()
    run.attach("C", move).wait(6_500).publish("P", price=40).settle()
    run.publish("P", price=50).settle()
    return "".join(f"{line}\n" for line in run.trace.lines[lines:])


def check(run: Overlay) -> None:
    """Whatever the strategy: nothing is lost, nothing twice, in order."""
    assert run.received("C") == ["P#1", "P#2", "P#3", "P#4"]
    assert run.received("D") == ["P#1", "P#2", "P#3", "P#4"]
    assert run.outcome().findings == []


@pytest.mark.spec("DO-1")
def test_standard() -> None:
    """3.1, steps 1 to 6: the subscriptions, REQUNSUB behind them, the stored events."""
    run = network(Handover.STANDARD)

    text = story(run, "B7")

    check(run)
    assert run.sent("SubscriptionsAsked", "B7 → B3") == run.sent("UnsubscribeAsked", "B7 → B3") == 1
    assert "C" not in run.table("B4")
    assert_golden("burcea-standard.txt", text)


@pytest.mark.spec("DO-1")
def test_standard_back_at_the_same_broker() -> None:
    """3.1: the stored events are simply replayed."""
    run = network(Handover.STANDARD)

    story(run, "B4")

    check(run)
    assert run.sent("SubscriptionsAsked") == run.sent("UnsubscribeAsked") == 0


@pytest.mark.spec("DO-5")
def test_subscriptions_on_the_device() -> None:
    """3.2.4: the client brings its subscriptions, so nobody asks for them."""
    run = network(Handover.STANDARD, subscriptions="device")

    text = story(run, "B7")

    check(run)
    assert run.sent("SubscriptionsAsked") == 0
    assert run.sent("UnsubscribeAsked", "B7 → B3") == 1
    assert_golden("burcea-device.txt", text)


@pytest.mark.spec("DO-2")
def test_prefetching_with_a_right_prediction() -> None:
    """3.2.1: steps 2 to 5 take place in period t2; when C reconnects, only the replay is left."""
    run = network(Handover.PREFETCHING, to="B7")

    text = story(run, "B7")

    check(run)
    arrived = text.index("attaches to B7")
    assert text.index("EventsFound to B7 (C) nothing") < arrived
    assert "Asked" not in text[arrived:]
    assert_golden("burcea-prefetching-right.txt", text)


@pytest.mark.spec("DO-2")
def test_prefetching_with_a_wrong_prediction() -> None:
    """3.2.1: the new broker contacts the predicted one; the transfer is as in standard."""
    run = network(Handover.PREFETCHING, to="B6")

    text = story(run, "B7")

    check(run)
    assert "SubscriptionsFound to B7 (C) nothing but at B6" in text
    assert "C" not in run.table("B6") | run.table("B4")
    assert_golden("burcea-prefetching-wrong.txt", text)


@pytest.mark.spec("DO-2")
def test_prefetching_to_a_set() -> None:
    """3.2.1: all are ready; the one where C reconnects has the others discard."""
    moves = {("B4", "B6"): 3, ("B4", "B7"): 2, ("B4", "B5"): 1}
    run = Overlay(
        tree(2, 3),
        {"C": "B4", "D": "B7", "P": "B5"},
        HIERARCHY,
        handover=HandoverOptions(protocol=Handover.PREFETCHING),
        mobility=MobilityOptions(model=model_of(moves).to_bytes()),
        options={"prefetching": {"brokers_max": 3}},
    )
    run.subscribe("C", "price > 10").subscribe("D", "price > 10").settle()
    run.publish("P", price=20).settle()

    text = story(run, "B7")

    check(run)
    assert text.count("B4 → B2       Prefetch") == 3
    assert "Asked" not in text[text.index("attaches to B7") :]
    assert "C" not in run.table("B6") | run.table("B4")
    assert "C" not in run.table("B5")


@pytest.mark.spec("DO-3")
def test_logging() -> None:
    """3.2.2: B7 has what D got in its log, so only the identities travel."""
    run = network(Handover.LOGGING)

    text = story(run, "B7")

    check(run)
    assert "UnsubscribeAsked to B4 (C) without P#2" in text
    assert "EventsFound to B7 (C) P#3\n" in text  # It came after the identities were sent.
    assert_golden("burcea-logging.txt", text)


@pytest.mark.spec("DO-3")
def test_logging_without_anything_in_the_log() -> None:
    """3.2.2: the identities are in vain where nobody wants the same."""
    run = network(Handover.LOGGING)

    text = story(run, "B6")

    check(run)
    assert "EventsFound to B6 (C) P#2, P#3\n" in text


@pytest.mark.spec("DO-3", "PM-4")
def test_logging_for_a_client_that_goes_on_before_its_events_have_come() -> None:
    """B7 has asked for those that are not in its log; it promises these as well."""
    run = network(Handover.LOGGING)
    run.detach("C").wait(20_000).publish("P", price=30).settle().attach("C", "B7")
    while not run.sent("UnsubscribeAsked", "B7 → B3"):
        run.wait(500)
    run.fault(Drop(a="B1", b="B2", us=200_000)).wait(1_000)

    run.detach("C").attach("C", "B6").settle().publish("P", price=40).settle()

    assert run.sent("UnsubscribeAsked", "B6 → B3") == 1
    assert run.received("C") == ["P#1", "P#2", "P#3"]
    assert run.outcome().findings == []


@pytest.mark.spec("DO-6")
def test_logging_with_subscriptions_on_the_device() -> None:
    run = network(Handover.LOGGING, subscriptions="device")

    text = story(run, "B7")

    check(run)
    assert run.sent("SubscriptionsAsked") == 0
    assert "IdsAsked to B4 (C)" in text
    assert "EventsFound to B7 (C) P#3\n" in text or "EventsFound to B7 (C) nothing" in text


@pytest.mark.spec("DO-6")
def test_prefetching_with_subscriptions_on_the_device() -> None:
    """A client that was not expected where it is has brought its subscriptions."""
    run = network(Handover.PREFETCHING, to="B6", subscriptions="device")

    story(run, "B7")

    check(run)
    assert run.sent("SubscriptionsAsked") == 0


@pytest.mark.spec("DO-4")
def test_home_broker() -> None:
    """3.2.3: B4 subscribes for C wherever it is, and sends its events to B7, also live ones."""
    run = network(Handover.HOME)

    text = story(run, "B7")

    check(run)
    assert text.count("B4 → B2       HomeEvents to B7 (C)") == 2
    assert run.table("B4")["C"] == ["price > 10"]
    assert "C" not in run.table("B7")
    assert_golden("burcea-home.txt", text)
