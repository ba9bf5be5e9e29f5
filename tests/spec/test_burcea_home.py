"""Burcea et al. 2004, 3.2.3: home brokers, and visitors that go on, nap and subscribe."""

import pytest

from sterna.core.facts import HandoverFinished, HandoverStarted
from sterna.core.handover.options import Handover
from tests.sim.overlay import Overlay
from tests.spec.test_burcea_strategies import network

pytestmark = pytest.mark.spec("DO-4")


def visitor() -> Overlay:
    """C has its home at B4, and is at B7."""
    return network(Handover.HOME).detach("C").settle().attach("C", "B7").settle()


def check(run: Overlay, last: int) -> None:
    assert run.received("C") == [f"P#{number}" for number in range(1, last + 1)]
    assert run.outcome().findings == []


def test_the_place_before_releases_a_visitor_that_goes_on() -> None:
    """B7 sends back what C did not get there, and keeps nothing."""
    run = visitor()

    run.publish("P", price=30).wait(4_500).detach("C").attach("C", "B6").settle()
    run.publish("P", price=40).settle()

    check(run, 3)
    assert run.sent("UnsubscribeAsked", "B4 → B2") == 1
    assert run.broker("B7").hosted() == []
    assert "C" not in run.broker("B7").peers


def test_events_stay_at_home_while_a_visitor_is_disconnected() -> None:
    run = visitor().detach("C").settle()
    before = run.sent("HomeEvents", "B4 → B2")

    run.publish("P", price=30).settle()

    assert run.sent("HomeEvents", "B4 → B2") == before
    assert run.broker("B4").kept("C").events == 1
    run.attach("C", "B7").settle()
    check(run, 2)


def test_what_is_under_way_to_a_visitor_that_disconnects_is_kept() -> None:
    run = visitor()

    run.publish("P", price=30).wait(4_500).detach("C").settle()

    assert run.broker("B7").kept("C").events == 1
    run.attach("C", "B7").settle()
    check(run, 2)


def test_what_a_visitor_subscribes_to_is_known_at_home() -> None:
    run = visitor().subscribe("C", "price < 5", name="2").settle()

    run.publish("P", price=1).settle()

    check(run, 2)
    assert run.table("B4")["C"] == ["price > 10", "price < 5"]
    assert "C" not in run.table("B7")


def test_each_handover_is_stated_once_where_the_client_is() -> None:
    """Also when its home broker has the place before release it."""
    run = visitor().detach("C").settle().attach("C", "B6").settle()
    run.detach("C").settle().attach("C", "B4").settle()

    for kind in (HandoverStarted, HandoverFinished):
        assert [fact.at for fact in run.facts_of(kind) if fact.client == "C"] == ["B7", "B6", "B4"]  # type: ignore[attr-defined]


def test_a_client_that_is_home_again_is_not_forgotten() -> None:
    """It arrives at B4 before the news that it is not connected to B7 any more."""
    run = network(Handover.HOME, away_max_us=1_000_000)
    run.detach("C").settle().attach("C", "B7").settle().attach("C", "B4").settle()

    run.wait(60_000_000).publish("P", price=30).settle()

    lines = [line for line in run.trace.lines if "→ B4" in line]
    first, last = (
        [at for at, line in enumerate(lines) if kind in line][-1]
        for kind in ("Arrival", "Suspended")
    )
    assert first < last
    check(run, 2)
