"""`sterna demo`: a broker network at work, with an audit of each round."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from sterna.cli.output import NO, console, fail, print_json
from sterna.demo.pipeline import Review
from sterna.demo.play import Audit, Play
from sterna.demo.screen import line, picture, review_line, verdict
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
        Path | None, typer.Option(help="Where brokers keep their data. Default: a new directory.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Other numbers, other rides.")] = 0,
    pipeline: Annotated[
        bool,
        typer.Option(help="Whether Spark audits and mines the journals of each round, too."),
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document with the audits.")
    ] = False,
) -> None:
    """Watch a network on this machine: clients roam and move, a broker is killed, nothing is lost.

    Each round ends with an audit: everything that was published against everything that arrived.
    The data pipeline does the same from what brokers and clients wrote down, and finds out how the
    vehicles move.
    """
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
        )
        try:
            audits = _run(play, rounds, shows=not as_json)
        except SternaError as error:
            fail(str(error), as_json=as_json)
    if as_json:
        print_json({"rounds": [_document(audit) for audit in audits]})
    if not all(audit.is_clean for audit in audits):
        raise typer.Exit(NO)


def _run(play: Play, rounds: int | None, *, shows: bool) -> list[Audit]:
    with asyncio.Runner() as runner, contextlib.suppress(KeyboardInterrupt):
        runner.run(_show(play, rounds, shows=shows))
    return play.scene.audits


async def _show(play: Play, rounds: int | None, *, shows: bool) -> None:
    is_live = shows and console.is_terminal
    try:
        if shows and not is_live:
            console.print("starting brokers …")
        await play.start()
        if shows and not is_live:
            for name, url in play.network.urls.items():
                console.print(f"{name} {url}")
        screen = Live(picture(play.scene), console=console, auto_refresh=False)
        async with _watching(play, screen if is_live else None):
            async for audit in play.rounds(rounds):
                if is_live:
                    screen.update(picture(play.scene), refresh=True)
                elif shows:
                    for news in play.scene.news:
                        console.print(f"• {news}")
                    console.print(f"round {play.scene.round}: {line(audit)}", soft_wrap=True)
                    for finding in audit.findings[:10]:
                        console.print(f"  {finding}", soft_wrap=True)
                    if audit.review is not None:
                        console.print(f"  {review_line(audit.review)}", soft_wrap=True)
                        for finding in audit.review.findings[:10]:
                            console.print(f"  {finding}", soft_wrap=True)
                    play.scene.news.clear()
    finally:
        await play.stop()
        if is_live:
            for number, audit in enumerate(play.scene.audits, 1):
                console.print(verdict(audit, number))


@contextlib.asynccontextmanager
async def _watching(play: Play, screen: Live | None) -> AsyncIterator[None]:
    """Redraw the scene again and again meanwhile."""
    if screen is None:
        yield
        return

    async def draw() -> None:
        while True:
            await play.look()
            screen.update(picture(play.scene), refresh=True)
            await asyncio.sleep(0.25)

    with screen:
        drawing = asyncio.create_task(draw())
        try:
            yield
        finally:
            drawing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await drawing


def _document(audit: Audit) -> dict[str, object]:
    return {
        "published": audit.published,
        "owed": audit.owed,
        "delivered": audit.delivered,
        "faults": {str(fault): count for fault, count in audit.faults.items()},
        "findings": audit.findings,
        "handovers": audit.roamed,
        "moves": audit.moved,
        "kills": audit.kills,
        "pipeline": None if audit.review is None else _reviewed(audit.review),
    }


def _reviewed(review: Review) -> dict[str, object]:
    if review.problem is not None:
        return {"problem": review.problem}
    return {
        "published": review.published,
        "owed": review.owed,
        "delivered": review.delivered,
        "findings": review.findings,
        "steps": review.walked.total(),
        "graph_is_what_was_walked": review.walked == review.mined,
        "seconds": round(review.seconds, 1),
    }
