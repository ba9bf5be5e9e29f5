"""The routing experiment: what each strategy must not cost more than another, on its workload."""

from collections.abc import Callable

import pytest

from sterna.core.inputs import Publish, Subscribe, Unsubscribe
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.experiments.experiment import DeliveryError, Point, summarize
from sterna.experiments.routing import Measures, Routing, Setting, make_script, needed
from sterna.model.delivery import Fault
from sterna.model.event import EventId
from sterna.model.filters import Filter, merge
from sterna.sim.oracle import Finding, Oracle
from sterna.sim.run import run
from sterna.sim.script import Do, Script, Settle
from sterna.sim.topology import line

EXACT = (Strategy.SIMPLE, Strategy.IDENTITY, Strategy.COVERING, Strategy.MERGING)

Place = tuple[int, float, bool]
"""Number of subscriptions, locality, advertisements."""


@pytest.fixture(scope="module")
def results() -> dict[Place, dict[Strategy, Measures]]:
    """All quick settings. The oracle has judged them, or there would be an error."""
    experiment = Routing()
    found: dict[Place, dict[Strategy, Measures]] = {}
    for setting in experiment.settings(quick=True):
        place = setting.subscriptions, setting.locality, setting.advertisements
        found.setdefault(place, {})[setting.strategy] = experiment.measure(setting, seed=1)
    return found


Results = dict[Place, dict[Strategy, Measures]]


def assert_falling(
    results: Results, strategies: tuple[Strategy, ...], measure: Callable[[Measures], float]
) -> None:
    for place, by_strategy in results.items():
        costs = {strategy: measure(by_strategy[strategy]) for strategy in strategies}
        assert list(costs.values()) == sorted(costs.values(), reverse=True), (place, costs)


@pytest.mark.spec("RT-1")
def test_each_strategy_has_at_most_the_entries_of_the_one_before(results: Results) -> None:
    assert_falling(results, EXACT, lambda measures: measures.entries)
    assert_falling(results, EXACT, lambda measures: measures.entries_after)


@pytest.mark.spec("RT-1")
def test_identity_and_covering_need_at_most_the_messages_of_the_one_before(
    results: Results,
) -> None:
    assert_falling(results, EXACT[:3], lambda measures: measures.control_subscribing)
    assert_falling(results, EXACT[:3], lambda measures: measures.control_withdrawing)
    assert_falling(results, EXACT[:3], lambda measures: measures.control_messages)


@pytest.mark.spec("RT-1")
def test_merging_needs_at_most_the_messages_of_covering(results: Results) -> None:
    assert_falling(results, EXACT[2:], lambda measures: measures.control_messages)


def test_merging_sends_less_where_filters_cover_one_together_that_none_covers_alone() -> None:
    def sent(strategy: Strategy) -> int:
        ranges = ("a BETWEEN 1 AND 4", "a BETWEEN 3 AND 8", "a BETWEEN 2 AND 6")
        subscribe = [
            Do(client=f"C{number}", what=Subscribe(subscription="s", filter=Filter(text)))
            for number, text in enumerate(ranges)
        ]
        script = Script(
            topology=line(3),
            clients=dict.fromkeys(("C0", "C1", "C2"), "B1"),
            steps=tuple(step for each in subscribe for step in (each, Settle())),
            routing=RoutingOptions(strategy=strategy),
        )
        return run(script).messages["SubscriptionChange"]

    assert sent(Strategy.COVERING) == 3 + 2 * 3  # From the clients, and over two links.
    assert sent(Strategy.MERGING) == 3 + 2 * 2


def test_the_workload_has_no_such_filters() -> None:
    """So that merging cannot send less than covering here: what is told, changes the union."""
    setting = Setting(strategy=Strategy.SIMPLE, advertisements=False, subscriptions=400,
                      locality=0.5, degree=4, events=0)  # fmt: skip
    steps = make_script(setting, seed=1).steps
    whats = [step.what for step in steps if isinstance(step, Do)]
    filters = {what.filter for what in whats if isinstance(what, Subscribe)}

    for each in filters:
        near = [other for other in filters if other.overlaps(each) and not other.covers(each)]
        assert merge(near).covers_verdict(each) is False


@pytest.mark.spec("RT-1")
def test_all_strategies_deliver_the_same(results: Results) -> None:
    for by_strategy in results.values():
        assert len({measures.delivered for measures in by_strategy.values()}) == 1
        assert next(iter(by_strategy.values())).delivered > 0


def test_only_flooding_and_imperfect_merging_forward_events_needlessly(results: Results) -> None:
    for by_strategy in results.values():
        assert [by_strategy[strategy].needless for strategy in EXACT] == [0, 0, 0, 0]
        assert by_strategy[Strategy.IMPERFECT].needless >= 0
    assert any(by_strategy[Strategy.IMPERFECT].needless for by_strategy in results.values())
    flooding = results[50, 0.5, False][Strategy.FLOODING]
    assert flooding.event_messages == 60 * 12  # Each event over each link.
    assert flooding.needless == 60 * 12 - results[50, 0.5, False][Strategy.SIMPLE].event_messages


def test_advertisements_keep_subscriptions_out_of_tables(results: Results) -> None:
    for (count, locality, advertisements), by_strategy in results.items():
        if advertisements:
            for strategy, measures in by_strategy.items():
                assert measures.entries < results[count, locality, False][strategy].entries


def test_tables_and_figures_need_both_series(results: Results) -> None:
    points: list[Point[Setting, Measures]] = []
    for setting in Routing().settings(quick=True):
        place = setting.subscriptions, setting.locality, setting.advertisements
        points.append(summarize(setting, [results[place][setting.strategy]]))

    numbers, localities = Routing().tables(points)

    assert [row[0] for row in numbers.rows] == ["50"] * 11 + ["100"] * 11
    assert [row[0] for row in localities.rows] == ["0%"] * 11 + ["50%"] * 11 + ["100%"] * 11


def test_strategies_get_the_same_script() -> None:
    one, other = Routing().settings(quick=True)[:2]
    assert (one.strategy, other.strategy) == (Strategy.FLOODING, Strategy.SIMPLE)

    assert make_script(one, 1).steps == make_script(other, 1).steps
    assert make_script(one, 1).steps != make_script(one, 2).steps


def test_events_are_needed_on_the_way_to_those_who_want_them_just_then() -> None:
    def publish(value: int) -> Do:
        return Do(client="P", what=Publish(attributes={"a": value}))

    def subscribe(client: str, text: str) -> Do:
        return Do(client=client, what=Subscribe(subscription="s", filter=Filter(text)))

    script = Script(
        topology=line(4),
        clients={"P": "B1", "near": "B2", "far": "B4", "here": "B1"},
        steps=(
            publish(1),  # Nobody wants it.
            subscribe("here", "a > 0"),
            publish(1),  # It stays at B1.
            subscribe("far", "a = 1"),
            subscribe("near", "a = 1"),
            publish(1),  # B2, B3, B4.
            Do(client="far", what=Unsubscribe(subscription="s")),
            publish(1),  # B2.
            publish(2),
        ),
    )

    assert needed(script) == 4


def test_a_wrong_delivery_is_an_error_that_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding(Fault.LOST, EventId("P1-0", 7), "C3", ("B1 → B2",))
    monkeypatch.setattr(Oracle, "findings", lambda _: [finding])
    setting = Routing().settings(quick=True)[0]

    with pytest.raises(DeliveryError, match=r"lost: event P1-0 #7 for C3") as raised:
        Routing().measure(setting, seed=1)

    assert "strategy flooding" in str(raised.value)
    assert raised.value.findings == [str(finding)]
