"""Cilia et al. 2003, sections 5.3 and 5.4: subscriptions into the past, message by message."""

import pytest

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history.facts import PastHeld
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.history.recent import Recent
from sterna.core.history.search import Searches
from sterna.core.mobility import MobilityOptions
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.sim.script import Drop, Pause
from sterna.sim.topology import Topology, line
from tests.goldens import assert_golden
from tests.mobility import model_of
from tests.sim.overlay import RELOCATION, Overlay

pytestmark = pytest.mark.spec("PA-2")

FIGURE_2 = Topology(
    brokers=("B3", "B1", "B2", "B4", "B5"),
    links=(("B3", "B1"), ("B3", "B2"), ("B3", "B4"), ("B4", "B5")),
)
"""The brokers of the worked example."""

LOSES = {Handover.NONE, Handover.NAIVE}
"""Handovers that lose events anyway."""


def network(search: Search, *publishers: str, prepares: bool = False) -> Overlay:
    """X1 publishes at B1, and maybe X2 at B2; X6 is at B4, X7 at B5."""
    at = {"X1": "B1", "X2": "B2"}
    run = Overlay(
        FIGURE_2,
        {"X6": "B4", "X7": "B5", **{each: at[each] for each in publishers}},
        RoutingOptions(strategy=Strategy.SIMPLE, advertisements=True),
        ClientOptions(advertisements=True),
        protocols=("past", "search"),
        history=HistoryOptions(search=search, prepares=prepares),
    )
    for each in publishers:
        run.advertise(each, "light IS NOT NULL")
    return run.settle()


def change(run: Overlay, *lights: str, at: str = "X1") -> Overlay:
    for light in lights:
        run.publish(at, light=light).settle()
    return run


def told_since(run: Overlay, first: int) -> str:
    return "".join(f"{line}\n" for line in run.trace.lines[first:])


def test_the_worked_example() -> None:
    """5.3: X6 has subscribed, so B4 is on the path; X7 gets its past from there, and no farther."""
    run = network(Search.NEAREST, "X1", prepares=True)
    change(run.subscribe("X6", "light IS NOT NULL").settle(), "red", "green", "amber")
    first = len(run.trace.lines)

    change(run.subscribe("X7", "light IS NOT NULL", past=2).settle(), "red")

    assert run.recalled("X7") == ["X1#2", "X1#3"]
    assert run.received("X7") == ["X1#4"]
    assert run.sent("HistoryAsked", "B5 → B4") == 1
    assert "B4 → B3       HistoryAsked" not in told_since(run, first)
    assert_golden("cilia-nearest.txt", told_since(run, first))


def test_figure_6() -> None:
    """B4 asks B3 for four while one more is on its way; what both have comes once."""
    run = network(Search.MERGED, "X1", prepares=True)
    for broker, size in (("B3", 4), ("B4", 2), ("B1", 4)):
        recent = run.broker(broker).part("past")
        assert isinstance(recent, Recent)
        recent.memory.events_max = size
    run.subscribe("X6", "light IS NOT NULL").settle()
    change(run, "a", "b", "c", "d", "e", "f")  # They have the numbers 1 to 6.
    held = [list(recent_of(run, broker)) for broker in ("B3", "B4")]
    assert held == [[3, 4, 5, 6], [5, 6]]
    first = len(run.trace.lines)

    run.publish("X1", light="g").wait(1_000)  # It is at B1, and goes on to B3.
    run.subscribe("X6", "light > 'a'", name="2", past=4).settle()

    assert run.recalled("X6") == ["X1#4", "X1#5", "X1#6"]
    assert run.received("X6")[-1] == "X1#7"
    assert_golden("cilia-figure-6.txt", told_since(run, first))


def recent_of(run: Overlay, broker: str) -> list[int]:
    recent = run.broker(broker).part("past")
    assert isinstance(recent, Recent)
    return [event.seq for event in recent.memory.events()]


def test_a_junction() -> None:
    """5.4: B3 has two neighbours with matching advertisements, and asks both."""
    run = change(network(Search.JUNCTIONS, "X1", "X2"), "red", "green")
    change(run, "off", at="X2")
    first = len(run.trace.lines)

    run.subscribe("X7", "light IS NOT NULL", past=3).settle()

    assert run.recalled("X7") == ["X1#1", "X1#2", "X2#1"]
    assert_golden("cilia-junction.txt", told_since(run, first))


def test_the_complete_algorithm() -> None:
    """5.4, "Putting it all together": each broker says whom it has asked before it answers."""
    run = network(Search.COMPLETE, "X1", "X2")
    change(change(run, "red", "green"), "off", at="X2")
    run.subscribe("X6", "light IS NOT NULL", past=2).settle()
    change(change(run, "amber"), "on", at="X2")
    first = len(run.trace.lines)

    run.subscribe("X7", "light IS NOT NULL", past=4).settle()

    assert run.recalled("X7") == ["X1#2", "X2#1", "X1#3", "X2#2"]
    text = told_since(run, first)
    assert text.index("B4 → B5       HistoryExpected") < text.index("B4 → B5       HistoryFound")
    assert_golden("cilia-complete.txt", text)


def test_who_has_enough_asks_nobody() -> None:
    """Two of the last events are at B4, where they came since all brokers knew what X6 wants."""
    run = network(Search.COMPLETE, "X1")
    change(run.subscribe("X6", "light IS NOT NULL", past=1).settle(), "red", "green", "amber")
    before = run.sent("HistoryAsked")

    run.subscribe("X7", "light IS NOT NULL", past=2).settle()

    assert run.recalled("X7") == ["X1#2", "X1#3"]
    assert run.sent("HistoryAsked") == before + 1


def test_who_has_lost_what_may_be_later_has_not_enough() -> None:
    """B5 has two events of X7, but has had one of X1 in between."""
    run = network(Search.COMPLETE, "X1")
    run.advertise("X7", "light IS NOT NULL").settle()
    recent = run.broker("B5").part("past")
    assert isinstance(recent, Recent)
    recent.memory.events_max = 1
    run.subscribe("X7", "light IS NOT NULL", past=1).settle()
    change(change(change(run, "red", at="X7"), "green"), "amber", at="X7")

    run.subscribe("X7", "light > ''", name="2", past=2).settle()

    assert run.recalled("X7") == ["X1#1", "X7#2"]


def test_what_came_before_everything_came_is_no_past() -> None:
    """B4 has two of three events, because only those were wanted there; nobody has the third."""
    run = network(Search.NEAREST, "X1")
    published_of(run, 0)
    change(run.subscribe("X6", "light = 'red'").settle(), "red", "green", "red")
    change(run.subscribe("X6", "light IS NOT NULL", name="2", past=1).settle(), "amber")

    run.subscribe("X7", "light IS NOT NULL", past=10).settle()

    assert recent_of(run, "B4") == [1, 3, 4]
    assert run.recalled("X7") == ["X1#4"]


@pytest.mark.spec("PM-4")
def test_what_a_publisher_published_on_another_side_is_missing() -> None:
    """X1 was at B3 for a while, and B2 has had nothing of that."""
    run = Overlay(
        line(4),
        {"X1": "B1", "X6": "B3", "X7": "B4"},
        handover=RELOCATION,
        protocols=("past", "search"),
        history=HistoryOptions(search=Search.MERGED),
    )
    published_of(run, 0)
    recent = run.broker("B3").part("past")
    assert isinstance(recent, Recent)
    recent.memory.events_max = 1
    run.subscribe("X6", "light IS NOT NULL", past=1).settle()
    change(run, "red")
    run.detach("X1").settle().attach("X1", "B3").settle()
    change(run, "green")
    run.detach("X1").settle().attach("X1", "B1").settle()
    change(run, "amber")
    assert recent_of(run, "B2") == [1, 3]

    run.subscribe("X7", "light IS NOT NULL", past=10).settle()

    assert run.recalled("X7") == ["X1#3"]


@pytest.mark.spec("PM-4")
@pytest.mark.parametrize("handover", [Handover.RELOCATION, Handover.STANDARD, Handover.HOME])
def test_what_was_under_way_when_its_publisher_moved_is_missing(handover: Handover) -> None:
    """Red comes past B3 when that has heard already that X1 is at B1; green does not."""
    run = Overlay(
        line(4),
        {"X1": "B4", "X6": "B1", "X7": "B2"},
        handover=HandoverOptions(protocol=handover),
        protocols=("past", "search"),
        history=HistoryOptions(search=Search.MERGED, publisher_events=0),
        latencies=[("B3", "B4", 20_000)],
    )
    run.subscribe("X6", "light IS NOT NULL", past=1).settle()
    run.publish("X1", light="red").wait(1_500).attach("X1", "B1").settle()
    change(run, "green")

    run.subscribe("X7", "light IS NOT NULL", past=10).settle()

    assert run.received("X6") == ["X1#1", "X1#2"]
    assert run.recalled("X7") == []


def test_what_came_from_where_the_question_comes_from_is_no_past() -> None:
    """B2 has what comes from B3; of what B1 sends, it has only what is wanted there."""
    run = Overlay(
        line(3),
        {"X1": "B1", "X7": "B1", "X6": "B3"},
        protocols=("past", "search"),
        history=HistoryOptions(search=Search.MERGED),
    )
    published_of(run, 0)
    recent = run.broker("B1").part("past")
    assert isinstance(recent, Recent)
    recent.memory.events_max = 1
    run.subscribe("X7", "light IS NOT NULL", past=1).subscribe("X6", "light = 'red'").settle()
    change(run, "red", "green", "red", "amber")
    assert recent_of(run, "B2") == [1, 3]

    run.subscribe("X7", "light IS NOT NULL", name="2", past=10).settle()

    assert run.recalled("X7") == ["X1#4"]


def test_a_subscription_that_ends_during_its_search_shows_nothing() -> None:
    """B5 has what was wanted there, which is less than everything."""
    run = network(Search.NEAREST, "X1")
    published_of(run, 0)
    run.subscribe("X7", "light = 'red'").settle()
    run.subscribe("X7", "light IS NOT NULL", name="2", past=1).unsubscribe("X7", "2").settle()
    change(run, "red", "green", "red")
    assert recent_of(run, "B5") == [1, 3]

    run.subscribe("X7", "light IS NOT NULL", name="3", past=10).settle()

    assert run.recalled("X7") == []


@pytest.mark.spec("DO-4")
def test_the_past_of_a_visitor_comes_over_its_home_broker() -> None:
    """B3 has red at once; green is published before B1, the home of X7, has subscribed."""
    run = Overlay(
        line(3),
        {"X1": "B3", "X7": "B1"},
        handover=HandoverOptions(protocol=Handover.HOME),
        protocols=("past", "search"),
    )
    run.detach("X7").settle().attach("X7", "B3").settle()
    change(run, "red").subscribe("X7", "light IS NOT NULL", past=5).wait(3_000)

    change(run, "green")

    assert run.recalled("X7") + run.received("X7") == ["X1#1", "X1#2"]


@pytest.mark.spec("DO-4")
def test_who_has_its_home_here_and_is_elsewhere_may_have_published_there() -> None:
    """Green was published at B3, which nobody asks, for X1 has gone on to B2."""
    run = gone_from_b3(Handover.HOME).attach("X1", "B2").settle()

    run.subscribe("X7", "light IS NOT NULL", past=5).settle()

    assert run.recalled("X7") == []


@pytest.mark.spec("DO-2", "PM-4")
def test_who_is_expected_where_it_was_may_have_published_elsewhere() -> None:
    """Green was published at B3, which nobody asks, for X1 is expected at B1."""
    run = gone_from_b3(Handover.PREFETCHING)
    assert run.broker("B1").router.advertisements["X1"]

    run.subscribe("X7", "light IS NOT NULL", "expected", past=5).settle()
    run.attach("X1", "B1").settle()
    run.subscribe("X7", "light IS NOT NULL", "there", past=5).settle()
    assert run.recalled("X7") == []

    change(run, "amber")
    run.subscribe("X7", "light IS NOT NULL", "heard", past=5).settle()
    assert run.received("X7") == ["X1#3"]
    assert run.recalled("X7") == ["X1#3"]


@pytest.mark.spec("PM-4")
@pytest.mark.parametrize("advertises", [False, True], ids=["", "advertises"])
@pytest.mark.parametrize("back", [False, True], ids=["away", "back"])
@pytest.mark.parametrize("handover", [each for each in Handover if each not in LOSES])
def test_what_was_published_elsewhere_is_no_gap(
    handover: Handover, back: bool, advertises: bool
) -> None:
    """Whoever hands X1 over: nobody gets red, from B1, without green, from B3."""
    run = gone_from_b3(handover, advertises=advertises)
    if back:
        run.attach("X1", "B1").settle()

    run.subscribe("X7", "light IS NOT NULL", past=5).settle()

    assert run.recalled("X7") in ([], ["X1#2"], ["X1#1", "X1#2"])


def gone_from_b3(handover: Handover, *, advertises: bool = True) -> Overlay:
    """X1 has published red at B1 and green at B3, and is expected at B1 again, if anywhere."""
    run = Overlay(
        line(3),
        {"X1": "B1", "X7": "B1"},
        RoutingOptions(advertisements=advertises),
        ClientOptions(advertisements=advertises),
        handover=HandoverOptions(protocol=handover),
        mobility=MobilityOptions(model=model_of({("B3", "B1"): 1}).to_bytes()),
        protocols=("past", "search"),
    )
    if advertises:
        run.advertise("X1", "light IS NOT NULL").settle()
    change(run, "red")
    change(run.detach("X1").settle().attach("X1", "B3").settle(), "green")
    return run.detach("X1").settle()


def published_of(run: Overlay, events_max: int) -> None:
    """Have brokers keep so many events of each of their own publishers."""
    for broker in run.simulation.script.topology.brokers:
        searches = run.broker(broker).part("search")
        assert isinstance(searches, Searches)
        searches.published.configure(events_max, 10)


def test_a_question_waits_for_a_link_behind_its_subscription() -> None:
    """Else B3 would answer, and then route what follows to nobody."""
    run = change(network(Search.COMPLETE, "X1"), "red")
    run.fault(Drop(a="B3", b="B4", us=100_000))
    first = len(run.trace.lines)

    run.subscribe("X7", "light IS NOT NULL", past=1).settle()

    sent = [line for line in run.trace.lines[first:] if "B4 → B3" in line]
    assert ["SubscriptionChange" in sent[0], "HistoryAsked" in sent[1]] == [True, True]
    assert run.recalled("X7") == ["X1#1"]


@pytest.mark.spec("PA-5")
def test_a_subscription_begins_at_once_though_its_past_has_to_wait() -> None:
    """X7 is on its way from B2, which B1 cannot reach; meanwhile B1 keeps for it what it wants."""
    run = Overlay(
        line(2),
        {"X1": "B1", "X7": "B2"},
        handover=RELOCATION,
        protocols=("past", "search"),
        history=HistoryOptions(events_max=0, publisher_events=0),
    )
    run.settle().fault(Drop(a="B1", b="B2", us=1_000_000))
    run.detach("X7").attach("X7", "B1").wait(10_000)

    run.subscribe("X7", "light IS NOT NULL", past=2).wait(10_000)
    change(run, "red")

    assert run.received("X7") == ["X1#1"]


@pytest.mark.spec("PA-5")
@pytest.mark.parametrize(("past", "held", "waits_us"), [(5, 1, 50_000), (1, 1, 0)])
def test_how_long_events_wait_for_the_past_is_stated(past: int, held: int, waits_us: int) -> None:
    """One comes while B1 is silent: it waits for the past, unless it is all that was asked for."""
    run = change(network(Search.COMPLETE, "X1", "X2"), "red")
    run.fault(Pause(broker="B1", us=100_000))
    run.subscribe("X7", "light IS NOT NULL", past=past).wait(20_000)

    change(run, "off", at="X2")

    (fact,) = run.facts_of(PastHeld)
    assert isinstance(fact, PastHeld)
    assert (fact.subscription, fact.held) == ("1", held)
    assert waits_us <= fact.held_us <= 100_000
