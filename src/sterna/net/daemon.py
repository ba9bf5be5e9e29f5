"""A broker as a process: from its start, through signals, to its end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from enum import IntEnum
from importlib.abc import MetaPathFinder
from pathlib import Path

from sterna.errors import SternaError
from sterna.matching.loading import load_in_background
from sterna.net.broker import BrokerServer
from sterna.net.broker.reloading import Report, Reread
from sterna.net.collector import spare_the_collector
from sterna.net.config import BrokerConfig, ConfigError
from sterna.net.logs import set_up_logging
from sterna.net.loop import new_event_loop

SWITCH_S = 0.0005
"""How many seconds the journal's thread may keep the processor from the event loop."""


class Ending(IntEnum):
    """How a broker's process ends: its exit status."""

    STOPPED = 0
    """The broker was asked to stop; its state is kept."""
    FAILED = 1
    """The broker cannot start or continue; the message says why."""
    WRONG = 2
    """The configuration cannot be used."""


def run_broker(
    config: BrokerConfig,
    ready: Callable[[BrokerServer], None],
    complain: Callable[[str], None],
    *,
    reread: Reread | None = None,
    until_input_ends: bool = False,
) -> Ending:
    """Run a broker until it is asked to stop (SIGTERM or SIGINT) or cannot continue.

    SIGHUP has it read its configuration again, by `reread`.

    It stops in good order: it takes no more, finishes what is under way, and keeps its state. A
    second signal ends it at once, which is safe, too: what it has acknowledged is on disk. With
    `until_input_ends`, it also stops at the end of standard input, which comes when the process
    that holds the other end dies.
    """
    set_up_logging(config.log)
    sys.meta_path.insert(0, _WithoutPandas())
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            server = _serve(
                config, ready, complain, reread=reread, until_input_ends=until_input_ends
            )
            return runner.run(server)
    except KeyboardInterrupt:  # Before there was anything to stop.
        return Ending.STOPPED


def main(arguments: list[str]) -> Ending:
    """Run the broker of a configuration file, as a process of its own."""
    file = Path(arguments[0])

    def read() -> BrokerConfig:
        return BrokerConfig.load(file)

    try:
        config = read()
    except ConfigError as error:
        _complain(str(error))
        return Ending.WRONG

    def ready(server: BrokerServer) -> None:
        sys.stdout.write(f"{server.address.url}\n")
        sys.stdout.flush()

    return run_broker(config, ready, _complain, reread=read, until_input_ends=True)


class _WithoutPandas(MetaPathFinder):
    """Arrow loads pandas where it is installed; a broker has no use for it and its 40 MB."""

    def find_spec(self, fullname: str, *_where: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def _complain(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")


async def _serve(
    config: BrokerConfig,
    ready: Callable[[BrokerServer], None],
    complain: Callable[[str], None],
    *,
    reread: Reread | None,
    until_input_ends: bool,
) -> Ending:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_or_end, stopping, number)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # The configuration was read just now.
    if until_input_ends:
        loop.add_reader(sys.stdin.fileno(), _look_for_the_end, loop, stopping)
    try:
        server = BrokerServer(config, reread=reread)
        await server.start()
    except SternaError as error:
        complain(str(error))
        return Ending.FAILED
    except OSError as error:
        complain(f"{config.name} cannot start: {error}")
        return Ending.FAILED
    load_in_background()  # From now on: what was recovered is compiled already, if it is much.
    spare_the_collector()
    sys.setswitchinterval(SWITCH_S)
    reloads: set[asyncio.Task[Report]] = set()
    loop.add_signal_handler(signal.SIGHUP, _reload, server, reloads)
    ready(server)
    waiting = {
        asyncio.create_task(stopping.wait(), name="asked to stop"),
        asyncio.create_task(server.over.wait(), name="cannot go on"),
    }
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    failure: Exception | None = None
    try:
        await server.stop()
    except (SternaError, OSError) as error:
        failure = error
    failure = server.failure or failure
    if failure is not None:
        complain(f"{config.name} stops: {failure}")
        return Ending.FAILED
    return Ending.STOPPED


def _stop_or_end(stopping: asyncio.Event, number: int) -> None:
    if stopping.is_set():
        os._exit(128 + number)
    stopping.set()


def _reload(server: BrokerServer, reloads: "set[asyncio.Task[Report]]") -> None:
    task = asyncio.create_task(server.reload())
    reloads.add(task)
    task.add_done_callback(reloads.discard)


def _look_for_the_end(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        if os.read(sys.stdin.fileno(), 4096):
            return
    loop.remove_reader(sys.stdin.fileno())
    stopping.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
