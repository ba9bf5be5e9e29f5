"""`sterna bench pause`: how long a broker stops for everybody."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sterna.cli.bench.options import Data, Out, check_folders, give_out, measuring
from sterna.cli.output import Json, console

if TYPE_CHECKING:
    from sterna.bench.pause import PauseReport

SIZE_MAX = 10_000_000
SIZES = (10_000, 100_000, 1_000_000)


def pause(
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=SIZE_MAX,
            help="How many kept events, and how many subscriptions; may be repeated. "
            "[default: 10000, 100000, 1000000]",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=SIZE_MAX,
            help="How many kept events, if not as in --sizes; may be repeated; 0: leave them out.",
            show_default=False,
        ),
    ] = None,
    subscriptions: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=SIZE_MAX,
            help="How many subscriptions, if not as in --sizes; may be repeated; 0: leave them "
            "out.",
            show_default=False,
        ),
    ] = None,
    calm_s: Annotated[
        float,
        typer.Option(min=0.2, max=60.0, help="Seconds of pings before the snapshot, to compare."),
    ] = 3.0,
    at_most_s: Annotated[
        float,
        typer.Option(min=1.0, help="After so many seconds, what is left is skipped."),
    ] = 1_200.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="10,000 of each, unless a size is given.")
    ] = False,
    data: Data = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the longest stop of a live broker while it takes a snapshot.

    A broker in a process of its own, with durability `batch`, keeps events for clients that are
    away, or has many subscriptions. It is pinged every millisecond, first in calm and then until it
    has taken a snapshot; the longest round trip is the longest stop. Then the longest calls of the
    matching index. 10,000 take half a minute, 100,000 two minutes, a million a quarter of an hour.
    """
    check_folders(data, out, as_json=as_json)
    from sterna.bench.pause import Options, run  # noqa: PLC0415 - much is loaded.

    usual = sizes or list(SIZES[:1] if quick else SIZES)
    options = Options(
        events=[size for size in events or usual if size],
        subscriptions=[size for size in subscriptions or usual if size],
        calm_s=calm_s,
        at_most_s=at_most_s,
        data=data,
    )
    with measuring(as_json=as_json) as tell:
        report = run(options, tell)
    give_out(report.as_json(), lambda: _show(report), as_json=as_json, out=out)


def _show(report: "PauseReport") -> None:
    table = Table(title="[bold]pause[/bold]: the longest stops", title_justify="left")
    table.add_column("")
    for heading in ("size", "longest, ms", "p99.9, ms", "baseline, ms"):
        table.add_column(heading, justify="right")
    for row in report.rows:
        times = (row.longest_ms, row.p999_ms, row.baseline_ms)
        table.add_row(row.what, f"{row.size:,}", *map(_ms, times))
    console.print(table)
    for each in report.skipped:
        console.print(f"  skipped: {each.what}, {each.size:,}: {each.why}")


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
