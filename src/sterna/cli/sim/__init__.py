"""`sterna sim`: run a broker network in the simulator, with faults, and judge every delivery."""

import typer

from sterna.cli.sim.run import replay, run

app = typer.Typer(
    help="Run a broker network in the simulator.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.command(name="run")(run)
app.command(
    name="replay", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)(replay)


@app.callback()
def sim() -> None:
    """Run a broker network in the simulator."""
