"""A network of real brokers, and commands that run beside the test."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.net.local import LocalNetwork, wait_for

COMMAND = Path(sys.executable).with_name("sterna")
WAIT_S = 60.0
"""A bound for what should take a moment, on a machine that may be busy."""


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """Brokers B1 and B2, with a street of locations. Tests share it: each has its own topic."""
    directory = tmp_path_factory.mktemp("network")
    streets = directory / "streets.csv"
    streets.write_text("1st,2nd\n2nd,3rd\n3rd,4th\n4th,5th\n")
    with LocalNetwork(
        2, directory=directory, config={"places": {"graph": str(streets)}}
    ) as network:
        yield network


def sterna(*arguments: str, stdin: str | bytes = "") -> tuple[int, str, str]:
    """Run a command to its end, here."""
    result = CliRunner().invoke(app, arguments, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def sterna_json(*arguments: str, stdin: str | bytes = "") -> tuple[int, Any]:
    status, out, err = sterna(*arguments, "--json", stdin=stdin)
    assert not err
    return status, json.loads(out)


@contextmanager
def running(*arguments: str, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A command as a process; killed in the end if it has not ended."""
    process = subprocess.Popen(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def subscribed(network: LocalNetwork, *clients: str, at: str = "B1") -> None:
    """Wait until clients have a subscription at a broker, and all brokers know of it."""

    def is_known() -> bool:
        queues = {each["name"]: each for each in network.ask(at, "queues")["queues"]}
        return all(queues.get(client, {}).get("subscriptions") for client in clients)

    wait_for(is_known, f"{clients} do not subscribe", limit_s=WAIT_S)
    network.wait_until_settled()
