"""`sterna up`: a network of brokers on this machine."""

import os
import re
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from sterna.cli.output import NO, errors, fail, print_json
from sterna.errors import SternaError
from sterna.net.address import PORT
from sterna.net.config import BrokerConfig, ConfigError, variable
from sterna.net.local import HOST, LocalNetwork

_LOOK_S = 0.2
_NAME = re.compile(r"B\d+")


def up(
    brokers: Annotated[int, typer.Option(min=1, max=64, help="How many.")] = 4,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A configuration for all of them; each has its own name, addresses and data.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where their data is; a new directory if not given."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="FIRST",
            min=0,
            max=65535,
            help=f"The first port; 0: any. Without it from {PORT} on, or any if those are taken.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as a JSON line.")
    ] = False,
) -> None:
    """Start a tree of brokers; Ctrl-C stops it.

    Each broker is a process of its own. Their addresses are printed when they are all connected.
    With `--data`, the network goes on with what is there.

    Exit status: 0 stopped, 1 all brokers have ended by themselves, 2 it cannot start.
    """
    try:
        # A name in the file or the environment is for none of them.
        common = BrokerConfig.load(config, {**os.environ, variable("", "name"): "B1"})
    except ConfigError as error:
        fail("\n       ".join(error.problems), as_json=as_json, problems=error.problems)
    directory = data or Path(tempfile.mkdtemp(prefix="sterna-"))
    _check_directory(directory, brokers, as_json=as_json)
    has_ended = False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        network = LocalNetwork(
            brokers, directory=directory, config=common, first_port=_first_port(port, brokers)
        )
        with network:
            _tell(network, as_json=as_json)
            _watch(network)
            has_ended = True
    except SternaError as error:
        fail(str(error), as_json=as_json)
    except KeyboardInterrupt:
        if not as_json:
            errors.print(f"stopped; their data stays in {directory}", markup=False)
    if has_ended:
        errors.print(f"all brokers have ended; see {directory}/B*/broker.log", markup=False)
        raise typer.Exit(NO)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _check_directory(directory: Path, brokers: int, *, as_json: bool) -> None:
    """Check that a network continues with the brokers it had: links to others would be missing."""
    had = {
        path.parent.name for path in directory.glob("B*/data") if _NAME.fullmatch(path.parent.name)
    }
    if had and len(had) != brokers:
        fail(
            f"{directory} has the data of {len(had)} brokers: start as many with "
            f"--brokers {len(had)}, or give another directory with --data",
            as_json=as_json,
        )


def _first_port(asked: int | None, count: int) -> int | None:
    """The first of consecutive ports, or None for any."""
    if asked is not None:
        return asked or None
    try:
        for port in range(PORT, PORT + count):
            with socket.create_server((HOST, port)):
                pass
    except OSError:
        return None
    return PORT


def _tell(network: LocalNetwork, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "brokers": [
                    {"name": name, "url": url, "pid": network.pid(name)}
                    for name, url in network.urls.items()
                ],
                "data": str(network.directory),
            },
            indent=None,
        )
        sys.stdout.flush()
        return
    for name, url in network.urls.items():
        sys.stdout.write(f"{name} {url}\n")
    sys.stdout.flush()
    errors.print(f"data in {network.directory}; Ctrl-C stops it", markup=False, soft_wrap=True)


def _watch(network: LocalNetwork) -> None:
    """Report each broker that ends, and how, until there is none."""
    while any(network.is_running(name) for name in network.names):
        time.sleep(_LOOK_S)
        for name, how in network.died().items():
            errors.print(
                f"{name} {how}; start it again with: "
                f"sterna broker --config {network.directory / name / 'broker.toml'}",
                markup=False,
                soft_wrap=True,
            )
