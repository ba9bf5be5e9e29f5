"""The pictures of the report, as SVG."""

import io
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sterna.pipeline.report.gathering import Rows
from sterna.pipeline.report.plan import MapPlan

COLOURS = ("#0b6e99", "#c2571a", "#4d7f3a", "#8a5a9e", "#b8860b", "#5a7d8a", "#a0463c", "#6b6b3a")
OTHERS = "#8a8a8a"
WIDTH = 8.5
_MINUTE = 1 / 1440  # In days, as matplotlib counts.
PLACES_LABELLED_MAX = 30
MAPPED = 0.95
"""The share of all visits that the map shows."""

Axes = Any
"""A matplotlib axes object; matplotlib has no types."""


class Figure:
    """A figure, and then its SVG text."""

    def __init__(self, figure: Any) -> None:
        self.figure = figure
        self.svg = ""


@contextmanager
def picture(columns: int = 1, height: float = 3.2) -> Iterator[tuple[Figure, list[Axes]]]:
    """Panels side by side; at the end the picture is in `svg`, the same each time."""
    import matplotlib as mpl  # noqa: PLC0415 - only needed here, and not installed by default.

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "sterna"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, grid = plt.subplots(1, columns, figsize=(WIDTH, height), squeeze=False)
    made = Figure(figure)
    axes = list(grid.flat)
    try:
        yield made, axes
        for each in axes:
            each.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
        svg = text.getvalue()
        made.svg = svg[svg.index("<svg") :]
    finally:
        plt.close(figure)


def traffic(rows: Rows) -> str:
    """Events per link over time."""
    lines: dict[str, list[tuple[Any, float]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["time"]):
        lines[row["link"]].append((row["time"], row["events"] / row["slice_s"]))
    order = sorted(lines, key=lambda name: -sum(value for _, value in lines[name]))
    with picture() as (made, [axes]):
        for number, name in enumerate(order):
            colour = OTHERS if name == "all others" else COLOURS[number % len(COLOURS)]
            times, values = zip(*lines[name], strict=True)
            axes.plot(times, values, color=colour, lw=1.3, marker="o", ms=2.5, label=name)
        axes.set(ylabel="events per second", ylim=(0, None))
        _grid(axes)
        _dates(axes)
        axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))
    return made.svg


def handovers(steps: Rows | None, waits: Rows) -> str:
    """How many handovers there were, and how long they and clients took."""
    with picture(2) as (made, [left, right]):
        if steps:
            for number, kind in enumerate(sorted({row["kind"] for row in steps})):
                own = sorted((row["time"], row["count"]) for row in steps if row["kind"] == kind)
                times, counts = zip(*own, strict=True)
                colour = COLOURS[number % len(COLOURS)]
                left.plot(times, counts, color=colour, lw=1.3, marker="o", ms=2.5, label=kind)
            left.legend(fontsize=7, framealpha=0.85, edgecolor="none")
            _dates(left)
        else:
            _nothing(left)
        left.set(title="Steps of handovers", ylabel="count", ylim=(0, None))
        if waits:
            parts = [part / 100 for part in range(101)]
            for number, row in enumerate(sorted(waits, key=lambda row: str(row["name"]))):
                seconds = [max(each, 1e-6) for each in row["seconds"]]
                label = f"{row['name']} ({row['count']:,})"
                right.plot(
                    seconds, parts, color=COLOURS[number % len(COLOURS)], lw=1.5, label=label
                )
            right.set(xscale="log", ylim=(0, 1.02))
            right.legend(frameon=False, fontsize=7, loc="lower right")
        else:
            _nothing(right)
        right.set(title="How long they take", xlabel="seconds", ylabel="part done by then")
        _grid(left)
        _grid(right)
    return made.svg


def movement_map(moves: Rows, visits: Rows | None, where: Rows | None) -> str:
    """Places at their positions, darker with more visits, and the ways between them."""
    counts = {row["place"]: row["count"] for row in visits or []}
    for row in moves:
        counts.setdefault(row["origin"], 0)
        counts.setdefault(row["destination"], 0)
    counts = _most_of(counts)
    moves = [row for row in moves if row["origin"] in counts and row["destination"] in counts]
    plan = MapPlan.of(list(counts), where or [])
    most = max(counts.values(), default=1) or 1
    with picture(1, 6.0) as (made, [axes]):
        from matplotlib import colormaps  # noqa: PLC0415 - only needed here.
        from matplotlib.patches import Polygon  # noqa: PLC0415

        shades = colormaps["YlGnBu"]
        for place, corners in plan.outlines.items():
            shade = shades(0.08 + 0.8 * (counts[place] / most) ** 0.5)
            axes.add_patch(Polygon(corners, facecolor=shade, edgecolor="white", lw=0.6, zorder=1))
        if not plan.outlines:
            points = [plan.points[place] for place in counts]
            sizes = [30 + 220 * (counts[place] / most) for place in counts]
            shade = [shades(0.25 + 0.6 * (counts[place] / most) ** 0.5) for place in counts]
            axes.scatter(*zip(*points, strict=True), s=sizes, c=shade, edgecolor="white", zorder=3)
        _arrows(axes, moves, plan)
        busiest = sorted(counts, key=lambda place: -counts[place])[:PLACES_LABELLED_MAX]
        for place in busiest if plan.are_named else ():
            axes.annotate(
                place,
                plan.points[place],
                fontsize=7,
                ha="center",
                va="center",
                zorder=4,
                bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75},
            )
        axes.set_aspect(plan.aspect)
        axes.autoscale_view()
        axes.margins(0.05)
        axes.set_axis_off()
    return made.svg


def dwell(rows: Rows) -> str:
    """How long clients stay at the most visited places."""
    rows = sorted(rows, key=lambda row: row["count"])
    with picture(1, 1.2 + 0.28 * len(rows)) as (made, [axes]):
        for number, row in enumerate(rows):
            low, lower, middle, upper, high = (
                max(row[f"p{part}_s"], 1e-3) for part in (10, 25, 50, 75, 90)
            )
            axes.plot([low, high], [number] * 2, color="#9db8c4", lw=2, zorder=1)
            axes.plot([lower, upper], [number] * 2, color=COLOURS[0], lw=6, zorder=2)
            axes.plot(middle, number, "o", color="white", ms=4, zorder=3)
        axes.set(xscale="log", xlabel="seconds (10 % to 90 %, bold: the middle half, dot: median)")
        labels = [f"{row['place']}  ({row['count']:,})" for row in rows]
        axes.set_yticks(range(len(rows)), labels, fontsize=8)
        axes.grid(which="major", axis="x", alpha=0.3)
    return made.svg


def prediction(rows: Rows) -> str:
    """How often predictors were right, and whether their probabilities are justified."""
    own = [row for row in rows if row["held_out"] == "time"]
    names = sorted({row["predictor"] for row in own})
    right_at = {
        name: tuple(
            sum(row[f"hits_at_{count}"] for row in own if row["predictor"] == name)
            / sum(row["steps"] for row in own if row["predictor"] == name)
            for count in (1, 3)
        )
        for name in names
    }
    names.sort(key=lambda name: right_at[name])
    with picture(2, 3.4) as (made, [left, right]):
        for number, name in enumerate(names):
            first, three = right_at[name]
            left.barh(number, three, color="#9db8c4", label="one of three" if not number else None)
            left.barh(number, first, color=COLOURS[0], label="first guess" if not number else None)
            left.text(three + 0.01, number, f"{first:.0%} / {three:.0%}", va="center", fontsize=7)
        left.set_yticks(range(len(names)), names, fontsize=8)
        left.set(title="How often the next place is right", xlim=(0, 1.15))
        left.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        left.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.1), ncols=2)
        bins = sorted(
            (row for row in own if row["predictor"] == "blended"), key=lambda row: row["bin"]
        )
        most = max((row["steps"] for row in bins), default=1)
        right.plot([0, 1], [0, 1], color=OTHERS, lw=1, ls="--", label="as sure as right")
        right.plot(
            [row["probability"] for row in bins],
            [row["hits_at_1"] / row["steps"] for row in bins],
            color=COLOURS[1],
            lw=1.2,
        )
        right.scatter(
            [row["probability"] for row in bins],
            [row["hits_at_1"] / row["steps"] for row in bins],
            s=[15 + 120 * row["steps"] / most for row in bins],
            color=COLOURS[1],
            zorder=3,
            label="blended",
        )
        right.set(title="Calibration", xlabel="probability of the first guess", xlim=(0, 1))
        right.set(ylabel="how often it is right", ylim=(0, 1))
        right.legend(frameon=False, fontsize=8, loc="upper left")
        _grid(right)
    return made.svg


def _most_of(counts: dict[str, int]) -> dict[str, int]:
    """The places with nearly all visits; a few far away would make the others small."""
    enough, so_far = MAPPED * sum(counts.values()), 0
    found: dict[str, int] = {}
    for place in sorted(counts, key=lambda place: (-counts[place], place)):
        if found and so_far >= enough > 0:
            break
        found[place] = counts[place]
        so_far += counts[place]
    return found


def _arrows(axes: Axes, moves: Rows, plan: "MapPlan") -> None:
    """Draw ways, bent a little so that there and back are two."""
    most = max((row["count"] for row in moves), default=1)
    for row in moves:
        begin, end = plan.points[row["origin"]], plan.points[row["destination"]]
        share = row["count"] / most
        axes.annotate(
            "",
            end,
            begin,
            arrowprops={
                "arrowstyle": "-|>,head_length=0.3,head_width=0.15",
                "connectionstyle": "arc3,rad=0.15",
                "color": COLOURS[1],
                "alpha": 0.15 + 0.7 * share**0.5,
                "lw": 0.4 + 2.2 * share**0.5,
                "shrinkA": 4,
                "shrinkB": 4,
            },
            zorder=2,
        )


def _grid(axes: Axes) -> None:
    axes.grid(which="major", alpha=0.3)


def _dates(axes: Axes) -> None:
    from matplotlib import dates  # noqa: PLC0415 - only needed here.

    make: Any = dates  # It has no types.
    low, high = axes.dataLim.intervalx
    if high - low < _MINUTE:  # A single moment, around which matplotlib would show years.
        axes.set_xlim(low - _MINUTE, high + _MINUTE)
    locator = make.AutoDateLocator(minticks=3, maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(make.ConciseDateFormatter(locator))


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])
