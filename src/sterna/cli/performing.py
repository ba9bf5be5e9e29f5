"""The demo on a terminal: what one sees while it plays, and what came of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rich.live import Live

from sterna.cli.output import console
from sterna.demo.pipeline import Review
from sterna.demo.play import Audit, Play
from sterna.demo.screen import line, picture, review_line, verdict


def perform(play: Play, rounds: int | None, *, shows: bool) -> list[Audit]:
    """Play so many rounds, or until Ctrl-C; the audits of all of them."""
    with asyncio.Runner() as runner, contextlib.suppress(KeyboardInterrupt):
        runner.run(_show(play, rounds, shows=shows))
    return play.scene.audits


def document(audit: Audit) -> dict[str, object]:
    """The audit of a round, for programs."""
    return {
        "published": audit.published,
        "owed": audit.owed,
        "delivered": audit.delivered,
        "faults": {str(fault): count for fault, count in audit.faults.items()},
        "findings": audit.findings,
        "holds": audit.holds,
        "handovers": audit.roamed,
        "moves": audit.moved,
        "kills": audit.kills,
        "pipeline": None if audit.review is None else _reviewed(audit.review),
    }


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
                    for finding in [*audit.findings[:10], *audit.holds]:
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
    """Draw the scene again and again meanwhile."""
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
            screen.update(picture(play.scene, with_audit=False), refresh=True)


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
