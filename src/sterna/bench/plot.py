"""A picture of how matching scales."""

from pathlib import Path

from sterna.bench.match import Figures, MatchReport

COLOURS = {"index": "#0b6e99", "counting": "#c2571a", "brute force": "#8a8a8a"}


def plot_curve(report: MatchReport, path: Path) -> None:
    """Draw the time per event over the number of subscriptions, on logarithmic axes."""
    import matplotlib as mpl  # noqa: PLC0415 - only needed here, and not installed by default.

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "sterna"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    reports = [*report.curve, report]
    sizes = [each.subscriptions for each in reports]
    figure, axes = plt.subplots(figsize=(7, 4.2))
    try:
        for name, colour in COLOURS.items():
            for way, style in (("single", "-"), ("batch", "--")):
                figures: list[Figures] = [getattr(each, way) for each in reports]
                times = [each.median_us[name] for each in figures]
                label = name if way == "single" else f"{name}, in batches"
                axes.plot(sizes, times, style, color=colour, marker="o", markersize=4, label=label)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="subscriptions",
            ylabel="µs per event",
            title=f"Matching an event ({report.match_rate:.2%} of the subscriptions match)",
        )
        axes.grid(which="major", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    finally:
        plt.close(figure)
