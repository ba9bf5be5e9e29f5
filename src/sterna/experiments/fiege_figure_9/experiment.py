"""The experiment of Figure 9: its settings, and what is measured."""

from pathlib import Path
from typing import Any

import msgspec

from sterna.core.location.steps import StepRule
from sterna.core.routing.options import Strategy
from sterna.experiments.experiment import Claim, Experiment, PrintedTable
from sterna.experiments.fiege_figure_9.claims import claims
from sterna.experiments.fiege_figure_9.formula import formula_messages
from sterna.experiments.fiege_figure_9.settings import (
    DEGREE,
    EXPECTED,
    TIMES,
    Measures,
    Points,
    Setting,
    Skew,
)
from sterna.experiments.fiege_figure_9.showing import draw, tables
from sterna.experiments.fiege_figure_9.simulation import run
from sterna.experiments.papers import FIEGE
from sterna.sim.topology import tree

CROWDS = {10: 10, 100: 4, 1000: 2}
"""The numbers of consumers, and how many seconds they are watched."""


class FiegeFigure9(Experiment[Setting, Measures]):
    name = "fiege-figure-9"
    about = "Messages with location-dependent filters against flooding, formula and simulation."
    takes = "about three minutes"
    seeds = 1
    paper = FIEGE

    def settings(self, *, quick: bool) -> list[Setting]:
        ceil, safe = StepRule.CEIL, StepRule.SAFE
        checked = Setting(rule=ceil, dwell_s=1, strategy=Strategy.FLOODING, levels=4, seconds=2,
                          run_s=2)  # fmt: skip
        if quick:
            return [
                Setting(rule=ceil, dwell_s=10, seconds=10, run_s=10),
                *(Setting(rule=ceil, dwell_s=1, seconds=t, run_s=4) for t in (2, 4)),
                *(
                    Setting(rule=ceil, dwell_s=1, consumers=consumers, skew=skew, strategy=strategy,
                            rate=0.1, levels=4, seconds=2, run_s=2)
                    for skew in (Skew.NONE, Skew.BOTH)
                    for consumers in (5, 40)
                    for strategy in (Strategy.SIMPLE, Strategy.COVERING)
                ),
                checked,
            ]  # fmt: skip
        one = [
            Setting(rule=ceil, dwell_s=dwell_s, seconds=t, run_s=TIMES[-1])
            for dwell_s in EXPECTED
            for t in TIMES
        ]
        one += [Setting(rule=safe, dwell_s=dwell_s, seconds=10, run_s=10) for dwell_s in EXPECTED]
        crowds = [
            Setting(rule=ceil, dwell_s=dwell_s, consumers=consumers, skew=skew,
                    strategy=strategy, rate=0.1, seconds=CROWDS[consumers],
                    run_s=CROWDS[consumers])
            for dwell_s, skew, counts in (
                (10, Skew.NONE, (10, 100, 1000)),
                (10, Skew.EVENTS, (100,)),
                (10, Skew.BOTH, (100, 1000)),
                (1, Skew.NONE, (10, 100, 1000)),
            )
            for consumers in counts
            for strategy in (Strategy.SIMPLE, Strategy.COVERING)
            # Simple routing sends each move over each link, which is known without a run.
            if not (strategy is Strategy.SIMPLE and consumers == 1000)
        ]  # fmt: skip
        return [*one, *crowds, checked]

    def measure(self, setting: Setting, seed: int) -> Measures:
        series = run(self.together(setting), seed)
        topology = tree(DEGREE, setting.levels)
        published = series.published[setting.seconds - 1]
        flooding = published * len(topology.links)
        charged = series.charged[setting.seconds - 1]
        events = series.events[setting.seconds - 1]
        control = series.control[setting.seconds - 1]
        moves = series.moves[setting.seconds - 1]
        usual = flooding / setting.rate
        formula = formula_messages(setting) if setting.consumers == 1 else 0.0
        owed = len(series.owed)
        return Measures(
            flooding=flooding,
            formula=formula,
            charged=charged,
            events=events,
            control=control,
            formula_ratio=formula / flooding,
            charged_ratio=(charged + control) / flooding if setting.consumers == 1 else 0.0,
            event_ratio=events / flooding,
            control_ratio=control / usual,
            real_ratio=events / flooding + control / usual,
            control_per_move=control / max(1, moves),
            entries=series.entries,
            missed_share=len(series.owed - series.received) / owed if owed else 0.0,
        )

    def together(self, setting: Setting) -> Setting:
        return msgspec.structs.replace(setting, seconds=setting.run_s)

    def work(self, setting: Setting) -> float:
        return setting.run_s * setting.rate * float(DEGREE) ** setting.levels

    def claims(self, points: Points) -> list[Claim]:
        return claims(points)

    def tables(self, points: Points) -> list[PrintedTable]:
        return tables(points)

    def summary(self, points: Points) -> dict[str, Any]:
        del points
        return {"expected": {f"{dwell_s} s": ratio for dwell_s, ratio in EXPECTED.items()}}

    def draw(self, points: Points, path: Path) -> None:
        draw(points, path)
