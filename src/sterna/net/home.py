"""The directory of a network on this machine: which brokers it holds, and which process runs it."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from sterna.errors import NetworkRunsError
from sterna.net.config import BrokerConfig, ConfigError, variable
from sterna.net.storage.disk import REAL

CONFIG_NAME = "broker.toml"
LOCK_NAME = "network.lock"

_NAME = re.compile(r"B(\d+)")
_OF_ONE_BROKER = {
    *(variable("", key) for key in ("name", "listen", "advertised_address", "data")),
    *(variable("network", "neighbours"), variable("http", "listen")),
}
"""Environment variables that would give all brokers what only one of them can have."""


def brokers_in(
    directory: Path, environment: Mapping[str, str] | None = None
) -> dict[str, BrokerConfig]:
    """The configurations of the brokers that a directory holds, in the order of their numbers.

    The environment overrides what is not of one broker alone. ConfigError if one of them is wrong.
    """
    shared = {
        name: value for name, value in (environment or {}).items() if name not in _OF_ONE_BROKER
    }
    found = {}
    for name in _names(directory, CONFIG_NAME):
        file = directory / name / CONFIG_NAME
        config = BrokerConfig.load(file, shared)
        if config.name != name:
            raise ConfigError([f"{file}: name: is {name!r} in this directory, not {config.name!r}"])
        # The directory may have been moved since.
        found[name] = replace(config, data=str(directory.absolute() / name / "data"))
    return found


def data_in(directory: Path) -> list[str]:
    """The names of the brokers that have data in a directory."""
    return _names(directory, "data")


def claim(directory: Path) -> Callable[[], None]:
    """Keep other processes from running the network of a directory; the result lets them again.

    NetworkRunsError if another process runs it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / LOCK_NAME
    try:
        release = REAL.lock(file)
    except BlockingIOError:
        pid = _pid_in(file)
        raise NetworkRunsError(
            f"the network in {directory} runs already"
            f"{'' if pid is None else f', by process {pid}'}; stop it (`sterna down --data "
            f"{directory}`), or use another directory",
            pid=pid,
        ) from None
    file.write_text(f"{os.getpid()}\n", encoding="ascii")
    return release


def runner_of(directory: Path) -> int | None:
    """The process that runs the network of a directory; None if none does."""
    file = directory / LOCK_NAME
    if not file.exists():
        return None
    try:
        release = REAL.lock(file)
    except BlockingIOError:
        return _pid_in(file)
    release()
    return None


def _names(directory: Path, what: str) -> list[str]:
    found = [path.parent.name for path in directory.glob(f"B*/{what}")]
    numbers = {name: int(match[1]) for name in found if (match := _NAME.fullmatch(name))}
    return sorted(numbers, key=numbers.__getitem__)


def _pid_in(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # It has just begun.
        return None
