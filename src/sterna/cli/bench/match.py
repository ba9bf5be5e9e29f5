"""`sterna bench match`: the matching index beside counting and brute force."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sterna.cli.bench.options import Out, check_folders, give_out, progress
from sterna.cli.output import Json, console, fail
from sterna.extras import require

if TYPE_CHECKING:
    from sterna.bench.match import Figures, MatchReport


class WorkloadName(StrEnum):
    STANDARD = "standard"
    IDS = "ids"
    TOPICS = "topics"
    TEXT = "text"


def match(
    subscriptions: Annotated[
        int, typer.Option(min=100, max=10_000_000, help="How many subscriptions to match against.")
    ] = 100_000,
    match_rate: Annotated[
        float,
        typer.Option(
            min=0.00001,
            max=0.5,
            help="Share of the subscriptions that an event matches (standard).",
        ),
    ] = 0.001,
    events: Annotated[
        int, typer.Option(min=20, max=100_000, help="How many events to match.")
    ] = 1000,
    workload: Annotated[
        list[WorkloadName] | None,
        typer.Option(
            help="Only this workload; may be repeated. [default: all]", show_default=False
        ),
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Measure every power of ten from 1,000 on as well.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the curve of the first workload, as SVG or PNG."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="At most 10,000 subscriptions and 200 events.")
    ] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the matching index against counting and brute force.

    All workloads with 100,000 subscriptions take about three minutes, and so does `standard` alone
    with a million; nearly all of that is making the subscriptions and the baselines. With `--quick`
    it is half a minute.
    """
    check_folders(None, out, as_json=as_json)
    if plot is not None:
        _check_plot(plot, as_json=as_json)
    from sterna.bench import match as bench_match  # noqa: PLC0415 - numba is large.
    from sterna.bench import workloads  # noqa: PLC0415
    from sterna.bench.plot import plot_curve  # noqa: PLC0415

    chosen = workload or list(WorkloadName)
    if quick:
        subscriptions, events = min(subscriptions, 10_000), min(events, 200)
    with progress() as tell:
        tell("loading the compiled index")
        made = {
            WorkloadName.STANDARD: lambda: workloads.standard(match_rate),
            WorkloadName.IDS: workloads.ids,
            WorkloadName.TOPICS: workloads.topics,
            WorkloadName.TEXT: workloads.text,
        }
        reports = [
            bench_match.run(
                made[name](), subscriptions, events, tell, curve=curve or plot is not None
            )
            for name in chosen
        ]
        switch = bench_match.few_or_many(workloads.standard(match_rate), 200, tell)
    if plot is not None:
        plot_curve(reports[0], plot)
    figures = {
        "workloads": [report.as_json() for report in reports],
        "one_by_one_or_table": {size: each.median_us for size, each in switch.items()},
    }
    give_out(figures, lambda: _show(reports, switch), as_json=as_json, out=out)


def _check_plot(plot: Path, *, as_json: bool) -> None:
    if plot.suffix not in {".svg", ".png"}:
        fail(f"--plot draws .svg and .png, not {plot.name}", as_json=as_json)
    if not plot.parent.is_dir():
        fail(f"there is no folder {plot.parent} to draw {plot.name} in", as_json=as_json)
    require("plots", "drawing")


def _show(reports: "Sequence[MatchReport]", switch: "Mapping[int, Figures]") -> None:
    for report in reports:
        _show_report(report)
    _show_switch(switch)


def _show_report(report: "MatchReport") -> None:
    for each in (*report.curve, report):
        title = f"[bold]{each.workload}[/bold]: {each.subscriptions:,} subscriptions, {each.about}"
        table = Table(title=title, title_justify="left")
        table.add_column("µs per event")
        for name in ("index", "counting", "brute force"):
            table.add_column(name, justify="right")
        for way, figures in (("one by one", each.single), ("in batches, up to 1,000", each.batch)):
            table.add_row(way, *(_cell(figures, name) for name in figures.median_us))
        console.print(table)
        console.print("  [dim]x: times as long as the index takes[/dim]")
        console.print(
            f"  {each.match_rate:.4%} match; insert {each.insert_us:.1f} µs "
            f"(+ {each.normal_form_us:.0f} for the normal form), remove {each.remove_us:.1f} µs; "
            f"built in {each.build_s:.1f} s; {each.bytes_per_subscription:.0f} bytes each"
        )
        if each.churn is not None:
            times = each.churn.times_faster["churned"]
            console.print(
                f"  after replacing half of them: {times:.2f} times as long as made afresh"
            )
        console.print()


def _cell(figures: "Figures", name: str) -> str:
    low, high = figures.spread_us[name]
    times = figures.times_faster.get(name)
    slower = f"  [dim]x{times:.1f}[/dim]" if times is not None else ""
    return f"{figures.median_us[name]:.1f} [dim]({low:.1f} to {high:.1f})[/dim]{slower}"


def _show_switch(switch: "Mapping[int, Figures]") -> None:
    table = Table(title="[bold]few filters[/bold]: when the table pays off", title_justify="left")
    table.add_column("filters", justify="right")
    table.add_column("one by one, µs", justify="right")
    table.add_column("table, µs", justify="right")
    for size, figures in switch.items():
        one_by_one, compiled = figures.median_us["one by one"], figures.median_us["table"]
        table.add_row(str(size), f"{one_by_one:.1f}", f"{compiled:.1f}")
    console.print(table)
