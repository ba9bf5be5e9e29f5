"""Fifty MQTT clients that roam while brokers are killed: what gets lost, and what comes twice.

They are clients of paho-mqtt, and know nothing of Sterna. The same devices make the same moves in a
network of Sterna brokers, or of mosquitto with bridges, if that is installed:

    python -m tests.net.roaming_devices sterna mosquitto
"""

import argparse
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from sterna.net.address import Address
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, network_in

V5, V311 = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311

BROKERS = 4
PUBLISHERS = 10
SUBSCRIBERS = 40
TOPICS_EACH = 2
"""To the topics of so many publishers each subscriber subscribes."""
EVENTS = 2
"""So many messages each publisher sends in a round."""
ROAMING = 0.1
"""The share of the devices that lose their connections in a round, and connect elsewhere."""
KILLED_EVERY, DOWN_FOR = 10, 4
"""In rounds: how often a broker is killed, and when it is started again."""
ANSWER_S = 10.0
QUIET_S = 5.0


class Brokers(ABC):
    """A network of brokers for devices."""

    names: list[str]

    @abstractmethod
    def at(self, name: str) -> Address:
        """Where devices connect to a broker."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """End a broker with `kill -9`."""

    @abstractmethod
    def restart(self, name: str) -> None:
        """Start it again, with what it has on its disk."""


class SternaBrokers(Brokers):
    """Brokers of Sterna, as they are without further settings."""

    def __init__(self, network: LocalNetwork) -> None:
        self.names = list(network.names)
        self._network = network

    def at(self, name: str) -> Address:
        return self._network.mqtt(name)

    def kill(self, name: str) -> None:
        self._network.kill(name)

    def restart(self, name: str) -> None:
        self._network.restart(name)


class Mosquittos(Brokers):
    """Mosquitto, with bridges for everything in a line, and as durable as it can be."""

    def __init__(self, directory: Path) -> None:
        found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        if found is None:
            raise SystemExit("mosquitto is not installed: apt-get install mosquitto")
        self._binary, self._directory = found, directory
        self.names = [f"B{number}" for number in range(1, BROKERS + 1)]
        self._ports = {name: _free_port() for name in self.names}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for place, name in enumerate(self.names):
            (directory / name).mkdir()
            self._write(name, self.names[place - 1] if place else None)
            self.restart(name)

    def _write(self, name: str, neighbour: str | None) -> None:
        folder = self._directory / name
        lines = [
            f"listener {self._ports[name]} 127.0.0.1",
            *("allow_anonymous true", "set_tcp_nodelay true", "log_type none"),
            *("max_queued_messages 0", "persistence true", f"persistence_location {folder}/"),
            *("autosave_on_changes true", "autosave_interval 1"),  # After each change.
        ]
        if neighbour is not None:
            lines += [
                f"connection {name}-{neighbour}",
                f"address 127.0.0.1:{self._ports[neighbour]}",
                *("topic # both 2", "cleansession false", "restart_timeout 1"),
                *("bridge_protocol_version mqttv311", "notifications false", "try_private true"),
            ]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def at(self, name: str) -> Address:
        return Address("127.0.0.1", self._ports[name])

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def restart(self, name: str) -> None:
        config = self._directory / name / "mosquitto.conf"
        self._running[name] = subprocess.Popen([self._binary, "-c", str(config)])
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._ports[name]), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End all of them."""
        for name in list(self._running):
            self.kill(name)


@contextmanager
def brokers_of(kind: str, directory: Path) -> Iterator[Brokers]:
    """A network of a kind, which runs inside the `with`."""
    if kind == "sterna":
        with network_in(directory, BROKERS, mqtt={"listen": "127.0.0.1:0"}) as network:
            yield SternaBrokers(network)
    else:
        mosquittos = Mosquittos(directory)
        try:
            yield mosquittos
        finally:
            mosquittos.stop()


class Roamer:
    """A device: an unmodified client, and what its application has got."""

    def __init__(self, name: str, qos: int, version: MQTTProtocolVersion) -> None:
        more: dict[str, Any] = {} if version is V5 else {"clean_session": False}
        self.name, self.qos = name, qos
        self.rng = random.Random(name)  # noqa: S311 - reproducible, not secret.
        self.topics: list[str] = []
        self.got: list[tuple[str, int]] = []
        """The topic and the number of each message that came."""
        self.came_at = 0.0
        self.broker = ""
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=version, **more
        )
        self.client.max_inflight_messages_set(20)
        self._version = version
        self._answered = threading.Event()
        self._is_accepted = self._is_present = False
        self.client.on_connect = self._connected
        self.client.on_message = self._came

    def _connected(self, _client: Any, _data: Any, flags: Any, reason: Any, _: Any) -> None:
        self._is_accepted = not reason.is_failure
        self._is_present = flags.session_present
        if self._is_accepted and not self._is_present and self.topics:
            self.client.subscribe([(topic, self.qos) for topic in self.topics])
        self._answered.set()

    def _came(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self.got.append((message.topic, int(message.payload)))
        self.came_at = time.monotonic()

    def connect(self, broker: str, at: Address) -> bool:
        """Connect to a broker; whether it accepts the device."""
        self._answered.clear()
        more: dict[str, Any] = {}
        if self._version is V5:
            properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 3_600
            more = {"clean_start": False, "properties": properties}
        try:
            self.client.connect(at.host, at.port, **more)
        except OSError:
            return False
        self.client.loop_start()
        self.broker = broker
        return self._answered.wait(ANSWER_S) and self._is_accepted

    def vanish(self) -> None:
        """Lose the connection, without DISCONNECT."""
        self.client.loop_stop()
        sock = self.client.socket()
        if sock is not None:
            sock.close()
        self.client._sock = None
        self.broker = ""

    def close(self) -> None:
        """Disconnect for good."""
        self.client.disconnect()
        self.client.loop_stop()

    @property
    def is_done(self) -> bool:
        """Whether all that it has published is acknowledged."""
        return not self.client._out_messages


@dataclass
class Count:
    """What became of the messages."""

    owed: int = 0
    lost: int = 0
    twice: Counter[int] = field(default_factory=Counter)
    """How many came more than once, by the QoS of the delivery."""
    late: int = 0
    """How many came behind a later one of their publisher, but for repetitions."""
    moves: int = 0
    kills: int = 0

    def __str__(self) -> str:
        return (
            f"{self.owed:,} deliveries owed, {self.moves:,} moves, {self.kills} brokers killed: "
            f"{self.lost:,} lost, {self.twice[1]:,} twice with QoS 1, "
            f"{self.twice[2]:,} twice with QoS 2, {self.late:,} out of order"
        )


class Campaign:
    """The same devices and moves for each seed, whatever the brokers are."""

    def __init__(self, brokers: Brokers, seed: int) -> None:
        self._brokers = brokers
        self._rng = random.Random(f"devices {seed}")  # noqa: S311 - reproducible, not secret.
        self._up = list(brokers.names)
        rng = self._rng
        self.publishers = [
            Roamer(f"publisher-{n}", 1 + n % 2, (V5, V311)[n // 2 % 2]) for n in range(PUBLISHERS)
        ]
        self.subscribers = [
            Roamer(f"subscriber-{n}", 1 + n % 2, (V5, V311)[n // 2 % 2]) for n in range(SUBSCRIBERS)
        ]
        for subscriber in self.subscribers:
            chosen = rng.sample(range(PUBLISHERS), TOPICS_EACH)
            subscriber.topics = [f"from/{number}" for number in chosen]
        self._published = 0
        self._count = Count()
        self._waiting: dict[Roamer, threading.Thread] = {}
        """The devices of a broker that was killed, until they are somewhere."""
        self._refused: list[str] = []

    def run(self, rounds: int) -> Count:
        """Run for so many rounds, and until all has come."""
        devices = [*self.subscribers, *self.publishers]
        try:
            for device in devices:
                self._settle(device)
            time.sleep(1.0)  # Mosquitto does not say when its bridges know all subscriptions.
            for number in range(1, rounds + 1):
                self._publish()
                if number % KILLED_EVERY == DOWN_FOR:
                    self._restart()
                elif number % KILLED_EVERY == 0:
                    self._kill()
                for device in self._rng.sample(devices, round(ROAMING * len(devices))):
                    if device not in self._waiting:
                        device.vanish()
                        self._settle(device)
                        self._count.moves += 1
            self._restart()
            self._until_all_has_come()
        finally:
            for device in devices:
                device.close()
        assert not self._refused, f"no broker accepts {self._refused}"
        return self._counted()

    def _kill(self) -> None:
        """Kill a broker; its devices try to come in elsewhere, and go on when they are."""
        self._join()
        dead = self._rng.choice(self._up)
        self._brokers.kill(dead)
        self._up.remove(dead)
        self._count.kills += 1
        for device in (*self.subscribers, *self.publishers):
            if device.broker == dead:
                device.vanish()
                settling = threading.Thread(target=self._settle, args=(device,))
                self._waiting[device] = settling
                settling.start()
                self._count.moves += 1

    def _restart(self) -> None:
        """Start the broker that was killed, and wait until all its devices are somewhere."""
        for name in set(self._brokers.names) - set(self._up):
            self._brokers.restart(name)
            self._up.append(name)
        self._join()

    def _join(self) -> None:
        for settling in self._waiting.values():
            settling.join()
        self._waiting.clear()

    def _publish(self) -> None:
        for place, publisher in enumerate(self.publishers):
            for number in range(self._published, self._published + EVENTS):
                publisher.client.publish(f"from/{place}", str(number), publisher.qos)
        self._published += EVENTS

    def _settle(self, device: Roamer) -> None:
        """Connect somewhere; who is refused tries elsewhere, as applications do."""
        deadline = time.monotonic() + 6 * SETTLE_S
        while time.monotonic() < deadline:
            broker = device.rng.choice(self._up)
            if device.connect(broker, self._brokers.at(broker)):
                return
            device.vanish()
        self._refused.append(device.name)

    def _until_all_has_come(self) -> None:
        """Wait until all is acknowledged, and all has come or nothing comes any more."""
        deadline = time.monotonic() + 6 * SETTLE_S
        for publisher in self.publishers:
            while not publisher.is_done and time.monotonic() < deadline:
                time.sleep(0.02)
        last = time.monotonic()
        while time.monotonic() < last + QUIET_S:
            if all(len(set(each.got)) == self._owed_to_each for each in self.subscribers):
                break
            time.sleep(0.1)
            last = max(last, *(each.came_at for each in self.subscribers))
        time.sleep(0.5)  # What comes twice may come later.

    @property
    def _owed_to_each(self) -> int:
        return TOPICS_EACH * self._published

    def _counted(self) -> Count:
        count = self._count
        for subscriber in self.subscribers:
            count.owed += self._owed_to_each
            times = Counter(subscriber.got)
            count.lost += self._owed_to_each - len(times)
            for (topic, _), came in times.items():
                published = self.publishers[int(topic.removeprefix("from/"))].qos
                count.twice[min(subscriber.qos, published)] += came - 1
            greatest: dict[str, int] = {}
            for topic, number in dict.fromkeys(subscriber.got):
                count.late += number < greatest.get(topic, -1)
                greatest[topic] = max(number, greatest.get(topic, -1))
        return count


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("brokers", nargs="+", choices=["sterna", "mosquitto"])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for kind in given.brokers:
        with tempfile.TemporaryDirectory() as directory, brokers_of(kind, Path(directory)) as net:
            began = time.monotonic()
            count = Campaign(net, given.seed).run(given.rounds)
            print(f"{kind}: {count} ({time.monotonic() - began:.0f} s)")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
