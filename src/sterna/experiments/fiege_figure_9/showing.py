"""The tables and the figure of Figure 9."""

from collections.abc import Callable
from pathlib import Path

from sterna.core.location.steps import StepRule
from sterna.core.routing.options import Strategy
from sterna.experiments.experiment import PrintedTable
from sterna.experiments.fiege_figure_9.formula import formula
from sterna.experiments.fiege_figure_9.settings import (
    DEGREE,
    LEVELS,
    PRODUCERS,
    TIMES,
    Measures,
    Points,
    Skew,
    alone,
    crowded,
    dwells,
)
from sterna.experiments.plot import Axes, panels
from sterna.sim.topology import tree

SHOWN = (1, 10)
"""The times that are shown besides the last."""
COLOURS = {1: "#c2571a", 10: "#0b6e99"}
"""The colours, by the seconds that a consumer stays."""


def tables(points: Points) -> list[PrintedTable]:
    """All tables, in the order in which they are shown."""
    return [_over_time(points), _crowds(points)]


def draw(points: Points, path: Path) -> None:
    """Draw messages over time, and what more consumers change."""
    with panels(path, 1, 3, (16.5, 4.8)) as (left, middle, right):
        times = [0.5 * half for half in range(1, 2 * TIMES[-1] + 1)]
        per_second = PRODUCERS * DEGREE ** (LEVELS - 1) * len(tree(DEGREE, LEVELS).links)
        left.plot(times, [per_second * t for t in times], color="#8a8a8a", label="flooding")
        for dwell_s, colour in COLOURS.items():
            curve = [p for p in alone(points, StepRule.CEIL) if p.setting.dwell_s == dwell_s]
            stay = f"stays of {dwell_s} s"
            left.plot(times, [formula(StepRule.CEIL, dwell_s, t) for t in times], "-",
                      color=colour, label=f"{stay}: formula")  # fmt: skip
            seconds = [point.setting.seconds for point in curve]
            left.plot(seconds, [p.median.charged + p.median.control for p in curve], "o",
                      color=colour, markersize=5, label="simulated, charged alike")  # fmt: skip
            left.plot(seconds, [p.median.events + p.median.control for p in curve], "x",
                      color=colour, markersize=6, label="really sent")  # fmt: skip
        left.set(yscale="log", xlabel="seconds", ylabel="messages", xlim=(0, TIMES[-1] + 0.5),
                 ylim=(200, 6e7),
                 title="Figure 9: one consumer")  # fmt: skip
        left.legend(frameon=False, fontsize=7.5, ncols=2)
        _draw_shares(middle, points)
        _draw_control(right, points)


def _over_time(points: Points) -> PrintedTable:
    rows = []
    for rule in (StepRule.CEIL, StepRule.SAFE):
        for point in alone(points, rule):
            setting, median = point.setting, point.median
            if setting.seconds not in SHOWN and setting.seconds != setting.run_s:
                continue
            rows.append(
                (
                    f"{setting.dwell_s} s, {rule}",
                    f"{setting.seconds}",
                    f"{median.flooding:,.0f}",
                    f"{median.formula:,.0f} ({median.formula_ratio:.4f})",
                    f"{median.charged + median.control:,.0f} ({median.charged_ratio:.4f})",
                    f"{median.events + median.control:,.0f} ({median.real_ratio:.4f})",
                    f"{median.missed_share:.1%}",
                )
            )
    head = ("stay, rule", "t, s", "flooding", "formula", "charged", "sent", "missed")
    note = (
        "charged: for each event all links whose filter would let it through, as the paper counts, "
        "and control messages. sent: what went over links. In brackets: of flooding. missed: of "
        "what flooding delivers, in the whole run."
    )
    return PrintedTable("One consumer", head, rows, note)


def _crowds(points: Points) -> PrintedTable:
    rows = []
    for point in crowded(points):
        setting, median = point.setting, point.median
        rows.append(
            (
                f"{setting.dwell_s} s; {setting.skew}",
                f"{setting.consumers:,}",
                str(setting.strategy),
                f"{median.event_ratio:.4f}",
                f"{median.control_ratio:.5f}",
                f"{median.real_ratio:.4f}",
                f"{median.control_per_move:.1f}",
                f"{median.entries:.1f}",
            )
        )
    head = ("stay; skew", "consumers", "strategy", "events", "control", "together",
            "control per move", "entries per broker")  # fmt: skip
    note = (
        "What went over links, of flooding; the rule is ceil. skew: of events, or of both events "
        "and consumers, towards some places."
    )
    return PrintedTable("More consumers", head, rows, note)


def _draw_shares(axes: Axes, points: Points) -> None:
    """Draw what was really sent, over the number of consumers."""
    dwell_s = max(dwells(points))
    chosen = [
        point
        for point in points
        if point.setting.dwell_s == dwell_s
        and point.setting.skew is Skew.NONE
        and point.setting.rule is StepRule.CEIL
        and point.setting.seconds == point.setting.run_s
        and point.setting.strategy is not Strategy.FLOODING
        and point.setting.levels == crowded(points)[0].setting.levels
    ]
    curves: tuple[tuple[str, str, str, Strategy, Callable[[Measures], float]], ...] = (
        ("events", "#3a8f3a", "o-", Strategy.COVERING, lambda m: m.event_ratio),
        ("control, simple", "#222222", "s--", Strategy.SIMPLE, lambda m: m.control_ratio),
        ("control, covering", "#0b6e99", "o-", Strategy.COVERING, lambda m: m.control_ratio),
    )
    for label, colour, style, strategy, measure in curves:
        curve = sorted(
            (point.setting.consumers, measure(point.median))
            for point in chosen
            if point.setting.strategy is strategy or point.setting.consumers == 1
        )
        axes.plot(*zip(*curve, strict=True), style, color=colour, markersize=5, label=label)
    axes.set(xscale="log", yscale="log", xlabel="consumers", ylabel="of flooding",
             title=f"Messages really sent (stays of {dwell_s} s)")  # fmt: skip
    axes.legend(frameon=False, fontsize=8)


def _draw_control(axes: Axes, points: Points) -> None:
    crowds = crowded(points)
    links = len(tree(DEGREE, crowds[0].setting.levels).links)
    axes.axhline(links, color="#222222", linestyle="--", label="simple: each link")
    colours = iter(("#0b6e99", "#9b3a8f", "#c2571a"))
    for dwell_s in sorted(dwells(points), reverse=True):
        for skew in (Skew.NONE, Skew.BOTH):
            curve = sorted(
                (p.setting.consumers, p.median.control_per_move)
                for p in crowds
                if (p.setting.skew, p.setting.strategy, p.setting.dwell_s)
                == (skew, Strategy.COVERING, dwell_s)
            )
            if curve:
                what = f"stays of {dwell_s} s" + ", skewed" * (skew is Skew.BOTH)
                axes.plot(*zip(*curve, strict=True), "o-", color=next(colours), markersize=5,
                          label=f"covering, {what}")  # fmt: skip
    axes.set(xscale="log", xlabel="consumers", ylim=(0, 1.08 * links),
             title="Control messages for each move", ylabel="messages")  # fmt: skip
    axes.legend(frameon=False, fontsize=8, loc="lower left")
