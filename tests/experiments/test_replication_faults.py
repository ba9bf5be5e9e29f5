"""The experiment on replication: what one and two watching brokers lose, by filter."""

from pathlib import Path

import pytest

from sterna.core.replication.options import Filtering
from sterna.experiments.experiment import Point, summarize
from sterna.experiments.replication_faults.experiment import ReplicationFaults
from sterna.experiments.replication_faults.settings import HOLD_MS, Measures, Setting, Trouble
from sterna.experiments.replication_faults.simulation import LOSS


@pytest.fixture(scope="module")
def points() -> list[Point[Setting, Measures]]:
    """All quick settings. Each filter has kept its promises, or there would be an error."""
    experiment = ReplicationFaults()
    return [
        summarize(setting, [experiment.measure(setting, seed) for seed in (1, 2)])
        for setting in experiment.settings(quick=True)
    ]


def found(
    points: list[Point[Setting, Measures]], trouble: Trouble, brokers: int, filtering: Filtering
) -> Measures:
    """The mean of what was measured."""
    (point,) = (
        point
        for point in points
        if point.setting.hold_ms == HOLD_MS
        and (point.setting.trouble, point.setting.brokers) == (trouble, brokers)
        and point.setting.filtering is filtering
    )
    return point.mean


@pytest.mark.spec("RE-1", "RE-5")
@pytest.mark.parametrize("filtering", [f for f in Filtering if f is not Filtering.ORDER])
def test_two_brokers_of_which_one_dies_lose_nothing(
    points: list[Point[Setting, Measures]], filtering: Filtering
) -> None:
    assert found(points, Trouble.DEATHS, 1, filtering).lost > 10
    assert found(points, Trouble.DEATHS, 2, filtering).lost == 0


@pytest.mark.spec("RE-1")
def test_two_brokers_lose_what_both_have_lost(points: list[Point[Setting, Measures]]) -> None:
    one = found(points, Trouble.LOSSES, 1, Filtering.DUPLICATES)
    two = found(points, Trouble.LOSSES, 2, Filtering.DUPLICATES)
    order = found(points, Trouble.LOSSES, 2, Filtering.ORDER)

    assert one.lost / one.owed == pytest.approx(LOSS, rel=0.5)
    assert two.lost / two.owed < LOSS / 5
    assert two.disordered > 0
    assert order.lost - order.late == two.lost
    assert order.late > 0


@pytest.mark.spec("RE-1")
def test_what_nobody_loses_comes_twice_without_a_filter(
    points: list[Point[Setting, Measures]],
) -> None:
    nothing = found(points, Trouble.NOTHING, 2, Filtering.NONE)

    assert nothing.doubled == nothing.owed
    assert found(points, Trouble.NOTHING, 2, Filtering.ORDER).doubled == 0


@pytest.mark.spec("RE-1")
def test_holding_back_takes_the_time_of_the_slower_broker(
    points: list[Point[Setting, Measures]],
) -> None:
    order = found(points, Trouble.NOTHING, 2, Filtering.ORDER)
    holding = found(points, Trouble.NOTHING, 2, Filtering.HOLDING)

    assert order.held == 0
    assert holding.held > 0
    assert order.median_ms < holding.median_ms < order.median_ms + 50


@pytest.mark.spec("RE-1")
def test_the_less_patience_the_more_is_dropped(points: list[Point[Setting, Measures]]) -> None:
    losses = {
        p.setting.hold_ms: p.mean
        for p in points
        if (p.setting.trouble, p.setting.brokers) == (Trouble.LOSSES, 2)
        and p.setting.filtering is Filtering.HOLDING
    }

    assert losses[0].late > losses[HOLD_MS].late == 0
    assert losses[0].gave_up > losses[200].gave_up >= losses[HOLD_MS].gave_up == 0


def test_the_claims_hold_and_the_picture_is_drawn(
    points: list[Point[Setting, Measures]], tmp_path: Path
) -> None:
    experiment = ReplicationFaults()

    assert [claim.holds for claim in experiment.claims(points)] == [True, True, True]
    experiment.draw(points, tmp_path / "picture")
    assert (tmp_path / "picture.svg").exists()
