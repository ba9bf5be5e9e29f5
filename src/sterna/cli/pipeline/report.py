"""`sterna pipeline report`: the pipeline's tables as one page for people."""

from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.output import Json, console, print_json
from sterna.cli.pipeline.options import LOCAL, Master, spark_for
from sterna.extras import require


def report(
    tables: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR",
            help="The tables: what `run` or `mine` wrote; not all need be there. May be given "
            "again: of two tables with the same name, the last one counts.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    master: Master = LOCAL,
    as_json: Json = False,
) -> None:
    """Write one HTML page with pictures: traffic, handovers, movements, predictions, audit.

    The page needs no other file and no network. Parts whose table is missing say so.
    """
    require("plots", "the report")
    with spark_for("report", master, as_json=as_json) as spark:
        from sterna.pipeline.report.gathering import (  # noqa: PLC0415 - it needs Spark.
            ReportTables,
            folders_in,
        )
        from sterna.pipeline.report.page import write  # noqa: PLC0415

        written = write(ReportTables(spark, folders_in(*tables)), out)
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
