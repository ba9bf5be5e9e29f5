"""What the pictures of experiments have in common."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sterna.experiments.experiment import M, Point, S
from sterna.extras import require

Axes = Any
"""A matplotlib axes object; matplotlib has no types."""

FORMATS = (".svg", ".png")
DPI = 150
"""The resolution of bitmaps."""


@contextmanager
def panels(path: Path, rows: int, columns: int, size: tuple[float, float]) -> Iterator[list[Axes]]:
    """Panels to draw in, row by row; the picture is written at the end, the same each time.

    It is written in each of `FORMATS`, whatever the suffix of the path.
    """
    require("plots", "drawing")
    import matplotlib as mpl  # noqa: PLC0415 - only needed here, and not installed by default.

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "sterna"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False)
    try:
        axes = list(grid.flat)
        yield axes
        for each in axes:
            each.grid(which="major", alpha=0.3)
            each.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        for suffix in FORMATS:
            metadata = {"Date": None} if suffix == ".svg" else None
            figure.savefig(path.with_suffix(suffix), metadata=metadata, dpi=DPI)
    finally:
        plt.close(figure)


def error_bars(
    axes: Axes,
    where: Sequence[float],
    points: Sequence[Point[S, M]],
    measure: Callable[[M], float],
    colour: str,
) -> None:
    """Draw the confidence intervals of points at these places; none with one seed."""
    for x, point in zip(where, points, strict=True):
        if point.interval is not None:
            ends = [measure(end) for end in point.interval]
            axes.plot([x, x], ends, "_-", color=colour, linewidth=1, markersize=6, alpha=0.8)


def plain_ticks(axes: Axes) -> None:
    """Label a logarithmic axis with plain numbers: 0, 1, 2, 5, 10, as far as it reaches."""
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    low, high = axes.get_ylim()
    steps = [digit * 10.0**power for power in range(7) for digit in (1, 2, 5)]
    shown = [step for step in (0.0, *steps) if low <= step <= high]
    axes.set_yticks(shown, [f"{step:,g}" for step in shown])
    axes.minorticks_off()
