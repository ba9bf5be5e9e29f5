"""`burcea-model`: the analytical model (Eqs. 1-5) beside the simulation."""

from pathlib import Path
from typing import Any

from sterna.core.routing.options import Strategy
from sterna.experiments.burcea.analysis import ModelExperiment, Points
from sterna.experiments.burcea.settings import STRATEGIES, Setting, commute, random
from sterna.experiments.burcea.showing.curves import COLOURS
from sterna.experiments.experiment import Claim, PrintedTable
from sterna.experiments.plot import error_bars, panels

NEAR = 0.05
"""The model is right if it is no further off, relatively."""


class BurceaModel(ModelExperiment):
    name = "burcea-model"
    about = "The analytical model of mobility's cost beside the simulation (Burcea, Eqs. 1-5)."
    takes = "about five minutes on two cores with 3 seeds"
    seeds = 3

    def settings(self, *, quick: bool) -> list[Setting]:
        if quick:
            given: dict[str, Any] = {"publishers": 20, "hours": 1.5}
            return [
                *(random(each, 40, **given) for each in STRATEGIES),
                random("standard", 40, routing=Strategy.COVERING, **given),
            ]
        covering = {"routing": Strategy.COVERING}
        return [
            *(random(each, 200) for each in STRATEGIES),
            *(commute(each, 200) for each in STRATEGIES),
            *(random("standard", count, **covering) for count in (200, 800)),
            commute("standard", 200, **covering),
        ]

    def claims(self, points: Points) -> list[Claim]:
        made = []
        for point in points:
            setting, found = point.setting, point.median
            where = f"{setting.scenario}, {setting.subscribers}, {setting.strategy}"
            where += f", {setting.routing}" * (setting.routing is not Strategy.SIMPLE)
            small = max(found.events_model, found.events_run) < 1  # A few in a thousand moves.
            made.append(
                Claim(
                    f"Eqs. 3-5 ({where})",
                    f"{found.events_model:.2f} events per move by the model, "
                    f"{found.events_run:.2f} in the run ({found.events_error:+.1%}); "
                    + _unknown_of_events(setting),
                    holds=abs(found.events_error) < NEAR or small,
                )
            )
            made.append(
                Claim(
                    f"Eq. 2 ({where})",
                    f"{found.subscriptions_model:.2f} messages per move by the model, "
                    f"{found.subscriptions_run:.2f} in the run; it does not know "
                    f"{found.others_run:.2f} others"
                    + " and what a leaving subscription uncovers"
                    * (setting.routing is Strategy.COVERING),
                    holds=abs(found.subscriptions_error) < NEAR,
                )
            )
            total_error = found.total_model / found.total_run - 1 if found.total_run else 0.0
            made.append(
                Claim(
                    f"Eq. 1 ({where})",
                    f"{found.total_model:.2f} messages per move by the model, "
                    f"{found.total_run:.2f} for subscriptions and events in the run "
                    f"({total_error:+.1%}), {found.total_run + found.others_run:.2f} with those "
                    "that it does not know",
                    holds=abs(total_error) < NEAR,
                )
            )
        return made

    def tables(self, points: Points) -> list[PrintedTable]:
        rows = []
        for point in points:
            setting, found = point.setting, point.median
            rows.append(
                (
                    f"{setting.scenario}, {setting.subscribers}",
                    f"{setting.strategy}, {setting.routing}",
                    f"{found.subscriptions_model:.2f} / {found.subscriptions_run:.2f}",
                    f"{found.events_model:.2f} / {found.events_run:.2f}",
                    f"{found.total_model:.2f} / {found.total_run:.2f}",
                    f"{found.others_run:.2f}",
                    f"{found.coverage_old:.2f} / {found.coverage_new:.2f}",
                    f"{found.t2_ms:.0f} ms / {found.t3_min:.1f} min / {found.t4_ms:.0f} ms",
                    f"{found.t4_run_ms:.0f} ms",
                )
            )
        head = ("scenario, subscribers", "strategy, routing", "Eq. 2: model / run",
                "Eqs. 3-5: model / run", "Eq. 1: model / run", "unknown to it",
                "coverage old / new", "t2 / t3 / t4", "t4, run")  # fmt: skip
        note = "Messages between border brokers for each move to another broker."
        return [PrintedTable("The model beside the simulation", head, rows, note)]

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 1, (7, 5)) as (axes,):
            for point in points:
                where = point.median.total_model, point.median.total_run
                colour = COLOURS[point.setting.strategy]
                axes.plot(*where, "o", color=colour)
                error_bars(axes, where[:1], [point], lambda m: m.total_run, colour)
                label = f" {point.setting.scenario}, {point.setting.strategy}"
                axes.annotate(label, where, fontsize=7)
            most = max(max(p.median.total_model, p.median.total_run) for p in points)
            axes.plot([1, most], [1, most], color="#8a8a8a", linewidth=1)
            axes.set(xscale="log", yscale="log", xlabel="by the model", ylabel="in the run",
                     title="Messages per move (Eq. 1)")  # fmt: skip


def _unknown_of_events(setting: Setting) -> str:
    if setting.strategy == "prefetching":
        return "t2 alone decides, so they are few"
    if setting.strategy == "logging":
        return "logged_events is estimated from who was where when, and from the size of the log"
    if setting.strategy == "home":
        return "all time away from home counts"
    return "all terms are known"
