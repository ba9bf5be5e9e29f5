"""`burcea-covering`: what covering and advertisements save of the cost of mobility (5.2.5)."""

from pathlib import Path
from typing import Any

from sterna.core.routing.options import Strategy
from sterna.experiments.burcea.experiment import CityExperiment
from sterna.experiments.burcea.measuring import Measures, Points
from sterna.experiments.burcea.settings import (
    POPULATIONS,
    SCENARIOS,
    Scenario,
    Setting,
)
from sterna.experiments.burcea.showing.curves import COLOURS, percent
from sterna.experiments.experiment import Claim, Point, PrintedTable
from sterna.experiments.plot import error_bars, panels

WAYS = {
    "simple": {"routing": Strategy.SIMPLE, "advertisements": False},
    "covering": {"routing": Strategy.COVERING, "advertisements": False},
    "advertisements": {"routing": Strategy.SIMPLE, "advertisements": True},
    "both": {"routing": Strategy.COVERING, "advertisements": True},
}
CASES = (
    (Scenario.RANDOM, POPULATIONS[-1], ("standard", "prefetching")),
    (Scenario.COMMUTE, POPULATIONS[0], ("standard",)),
    (Scenario.PERVASIVE, POPULATIONS[0], ("standard", "prefetching")),
)
"""What is tried; the paper names the random scenario with 800 subscribers."""
QUICK: dict[Scenario, dict[str, Any]] = {
    Scenario.COMMUTE: {"publishers": 20, "hours": 4.5},
    Scenario.RANDOM: {"publishers": 20, "hours": 1.0},
}
LITTLE = 0.05
"""A change of state transfer by less than this is negligible."""


class BurceaCovering(CityExperiment):
    name = "burcea-covering"
    about = "What covering and advertisements save of the cost of mobility (Burcea, 5.2.5)."
    takes = "about ten minutes on two cores with 3 seeds"
    seeds = 3

    def seeds_max(self, setting: Setting) -> int | None:
        del setting
        return None  # All of them are compared with each other.

    def settings(self, *, quick: bool) -> list[Setting]:
        if quick:
            return [
                SCENARIOS[scenario](strategy, 40, **given, **way)
                for scenario, given in QUICK.items()
                for strategy in ("standard",)
                for way in WAYS.values()
            ]
        return [
            SCENARIOS[scenario](strategy, count, **way)
            for scenario, count, strategies in CASES
            for strategy in strategies
            for way in WAYS.values()
        ]

    def claims(self, points: Points) -> list[Claim]:
        found = _found(points)
        made = []
        for (scenario, strategy), by_way in found.items():
            if strategy != "standard":
                continue
            saved = _saved(by_way)
            is_claimed = scenario is not Scenario.PERVASIVE
            words = ", ".join(f"{way} {percent(share)}" for way, share in saved.items())
            share = percent(by_way["simple"].subscription_share)
            made.append(
                Claim(
                    f"Covering and advertisements have a negligible effect ({scenario})"
                    if is_claimed
                    else "Where subscriptions are most of state transfer, they may have one "
                    "(pervasive; the paper does not say)",
                    f"of state transfer with standard they save: {words}; subscriptions are "
                    f"{share} of it",
                    holds=(max(map(abs, saved.values())) < LITTLE) == is_claimed,
                )
            )
        return made

    def tables(self, points: Points) -> list[PrintedTable]:
        rows = []
        for (scenario, strategy), by_way in _found(points).items():
            for way, found in by_way.items():
                saved = _saved(by_way).get(way, 0.0)
                rows.append(
                    (
                        f"{scenario}, {strategy}",
                        way,
                        f"{found.transfer:,.0f}",
                        percent(saved),
                        percent(found.subscription_share),
                        f"{found.still:,.0f}",
                        percent(found.overhead),
                    )
                )
        head = ("scenario, strategy", "routing", "state transfer", "saved", "subscriptions",
                "regular, no moves", "overhead")  # fmt: skip
        note = (
            "Hops between brokers. Saved: of the state transfer with simple routing. "
            "Advertisements save regular messages, too, so the overhead may even grow."
        )
        return [PrintedTable("Covering and advertisements (5.2.5)", head, rows, note)]

    def draw(self, points: Points, path: Path) -> None:
        found = _points(points)
        with panels(path, 1, 1, (7, 4.8)) as (axes,):
            for place, by_way in enumerate(found.values()):
                simple = by_way["simple"].median.transfer

                def height(measured: Measures, simple: float = simple) -> float:
                    return 100 * measured.transfer / simple

                for number, (way, point) in enumerate(by_way.items()):
                    where = place + 0.2 * (number - 1.5)
                    axes.bar(where, height(point.median), 0.18,
                             color=list(COLOURS.values())[number],
                             label=None if place else way)  # fmt: skip
                    error_bars(axes, [where], [point], height, "#222222")
            axes.set_xticks(range(len(found)), [f"{a}\n{b}" for a, b in found], fontsize=8)
            axes.set(ylabel="% of state transfer with simple routing", ylim=(0, 118),
                     title="Covering and advertisements (5.2.5)")  # fmt: skip
            axes.legend(frameon=False, fontsize=8, ncols=4)


def _found(points: Points) -> dict[tuple[Scenario, str], dict[str, Measures]]:
    return {
        case: {way: point.median for way, point in by_way.items()}
        for case, by_way in _points(points).items()
    }


def _points(points: Points) -> dict[tuple[Scenario, str], dict[str, Point[Setting, Measures]]]:
    found: dict[tuple[Scenario, str], dict[str, Point[Setting, Measures]]] = {}
    for point in points:
        setting = point.setting
        used = {"routing": setting.routing, "advertisements": setting.advertisements}
        (way,) = (name for name, each in WAYS.items() if each == used)
        found.setdefault((setting.scenario, setting.strategy), {})[way] = point
    return found


def _saved(by_way: dict[str, Measures]) -> dict[str, float]:
    simple = by_way["simple"].transfer
    return {w: 1 - found.transfer / simple for w, found in by_way.items() if w != "simple"}
