"""What is said of Burcea's figures, checked with measures that are made by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sterna.experiments.burcea.analysis import ModelMeasures
from sterna.experiments.burcea.experiment import BESIDE_SEEDS, CityExperiment
from sterna.experiments.burcea.measuring import Measures, Points
from sterna.experiments.burcea.settings import Setting
from sterna.experiments.experiment import Claim, PrintedTable, summarize
from sterna.experiments.registry import EXPERIMENTS

pytestmark = pytest.mark.spec("DO-8")

SEEDS = 7

Made = Callable[[Setting, int], dict[str, Any]]
"""What is measured with a setting and a seed, as far as it matters."""

SOME = msgspec.convert(
    {
        field.name: (1.0,) * 36 if field.name.endswith("over_time") else 1.0
        for field in msgspec.structs.fields(Measures)
    },
    Measures,
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


# ---- Home-brokers (Figs. 4 and 5)


def commuting(setting: Setting, seed: int) -> dict[str, Any]:
    """As measured with 800 subscribers: the busiest ten minutes begin at 18:40."""
    del seed
    usual = {"still": 27.6 * 100 * 60 * setting.hours, "own_peak_overhead": 9.0, "way": 5.4}
    if setting.strategy != "home":
        over_time = (0.0,) * 12 + (2.0,) * 15 + (0.0,) * 9
        return {**usual, "transfer_over_time": over_time, "back_overhead": 0.0}
    over_time = (0.0,) * 12 + (9.0,) * 10 + (22.0,) + (20.0,) * 4 + (16.5,) * 9
    return {
        **usual,
        "own_overhead": 8.0,
        "transfer_over_time": over_time,
        "busiest_overhead": 22.0,
        "back_overhead": 16.5,
    }


def test_the_peak_of_home_brokers_is_explained_by_what_was_measured() -> None:
    many = claim("burcea-commute", "home-broker's peak is more than 25 times", commuting)
    often = claim("burcea-commute", "home-broker's peak is more than four times", commuting)

    assert not many.holds
    assert many.why.startswith(
        "A regular event goes over 27.6 links. With all at home, one is forwarded to about 84 "
        "subscribers over 5.4 links each: 455 hops, 16.5 times as many. The busiest ten minutes "
        "begin at 18:40, with 22.0 times the regular messages without moves: then"
    )
    assert not often.holds
    assert "begin at 18:40, with 22.0 times" in often.why
    assert often.why.endswith("from 19:30 on, with all at home, it is 16.5 times.")


def test_strategies_cost_the_same_if_all_their_messages_are_as_many() -> None:
    words = "once all are back three strategies cost the same"
    assert claim("burcea-commute", words, commuting).holds

    def other_routes(setting: Setting, seed: int) -> dict[str, Any]:
        """Standard has more regular messages for good, but no more state transfer."""
        more = {"regular_over_time": (1.2,) * 36} if setting.strategy == "standard" else {}
        return commuting(setting, seed) | more

    def alike(setting: Setting, seed: int) -> dict[str, Any]:
        return commuting(msgspec.structs.replace(setting, strategy="standard"), seed)

    found = claim("burcea-commute", words, other_routes)
    assert "standard 1.20, prefetching 1.00, logging 1.00, home 17.50" in found.seen
    assert not found.holds
    assert not claim("burcea-commute", words, alike).holds


# ---- Other figures


def test_the_paper_is_not_made_to_say_more_than_it_does() -> None:
    claims = EXPERIMENTS["burcea-random"].claims(points("burcea-random", drifting))

    assert not [each for each in claims if "best anywhere" in each.paper]


def shares(**by_strategy: float) -> Made:
    return lambda setting, _seed: {"subscription_share": by_strategy.get(setting.strategy, 0.0)}


def test_logging_has_a_message_more_for_each_handover() -> None:
    made = shares(standard=0.5, logging=3 / 7, prefetching=0.5)

    found = claim("burcea-pervasive", "about 60 % of state transfer", made)

    assert not found.holds
    assert "three of the six messages" in found.why
    assert "Logging has a seventh" in found.why


def test_a_share_that_is_about_the_same_is_not_higher() -> None:
    words = "even higher with prefetching"
    same = claim("burcea-pervasive", words, shares(standard=0.5, logging=0.43, prefetching=0.505))
    higher = claim("burcea-pervasive", words, shares(standard=0.5, logging=0.43, prefetching=0.53))

    assert (same.holds, higher.holds) == (False, True)
    assert "three messages of six" in same.why
    assert "50% of the hops; 50%, 43% with standard and logging" in same.seen


def localities(*logging: float, prefetching: float = 100.0) -> Made:
    """State transfer with logging, by the share of subscribers that want the same."""

    def made(setting: Setting, seed: int) -> dict[str, Any]:
        del seed
        if setting.locality is None or setting.strategy != "logging":
            return {"transfer": prefetching}
        return {"transfer": logging[round(4 * setting.locality)]}

    return made


def test_logging_costs_the_less_the_more_want_the_same_at_every_share() -> None:
    words = "the more subscribers want the same, the less logging costs"
    falling = claim("burcea-random", words, localities(900.0, 700.0, 500.0, 300.0, 110.0))
    rising = claim("burcea-random", words, localities(900.0, 1_200.0, 950.0, 300.0, 110.0))

    assert (falling.holds, rising.holds) == (True, False)
    assert "with 0%, 25%, 50%, 75%, 100% that want the same, logging takes 900, " in falling.seen


def test_logging_matches_prefetching_if_it_costs_about_as_much() -> None:
    """However few messages of state transfer there are beside the regular ones."""
    words = "with enough locality logging matches prefetching"
    near = claim("burcea-random", words, localities(9.0, 7.0, 5.0, 3.0, 1.1, prefetching=1.0))
    far = claim("burcea-random", words, localities(9.0, 7.0, 5.0, 3.0, 1.3, prefetching=1.0))

    assert (near.holds, far.holds) == (True, False)
    assert near.seen.endswith("prefetching 1: 1.10 times as many")


def test_one_large_log_is_not_compared_with_itself() -> None:
    claims = EXPERIMENTS["burcea-random"].claims(points("burcea-random", drifting, quick=True))

    assert not [each for each in claims if "Fig. 8" in each.paper]
    assert claim("burcea-random", "Fig. 8", drifting).holds


# ---- Pictures


@pytest.mark.parametrize(
    ("name", "bars"),
    [
        ("burcea-commute", 2 * 16),
        ("burcea-random", 16 + (5 + 3 * 2) + (3 * 4 + 6)),
        ("burcea-pervasive", 2 * 16),
        ("burcea-covering", 5 * 4),
    ],
)
def test_pictures_have_error_bars(
    name: str, bars: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each point in a figure; none with one seed."""
    drawn = _bars(monkeypatch)
    measures = ("overhead", "peak_overhead", "transfer", "subscription_share")
    found = points(name, lambda _, seed: dict.fromkeys(measures, float(seed)))
    EXPERIMENTS[name].draw(found, tmp_path / name)

    assert len(drawn) == bars
    assert all(low < high for low, high in drawn)
    drawn.clear()
    EXPERIMENTS[name].draw([point.first(1) for point in found], tmp_path / name)
    assert not drawn


def _bars(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """What is drawn as an error bar from now on: the lower and the upper end."""
    drawn: list[tuple[float, float]] = []
    plot = Axes.plot

    def watched(axes: Any, *given: Any, **how: Any) -> Any:
        if "_-" in given:
            drawn.append(tuple(given[1]))
        return plot(axes, *given, **how)

    monkeypatch.setattr(Axes, "plot", watched)
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)
    return drawn


def test_the_picture_of_the_model_has_error_bars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = _bars(monkeypatch)
    model = EXPERIMENTS["burcea-model"]
    names = [field.name for field in msgspec.structs.fields(ModelMeasures)]
    found = [
        summarize(
            setting,
            [msgspec.convert(dict.fromkeys(names, seed), ModelMeasures) for seed in (1.0, 2.0)],
        )
        for setting in model.settings(quick=False)
    ]

    model.draw(found, tmp_path / "model")

    assert len(drawn) == len(found)
