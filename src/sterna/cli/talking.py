"""How commands talk to brokers: in an event loop, until they are done or interrupted."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sterna.cli.addressing import LOCAL, VARIABLE, brokers
from sterna.cli.output import fail
from sterna.errors import SternaError
from sterna.net.loop import new_event_loop
from sterna.net.mqtt_client import address_of, is_mqtt

Url = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help=f"A broker: sterna://host:port, host:port or @context. Without it {VARIABLE} in the "
        f"environment, the context in use, or {LOCAL}.",
        show_default=False,
    ),
]
Also = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="Another broker of the network, if the first is gone."),
]
ClientName = Annotated[
    str | None, typer.Option("--client", metavar="NAME", help="What this client is called.")
]

Journal = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Keep a journal of what happens at this client, for the audit."
    ),
]


def brokers_of(word: str | None, *, as_json: bool) -> list[str]:
    """The URLs that a word of the command line stands for, or the default ones."""
    try:
        return brokers(word)
    except SternaError as error:
        fail(str(error), as_json=as_json)


def broker_of(word: str | None, *, as_json: bool) -> str:
    """The first of them."""
    return brokers_of(word, as_json=as_json)[0]


def over_mqtt(urls: Sequence[str], alone: Mapping[str, object], *, as_json: bool) -> bool:
    """Whether brokers are to be spoken to by MQTT; refuse the options that make no sense there."""
    found = [url for url in urls if is_mqtt(url)]
    if not found:
        return False
    if len(found) < len(urls):
        fail("give mqtt:// for all brokers, or for none", as_json=as_json)
    for option in (option for option, value in alone.items() if value):
        native = "it needs sterna://host:port"
        fail(f"{option} makes no sense over MQTT: {native}", as_json=as_json)
    try:
        for url in found:
            address_of(url)
    except SternaError as error:
        fail(str(error), as_json=as_json)
    return True


def talk(what: Coroutine[Any, Any, None], *, as_json: bool) -> signal.Signals | None:
    """Run a coroutine; return the signal that ended it (Ctrl-C is SIGINT), or None."""
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_until_stopped(what))
    except SternaError as error:
        fail(str(error), as_json=as_json)


async def _until_stopped(what: Coroutine[Any, Any, None]) -> signal.Signals | None:
    task = asyncio.ensure_future(what)
    loop = asyncio.get_running_loop()
    stopped_by: signal.Signals | None = None

    def stop(number: signal.Signals) -> None:
        nonlocal stopped_by
        stopped_by = number
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if stopped_by is None:
            raise
    return stopped_by
