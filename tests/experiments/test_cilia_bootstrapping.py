"""The bootstrapping experiment: who knows the state of a light when, and what is counted."""

import statistics

import pytest

from sterna.core.names import Time
from sterna.experiments.cilia_bootstrapping.experiment import CiliaBootstrapping
from sterna.experiments.cilia_bootstrapping.settings import LINK_MS, Measures, Setting, Way
from sterna.experiments.cilia_bootstrapping.town import Drive, Town
from sterna.experiments.experiment import Point, summarize

pytestmark = pytest.mark.spec("PA-5")

Points = list[Point[Setting, Measures]]


@pytest.fixture(scope="module")
def points() -> Points:
    """All quick settings. The oracle has judged them, or there would be an error."""
    experiment = CiliaBootstrapping()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


def driven(way: Way) -> list[Time | None]:
    drive = Drive(Town(Setting(way=way, speed_kmh=50, minutes=1), 1))
    drive.run()
    return drive.times()


def test_all_that_is_claimed_holds(points: Points) -> None:
    claims = CiliaBootstrapping().claims(points)

    assert [claim.paper for claim in claims if not claim.holds] == []
    assert len(CiliaBootstrapping().tables(points)) == 2


@pytest.mark.spec("PA-4")
def test_no_car_knows_later_than_without_a_past() -> None:
    stay = Setting(way=Way.PLAIN, speed_kmh=50).stay_us
    plain, past, both = (
        [stay if time is None else time for time in driven(way)]
        for way in (Way.PLAIN, Way.PAST, Way.BOTH)
    )

    assert len(plain) == len(past) == len(both) > 50
    assert all(mine <= its for mine, its in zip(past, plain, strict=True))
    assert all(mine <= its for mine, its in zip(both, past, strict=True))
    assert statistics.mean(both) < statistics.mean(past) < statistics.mean(plain)


def test_requests_take_as_many_round_trips_as_they_need() -> None:
    """A car is welcome first; then its request goes to a light and back, or to a directory, too."""
    event, request = (
        [time for time in driven(way) if time is not None] for way in (Way.EVENT, Way.REQUEST)
    )
    longest = 2 * LINK_MS * 1000 * 6  # Up to the root, down to another leaf, and to a client.

    assert statistics.median(event) < statistics.median(request)
    assert max(event) <= 2 * longest
    assert max(request) <= 3 * longest


def test_predictions_are_as_often_right_as_the_settings_say() -> None:
    for quality in (0.0, 0.5, 1.0):
        town = Town(Setting(way=Way.BOTH, speed_kmh=50, quality=quality, minutes=20), 1)
        right = [
            (time, place) in town.expected[car]
            for car, route in town.routes.items()
            for time, place in route[1:]
        ]
        assert statistics.mean(right) == pytest.approx(quality, abs=0.05)
