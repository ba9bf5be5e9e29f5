"""`sterna pipeline compact`."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sterna.cli.output import Json, console, errors, print_json
from sterna.cli.pipeline.options import reporting_errors, seconds

if TYPE_CHECKING:
    from sterna.pipeline.declared.compacting import Compacted


def compact(
    tables: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of the tables: the --out of `run`.")
    ],
    keep_days: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Keep so many days, up to today (UTC); without it, all of them."
        ),
    ] = None,
    history: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            parser=seconds,
            help="How long files that were replaced are kept, for who still reads them.",
        ),
    ] = "7d",  # type: ignore[assignment]
    as_json: Json = False,
) -> None:
    """Make few large files of many small ones in the tables that grow, and drop old days.

    Readers of the Delta log see the same rows before, meanwhile and after. Spark is not needed.
    """
    with reporting_errors(as_json=as_json), errors.status("compacting …"):
        from sterna.pipeline.declared.compacting import compact as compact_  # noqa: PLC0415

        found = compact_(tables, keep_days=keep_days, history=timedelta(seconds=history))
    if as_json:
        import msgspec  # noqa: PLC0415 - only here.

        print_json({"tables": msgspec.to_builtins(found)})
    else:
        _show(found)


def _show(found: "dict[str, Compacted]") -> None:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("table")
    for name in ("rows", "dropped", "files", "before", "removed"):
        shown.add_column(name, justify="right")
    for name, each in found.items():
        numbers = (each.rows, each.rows_dropped, each.files, each.files_before, each.removed)
        shown.add_row(name, *(f"{number:,}" for number in numbers))
    console.print(shown)
