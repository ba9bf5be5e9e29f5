"""`sterna bench broker`: live brokers under load, beside mosquitto."""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from sterna.cli.bench.options import Data, Out, Rounds, check_folders, give_out, measuring
from sterna.cli.output import ERROR, Json, console, errors, fail

if TYPE_CHECKING:
    from sterna.bench.broker import BrokerReport, Speed


class ClientProtocol(StrEnum):
    NATIVE = "native"
    MQTT = "mqtt"


class BrokerScenario(StrEnum):
    ONE_TO_ONE = "1-1"
    FAN_OUT = "1-100"
    FAN_IN = "100-1"
    CONTENT = "1-1000"
    LATENCY = "latency"
    DRAIN = "drain"
    IDLE = "idle"


def broker(
    scenario: Annotated[
        list[BrokerScenario] | None,
        typer.Option(
            help="Only this scenario; may be repeated. [default: all]", show_default=False
        ),
    ] = None,
    protocol: Annotated[
        ClientProtocol, typer.Option(help="What the clients of Sterna speak.")
    ] = ClientProtocol.NATIVE,
    rounds: Rounds = 5,
    rate: Annotated[
        int, typer.Option(min=10, max=50_000, help="Events a second when latency is measured.")
    ] = 2_000,
    connections: Annotated[
        int, typer.Option(min=1, max=1_000, help="Over which 1,000 content filters are spread.")
    ] = 20,
    quick: Annotated[
        bool, typer.Option("--quick", help="A fifth of the events, and three rounds.")
    ] = False,
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON",
            help="The Python of an environment with another version of Sterna, such as "
            "old/bin/python: it is measured in turns with this one.",
        ),
    ] = None,
    data: Data = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure live brokers: events a second, latency, and how fast a queue drains.

    Each broker is a process of its own, with all features on; so are its publishers and its
    subscribers. Publishers and subscribers are 1-1, 1-100, 100-1, and one publisher with 1,000
    content filters, each durable (`batch`) and not. `idle` is the memory of 10,000 clients that do
    nothing. If mosquitto is installed, it does the same in turns, as far as it can. Takes about
    five minutes, with `--quick` one and a half; with `--protocol mqtt` twice as long. What cannot
    be measured is named at the end, beside what was; the exit status is 2 then.
    """
    check_folders(data, out, as_json=as_json)
    if beside is not None and not os.access(beside, os.X_OK):
        fail(f"--beside: there is no program {beside}; give a Python", as_json=as_json)
    from sterna.bench.broker import Options, run  # noqa: PLC0415 - much is loaded.
    from sterna.bench.scenarios import ScenarioName  # noqa: PLC0415

    chosen = scenario or list(BrokerScenario)
    others = {BrokerScenario.LATENCY, BrokerScenario.DRAIN, BrokerScenario.IDLE}
    options = Options(
        scenarios=[ScenarioName(each) for each in chosen if each not in others],
        latency=BrokerScenario.LATENCY in chosen,
        drain=BrokerScenario.DRAIN in chosen,
        idle=BrokerScenario.IDLE in chosen,
        clients=2_000 if quick else 10_000,
        devices=protocol is ClientProtocol.MQTT,
        rounds=min(rounds, 3) if quick else rounds,
        scale=0.2 if quick else 1.0,
        rate=rate,
        seconds=2.0 if quick else 5.0,
        connections=connections,
        data=data,
        beside=beside,
    )
    with measuring(as_json=as_json) as tell:
        report = run(options, tell)
    give_out(report.as_json(), lambda: _show(report), as_json=as_json, out=out)
    if report.failed:
        raise typer.Exit(ERROR)


def _show(report: "BrokerReport") -> None:
    for name, speeds in report.throughput.items():
        _show_throughput(report, name, speeds)
    if report.latency:
        _show_latency(report)
    if report.drain:
        _show_drain(report)
    if report.idle:
        _show_idle(report)
    for name, problem in report.failed.items():
        errors.print(
            Text.assemble(("error: ", "bold red"), f"{name} could not be measured: {problem}"),
            soft_wrap=True,
        )


def _show_throughput(report: "BrokerReport", name: str, speeds: "Mapping[str, Speed]") -> None:
    table = Table(title=f"[bold]{name}[/bold]: {report.about[name]}", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("events/s", justify="right")  # With 80 columns, this is where lines end.
    for heading in ("acknowledged/s", "deliveries/s", "broker,\nµs/event"):
        table.add_column(heading, justify="right", no_wrap=True)
    for contender, speed in speeds.items():
        low, high = speed.events_per_s_spread
        table.add_row(
            contender,
            f"{speed.events_per_s:,.0f} [dim]({low:,.0f} to {high:,.0f})[/dim]",
            "-" if speed.acknowledged_per_s is None else f"{speed.acknowledged_per_s:,.0f}",
            f"{speed.deliveries_per_s:,.0f}",
            "-" if speed.cpu_us is None else f"{speed.cpu_us:.1f}",
        )
    if report.peer is None:
        table.add_row("mosquitto", "not installed")
    elif "mosquitto QoS 0" not in speeds:
        table.add_row("mosquitto", "has no content filters")
    console.print(table)
    _show_ratios(report.ratios[name], "times the events/s: more is better")
    if ratios := report.cpu_ratios.get(name):
        _show_ratios(ratios, "times the processor time: less is better")


def _show_latency(report: "BrokerReport") -> None:
    title = f"[bold]latency[/bold]: single events, {report.settings['rate']:,.0f} a second"
    table = Table(title=title, title_justify="left")
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
    _show_ratios(report.ratios["latency p50"], "times the latency: less is better")


def _show_drain(report: "BrokerReport") -> None:
    title = "[bold]drain[/bold]: a client comes back to its queue"
    table = Table(title=title, title_justify="left")
    for heading in ("", "events", "seconds"):
        table.add_column(heading, justify="right" if heading else "left")
    for contender, drain in report.drain.items():
        low, high = drain.seconds_spread
        cell = f"{drain.seconds:.3f} [dim]({low:.3f} to {high:.3f})[/dim]"
        table.add_row(contender, f"{drain.events:,}", cell)
    if report.peer is None:
        table.add_row("mosquitto", "", "not installed")
    console.print(table)


def _show_idle(report: "BrokerReport") -> None:
    title = "[bold]idle[/bold]: clients that are connected and do nothing"
    table = Table(title=title, title_justify="left")
    for heading in ("", "clients", "kB each"):
        table.add_column(heading, justify="right" if heading else "left")
    for contender, idle in report.idle.items():
        table.add_row(contender, f"{idle.clients:,}", f"{idle.bytes_each / 1e3:.1f}")
    console.print(table)


def _show_ratios(ratios: Mapping[str, float], meaning: str) -> None:
    for name, ratio in ratios.items():
        console.print(f"  {name}: {ratio:.2f} {meaning}", soft_wrap=True)
    console.print()
