"""What all experiments have in common."""

import random

import msgspec
import pytest

from sterna.core.routing.options import Strategy
from sterna.experiments import workload
from sterna.experiments.experiment import summarize
from sterna.experiments.registry import EXPERIMENTS


class Setting(msgspec.Struct, frozen=True):
    strategy: Strategy


class Measures(msgspec.Struct, frozen=True):
    messages: float


def test_several_seeds_make_a_median_and_a_range() -> None:
    measured = [Measures(messages) for messages in (7, 1, 3)]

    point = summarize(Setting(Strategy.SIMPLE), measured)

    assert (point.median, point.low, point.high) == (Measures(3), Measures(1), Measures(7))
    assert point.as_json() == {
        "strategy": "simple",
        "measures": {"messages": {"median": 3, "low": 1, "high": 7}},
    }


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
