"""Fiege et al. 2003, section 4 and App. A: the worked examples and figures, message by message."""

import pytest

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.sim.script import LinkModel
from sterna.sim.topology import line
from tests.goldens import assert_golden
from tests.sim.overlay import RELOCATION, Overlay

SIMPLE = RoutingOptions(strategy=Strategy.SIMPLE, advertisements=True)
"""As in the paper's figures: an entry for each subscription, towards advertisements only."""

BROKERS = tuple(f"B{number}" for number in range(1, 7))


def scenario(clients: dict[str, str]) -> Overlay:
    """Six brokers in a line, C at B6, and producers who have published something already."""
    run = Overlay(line(6), clients, SIMPLE, ClientOptions(advertisements=True), handover=RELOCATION)
    for producer in clients:
        if producer != "C":
            run.advertise(producer, "price > 0")
    run.settle().subscribe("C", "price > 10").settle()
    return run


def entries(run: Overlay) -> str:
    """The routing tables, without what brokers keep for others than C."""
    lines = []
    for broker in BROKERS:
        table = run.table(broker)
        where = ", ".join(f"{filters[0]} → {link}" for link, filters in table.items())
        lines.append(f"{broker}: {where or 'nothing'}\n")
    return "".join(lines)


def story(run: Overlay, move: str) -> str:
    """The tables before a move, what happens, and the tables after it."""
    before = entries(run)
    lines = len(run.trace.lines)
    run.detach("C").wait(10_000)
    for producer in sorted(set(run.simulation.script.clients) - {"C"}):
        run.publish(producer, price=20)
    run.settle().attach("C", move)
    for price in (30, 40):
        run.wait(3_500)
        for producer in sorted(set(run.simulation.script.clients) - {"C"}):
            run.publish(producer, price=price)
    run.settle()
    happened = "".join(f"{line}\n" for line in run.trace.lines[lines:])
    return f"Tables before\n{before}\n{happened}\nTables after\n{entries(run)}"


@pytest.mark.spec("PM-2")
def test_figure_5_left_one_producer() -> None:
    """4.1: C moves from B6 to B1; B4 is the junction; B5 and B6 forget C."""
    run = scenario({"C": "B6", "P": "B4"})
    run.publish("P", price=15).settle()

    text = story(run, "B1")

    assert run.received("C") == ["P#1", "P#2", "P#3", "P#4"]
    assert run.outcome().findings == []
    assert run.table("B4") == {"B3": ["price > 10"]}
    assert run.table("B5") == run.table("B6") == {}
    assert "C" not in run.relocation("B6").guests
    assert_golden("fiege-figure-5-left.txt", text)


@pytest.mark.spec("PM-2")
def test_figure_5_right_several_producers() -> None:
    """4.1: as B5 leads to another producer, it keeps its entry and turns it towards B4."""
    run = scenario({"C": "B6", "P": "B4", "Q": "B5"})
    run.publish("P", price=15).publish("Q", price=15).settle()

    text = story(run, "B1")

    received = run.received("C")
    assert [event for event in received if event[0] == "P"] == ["P#1", "P#2", "P#3", "P#4"]
    assert [event for event in received if event[0] == "Q"] == ["Q#1", "Q#2", "Q#3", "Q#4"]
    assert run.outcome().findings == []
    assert run.table("B4") == {"B3": ["price > 10"]}
    assert run.table("B5") == {"B4": ["price > 10"]}
    assert run.table("B6") == {}
    assert_golden("fiege-figure-5-right.txt", text)


@pytest.mark.spec("PM-2", "PM-3")
def test_figure_10_a_new_client() -> None:
    """A.2, situation 1: num = 0, so nothing is fetched. What is new against the paper is that
    brokers are told where C is.
    """
    run = Overlay(line(2), {"C": "B2", "P": "B1"}, SIMPLE, ClientOptions(advertisements=True),
                  handover=RELOCATION)  # fmt: skip
    run.advertise("P", "price > 0").settle().subscribe("C", "price > 10").settle()
    run.publish("P", price=20).settle()

    assert run.received("C") == ["P#1"]
    assert run.sent("Resubscribe") == run.sent("Fetch") == run.sent("Replay") == 0
    assert_golden("fiege-figure-10-new-client.txt", run.trace.text())


@pytest.mark.spec("PM-2", "PM-3")
def test_figure_10_resuming_at_the_same_broker() -> None:
    """A.2, situation 2: the broker sends what it has kept; no other broker hears of it."""
    run = scenario({"C": "B6", "P": "B4"})

    text = story(run, "B6")

    assert run.received("C") == ["P#1", "P#2", "P#3"]
    assert run.sent("Resubscribe") == run.sent("Fetch") == run.sent("Replay") == 0
    assert_golden("fiege-figure-10-resuming.txt", text)


@pytest.mark.spec("PM-2", "PM-3")
def test_figures_10_and_11_a_producer_at_the_new_place() -> None:
    """Fig. 11 needs an entry on the way; here the new border broker has it and is the junction."""
    run = scenario({"C": "B6", "P": "B1"})

    text = story(run, "B1")

    assert run.received("C") == ["P#1", "P#2", "P#3"]
    assert [broker for broker in BROKERS if run.table(broker)] == ["B1"]
    assert_golden("fiege-figure-11-junction-at-the-new-broker.txt", text)


@pytest.mark.spec("PM-2")
def test_replay_arrives_before_live_events() -> None:
    """4.1: "delivers the old messages from B6 first before delivering the new messages"."""
    run = scenario({"C": "B6", "P": "B2"})
    run.detach("C").wait(5_000).publish("P", price=20).settle()

    run.attach("C", "B1").wait(6_000)  # Its subscription has reached B2, but the request not B6.
    run.publish("P", price=30).wait(3_000)

    held = run.relocation("B1").guests["C"]
    assert held.awaits is not None
    assert len(held.cache) == 1  # The new one has come first.
    run.settle()
    assert run.received("C") == ["P#1", "P#2"]


@pytest.mark.spec("PM-1")
def test_figure_2_the_naive_handover_misses_and_repeats_events() -> None:
    """3.2: even when events are flooded and the client moves in an instant."""
    near, far = {"C": "B1", "P": "B1"}, {"C": "B8", "P": "B1"}
    flooding = RoutingOptions(strategy=Strategy.FLOODING)
    naive = HandoverOptions(protocol=Handover.NAIVE)
    link = LinkModel(latency_us=10_000)

    repeats = Overlay(line(8), near, flooding, handover=naive, link=link)
    repeats.subscribe("C", "price > 0").settle()
    repeats.publish("P", price=1).wait(21_000).attach("C", "B8").settle()
    assert repeats.received("C") == ["P#1", "P#1"]  # Near the producer, then far from it.

    misses = Overlay(line(8), far, flooding, handover=naive, link=link)
    misses.subscribe("C", "price > 0").settle()
    misses.publish("P", price=1).wait(21_000).attach("C", "B1").settle()
    assert misses.received("C") == []  # It has passed B1 already, and comes to B8 too late.
