"""`sterna pipeline run`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sterna.cli.output import Json, console, errors, print_json
from sterna.cli.pipeline.options import LOCAL, Master, Ui, reporting_errors, spark_for

if TYPE_CHECKING:
    from sterna.pipeline.declared.run import Summary

TABLES = "tables"


def run(
    journals: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Where the journals of brokers and clients are."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder of the tables; without it, `tables` in that of the journals.",
        ),
    ] = None,
    master: Master = LOCAL,
    ui: Ui = False,
    full_refresh: Annotated[
        bool,
        typer.Option(
            "--full-refresh",
            help="Make all tables anew, from what the journals still hold.",
        ),
    ] = False,
    lossy: Annotated[
        bool,
        typer.Option(
            "--lossy",
            help="Go on when journals were removed before they were read, or begun anew, with what "
            "there is.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE",
            help="Bring only this table up to date, and what it is made of; may be given again.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Archive what is new in journals, and make the views of it.

    Tables of events, deliveries, movements, handovers, subscriptions and statistics grow with each
    run; whatever is killed when, every event is there once. What cannot be read is kept in
    bad_records, with the reason. Views are made again when these have changed: visits, dwell,
    movement_graph, next_broker, traffic, bootstrap_latency, delivery_audit, audit_totals.
    """
    tables = journals / TABLES if out is None else out
    with reporting_errors(as_json=as_json):
        from sterna.pipeline.source.journals import Directory  # noqa: PLC0415 - it needs Arrow.

        Directory(str(journals), live=True).extents()
    with spark_for("run", master, ui=ui, connect=True, as_json=as_json) as spark:
        from sterna.pipeline.declared.run import run as run_pipeline  # noqa: PLC0415
        from sterna.pipeline.tables.schemas import NAMES  # noqa: PLC0415

        summary = run_pipeline(
            spark,
            journals,
            tables,
            full_refresh=full_refresh,
            fail_on_data_loss=not lossy,
            only=only or NAMES,
        )
    if as_json:
        import msgspec  # noqa: PLC0415 - only here.

        print_json({"out": str(tables), **msgspec.to_builtins(summary)})
    else:
        _show(summary, tables)


def _show(summary: "Summary", tables: Path) -> None:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("table")
    shown.add_column("rows", justify="right")
    shown.add_column("new", justify="right")
    for name, rows in summary.tables.items():
        shown.add_row(name, f"{rows.total:,}", "" if rows.new is None else f"{rows.new:,}")
    console.print(shown)
    console.print(f"{summary.seconds:.1f} s, tables in {tables}", soft_wrap=True)
    bad = summary.tables.get("bad_records")
    if bad is not None and bad.new:
        errors.print(
            f"{bad.new:,} bad records are kept aside, with the reason, in {tables}/bad_records",
            soft_wrap=True,
        )
