"""`sterna bench handover`: how long a client that moves waits for what it missed."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sterna.cli.bench.options import Data, Out, check_folders, give_out, measuring
from sterna.cli.output import Json, console

if TYPE_CHECKING:
    from sterna.bench.handover import HandoverReport


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
    quick: Annotated[
        bool, typer.Option("--quick", help="At most 50 handovers, and 1,000 subscriptions.")
    ] = False,
    data: Data = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure how long a client that moves to another broker waits for what it missed.

    Brokers are processes of their own. While the client is away an event is published; the gap is
    the time from when it begins to connect until it has the event. Takes half a minute,
    with `--quick` some seconds.
    """
    check_folders(data, out, as_json=as_json)
    if quick:
        handovers, subscriptions = min(handovers, 50), min(subscriptions, 1_000)
    from sterna.bench.handover import run  # noqa: PLC0415 - much is loaded.

    with measuring(as_json=as_json) as tell:
        report = run(
            tell, brokers=brokers, subscriptions=subscriptions, handovers=handovers, data=data
        )
    give_out(report.as_json(), lambda: _show(report), as_json=as_json, out=out)


def _show(report: "HandoverReport") -> None:
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
