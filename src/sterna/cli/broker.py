"""`sterna broker`: one broker, in the foreground."""

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from sterna.cli.addressing import with_scheme
from sterna.cli.output import fail, print_json
from sterna.net.address import Address, AddressError
from sterna.net.config import BrokerConfig, ConfigError, variable

if TYPE_CHECKING:
    from sterna.net.broker import BrokerServer

EXAMPLE_NAME = "b1"
"""What a broker is called in a printed file if nobody has named it."""


def broker(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Its configuration: see docs/reference/configuration.md."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where it listens; port 0: any.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where its data is.")] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A broker to connect to, besides those of the file."),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print the whole configuration, as a file to begin with, and do nothing else.",
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check the configuration, and do nothing else.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as a JSON line.")
    ] = False,
) -> None:
    """Run one broker until it is stopped.

    Prints its address when it is ready. Options count more than environment variables, and these
    more than the file. Ctrl-C or SIGTERM stops it in good order; a second one ends it at once.
    SIGHUP has it read the file again, as `sterna reload` does.

    Exit status: 0 stopped, 1 it cannot start or go on, 2 the configuration is wrong.
    """
    if print_config and name is None and config is None:
        name = os.environ.get(variable("", "name"), EXAMPLE_NAME)
    given = {"name": name, "listen": listen, "data": None if data is None else str(data.absolute())}
    options = {key: value for key, value in given.items() if value is not None}
    read = partial(_read, config, options, [with_scheme(url) for url in join or []])
    try:
        loaded = read()
    except ConfigError as error:
        problems = list(error.problems)
        fail("\n       ".join(problems), as_json=as_json, problems=problems)
    if print_config:
        sys.stdout.write(loaded.to_toml())
    elif check:
        if as_json:
            print_json({"valid": True, "name": loaded.name})
        else:
            sys.stdout.write(f"the configuration of {loaded.name} is right\n")
    else:
        _run(loaded, read, as_json=as_json)


def _read(file: Path | None, options: dict[str, str], join: list[str]) -> BrokerConfig:
    """The configuration of a file, the environment and the options; ConfigError if it is wrong."""
    problems = []
    for url in join:
        try:
            Address.from_url(url)
        except AddressError as error:
            problems.append(f"--join: {error}")
    variables = {variable("", key): value for key, value in options.items()}
    loaded = None
    try:
        loaded = BrokerConfig.load(file, {**os.environ, **variables})
    except ConfigError as error:
        problems += [_as_option(problem, options) for problem in error.problems]
    if loaded is None or problems:
        raise ConfigError(problems)
    network = loaded.network
    return replace(
        loaded, network=replace(network, neighbours=(*network.neighbours, *dict.fromkeys(join)))
    )


def _as_option(problem: str, options: Iterable[str]) -> str:
    """Reword a problem of a variable as one of the option that sets it."""
    for key in options:
        problem = problem.replace(f"{variable('', key)}: {key}:", f"--{key}:")
    return problem


def _run(config: BrokerConfig, reread: Callable[[], BrokerConfig], *, as_json: bool) -> None:
    from sterna.net.daemon import run_broker  # noqa: PLC0415 - other commands need not load it.

    def ready(server: "BrokerServer") -> None:
        if as_json:
            http = server.http_address
            document = {
                "name": config.name,
                "url": server.address.url,
                "http": None if http is None else f"http://{http}",
            }
            print_json(document, indent=None)
        else:
            sys.stdout.write(f"{server.address.url}\n")
        sys.stdout.flush()

    def complain(message: str) -> None:
        sys.stderr.write(f"error: {message}\n")

    raise typer.Exit(run_broker(config, ready, complain, reread=reread))
