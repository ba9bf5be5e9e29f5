"""`sterna pipeline spec`."""

from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.output import console
from sterna.cli.pipeline.options import Out, reporting_errors


def spec(
    journals: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Where the journals of brokers and clients are."),
    ],
    tables: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the tables.")],
    out: Out,
    views: Annotated[
        bool,
        typer.Option(
            "--views",
            help="Declare the views, too; they go to Spark's catalog, which should be one that "
            "lasts.",
        ),
    ] = False,
    lossy: Annotated[
        bool,
        typer.Option(
            "--lossy",
            help="Go on when journals were removed before they were read, or begun anew.",
        ),
    ] = False,
) -> None:
    """Write a spec of the archive for those who run `spark-pipelines` themselves.

    It declares the tables that grow, in their folder. `sterna pipeline run` goes on with them, and
    makes views and the audit of them.
    """
    with reporting_errors(as_json=False):
        from sterna.pipeline.declared.engine import SPEC  # noqa: PLC0415 - Spark is optional.
        from sterna.pipeline.declared.folder import write_spec  # noqa: PLC0415

        write_spec(journals, tables, out, views=views, fail_on_data_loss=not lossy)
    console.print(f"spark-pipelines run --spec {out / SPEC}", soft_wrap=True, markup=False)
