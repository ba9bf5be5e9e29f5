"""The `sterna` command."""

import sys
from typing import Annotated

import typer

from sterna import __version__
from sterna.cli import filter as filter_command
from sterna.cli import tour as tour_command

app = typer.Typer(
    help="Publish/subscribe for things that move.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)
app.add_typer(filter_command.app, name="filter")
app.command(name="tour")(tour_command.tour)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"sterna {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Publish/subscribe for things that move."""
    del version  # Its callback has answered.


def run() -> None:
    """Entry point of the installed command."""
    app()
