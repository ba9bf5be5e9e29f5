"""`sterna demo`: a broker network at work, with an audit of each round."""

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.output import NO, console, fail, print_json
from sterna.core.handover.options import Handover
from sterna.errors import SternaError


def demo(
    brokers: Annotated[int, typer.Option(min=1, max=32, help="How many brokers.")] = 4,
    vehicles: Annotated[int, typer.Option(min=1, max=500, help="Clients that roam and move.")] = 24,
    sensors: Annotated[int, typer.Option(min=1, max=200, help="Clients that publish.")] = 8,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="How long a round is.")] = 10.0,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="How many rounds. Default: until Ctrl-C; one without a terminal."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where brokers keep their data. Default: a new directory."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Other numbers, other rides.")] = 0,
    pipeline: Annotated[
        bool,
        typer.Option(help="Whether Spark audits and mines the journals of each round, too."),
    ] = True,
    handover: Annotated[
        Handover,
        typer.Option(help="How clients are handed over from broker to broker."),
    ] = Handover.RELOCATION,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document with the audits.")
    ] = False,
) -> None:
    """Watch a network on this machine: clients roam and move, a broker is killed, nothing is lost.

    Each round ends with an audit: everything that was published against everything that arrived.
    The data pipeline does the same from what brokers and clients wrote down, and finds out how the
    vehicles move.
    """
    from sterna.cli.performing import document, perform  # noqa: PLC0415 - they need an extra.
    from sterna.demo.play import Play  # noqa: PLC0415

    if rounds is None and not (console.is_terminal and not as_json):
        rounds = 1
    with contextlib.ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sterna-demo-")))
        play = Play(
            data,
            brokers=brokers,
            sensors=sensors,
            vehicles=vehicles,
            seconds=seconds,
            seed=seed,
            pipeline=pipeline,
            handover=handover,
        )
        try:
            audits = perform(play, rounds, shows=not as_json)
        except SternaError as error:
            fail(str(error), as_json=as_json)
    if as_json:
        print_json({"rounds": [document(audit) for audit in audits]})
    if not all(audit.is_clean for audit in audits):
        raise typer.Exit(NO)
