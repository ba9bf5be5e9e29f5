"""What all experiments have in common."""

import random
import statistics

import msgspec
import pytest

from sterna.core.routing.options import Strategy
from sterna.experiments import workload
from sterna.experiments.experiment import summarize
from sterna.experiments.interval import margin, student_t
from sterna.experiments.registry import EXPERIMENTS


class Setting(msgspec.Struct, frozen=True):
    strategy: Strategy


class Measures(msgspec.Struct, frozen=True):
    messages: float


def test_several_seeds_make_a_median_a_range_and_an_interval() -> None:
    """The interval of 1, 3, 7: the mean ± 4.3027 · s / √3, with s² = 28/3."""
    measured = [Measures(messages) for messages in (7, 1, 3)]

    point = summarize(Setting(Strategy.SIMPLE), measured)

    assert (point.median, point.low, point.high) == (Measures(3), Measures(1), Measures(7))
    document = point.as_json()
    interval = document["measures"]["messages"].pop("interval")
    assert interval == pytest.approx([11 / 3 - 7.58911, 11 / 3 + 7.58911], abs=1e-4)
    assert document == {
        "strategy": "simple",
        "seeds": 3,
        "measures": {"messages": {"median": 3, "low": 1, "high": 7, "mean": 11 / 3}},
    }
    row = point.as_row()
    assert row.pop("messages_margin") == pytest.approx(7.58911, abs=1e-4)
    assert row == {
        "strategy": "simple",
        "seeds": 3,
        "messages": 3,
        "messages_low": 1,
        "messages_high": 7,
        "messages_mean": 11 / 3,
    }
    assert point.text(lambda m: m.messages, ".1f") == "3.0 ±7.6"
    assert point.text(lambda m: -100 * m.messages, ",.0f") == "-300 ±759"


class OverTime(msgspec.Struct, frozen=True):
    messages: tuple[float, ...]
    verdict: str


def test_measures_over_time_are_taken_element_by_element() -> None:
    measured = [OverTime((1, 10), "b"), OverTime((3, 30), "a"), OverTime((2, 80), "a")]

    point = summarize(Setting(Strategy.SIMPLE), measured)

    assert point.median == OverTime((2, 30), "a")
    assert (point.low.messages, point.high.messages) == ((1, 10), (3, 80))
    assert point.mean == OverTime((2, 40), "a")
    document, row = point.as_json(), point.as_row()
    low, high = document["measures"]["messages"]["interval"]
    assert low == pytest.approx((2 - 2.48414, 40 - 89.5669), abs=1e-4)
    assert high == pytest.approx((2 + 2.48414, 40 + 89.5669), abs=1e-4)
    assert row["messages_margin"] == pytest.approx((2.48414, 89.5669), abs=1e-4)
    assert document["measures"]["verdict"] == {"median": "a", "low": "a", "high": "b"}
    assert "verdict_margin" not in row


def test_the_first_seeds_of_a_point_are_a_point_of_fewer_seeds() -> None:
    measured = [Measures(messages) for messages in (7, 1, 3, 20)]
    point = summarize(Setting(Strategy.SIMPLE), measured)

    fewer = point.first(3)

    assert fewer == summarize(Setting(Strategy.SIMPLE), measured[:3])
    assert (fewer.seeds, fewer.median, fewer.as_row()["seeds"]) == (3, Measures(3), 3)
    assert point.first(4) is point.first(10) is point


def test_one_seed_has_no_interval() -> None:
    point = summarize(Setting(Strategy.SIMPLE), [Measures(5)])

    assert point.interval is None
    assert point.as_json()["measures"]["messages"]["interval"] is None
    assert point.as_row()["messages_margin"] is None
    assert point.text(lambda m: m.messages, ".1f") == "5.0"


def test_an_interval_that_rounds_to_nothing_is_not_shown() -> None:
    point = summarize(Setting(Strategy.SIMPLE), [Measures(5.0), Measures(5.01)])

    assert point.text(lambda m: m.messages, ".0f") == "5"


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [
        *((1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (5, 2.57058), (9, 2.26216)),
        *((10, 2.22814), (29, 2.04523), (30, 2.04227), (100, 1.98397), (999, 1.96234)),
    ],
)
def test_quantiles_of_student(freedom: int, expected: float) -> None:
    """Against the printed tables of t for 97.5 %."""
    assert student_t(freedom) == pytest.approx(expected, rel=2e-6)


def test_an_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = random.Random("intervals")  # noqa: S311
    covered = 0
    for _ in range(4_000):
        values = [rng.gauss(10, 3) for _ in range(4)]
        covered += abs(statistics.fmean(values) - 10) <= margin(values)

    assert covered / 4_000 == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_settings_are_all_different(name: str) -> None:
    for quick in (False, True):
        settings = EXPERIMENTS[name].settings(quick=quick)

        assert len(set(settings)) == len(settings)


def test_locality_is_the_share_of_interests_in_the_own_region() -> None:
    def about_own_region(locality: float) -> float:
        rng = random.Random("locality")  # noqa: S311
        filters = [workload.interest(rng, 3, 16, locality) for _ in range(1000)]
        return sum("region = 3" in str(filter_) for filter_ in filters) / len(filters)

    assert about_own_region(1.0) == 1
    assert about_own_region(0.5) == pytest.approx(0.5 + 0.5 * about_own_region(0.0), abs=0.05)
    assert about_own_region(0.0) < 0.15


def test_every_event_is_offered_by_its_publisher() -> None:
    rng = random.Random("offers")  # noqa: S311
    for _ in range(100):
        event = workload.report(rng, 5)
        publisher = workload.publisher_of(str(event["service"]))

        offers = [workload.offer(5, each) for each in range(workload.PUBLISHERS)]
        assert [offer.matches(event) for offer in offers].index(True) == publisher
        assert not workload.offer(4, publisher).matches(event)
