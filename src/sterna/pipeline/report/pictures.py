"""The pictures of the report, as SVG whose colours are those of the page."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sterna.pipeline.report.gathering import OTHERS, Rows
from sterna.pipeline.report.plan import MapPlan
from sterna.pipeline.report.timeline import Slices, TimeAxis

INK, SOFT, GRID, PAGE, ACCENT, QUIET = (f"#01020{number}" for number in range(6))
SERIES = tuple(f"#01021{number}" for number in range(8))
"""Colours by which matplotlib draws, and which the page then gives a meaning."""

VARIABLES = {
    **dict(
        zip(
            (INK, SOFT, GRID, PAGE, ACCENT, QUIET),
            ("ink", "soft", "grid", "page", "accent", "quiet"),
            strict=True,
        )
    ),
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES)},
}
"""The variables of the style sheet that stand for them."""

WIDTH = 11.2
SMALL = 10
"""The smallest type, in points; the page shows a point as about 1.4 pixels."""
TICKS_MIN, TICKS_MAX = 3, 11
"""How many lengths of time are needed, and fit, below an axis."""
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
def picture(
    columns: int = 1, height: float = 3.6, **layout: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Panels side by side; at the end the picture is in `svg`, the same each time."""
    import matplotlib as mpl  # noqa: PLC0415 - only needed here, and not installed by default.

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    with mpl.rc_context(_SETTINGS):
        figure, grid = plt.subplots(
            1, columns, figsize=(WIDTH, height), squeeze=False, layout="constrained", **layout
        )
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
        made = Figure(figure)
        try:
            yield made, list(grid.flat)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
            made.svg = _with_variables(text.getvalue())
        finally:
            plt.close(figure)


_SETTINGS: Any = {
    "svg.hashsalt": "sterna",
    "text.parse_math": False,  # Names of places and brokers are no formulas.
    "svg.fonttype": "none",
    "font.size": 10.5,
    "font.family": "sans-serif",
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10.5,
    "legend.fontsize": SMALL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "axes.edgecolor": SOFT,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}


def _with_variables(svg: str) -> str:
    """The picture with the colours and the type of the page."""
    svg = svg[svg.index("<svg") :]
    for colour, name in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    svg = re.sub(r"font-family: [^;\"]*", "font-family: var(--type)", svg)
    # Earlier releases of matplotlib write all about the type in one.
    return re.sub(r"font: ([^;\"]*?)([\d.]+px) [^;\"]*", r"font: \1\2 var(--type)", svg)


def traffic(rows: Rows) -> str:
    """Events per link over time, with gaps where nothing happened."""
    slices = Slices(rows, "link")
    total = {name: sum(values.values()) for name, values in slices.values_of("events").items()}
    order = sorted(total, key=lambda name: (name == OTHERS, -total[name], name))
    with _over_time(slices, 4.0) as (made, axis):
        for number, name in enumerate(order):
            colour = QUIET if name == OTHERS else SERIES[number % len(SERIES)]
            label = f"{name}  ({total[name]:,})"
            axis.line(slices, name, "events", colour=colour, label=label, per_second=True)
        axis.label("events per second")
        axis.legend("link  (events)")
    return made.svg


def handover_steps(rows: Rows) -> str:
    """How many handovers began, met and ended, over time."""
    slices = Slices(rows, "kind")
    with _over_time(slices, 3.2) as (made, axis):
        for number, (kind, words) in enumerate(_STEPS.items()):
            values = slices.values_of("count").get(kind)
            if values:
                label = f"{words}  ({sum(values.values()):,})"
                axis.line(slices, kind, "count", colour=SERIES[number], label=label)
        axis.label(f"handovers in {slices.slice_in_words}")
        axis.legend("")
    return made.svg


_STEPS = {"started": "started", "junction": "old and new way met", "finished": "finished"}


def waits(rows: Rows) -> str:
    """How long handovers and first events took: the part that was done by then."""
    with picture(1, 3.4) as (made, [axes]):
        parts = [part / 100 for part in range(101)]
        for number, row in enumerate(sorted(rows, key=lambda row: str(row["name"]))):
            seconds = [max(each, 1e-6) for each in row["seconds"]]
            middle = _seconds(row["seconds"][50])
            label = f"{row['name']}  ({row['count']:,}; half within {middle})"
            axes.plot(seconds, parts, color=SERIES[number % len(SERIES)], lw=2, label=label)
        axes.set(xscale="log", ylim=(0, 1.02), ylabel="part done by then")
        _durations(axes)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
        _grid(axes)
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
        from matplotlib.patches import Polygon  # noqa: PLC0415 - only needed here.

        for place, corners in plan.outlines.items():
            shade = 0.08 + 0.8 * (counts[place] / most) ** 0.5
            cell = {"facecolor": ACCENT, "edgecolor": PAGE, "alpha": shade}
            axes.add_patch(Polygon(corners, lw=0.6, zorder=1, **cell))
        for place in counts if not plan.outlines else ():
            size = 60 + 440 * (counts[place] / most)
            axes.scatter(*plan.points[place], s=size, c=ACCENT, edgecolor=PAGE, zorder=3)
        _arrows(axes, moves, plan)
        busiest = sorted(counts, key=lambda place: -counts[place])[:PLACES_LABELLED_MAX]
        for place in busiest if plan.are_named else ():
            axes.annotate(
                place,
                plan.points[place],
                xytext=(0, 0 if plan.outlines else 19),
                textcoords="offset points",
                fontsize=SMALL,
                ha="center",
                va="center",
                zorder=4,
                bbox={"boxstyle": "round,pad=0.15", "fc": PAGE, "ec": "none", "alpha": 0.75},
            )
        axes.set_aspect(plan.aspect)
        axes.autoscale_view()
        axes.margins(0.05)
        axes.set_axis_off()
    return made.svg


def dwell(rows: Rows) -> str:
    """How long clients stay at the most visited places."""
    rows = sorted(rows, key=lambda row: row["count"])
    with picture(1, 1.0 + 0.34 * len(rows)) as (made, [axes]):
        for number, row in enumerate(rows):
            low, lower, middle, upper, high = (
                max(row[f"p{part}_s"], 1e-3) for part in (10, 25, 50, 75, 90)
            )
            axes.plot([low, high], [number] * 2, color=QUIET, lw=2.5, zorder=1)
            axes.plot([lower, upper], [number] * 2, color=ACCENT, lw=8, zorder=2)
            axes.plot(middle, number, "o", color=PAGE, ms=5, zorder=3)
        axes.set(
            xscale="log",
            xlabel="from 10 % to 90 % of all stays; bold: the middle half; dot: the median",
        )
        _durations(axes)
        labels = [f"{row['place']}  ({row['count']:,})" for row in rows]
        axes.set_yticks(range(len(rows)), labels)
        axes.grid(which="major", axis="x")
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
    with picture(2, 3.8) as (made, [left, right]):
        for number, name in enumerate(names):
            first, three = right_at[name]
            left.barh(number, three, color=QUIET, label="one of three" if not number else None)
            left.barh(number, first, color=ACCENT, label="first guess" if not number else None)
            left.text(three + 0.01, number, f"{first:.0%} / {three:.0%}", va="center")
        left.set_yticks(range(len(names)), names)
        left.set(title="How often the next place is right", xlim=(0, 1.15))
        left.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        left.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=2)
        bins = sorted(
            (row for row in own if row["predictor"] == "blended"), key=lambda row: row["bin"]
        )
        most = max((row["steps"] for row in bins), default=1)
        right.plot([0, 1], [0, 1], color=SOFT, lw=1, ls="--", label="as sure as right")
        right.plot(
            [row["probability"] for row in bins],
            [row["hits_at_1"] / row["steps"] for row in bins],
            color=SERIES[1],
            lw=1.2,
        )
        right.scatter(
            [row["probability"] for row in bins],
            [row["hits_at_1"] / row["steps"] for row in bins],
            s=[15 + 120 * row["steps"] / most for row in bins],
            color=SERIES[1],
            zorder=3,
            label="blended",
        )
        right.set(title="Calibration", xlabel="probability of the first guess", xlim=(0, 1))
        right.set(ylabel="how often it is right", ylim=(0, 1))
        right.legend(loc="upper left")
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
                "color": SERIES[1],
                "alpha": 0.15 + 0.7 * share**0.5,
                "lw": 0.4 + 2.2 * share**0.5,
                "shrinkA": 4,
                "shrinkB": 4,
            },
            zorder=2,
        )


@contextmanager
def _over_time(slices: Slices, height: float) -> Iterator[tuple[Figure, TimeAxis]]:
    """A picture whose panels are the times in which something happened."""
    spans = slices.spans()
    widths = [max(span.seconds, 0.12 * sum(each.seconds for each in spans)) for span in spans]
    with picture(len(spans), height, width_ratios=widths, sharey=True) as (made, panels):
        axis = TimeAxis(panels, spans, widths)
        yield made, axis
        axis.finish(grid=GRID, soft=SOFT)


def _grid(axes: Axes) -> None:
    axes.grid(which="major")


def _durations(axes: Axes) -> None:
    """Label a logarithmic axis of seconds with lengths of time that people use."""
    from matplotlib.ticker import MaxNLocator, NullLocator  # noqa: PLC0415 - only needed here.

    low, high = axes.get_xlim()
    choices = [
        [seconds * length for seconds, lengths in _UNITS for length in lengths[each]]
        for each in range(3)
    ]
    within = [[tick for tick in ticks if low <= tick <= high] for ticks in choices]
    fitting = [ticks for ticks in within if TICKS_MIN <= len(ticks) <= TICKS_MAX]
    if fitting:
        axes.set_xticks(fitting[-1])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(lambda value, _: _seconds(value))
    axes.xaxis.set_minor_locator(NullLocator())


_TENS = ((1,), (1, 10, 100), (1, 2, 5, 10, 20, 50, 100, 200, 500))
_UNITS: tuple[tuple[float, tuple[tuple[float, ...], ...]], ...] = (
    (1e-6, _TENS),
    (1e-3, _TENS),
    (1, ((1,), (1, 10), (1, 2, 5, 10, 20, 30))),
    (60, ((1,), (1, 10), (1, 2, 5, 10, 20, 30))),
    (3600, ((1,), (1, 6), (1, 2, 3, 6, 12))),
    (86400, ((1, 10, 100), (1, 10, 100), (1, 2, 5, 10, 20, 50, 100))),
)
"""Units in seconds, and how many of them are labelled: few, some, and many."""


def _seconds(value: float) -> str:
    """A length of time in the unit that people use for it."""
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3)):
        if value >= seconds:
            return f"{value / seconds:.3g} {unit}"
    return f"{value * 1e6:.3g} µs" if value else "0"
