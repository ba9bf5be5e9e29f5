"""A network of brokers on this machine, each of them a process."""

import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from msgspec.structs import replace

from sterna.errors import SternaError
from sterna.extras import require
from sterna.net.address import Address
from sterna.net.config import BrokerConfig, ConfigError, Overlay
from sterna.net.home import CONFIG_NAME, claim
from sterna.net.observer import ask
from sterna.net.watchdog import HELD_S

HOST = "127.0.0.1"
START_S = 30.0
"""How long a broker may take to start, and the network to be whole."""
STOP_S = 15.0
"""How long a broker may take to stop before it is killed."""

_POLL_S = 0.02
_PORTS = range(20_000, 31_000)
"""Below the ports of outgoing connections: no other process gets such a port by accident while its
broker is down, and a broker that dials it meanwhile does not connect to itself."""

_SIGNS_BELOW = 12_000
"""The ports that are held as a sign have numbers that are smaller by this."""

ALL_CANDIDATES_MAX = 16
"""In networks that make their own tree, brokers have each other as candidates; in larger ones only
some, so that heartbeats do not become too many."""


class LocalNetwork:
    """Brokers in a tree, with data, configuration and messages of each in a directory of its own.

        with LocalNetwork(4, directory=Path("data")) as network:
            network.kill("B2")
            network.restart("B2")

    `B1` is the root; each broker has two children, as far as they go. With `network.overlay` =
    `elect`, they make their own tree. They keep their addresses as long as the network exists, and
    end with the process that started them.
    """

    def __init__(
        self,
        brokers: int = 4,
        *,
        directory: Path,
        config: BrokerConfig | Mapping[str, Any] | None = None,
        first_port: int | None = None,
        links: Mapping[str, str] | None = None,
        found: Mapping[str, BrokerConfig] | None = None,
    ) -> None:
        """Make a network; `start` starts it.

        `config` holds for all brokers, as a configuration or as tables and keys of a file; each
        has its own name, addresses, data and neighbours, whatever is in there about those. The
        default of `first_port`, and 0, mean any ports. `links` replaces the tree: for each broker
        the one that it connects to.

        `found` are brokers that the directory holds already (`brokers_in`). They continue as they
        are, with their addresses and links, unless `config` or `first_port` is given.
        """
        require("broker", "a network of brokers")
        self.directory = directory.absolute()
        self.names = list(found) if found else [f"B{n}" for n in range(1, brokers + 1)]
        self._reserved: list[socket.socket] = []
        if found and first_port is None:
            self.addresses = {name: Address.parse(each.listen) for name, each in found.items()}
        else:
            count = len(self.names)
            ports = _from(first_port, count) if first_port else self._reserve(count)
            self.addresses = {
                name: Address(HOST, port) for name, port in zip(self.names, ports, strict=True)
            }
        self.links = (
            dict(links)
            if links is not None
            else _links(found)
            if found
            else {f"B{number}": f"B{number // 2}" for number in range(2, brokers + 1)}
        )
        """For each broker but the root, the one that it connects to."""
        if found and config is None:
            self.configs = {name: self._moved(each, found) for name, each in found.items()}
        else:
            common = config if isinstance(config, BrokerConfig) else _read(config or {})
            common = self._with_free_ports(common)
            self.configs = {
                name: self._config(place, name, common) for place, name in enumerate(self.names)
            }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._told: set[str] = set()
        """Brokers whose end the caller knows of already."""
        self._release: Callable[[], None] | None = None

    # ---- Addresses and processes

    @property
    def urls(self) -> dict[str, str]:
        """The URL of each broker, in the order of their names."""
        return {name: address.url for name, address in self.addresses.items()}

    def mqtt(self, name: str) -> Address:
        """Where a broker is reached by MQTT; an error if its configuration has no such address."""
        return Address.parse(self.configs[name].mqtt.listen)

    def mqtt_websocket(self, name: str) -> Address:
        """Where MQTT clients connect to a broker over WebSockets, with `mqtt.websocket`."""
        return Address.parse(self.configs[name].mqtt.websocket)

    def url(self, name: str) -> str:
        """The URL of a broker."""
        return self.addresses[name].url

    def pid(self, name: str) -> int:
        """The process of a broker."""
        return self._processes[name].pid

    def is_running(self, name: str) -> bool:
        """Whether the process of a broker is there."""
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def data(self, name: str) -> Path:
        """The directory of a broker's log, snapshots and journal."""
        return Path(self.configs[name].data)

    def messages(self, name: str) -> Path:
        """The file of a broker's log messages."""
        return self.directory / name / "broker.log"

    # ---- Life

    def start(self) -> Self:
        """Start all brokers, and wait until they know each other.

        NetworkRunsError if another process runs them. If they do not start, the configurations in
        the directory are again what they were.
        """
        self._release = claim(self.directory)
        files = [self.directory / name / CONFIG_NAME for name in self.names]
        before = {file: file.read_bytes() if file.exists() else None for file in files}
        try:
            self._check_ports()
            for name in self.names:
                self._spawn(name)
            for name in self.names:
                self._wait_until_ready(name)
            self.wait_until_whole()
        except BaseException:
            self.stop(patience_s=1.0)
            for file, content in before.items():
                if content is not None and file.read_bytes() != content:
                    file.write_bytes(content)
            raise
        return self

    def kill(self, name: str) -> None:
        """End a broker with SIGKILL, as a crash would, and wait until it is gone."""
        self._told.add(name)
        process = self._processes[name]
        process.kill()
        process.wait()

    def end(self, name: str, *, patience_s: float = STOP_S) -> int:
        """Have a broker stop in good order; return its exit status. One that does not is killed."""
        self._told.add(name)
        process = self._processes[name]
        process.terminate()
        try:
            return process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def restart(self, name: str) -> None:
        """Start a broker again with the data it has, and wait until it listens."""
        if self.is_running(name):
            self.end(name)
        self._spawn(name)
        self._wait_until_ready(name)

    def reload(self, name: str) -> Any:
        """Have a running broker read its configuration again; return its report."""
        self._write_config(name)
        return ask(self.url(name), "reload", timeout_s=START_S)

    def stop(self, *, patience_s: float = STOP_S) -> None:
        """Stop all brokers in good order, those that connect to others first."""
        for name in reversed(list(self._processes)):
            self.end(name, patience_s=patience_s)
            self._let_go(name)
        while self._reserved:
            self._reserved.pop().close()
        if self._release is not None:
            self._release()
            self._release = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        try:
            self.stop()
        except KeyboardInterrupt:
            self.stop(patience_s=0)
            raise

    # ---- Looking

    def ask(self, name: str, what: str) -> Any:
        """What a broker answers to `status`, `topology` or `queues`."""
        return ask(self.url(name), what)

    def wait_until_whole(self, *, limit_s: float = START_S) -> None:
        """Wait until each broker knows all others, over links that are up."""
        wait_for(self._is_whole, "the network is not whole", limit_s=limit_s)

    def wait_until_settled(self, *, limit_s: float = START_S) -> None:
        """Wait until nothing waits at any broker for another broker or a connected client."""
        wait_for(self._is_settled, "the network does not settle", limit_s=limit_s)

    def died(self) -> dict[str, str]:
        """Brokers that have ended by themselves since the last call, each with the reason."""
        ended = {}
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None and name not in self._told:
                self._told.add(name)
                ended[name] = self._how_it_ended(name, status)
        return ended

    def held(self, *, busy_s: float = HELD_S) -> dict[str, str]:
        """Brokers whose event loop was at work on one thing for longer than this, each with what.

        By processor time, so that a machine that is busy with other things is not their fault.
        """
        held = {}
        for name in self.names:
            if self.is_running(name):
                loop = self.ask(name, "status")["loop"]
                if loop["busy_s_max"] > busy_s:
                    held[name] = f"held for {loop['busy_s_max']:.3f} s by {loop['busy_at']}"
        return held

    def _is_whole(self) -> bool:
        try:
            return all(self._knows_all(self.ask(name, "topology")) for name in self.names)
        except SternaError:
            return False

    def _knows_all(self, topology: Any) -> bool:
        if self._are_alone:
            return True  # Most of them sleep.
        return set(topology["brokers"]) >= set(self.names) and all(
            neighbour["is_up"] for neighbour in topology["neighbours"]
        )

    @property
    def _are_alone(self) -> bool:
        """Whether these are devices alone, whose brokers need not know each other."""
        return any(each.network.overlay is Overlay.AD_HOC for each in self.configs.values())

    def _is_settled(self) -> bool:
        try:
            return all(self.ask(name, "status")["is_settled"] for name in self.names)
        except SternaError:
            return False

    def _how_it_ended(self, name: str, status: int) -> str:
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        lines = self.messages(name).read_text(encoding="utf-8", errors="replace").splitlines()
        last = f": {lines[-1]}" if lines else ""
        return f"ended with status {status}{last}"

    # ---- Starting

    def _with_free_ports(self, common: BrokerConfig) -> BrokerConfig:
        """A configuration with ports for MQTT that stay the same, whatever is started again."""
        mqtt = common.mqtt
        listen, websocket = self._free(mqtt.listen), self._free(mqtt.websocket)
        return replace(common, mqtt=replace(mqtt, listen=listen, websocket=websocket))

    def _free(self, listen: str) -> str:
        """The first of as many free ports as there are brokers, in the place of port 0."""
        if not listen or Address.parse(listen).port:
            return listen
        count = len(self.names)
        for _ in range(100):
            first = random.choice(_PORTS[:-count])  # noqa: S311 - it keeps no secret.
            taken = {address.port for address in self.addresses.values()}
            if taken.isdisjoint(range(first, first + count)) and self._is_free(first, count):
                return str(Address.parse(listen)._replace(port=first))
        raise SternaError(f"there are no {count} free ports for MQTT; give the first one")

    def _is_free(self, first: int, count: int) -> bool:
        """Whether so many ports are free; if so, they are held for this network."""
        signs: list[socket.socket] = []
        try:
            for port in range(first, first + count):
                signs.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                signs[-1].bind((HOST, port))
                with socket.socket() as probe:
                    probe.bind((HOST, port))
        except OSError:
            for sign in signs:
                sign.close()
            return False
        self._reserved += signs
        return True

    def _config(self, place: int, name: str, common: BrokerConfig) -> BrokerConfig:
        up = self.links.get(name)
        http, mqtt = common.http, common.mqtt
        if http.listen:
            http = replace(http, listen=_behind(http.listen, place))
        if mqtt.listen:
            mqtt = replace(mqtt, listen=_behind(mqtt.listen, place))
        if mqtt.websocket:
            mqtt = replace(mqtt, websocket=_behind(mqtt.websocket, place))
        graph = common.places.graph
        return replace(
            common,
            name=name,
            listen=str(self.addresses[name]),
            advertised_address=None,
            data=str(self.directory / name / "data"),
            network=replace(
                common.network,
                neighbours=self._candidates(place)
                if common.network.elects
                else (self.url(up),)
                if up is not None
                else (),
                parent=up if common.network.hierarchy else None,
            ),
            places=replace(common.places, graph=graph and str(Path(graph).absolute())),
            http=http,
            mqtt=mqtt,
        )

    def _candidates(self, place: int) -> tuple[str, ...]:
        """Whom a broker may be linked with: all others, or those 1, 2, 4, 8, … places from it."""
        count = len(self.names)
        steps = range(1, count) if count <= ALL_CANDIDATES_MAX else _powers_of_two(count)
        places = sorted({(place + way * step) % count for step in steps for way in (1, -1)})
        return tuple(self.url(self.names[other]) for other in places if other != place)

    def _check_ports(self) -> None:
        """SternaError if a port is taken, before anything is written."""
        for address in self.addresses.values():
            try:
                with socket.create_server((address.host, address.port)):
                    pass
            except OSError as error:
                raise SternaError(
                    f"cannot listen on {address}: {error.strerror or error}; choose other ports "
                    "(`sterna up --port`, 0: any)"
                ) from None

    def _moved(self, config: BrokerConfig, found: Mapping[str, BrokerConfig]) -> BrokerConfig:
        """The configuration of a broker that was found, at its address and with its neighbours'."""
        urls = {Address.parse(each.listen).url: self.url(name) for name, each in found.items()}
        neighbours = tuple(urls.get(url, url) for url in config.network.neighbours)
        return replace(
            config,
            listen=str(self.addresses[config.name]),
            network=replace(config.network, neighbours=neighbours),
        )

    def _spawn(self, name: str) -> None:
        file = self._write_config(name)
        self._let_go(name)
        self._told.discard(name)
        with self.messages(name).open("ab") as messages:
            self._processes[name] = start_broker(file, messages)

    def _write_config(self, name: str) -> Path:
        directory = self.directory / name
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / CONFIG_NAME
        if not file.exists() or not _holds(file, self.configs[name]):
            file.write_text(self.configs[name].to_toml(), encoding="utf-8")
        return file

    def _let_go(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def _wait_until_ready(self, name: str) -> None:
        """Wait for the line with its address: at the port, another process might answer."""
        process = self._processes[name]
        assert process.stdout is not None  # noqa: S101 - as _spawn has made it.
        ready, _, _ = select.select([process.stdout], [], [], START_S)
        if not ready:
            raise SternaError(f"{name} does not start in {START_S:g} s: {self.messages(name)}")
        if not process.stdout.readline():
            self._told.add(name)
            how = self._how_it_ended(name, process.wait())
            raise SternaError(f"{name} did not start: {how}")

    def _reserve(self, count: int) -> list[int]:
        """Ports that are free, and stay so while brokers are down.

        UDP ports with other numbers, which nobody uses, are held as a sign to other networks.
        """
        ports: list[int] = []
        for port in random.sample(_PORTS, len(_PORTS)):
            sign = _datagrams()
            try:
                sign.bind((HOST, port - _SIGNS_BELOW))
                with socket.socket() as probe, _datagrams() as other_probe:
                    probe.bind((HOST, port))
                    other_probe.bind((HOST, port))
            except OSError:
                sign.close()
                continue
            self._reserved.append(sign)
            ports.append(port)
            if len(ports) == count:
                return ports
        raise SternaError(
            f"there are no {count} free ports from {_PORTS[0]} on; give the first one"
        )


def start_broker(file: Path, messages: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start the process of a broker with a configuration; its log messages go to a file."""
    return subprocess.Popen(  # noqa: S603 - our own program.
        [sys.executable, "-m", "sterna.net.daemon", str(file)],
        stdin=subprocess.PIPE,  # It closes when this process dies; then they end, too.
        stdout=subprocess.PIPE,
        stderr=messages,
        process_group=0,  # Ctrl-C is for the process that started them.
    )


def wait_for(condition: Callable[[], bool], problem: str, *, limit_s: float = START_S) -> None:
    """Wait until a condition holds; SternaError with the problem if it takes too long."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise SternaError(f"{problem} after {limit_s:g} s")
        time.sleep(_POLL_S)


def _behind(listen: str, place: int) -> str:
    """The address of a broker at a place, if this is that of the first; any port stays any."""
    address = Address.parse(listen)
    return str(address._replace(port=address.port + place)) if address.port else listen


def _datagrams() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _powers_of_two(end: int) -> list[int]:
    return [2**power for power in range(end.bit_length()) if 2**power < end]


def _from(first: int, count: int) -> Sequence[int]:
    return range(first, first + count)


def _links(found: Mapping[str, BrokerConfig]) -> dict[str, str]:
    """For each broker the other one that it connects to, if it does."""
    names = {Address.parse(config.listen).url: name for name, config in found.items()}
    return {
        name: names[url]
        for name, config in found.items()
        for url in config.network.neighbours
        if url in names
    }


def _holds(file: Path, config: BrokerConfig) -> bool:
    """Whether a file says what a configuration does, perhaps in words of its own."""
    try:
        return BrokerConfig.load(file) == config
    except ConfigError:
        return False


def _read(tables: Mapping[str, Any]) -> BrokerConfig:
    return BrokerConfig.from_mapping({"name": "B1", **tables})
