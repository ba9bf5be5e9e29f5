"""`sterna bench route`: what one subscription more or less costs a broker."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sterna.cli.bench.options import Out, check_folders, give_out, progress
from sterna.cli.output import Json, console

if TYPE_CHECKING:
    from sterna.bench.route import Row

SIZES = [100, 1_000, 10_000]


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
    quick: Annotated[bool, typer.Option("--quick", help="Up to 1,000 subscriptions only.")] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure what one subscription more or less costs a broker that has many.

    Beside it: what it would cost to reduce all of them anew. Takes about a minute, with `--quick`
    some seconds.
    """
    check_folders(None, out, as_json=as_json)
    from sterna.bench.route import run  # noqa: PLC0415 - numba is large.

    with progress() as tell:
        sizes = subscriptions or (SIZES[:2] if quick else SIZES)
        rows = list(run(sizes, tell))
    figures = {"rows": [row.as_json() for row in rows]}
    give_out(figures, lambda: _show(rows), as_json=as_json, out=out)


def _show(rows: "Sequence[Row]") -> None:
    table = Table(title="[bold]a change of one subscription[/bold]", title_justify="left")
    for heading in ("strategy", "entries", "change, µs", "all anew, µs", "ratio", "told"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right")
    for row in rows:
        table.add_row(
            row.strategy,
            f"{row.entries:,}",
            f"{row.change_us:.0f}",
            f"{row.rebuild_us:,.0f}",
            f"{row.rebuild_us / row.change_us:,.0f}",
            f"{row.told:,}",
        )
    console.print(table)
    console.print("  [dim]ratio: all anew / change; more is better[/dim]")
