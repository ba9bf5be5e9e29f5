"""What is said of Burcea's figures, checked with measures that are made by hand."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sterna.experiments.burcea.experiment import BESIDE_SEEDS, CityExperiment
from sterna.experiments.burcea.measuring import Measures, Points
from sterna.experiments.burcea.settings import Setting
from sterna.experiments.experiment import Claim, PrintedTable, summarize
from sterna.experiments.registry import EXPERIMENTS

SEEDS = 10

Made = Callable[[Setting, int], dict[str, Any]]
"""What is measured with a setting and a seed, as far as it matters."""

SOME = Measures(
    **{
        field.name: (1.0,) * 36 if field.name.endswith("over_time") else 1.0
        for field in msgspec.structs.fields(Measures)
    }
)


def points(name: str, made: Made, *, quick: bool = False) -> Points:
    """The points of a full sweep, each with as many seeds as it would have."""
    experiment = EXPERIMENTS[name]
    assert isinstance(experiment, CityExperiment)
    found = []
    for setting in experiment.settings(quick=quick):
        count = experiment.seeds_max(setting) or SEEDS
        measured = [
            msgspec.structs.replace(SOME, **made(setting, seed)) for seed in range(1, count + 1)
        ]
        found.append(summarize(setting, measured))
    return found


def claim(name: str, words: str, made: Made, *, quick: bool = False) -> Claim:
    """The claim that has these words."""
    claims = EXPERIMENTS[name].claims(points(name, made, quick=quick))
    (found,) = (each for each in claims if words in each.paper)
    return found


def table(name: str, title: str, found: Points) -> PrintedTable:
    (chosen,) = (each for each in EXPERIMENTS[name].tables(found) if title in each.title)
    return chosen


def drifting(setting: Setting, seed: int) -> dict[str, Any]:
    """No setting changes anything, but later seeds have much more overhead."""
    del setting
    return {"overhead": 0.5 if seed <= BESIDE_SEEDS else 2.0}


# ---- Settings with fewer seeds


@pytest.mark.parametrize("name", ["burcea-commute", "burcea-random", "burcea-pervasive"])
def test_other_settings_are_compared_over_the_seeds_that_both_have(name: str) -> None:
    found = table(name, "What other settings change", points(name, drifting))

    assert {row[2] for row in found.rows} == {"50 %"}
    assert {row[1] for row in found.rows} > {"as usual"}
    assert f"the first {BESIDE_SEEDS} seeds" in found.note


def test_small_logs_are_compared_over_the_seeds_that_both_have() -> None:
    found = points("burcea-random", drifting)

    figure = table("burcea-random", "Figure 8", found)
    assert [row[0] for row in figure.rows] == ["800", "1,000", "1,200"]
    assert {cell for row in figure.rows for cell in row[1:]} == {"200%"}
    small = table("burcea-random", "Smaller logs", found)
    assert [row[0] for row in small.rows] == ["100", "200", "400", "800", "1,000", "1,200"]
    assert {row[1] for row in small.rows} == {"50%"}
    said = claim("burcea-random", "from 800 to 1,200 events", drifting).seen
    assert "with 100 and 800 subscribers it is 50%, with 1000 50%" in said


def test_subscriptions_on_the_device_are_compared_over_the_seeds_that_both_have() -> None:
    found = claim("burcea-pervasive", "on the device", drifting)

    assert "they save 0% with standard, 0% with logging" in found.seen
    assert not found.holds


def test_subscriptions_on_the_device_are_compared_at_the_same_population() -> None:
    def made(setting: Setting, seed: int) -> dict[str, Any]:
        del seed
        saved = {"standard": 0.32, "logging": 0.14}.get(setting.strategy, 0.0)
        used = 1 - saved if setting.subscriptions == "device" else 1
        return {"overhead": used * setting.subscribers / 1_000}

    found = claim("burcea-pervasive", "on the device", made)

    assert "they save 32% with standard, 14% with logging" in found.seen
    assert "200 subscribers); 0% with prefetching, which has nothing to save" in found.seen
    assert found.holds
