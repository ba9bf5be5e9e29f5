"""Huang and Garcia-Molina 2001, section 5: Table 1, in all small runs.

Two brokers, and events that get lost on their way to one or both of them (footnote 3).
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from sterna.core.replication.merging import Merging
from sterna.core.replication.options import Filtering, MergingOptions
from sterna.experiments.experiment import summarize
from sterna.experiments.huang_table_1.experiment import PRINTED, HuangTable1, counterexamples
from sterna.experiments.huang_table_1.exploring import (
    BROKERS,
    SOURCES,
    Arrival,
    Displayed,
    explore,
    given,
)
from sterna.model.event import EventId
from sterna.model.replicas import Verdict, judge
from tests.goldens import assert_golden

RUNS = {(1, 6): 127_905, (2, 3): 5_767_649}
"""How many runs there are of so many sources with up to so many events each."""


@pytest.mark.spec("RE-1")
@pytest.mark.parametrize(("sources", "events"), RUNS)
@pytest.mark.parametrize("filtering", PRINTED)
def test_table_1(filtering: Filtering, sources: int, events: int) -> None:
    """Each tick holds in all runs, and each cross is shown by some."""
    explored = explore(filtering, sources, events)

    assert explored.runs == RUNS[sources, events]
    ticks = Verdict(*(explored.holds(name) == explored.runs for name in Verdict._fields))
    assert ticks == PRINTED[filtering]
    assert {*explored.shortest} == {n for n, tick in ticks._asdict().items() if not tick}


@pytest.mark.spec("RE-1")
@pytest.mark.parametrize(("sources", "events"), RUNS)
def test_holding_back_keeps_all_three_while_its_time_lasts(sources: int, events: int) -> None:
    """In some runs the time ends what waits at the end, when nothing arrives any more."""
    explored = explore(Filtering.HOLDING, sources, events)

    assert explored.runs == RUNS[sources, events]
    assert {end.verdict for end in explored.ends} == {(True, True, True)}
    gave_up = sum(count for end, count in explored.ends.items() if end.gave_up)
    assert gave_up == {(1, 6): 9_506, (2, 3): 176_380}[sources, events]


@pytest.mark.spec("RE-1")
@pytest.mark.parametrize(("sources", "events"), [(1, 6), (2, 2)])
def test_wherever_the_time_of_holding_back_ends_something_is_missing_at_worst(
    sources: int, events: int
) -> None:
    explored = explore(Filtering.HOLDING, sources, events, patient=False)

    assert explored.runs > explore(Filtering.HOLDING, sources, events).runs
    assert all(end.verdict.ordered and end.verdict.consistent for end in explored.ends)
    assert all(end.verdict.complete or end.gave_up_early for end in explored.ends)
    assert explored.holds("complete") < explored.runs


@pytest.mark.spec("RE-1")
def test_the_shortest_run_for_each_cross() -> None:
    texts = [
        f"{filtering}, {counterexamples(filtering, explore(filtering, 1, 4))}\n"
        for filtering in PRINTED
    ]

    assert_golden("huang-table-1.txt", "\n".join(texts))


# ---- The driver itself


def sequences(sources: int, events: int) -> Iterator[tuple[Arrival, ...]]:
    """All runs, one by one."""
    queues = list(product(BROKERS, SOURCES[:sources]))

    def on(before: tuple[Arrival, ...]) -> Iterator[tuple[Arrival, ...]]:
        yield before
        for broker, source in queues:
            last = max(
                (a.event.seq for a in before if (a.broker, a.event.publisher) == (broker, source)),
                default=0,
            )
            for seq in range(last + 1, events + 1):
                yield from on((*before, Arrival(broker, EventId(source, seq))))

    return on(())


@pytest.mark.parametrize("filtering", Filtering)
@pytest.mark.parametrize(("sources", "events"), [(1, 4), (2, 1)])
def test_runs_that_go_on_together_end_as_each_of_them_would(
    filtering: Filtering, sources: int, events: int
) -> None:
    """Each run by itself, judged by the checkers, which look at what was displayed as a whole."""
    verdicts: Counter[Verdict] = Counter()
    for run in sequences(sources, events):
        machine = Merging("ED", MergingOptions(filtering=filtering, hold_us=1), BROKERS)
        displayed = [
            event.id
            for number, step in enumerate((*run, None))
            for action in machine.handle(given(step), int(number == len(run))).actions
            for event in action.events
        ]
        verdicts[judge(displayed, [arrival.event for arrival in run])] += 1

    together: Counter[Verdict] = Counter()
    for end, count in explore(filtering, sources, events).ends.items():
        together[end.verdict] += count
    assert together == verdicts


def test_displayed_events_are_judged_one_by_one() -> None:
    p1, p2, q1 = EventId("p", 1), EventId("p", 2), EventId("q", 1)
    displayed = Displayed((0, 0))
    for id_ in (p2, q1):
        displayed = displayed.then(id_)

    assert displayed == Displayed((2, 1), frozenset((p2, q1)), ordered=True, consistent=True)
    assert not displayed.then(p1).ordered
    assert not displayed.then(p2).consistent


# ---- The experiment


@pytest.mark.spec("RE-1")
def test_the_experiment_prints_table_1() -> None:
    experiment = HuangTable1()
    points = [
        summarize(setting, [experiment.measure(setting, 1)])
        for setting in experiment.settings(quick=True)
    ]

    assert all(claim.holds for claim in experiment.claims(points))
    table, _, runs = experiment.tables(points)
    assert [row[:1] + row[2:] for row in table.rows] == [
        ("none", "✗", "✗", "✓"),
        ("duplicates", "✗", "✓", "✓"),
        ("order and duplicates", "✓", "✓", "✗"),
        ("holding back", "✓", "✓", "✓"),
    ]
    assert all(row[1] == " ".join(row[2:]) for row in table.rows[:3])
    assert [row[1].count("not ") for row in runs.rows] == [2, 1, 1, 1]
