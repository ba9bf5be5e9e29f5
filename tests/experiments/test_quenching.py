"""The quenching experiment: nothing wanted is discarded, and every byte is counted."""

import pytest

from sterna.experiments.experiment import DeliveryError, Point, summarize
from sterna.experiments.quenching.break_even import break_even
from sterna.experiments.quenching.experiment import Quenching
from sterna.experiments.quenching.settings import Measures, Setting
from sterna.experiments.quenching.simulation import Bytes, Run, Watch, compare
from sterna.model.event import EventId

Curve = list[Point[Setting, Measures]]


@pytest.fixture(scope="module")
def points() -> Curve:
    """All quick settings. The oracle has judged them, or there would be an error."""
    experiment = Quenching()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


def curve(points: Curve, match_rate: float) -> Curve:
    plain = {point.setting: point for point in points}
    return [
        plain[Setting(match_rate=match_rate, change_rate=change_rate, events=100)]
        for change_rate in (0.0, 0.1, 1.0)
    ]


@pytest.mark.spec("QU-2")
@pytest.mark.parametrize("match_rate", [0.1, 0.6])
def test_updates_of_c_all_count_against_the_events_saved(points: Curve, match_rate: float) -> None:
    still, some, many = (point.median for point in curve(points, match_rate))

    assert still.update_bytes == 0
    assert 0 < some.update_bytes < many.update_bytes
    assert still.saved_share > some.saved_share > many.saved_share
    for measures in (still, some, many):
        saved = measures.event_bytes_saved - measures.update_bytes + measures.link_bytes_saved
        assert measures.bytes_without - measures.bytes_with == saved
    assert still.saved_share == pytest.approx(1 - still.match_rate, abs=0.05)
    assert many.saved_share < 0


def test_quenching_breaks_even_earlier_the_more_is_wanted(points: Curve) -> None:
    few, most = break_even(curve(points, 0.1)), break_even(curve(points, 0.6))

    assert few is not None
    assert most is not None
    assert 0 < most < few < 1
    summary = Quenching().summary(points)
    assert summary["break_even"][0] == {"match_rate": 0.1, "changes_per_event": few}


def test_there_is_no_break_even_beyond_what_was_tried(points: Curve) -> None:
    assert break_even(curve(points, 0.1)[:2]) is None


@pytest.mark.spec("QU-1")
def test_what_is_quenched_is_what_nobody_wants(points: Curve) -> None:
    """`measure` compares each event; here the numbers must add up as well."""
    for point in points:
        if not point.setting.disconnected:
            published = 2 * (point.setting.events + 1)
            wanted = round(point.median.match_rate * published)
            assert point.median.quenched == published - wanted


@pytest.mark.spec("QU-2")
def test_a_full_buffer_keeps_what_was_known_to_be_wanted(points: Curve) -> None:
    disconnected = [point for point in points if point.setting.disconnected]
    roomy = [point.median for point in disconnected if point.setting.buffer_events_max > 10]
    small = [point.median for point in disconnected if point.setting.buffer_events_max == 10]

    assert len(roomy) == len(small) == 2
    assert all(each.purged_with == each.purged_without == 0 for each in roomy)
    assert all(each.purged_with < each.purged_without for each in small)


@pytest.mark.parametrize("match_rate", [0.1, 0.6])
def test_merging_less_makes_changes_cheaper_and_c_all_longer(
    points: Curve, match_rate: float
) -> None:
    _, _, little = curve(points, match_rate)
    (much,) = (
        point
        for point in points
        if point.setting.interest_members_max == 16 and point.setting.match_rate == match_rate
    )

    assert little.setting.interest_members_max == 2
    assert little.median.update_bytes < much.median.update_bytes
    assert little.median.filters > much.median.filters
    assert little.median.first_bytes > much.median.first_bytes


def test_quenching_what_is_wanted_is_an_error() -> None:
    def run(delivered: int) -> Run:
        return Run(Watch(), Bytes(), Bytes(), delivered)

    off, on = run(delivered=5), run(delivered=4)
    on.watch.quenched.update({EventId("P1", 2), EventId("P1", 3)})
    on.watch.wanted.add(EventId("P1", 3))

    with pytest.raises(DeliveryError) as raised:
        compare(off, on, "a run")

    assert raised.value.findings == [
        "quenched, but wanted: P1 #3",
        "4 events delivered, 5 without quenching",
    ]
