"""The brokers that are measured, each a process of its own on a free port of this machine."""

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from sterna.bench.load import LoadError
from sterna.net.config import PREFIX, Durability

START_S = 30.0
STOP_S = 20.0
CONNECTIONS_MAX = 20_000

MOSQUITTO_SETTINGS = {
    "allow_anonymous": "true",
    "set_tcp_nodelay": "true",
    "max_queued_messages": "0",
    "max_queued_bytes": "0",
    "max_inflight_messages": "0",
    "sys_interval": "0",
    "log_type": "none",
}
"""Settings with which nothing is dropped for want of room (0: no limit) and nothing logged."""


class Server(ABC):
    """A broker in a process of its own, which runs inside the `with`.

    It starts at once, so that several can start together.
    """

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        self.client_port = self.port
        """Where those connect that load it."""
        self._log = directory / "standard-error.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs.
                self.command(directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={k: v for k, v in os.environ.items() if not k.startswith(PREFIX)},
            )

    @abstractmethod
    def command(self, directory: Path) -> Sequence[str]:
        """The command that starts it, so that it listens on `port`."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def resident_bytes(self) -> int | None:
        """The memory that it has; None if the system does not report it."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        except OSError:
            return None
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_s(self) -> float | None:
        """The processor time that it has used; None if the system does not report it."""
        try:  # In nanoseconds; elsewhere Linux counts in hundredths of a second.
            tasks = list(Path(f"/proc/{self.pid}/task").glob("*/schedstat"))
            used = [int(task.read_text(encoding="ascii").split()[0]) for task in tasks]
        except OSError:
            return None
        return sum(used) / 1e9 if used else None

    def __enter__(self) -> Self:
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def __exit__(self, *raised: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _wait(self) -> None:
        """Wait until it accepts connections."""
        deadline = monotonic() + START_S
        while monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                sleep(0.02)
            else:
                return
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise LoadError(f"{type(self).__name__} did not start: {said[-1] if said else 'no word'}")


class SternaServer(Server):
    """A Sterna broker with all features on; `settings` are keys of its file, by table.

    With `is_mqtt`, its clients speak MQTT; with `python`, it is that of another installation.
    """

    def __init__(
        self,
        directory: Path,
        level: Durability,
        *,
        name: str = "B1",
        neighbours: Sequence[str] = (),
        settings: Mapping[str, Mapping[str, object]] | None = None,
        is_mqtt: bool = False,
        python: Path | None = None,
    ) -> None:
        self._name = name
        self._python = str(python or sys.executable)
        self._tables: dict[str, dict[str, object]] = {
            "network": {"neighbours": list(neighbours)},
            "durability": {"level": str(level)},
            "http": {"listen": "127.0.0.1:0"},
            "heartbeat": {"every_s": 60.0},
            "limits": {"connections_max": CONNECTIONS_MAX},
        }
        for table, keys in (settings or {}).items():
            self._tables.setdefault(table, {}).update(keys)
        mqtt_port = free_port()
        if is_mqtt:
            self._tables["mqtt"] = {"listen": f"127.0.0.1:{mqtt_port}", "sys_interval_s": 0}
        super().__init__(directory)
        if is_mqtt:
            self.client_port = mqtt_port

    @property
    def url(self) -> str:
        return f"sterna://127.0.0.1:{self.port}"

    def command(self, directory: Path) -> Sequence[str]:
        config = directory / "broker.toml"
        own = {"name": self._name, "listen": f"127.0.0.1:{self.port}", "data": "data"}
        lines = _keys(own)
        for table, keys in self._tables.items():
            lines += [f"[{table}]", *_keys(keys)]
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return [self._python, "-c", _STERNA, "broker", "--config", str(config)]


class MosquittoServer(Server):
    """Mosquitto; with a directory to keep sessions in if they are to last."""

    def __init__(self, binary: str, directory: Path, *, persistent: bool) -> None:
        self._binary = binary
        self._is_persistent = persistent
        super().__init__(directory)

    def command(self, directory: Path) -> Sequence[str]:
        config = directory / "mosquitto.conf"
        settings = {"listener": f"{self.port} 127.0.0.1", **MOSQUITTO_SETTINGS}
        settings["user"] = getpass.getuser()
        settings["persistence"] = str(self._is_persistent).lower()
        if self._is_persistent:
            settings["persistence_location"] = f"{directory}/"
        config.write_text(
            "".join(f"{key} {value}\n" for key, value in settings.items()), encoding="utf-8"
        )
        return [self._binary, "-c", str(config)]


class RelayServer(Server):
    """The least that a broker can do, to see the limit of the load generator itself."""

    def command(self, directory: Path) -> Sequence[str]:
        del directory
        return [sys.executable, "-m", "sterna.bench.relay", str(self.port)]


def find_mosquitto() -> str | None:
    """The path of mosquitto, if it is installed."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def mosquitto_version(binary: str) -> str:
    """The version that mosquitto reports."""
    said = subprocess.run(  # noqa: S603 - what was found is what the user has installed.
        [binary, "-h"], capture_output=True, text=True, check=False
    ).stdout
    return said.splitlines()[0] if said else "mosquitto"


def free_port() -> int:
    """A port of this machine on which nothing listens right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _keys(table: Mapping[str, object]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]  # TOML, too.


_STERNA = "from sterna.cli.main import run; run()"
