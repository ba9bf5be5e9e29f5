"""`sterna bench`: measure, beside baselines in the same run."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sterna.cli.output import console, errors, fail, print_json

if TYPE_CHECKING:
    from sterna.bench.broker import Report as BrokerReport
    from sterna.bench.broker import Speed
    from sterna.bench.match import Figures, Progress, Report

app = typer.Typer(
    help="Measure, beside baselines in the same run.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.callback()
def bench() -> None:
    """Measure, beside baselines in the same run."""


class WorkloadName(StrEnum):
    STANDARD = "standard"
    IDS = "ids"
    TOPICS = "topics"
    TEXT = "text"


@app.command()
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure the matching index against counting and brute force.

    All workloads with 100,000 subscriptions take about three minutes, and so does `standard` alone
    with a million; nearly all of that is making the subscriptions and the baselines.
    """
    if plot is not None:
        _check_plot(plot, as_json=as_json)
    from sterna.bench import match as bench_match  # noqa: PLC0415 - numba is large.
    from sterna.bench import workloads  # noqa: PLC0415
    from sterna.bench.plot import plot_curve  # noqa: PLC0415

    chosen = workload or list(WorkloadName)
    with _progress() as progress:
        progress("loading the compiled index")
        made = {
            WorkloadName.STANDARD: lambda: workloads.standard(match_rate),
            WorkloadName.IDS: workloads.ids,
            WorkloadName.TOPICS: workloads.topics,
            WorkloadName.TEXT: workloads.text,
        }
        reports = [
            bench_match.run(
                made[name](), subscriptions, events, progress, curve=curve or plot is not None
            )
            for name in chosen
        ]
        switch = bench_match.few_or_many(workloads.standard(match_rate), 200, progress)
    if plot is not None:
        plot_curve(reports[0], plot)
    if as_json:
        document = {
            "machine": _machine(),
            "workloads": [report.as_json() for report in reports],
            "one_by_one_or_table": {size: each.median_us for size, each in switch.items()},
        }
        print_json(document)
        return
    for report in reports:
        _show(report)
    _show_switch(switch)


@app.command()
def sim(
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="How many rounds, of which the median counts.")
    ] = 5,
    long: Annotated[
        int, typer.Option(min=10, max=100_000, help="Hundreds of events in the long run.")
    ] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure the simulator: messages over links a second, beside a bare loop over a heap.

    A tree of 85 brokers under flooding: what 100 publishers say passes every broker. Then a long
    run, and what it does to the memory of the process. Takes about half a minute.
    """
    from sterna.bench import sim as bench_sim  # noqa: PLC0415

    with _progress() as progress:
        report = bench_sim.run(progress, rounds=rounds, long=long)
    if as_json:
        print_json({"machine": _machine(), **report.as_json()})
        return
    title = f"[bold]flooding[/bold]: {report.brokers} brokers, {report.messages:,} messages a round"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("messages/s", justify="right")
    low, high = report.simulator_spread
    spread = f"[dim]({low:,.0f} to {high:,.0f})[/dim]"
    table.add_row("simulator", f"{report.simulator:,.0f} {spread}")
    table.add_row("simulator with oracle", f"{report.judged:,.0f}")
    table.add_row("a bare heap", f"{report.bare:,.0f} [dim]x{report.bare_times:.1f}[/dim]")
    console.print(table)
    if report.early_mib is not None and report.late_mib is not None:
        console.print(
            f"  after another {report.long_messages:,} messages the process has "
            f"{report.late_mib:.1f} MiB; after a tenth of them it had {report.early_mib:.1f}"
        )


@app.command()
def route(
    subscriptions: Annotated[
        list[int] | None,
        typer.Option(
            min=10,
            max=1_000_000,
            help="How many a broker has; may be repeated. [default: 100, 1000, 10000]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure what one subscription more or less costs a broker that has many.

    Beside it: what it would cost to reduce all of them anew. Takes about a minute.
    """
    from sterna.bench import route as bench_route  # noqa: PLC0415

    with _progress() as progress:
        rows = list(bench_route.run(subscriptions or [100, 1_000, 10_000], progress))
    if as_json:
        print_json({"machine": _machine(), "rows": [row.as_json() for row in rows]})
        return
    table = Table(title="[bold]a change of one subscription[/bold]", title_justify="left")
    for heading in ("strategy", "entries", "change, µs", "all anew, µs", "times", "told"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right")
    for row in rows:
        table.add_row(
            row.strategy,
            f"{row.entries:,}",
            f"{row.change_us:.0f}",
            f"{row.rebuild_us:,.0f}",
            f"x{row.rebuild_us / row.change_us:,.0f}",
            f"{row.told:,}",
        )
    console.print(table)


class BrokerScenario(StrEnum):
    ONE_TO_ONE = "1-1"
    FAN_OUT = "1-100"
    FAN_IN = "100-1"
    CONTENT = "1-1000"
    LATENCY = "latency"
    DRAIN = "drain"


Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where brokers write; not in memory. [default: where temporary files are]",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the figures to this file, as JSON, as well."),
]


@app.command()
def broker(
    scenario: Annotated[
        list[BrokerScenario] | None,
        typer.Option(
            help="Only this scenario; may be repeated. [default: all]", show_default=False
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="How many rounds, of which the median counts.")
    ] = 5,
    rate: Annotated[
        int, typer.Option(min=10, max=50_000, help="Events a second when latency is measured.")
    ] = 2_000,
    connections: Annotated[
        int, typer.Option(min=1, max=1_000, help="Over which 1,000 content filters are spread.")
    ] = 20,
    quick: Annotated[
        bool, typer.Option("--quick", help="A fifth of the events, and three rounds.")
    ] = False,
    data: Data = None,
    out: Out = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure live brokers: events a second, latency, and how fast a queue drains.

    Each broker is a process of its own, with all features on; so are its publishers and its
    subscribers. Publishers and subscribers are 1-1, 1-100, 100-1, and one publisher with 1,000
    content filters, each durable (`batch`) and not. If mosquitto is installed, it does the same
    in turns, as far as it can. Takes about five minutes, with `--quick` one and a half.
    """
    _check_folder(data, out, as_json=as_json)
    from sterna.bench import broker as bench_broker  # noqa: PLC0415 - much is loaded.
    from sterna.bench.load import LoadError  # noqa: PLC0415
    from sterna.bench.scenarios import ScenarioName  # noqa: PLC0415

    chosen = scenario or list(BrokerScenario)
    others = {BrokerScenario.LATENCY, BrokerScenario.DRAIN}
    options = bench_broker.Options(
        scenarios=[ScenarioName(each) for each in chosen if each not in others],
        latency=BrokerScenario.LATENCY in chosen,
        drain=BrokerScenario.DRAIN in chosen,
        rounds=min(rounds, 3) if quick else rounds,
        scale=0.2 if quick else 1.0,
        rate=rate,
        seconds=2.0 if quick else 5.0,
        connections=connections,
        data=data,
    )
    try:
        with _progress() as progress:
            report = bench_broker.run(options, progress)
    except LoadError as error:
        fail(f"the measurement failed: {error}", as_json=as_json)
    document = {"machine": _machine(), **report.as_json()}
    _write(document, out)
    if as_json:
        print_json(document)
        return
    _show_broker(report)


@app.command()
def handover(
    handovers: Annotated[
        int, typer.Option(min=1, max=100_000, help="How often the client moves.")
    ] = 200,
    subscriptions: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Of other clients.")
    ] = 10_000,
    brokers: Annotated[
        int, typer.Option(min=2, max=20, help="In a line; the client moves from end to end.")
    ] = 2,
    data: Data = None,
    out: Out = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure how long a client that moves to another broker waits for what it missed.

    Brokers are processes of their own. While the client is away an event is published; the gap is
    the time from when it begins to connect until it has the event. Takes half a minute.
    """
    _check_folder(data, out, as_json=as_json)
    from sterna.bench import handover as bench_handover  # noqa: PLC0415
    from sterna.bench.load import LoadError  # noqa: PLC0415

    try:
        with _progress() as progress:
            report = bench_handover.run(
                progress,
                brokers=brokers,
                subscriptions=subscriptions,
                handovers=handovers,
                data=data,
            )
    except LoadError as error:
        fail(f"the measurement failed: {error}", as_json=as_json)
    document = {"machine": _machine(), **report.as_json()}
    _write(document, out)
    if as_json:
        print_json(document)
        return
    title = (
        f"[bold]handover[/bold]: {report.brokers} brokers, {report.subscriptions:,} other "
        f"subscriptions, {report.handovers:,} handovers"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("durability")
    for heading in ("p50, ms", "p99, ms", "longest, ms"):
        table.add_column(heading, justify="right")
    for level, gap in report.gaps_ms.items():
        table.add_row(level, *(f"{value:.1f}" for value in (gap.p50, gap.p99, gap.worst)))
    console.print(table)


@app.command()
def pipeline(
    measurement: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this measurement (matching, source); may be repeated. [default: all]",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        int, typer.Option(min=1_000, max=1_000_000_000, help="How many events to match.")
    ] = 1_000_000,
    subscriptions: Annotated[
        int, typer.Option(min=100, max=10_000_000, help="How many subscriptions to match against.")
    ] = 100_000,
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="How many rounds, of which the median counts.")
    ] = 3,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of events and subscriptions, one round.")
    ] = False,
    master: Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")] = "local[2]",
    data: Data = None,
    out: Out = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure the data pipeline on Spark.

    Bulk matching in both layouts, in turns with two plain processes that have the same index; then
    the same question in plain SQL, for a sample. Then reading journals, and an audit of ten facts
    an event. Takes about eight minutes, with `--quick` two.
    """
    _check_folder(data, out, as_json=as_json)
    from sterna.bench import pipeline as bench_pipeline  # noqa: PLC0415 - Spark is optional.
    from sterna.pipeline.errors import PipelineError  # noqa: PLC0415

    unknown = [name for name in measurement or [] if name not in bench_pipeline.MEASUREMENTS]
    if unknown:
        known = ", ".join(bench_pipeline.MEASUREMENTS)
        fail(f"there is no measurement {unknown[0]!r}; there are: {known}", as_json=as_json)
    options = bench_pipeline.Options(
        measurements=measurement or (),
        events=events // 10 if quick else events,
        subscriptions=subscriptions // 10 if quick else subscriptions,
        rounds=1 if quick else rounds,
        master=master,
        data=data,
    )
    try:
        with _progress() as progress:
            report = bench_pipeline.run(options, progress)
    except PipelineError as error:
        fail(str(error), as_json=as_json)
    document = {"machine": _machine(), **report}
    _write(document, out)
    if as_json:
        print_json(document)
        return
    for name in bench_pipeline.MEASUREMENTS:
        if name in report:
            _show_figures(name, report[name])


def _show_figures(name: str, figures: dict[str, object]) -> None:
    table = Table(title=f"[bold]{name}[/bold]", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for key, value in _flat(figures):
        table.add_row(key, f"{value:,}" if isinstance(value, int | float) else str(value))
    console.print(table)


def _flat(figures: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in figures.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}: ")
        else:
            yield prefix + key.replace("_", " "), value


def _machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "python": platform.python_version()}


def _check_plot(plot: Path, *, as_json: bool) -> None:
    if plot.suffix not in {".svg", ".png"}:
        fail(f"--plot draws .svg and .png, not {plot.name}", as_json=as_json)
    if not plot.parent.is_dir():
        fail(f"there is no folder {plot.parent} to draw {plot.name} in", as_json=as_json)
    if find_spec("matplotlib") is None:
        fail("drawing needs matplotlib: pip install 'sterna[plots]'", as_json=as_json)


def _check_folder(data: Path | None, out: Path | None, *, as_json: bool) -> None:
    if data is not None and not data.is_dir():
        fail(f"there is no folder {data} for the brokers to write in", as_json=as_json)
    if out is not None and not out.parent.is_dir():
        fail(f"there is no folder {out.parent} to write {out.name} in", as_json=as_json)


def _write(document: object, out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _progress() -> "Iterator[Progress]":
    """Say what is going on, on standard error, if that is a terminal."""
    if not errors.is_terminal:
        yield lambda _: None
        return
    with errors.status("") as status:
        yield status.update


def _show(report: "Report") -> None:
    for each in (*report.curve, report):
        title = f"[bold]{each.workload}[/bold]: {each.subscriptions:,} subscriptions, {each.about}"
        table = Table(title=title, title_justify="left")
        table.add_column("µs per event")
        for name in ("index", "counting", "brute force"):
            table.add_column(name, justify="right")
        for way, figures in (("one by one", each.single), ("in batches, up to 1,000", each.batch)):
            table.add_row(way, *(_cell(figures, name) for name in figures.median_us))
        console.print(table)
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


def _show_switch(switch: "dict[int, Figures]") -> None:
    table = Table(title="[bold]few filters[/bold]: when the table pays off", title_justify="left")
    table.add_column("filters", justify="right")
    table.add_column("one by one, µs", justify="right")
    table.add_column("table, µs", justify="right")
    for size, figures in switch.items():
        one_by_one, compiled = figures.median_us["one by one"], figures.median_us["table"]
        table.add_row(str(size), f"{one_by_one:.1f}", f"{compiled:.1f}")
    console.print(table)


def _show_broker(report: "BrokerReport") -> None:
    for name, speeds in report.throughput.items():
        table = Table(title=f"[bold]{name}[/bold]: {report.about[name]}", title_justify="left")
        table.add_column("")
        for heading in ("events/s", "acknowledged/s", "deliveries/s", "broker, µs/event"):
            table.add_column(heading, justify="right")
        for contender, speed in speeds.items():
            table.add_row(contender, *_speed_cells(speed))
        if report.peer is None:
            table.add_row("mosquitto", "not installed")
        elif "mosquitto QoS 0" not in speeds:
            table.add_row("mosquitto", "has no content filters")
        console.print(table)
        _show_ratios(report.ratios[name])
    if report.latency:
        table = Table(
            title=f"[bold]latency[/bold]: single events, {report.settings['rate']:,.0f} a second",
            title_justify="left",
        )
        table.add_column("µs")
        for heading in ("p50", "p99", "p99.9", "of which sent late: p50, p99"):
            table.add_column(heading, justify="right")
        for contender, each in report.latency.items():
            low, high = each.p50_spread
            table.add_row(
                contender,
                f"{each.p50:,.0f} [dim]({low:,.0f} to {high:,.0f})[/dim]",
                f"{each.p99:,.0f}",
                f"{each.p999:,.0f}",
                f"{each.sent_late_p50:,.0f}, {each.sent_late_p99:,.0f}",
            )
        if report.peer is None:
            table.add_row("mosquitto", "not installed")
        console.print(table)
        _show_ratios(report.ratios["latency p50"])
    if report.drain:
        table = Table(
            title="[bold]drain[/bold]: a client comes back to its queue", title_justify="left"
        )
        for heading in ("", "events", "seconds"):
            table.add_column(heading, justify="right" if heading else "left")
        for contender, drain in report.drain.items():
            low, high = drain.seconds_spread
            cell = f"{drain.seconds:.3f} [dim]({low:.3f} to {high:.3f})[/dim]"
            table.add_row(contender, f"{drain.events:,}", cell)
        if report.peer is None:
            table.add_row("mosquitto", "", "not installed")
        console.print(table)


def _speed_cells(speed: "Speed") -> list[str]:
    low, high = speed.events_per_s_spread
    return [
        f"{speed.events_per_s:,.0f} [dim]({low:,.0f} to {high:,.0f})[/dim]",
        "-" if speed.acknowledged_per_s is None else f"{speed.acknowledged_per_s:,.0f}",
        f"{speed.deliveries_per_s:,.0f}",
        "-" if speed.cpu_us is None else f"{speed.cpu_us:.1f}",
    ]


def _show_ratios(ratios: "dict[str, float]") -> None:
    for name, ratio in ratios.items():
        console.print(f"  {name}: x{ratio:.2f}")
    console.print()
