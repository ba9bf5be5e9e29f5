"""`sterna up`: a network of brokers on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from sterna.cli.output import NO, errors, fail, print_json
from sterna.errors import SternaError
from sterna.net.address import PORT
from sterna.net.config import BrokerConfig, ConfigError, Overlay, variable
from sterna.net.home import brokers_in, data_in, runner_of
from sterna.net.local import HOST, LocalNetwork, wait_for

BROKERS = 4
"""How many brokers a new network has, unless somebody says how many."""

DOWN_S = 120.0
"""How long a network may take to stop: each broker has its time, one after the other."""

_LOOK_S = 0.2


def up(
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help=f"How many; {BROKERS} unless the directory holds a network.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A configuration for all of them; each has its own name, addresses and data.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A directory for it, or with it; a new one if not given."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="FIRST",
            min=0,
            max=65535,
            help=f"The first port; 0: any. Without it those that the network has; a new one has "
            f"those from {PORT} on, or any if they are taken.",
            show_default=False,
        ),
    ] = None,
    overlay: Annotated[
        Overlay | None,
        typer.Option(
            help="Whether they are in a tree as configured, elect a leader and make their own, or "
            "stand for devices alone, each of which serves only while clients need it.",
            show_default=False,
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", "-d", help="Go on in the background; `sterna down` stops it."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as a JSON line.")
    ] = False,
) -> None:
    """Start a network of brokers; Ctrl-C stops it.

    They are in a tree. With `--overlay elect`, they find it by themselves, and another one when
    brokers fail. With `--overlay ad-hoc`, each stands for a device without a fixed network.

    Each broker is a process of its own. Their addresses are printed when they are all connected.
    With `--data`, a network that is in the directory continues as it is: with its brokers, their
    addresses, configurations and data. `--config` and `--port` change it, once it has started.

    Exit status: 0 stopped, 1 all brokers have ended by themselves, 2 it cannot start.
    """
    try:
        found = {} if data is None else brokers_in(data, os.environ)
        # A name in the file or the environment is for none of them.
        given = {**os.environ, variable("", "name"): "B1"}
        if overlay is not None:
            given[variable("network", "overlay")] = str(overlay)
        common = None if found and config is None else BrokerConfig.load(config, given)
    except ConfigError as error:
        fail("\n       ".join(error.problems), as_json=as_json, problems=error.problems)
    if common is None and overlay is not None:
        _check_overlay(data, overlay, found, as_json=as_json)
    count = _count(data, found, brokers, as_json=as_json)
    directory = data or Path(tempfile.mkdtemp(prefix="sterna-"))
    if detach:
        _detach(directory, count, config, port, overlay, as_json=as_json)
        return
    has_ended = False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        network = LocalNetwork(
            count,
            directory=directory,
            config=common,
            first_port=port if found else _first_port(port, count),
            found=found,
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


def down(
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory of the network.", show_default=False)
    ],
) -> None:
    """Stop a network that `sterna up` has started, in this terminal, another one or none.

    Its data stays; `sterna up --data DIR` continues it.

    Exit status: 0 stopped, 1 it did not run, 2 on an error.
    """
    pid = runner_of(data)
    if pid is None:
        errors.print(f"no network runs in {data}", markup=False, soft_wrap=True)
        raise typer.Exit(NO)
    try:
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: runner_of(data) is None, f"process {pid} does not stop", limit_s=DOWN_S)
    except ProcessLookupError:
        pass  # It has just ended.
    except OSError as error:
        fail(f"cannot stop process {pid}: {error.strerror}")
    except SternaError as error:
        fail(str(error))
    errors.print(f"stopped; their data stays in {data}", markup=False, soft_wrap=True)


def _detach(
    directory: Path,
    brokers: int,
    config: Path | None,
    port: int | None,
    overlay: Overlay | None,
    *,
    as_json: bool,
) -> None:
    """Have another process do it, which nothing of this terminal ends."""
    options = ["--brokers", str(brokers), "--data", str(directory.absolute()), "--json"]
    options += [] if config is None else ["--config", str(config.absolute())]
    options += [] if port is None else ["--port", str(port)]
    options += [] if overlay is None else ["--overlay", str(overlay)]
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "up.log").open("w+", encoding="utf-8") as messages:
        process = subprocess.Popen(  # noqa: S603 - our own program.
            [sys.executable, "-m", "sterna.cli", "up", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 - as it was made.
        try:
            line = process.stdout.readline()
            if not line.endswith("}\n"):  # It has ended, and says why.
                line += process.communicate()[0]
        except BaseException:
            process.terminate()
            raise
        process.stdout.close()
        messages.seek(0)
        told: dict[str, Any] = json.loads(line) if line else {"error": messages.read().strip()}
    if "error" in told:
        fail(told["error"] or "the network did not start", as_json=as_json)
    if as_json:
        sys.stdout.write(line)
        return
    for broker in told["brokers"]:
        sys.stdout.write(f"{broker['name']} {broker['url']}\n")
    errors.print(f"stop it with: sterna down --data {directory}", markup=False, soft_wrap=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _count(
    directory: Path | None, found: Collection[str], brokers: int | None, *, as_json: bool
) -> int:
    """How many brokers there are to be. A network continues with those it had, for their links."""
    had = len(found) or (0 if directory is None else len(data_in(directory)))
    if had and brokers not in {None, had}:
        fail(
            f"{directory} holds {had} brokers: start as many with --brokers {had}, or give "
            "another directory with --data",
            as_json=as_json,
        )
    return had or brokers or BROKERS


def _check_overlay(
    directory: Path | None, overlay: Overlay, found: Mapping[str, BrokerConfig], *, as_json: bool
) -> None:
    """A network that continues keeps its overlay: its brokers know different neighbours."""
    if any(each.network.overlay is not overlay for each in found.values()):
        fail(
            f"{directory} holds a network with another overlay: give --config FILE as well, with "
            "the configuration for all of its brokers, or another directory with --data",
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
