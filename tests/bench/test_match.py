"""The benchmark of the matching index: what it compares gives equal answers."""

import pytest

from sterna.bench import workloads
from sterna.bench.baselines import Baseline, BruteForce, Counting
from sterna.bench.match import columns_of, few_or_many, run
from sterna.bench.measure import Timing
from sterna.bench.workloads import Workload
from sterna.matching import MatchIndex
from sterna.matching.columns import Columns

WORKLOADS = [workloads.standard(0.02), workloads.ids(), workloads.topics(), workloads.text()]


@pytest.mark.parametrize("algorithm", [BruteForce, Counting])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_baselines_are_right(workload: Workload, algorithm: type[Baseline]) -> None:
    filters = list(workload.filters(400, 5))
    events = workload.events(60, 5)
    index: MatchIndex[int] = MatchIndex()
    for key, filter_ in enumerate(filters):
        index.add(key, filter_)
    baseline = algorithm(index.compiled())
    expected = [[k for k, f in enumerate(filters) if f.matches(event)] for event in events]

    assert [sorted(index.match(event)) for event in events] == expected
    assert [len(baseline.match(event)) for event in events] == [len(keys) for keys in expected]
    positions, _ = baseline.match_batch(Columns(columns_of(events)))
    assert positions.tolist() == [i for i, keys in enumerate(expected) for _ in keys]
    if workload.name in {"standard", "ids", "topics"}:  # One row each, in the order of the keys.
        assert [sorted(baseline.match(event)) for event in events] == expected


def test_workloads_come_from_their_seed() -> None:
    for workload in WORKLOADS:
        assert list(workload.filters(20, 3)) == list(workload.filters(20, 3))
        assert workload.events(20, 3) == workload.events(20, 3)
        assert list(workload.filters(20, 3)) != list(workload.filters(20, 4))


@pytest.mark.parametrize("rate", [0.001, 0.01])
def test_the_standard_workload_matches_as_often_as_asked(rate: float) -> None:
    workload = workloads.standard(rate)
    index: MatchIndex[int] = MatchIndex()
    for key, filter_ in enumerate(workload.filters(2000, 6)):
        index.add(key, filter_)
    events = workload.events(200, 6)
    found = sum(len(index.match(event)) for event in events) / len(events) / len(index)

    assert 0.6 * rate < found < 1.6 * rate


def test_a_report_has_all_figures() -> None:
    said: list[str] = []
    report = run(workloads.standard(0.01), 1500, 40, said.append, curve=True)

    assert [each.subscriptions for each in (*report.curve, report)] == [1000, 1500]
    assert set(report.single.times_faster) == {"counting", "brute force"}
    assert report.insert_us > 0 < report.remove_us
    assert report.bytes_per_subscription > 100
    assert any("adding" in line for line in said)


def test_churn_is_measured_without_a_curve() -> None:
    report = run(workloads.ids(), 300, 30, lambda _: None)

    assert report.churn is not None
    assert set(report.churn.median_us) == {"churned", "fresh"}


def test_few_filters_are_measured_both_ways() -> None:
    figures = few_or_many(workloads.ids(), 20, lambda _: None)

    assert 4 in figures
    assert set(figures[4].median_us) == {"one by one", "table"}


def test_a_ratio_is_the_median_of_rounds_side_by_side() -> None:
    """One slow round of the machine, which met both, does not change it."""
    slow, fast = Timing((10.0, 100.0, 10.0)), Timing((5.0, 50.0, 5.0))

    assert slow / fast == 2.0
    assert slow.median_us == 10.0
