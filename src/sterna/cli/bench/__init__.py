"""`sterna bench`: measure, beside baselines in the same run."""

import typer

from sterna.cli.bench import broker, handover, match, pause, pipeline, route, sim

app = typer.Typer(
    help="Measure, beside baselines in the same run.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.command(name="match")(match.match)
app.command(name="sim")(sim.sim)
app.command(name="route")(route.route)
app.command(name="broker")(broker.broker)
app.command(name="handover")(handover.handover)
app.command(name="pause")(pause.pause)
app.command(name="pipeline")(pipeline.pipeline)


@app.callback()
def bench() -> None:
    """Measure, beside baselines in the same run."""
