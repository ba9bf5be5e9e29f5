"""The `sterna` command."""

import io
import os
import sys
import traceback
from typing import Annotated

import typer

from sterna import __version__
from sterna.cli import bench as bench_command
from sterna.cli import broker as broker_command
from sterna.cli import clients as clients_commands
from sterna.cli import context as context_command
from sterna.cli import demo as demo_command
from sterna.cli import experiment as experiment_command
from sterna.cli import filter as filter_command
from sterna.cli import inspect as inspect_commands
from sterna.cli import pipeline as pipeline_commands
from sterna.cli import pub as pub_command
from sterna.cli import reload as reload_command
from sterna.cli import sim as sim_command
from sterna.cli import sub as sub_command
from sterna.cli import tour as tour_command
from sterna.cli import up as up_command
from sterna.cli.output import ERROR, print_json, problem_of
from sterna.cli.rules import HELP, Commands, tell_unknown_variables
from sterna.errors import MissingExtraError

app = typer.Typer(
    cls=Commands,
    context_settings=HELP,
    help="Publish/subscribe for things that move.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)
app.command(name="up")(up_command.up)
app.command(name="down")(up_command.down)
app.command(name="broker")(broker_command.broker)
app.command(name="pub")(pub_command.pub)
app.command(name="sub")(sub_command.sub)
app.command(name="status")(inspect_commands.status)
app.command(name="topology")(inspect_commands.topology)
app.command(name="queues")(inspect_commands.queues)
app.command(name="clients")(clients_commands.clients)
app.command(name="subscriptions")(clients_commands.subscriptions)
app.command(name="kick")(clients_commands.kick)
app.command(name="reload")(reload_command.reload)
app.add_typer(context_command.app, name="context")
app.add_typer(filter_command.app, name="filter")
app.add_typer(sim_command.app, name="sim")
app.add_typer(bench_command.app, name="bench")
app.add_typer(experiment_command.app, name="experiment")
app.add_typer(pipeline_commands.app, name="pipeline")
app.command(name="demo")(demo_command.demo)
app.command(name="tour")(tour_command.tour)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"sterna {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Publish/subscribe for things that move."""
    del version  # Its callback has answered.
    tell_unknown_variables(ctx)


def run() -> None:
    """Entry point of the installed command."""
    for stream in (sys.stdout, sys.stderr):  # A character the terminal lacks is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except MissingExtraError as error:
        _tell(str(error))
        sys.exit(ERROR)
    except OSError as error:
        if error.filename is not None:
            _tell(problem_of(error))
            sys.exit(ERROR)
        sys.stderr.write(f"error: {problem_of(error)}\n")
        os._exit(ERROR)  # What standard output still holds cannot be written.
    except Exception:  # noqa: BLE001 - a fault of ours must not look like the answer "no".
        traceback.print_exc()
        sys.exit(ERROR)


def _tell(problem: str) -> None:
    if "--json" in sys.argv:
        print_json({"error": problem})
    else:
        sys.stderr.write(f"error: {problem}\n")
