"""`sterna bench sim`: how many messages the simulator moves in a second."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sterna.cli.bench.options import Out, Rounds, check_folders, give_out, progress
from sterna.cli.output import Json, console

if TYPE_CHECKING:
    from sterna.bench.sim import SimReport


def sim(
    rounds: Rounds = 5,
    long: Annotated[
        int, typer.Option(min=10, max=100_000, help="Hundreds of events in the long run.")
    ] = 100,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two rounds, and a short long run.")
    ] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the simulator: messages over links a second, beside a bare loop over a heap.

    A tree of 85 brokers under flooding: what 100 publishers say passes every broker. Then a long
    run, and what it does to the memory of the process. Takes about half a minute,
    with `--quick` some seconds.
    """
    check_folders(None, out, as_json=as_json)
    from sterna.bench.sim import run  # noqa: PLC0415 - only needed here.

    with progress() as tell:
        report = run(
            tell, rounds=min(rounds, 2) if quick else rounds, long=min(long, 10) if quick else long
        )
    give_out(report.as_json(), lambda: _show(report), as_json=as_json, out=out)


def _show(report: "SimReport") -> None:
    title = f"[bold]flooding[/bold]: {report.brokers} brokers, {report.messages:,} messages a round"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("messages/s", justify="right")
    low, high = report.simulator_spread
    spread = f"[dim]({low:,.0f} to {high:,.0f})[/dim]"
    table.add_row("simulator", f"{report.simulator:,.0f} {spread}")
    table.add_row("simulator with oracle", f"{report.judged:,.0f}")
    table.add_row("a bare heap", f"{report.bare:,.0f} [dim]x{report.bare_times:.1f} as many[/dim]")
    console.print(table)
    if report.early_mib is not None and report.late_mib is not None:
        console.print(
            f"  after another {report.long_messages:,} messages the process has "
            f"{report.late_mib:.1f} MiB; after a tenth of them it had {report.early_mib:.1f}"
        )
