"""`sterna pipeline report`: the pipeline's tables as one page for people."""

from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.output import Json, console, print_json
from sterna.cli.pipeline.options import LOCAL, Master, Ui, either, reporting_errors, spark_for
from sterna.extras import require
from sterna.pipeline.errors import PipelineError


def report(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR",
            help="Tables that `run` or `mine` wrote; not all need be there. Of two tables with the "
            "same name, that of the last DIR counts.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    tables: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", hidden=True, help="The former word for DIR."),
    ] = None,
    master: Master = LOCAL,
    ui: Ui = False,
    as_json: Json = False,
) -> None:
    """Write one HTML page for people: totals, the verdict of the audit, findings and pictures.

    The page needs no other file and no network. Parts whose table is missing are named at its end.
    """
    require("plots", "the report")
    with reporting_errors(as_json=as_json):
        folders = either(directories or [], tables or [], "--tables")
        if not folders:
            raise PipelineError(
                "say which tables: give a DIR that `sterna pipeline run` or `mine` wrote"
            )
    with spark_for("report", master, ui=ui, as_json=as_json) as spark:
        from sterna.pipeline.report.gathering import (  # noqa: PLC0415 - it needs Spark.
            ReportTables,
            folders_in,
        )
        from sterna.pipeline.report.page import write  # noqa: PLC0415

        written = write(ReportTables(spark, folders_in(*folders)), out)
    if as_json:
        print_json(
            {
                "path": str(written.path),
                "bytes": written.path.stat().st_size,
                "sections": written.sections,
                "missing": written.missing,
            }
        )
    else:
        console.print(f"The report is {written.path}.")
        if written.missing:
            console.print(f"No tables for: {', '.join(written.missing).lower()}.")
