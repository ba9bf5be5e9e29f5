"""mosquitto_pub and mosquitto_sub: connect, all QoS, retained, will, shared, reconnect, roam."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Self

import pytest

from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, network_in

PUB, SUB, STDBUF = map(shutil.which, ("mosquitto_pub", "mosquitto_sub", "stdbuf"))

pytestmark = [
    pytest.mark.spec("LV-4"),
    pytest.mark.skipif(
        not (PUB and SUB and STDBUF), reason="needs mosquitto_pub and mosquitto_sub"
    ),
]

V5, V311 = "mqttv5", "mqttv311"
VERSIONS = pytest.mark.parametrize("version", [V5, V311])


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    directory = tmp_path_factory.mktemp("mosquitto")
    with network_in(directory, 2, mqtt={"listen": "127.0.0.1:0"}) as network:
        yield network


def at(network: LocalNetwork, broker: str, version: str) -> list[str]:
    """The options for a broker."""
    address = network.mqtt(broker)
    return ["-h", address.host, "-p", str(address.port), "-V", version]


def publish(network: LocalNetwork, broker: str, *options: object, version: str = V5) -> None:
    """Publish, and wait until it is acknowledged."""
    command = [str(PUB), *at(network, broker, version), *map(str, options)]
    subprocess.run(command, check=True, timeout=SETTLE_S)


class Subscriber:
    """A mosquitto_sub that is subscribed."""

    def __init__(self, network: LocalNetwork, broker: str, *options: str, version: str = V5):
        where = at(network, broker, version)
        command = [str(STDBUF), "-oL", str(SUB), *where, "-d", "-F", "got %q %r %t %p", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        self.wait_for("Subscribed")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for(self, what: str) -> None:
        """Wait until it has printed a line that begins so."""
        for line in self.lines():
            if what in line:
                return
        raise AssertionError(f"it ended before it said {what}")

    def lines(self) -> Iterator[str]:
        """What it prints."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.rstrip("\n")

    def take(self, count: int) -> list[str]:
        """The next messages: QoS, retain flag, topic, payload."""
        found: list[str] = []
        for line in self.lines():
            if line.startswith("got "):
                found.append(line.removeprefix("got "))
                if len(found) == count:
                    return found
        raise AssertionError(f"it ended after {found}")


@VERSIONS
def test_all_qos(network: LocalNetwork, version: str) -> None:
    name = f"qos/{version}"
    with Subscriber(network, "B1", "-t", f"{name}/#", "-q", "2", version=version) as reader:
        network.wait_until_settled()
        for qos in range(3):
            publish(network, "B2", "-t", f"{name}/{qos}", "-m", qos, "-q", qos, version=version)
        assert reader.take(3) == [f"{qos} 0 {name}/{qos} {qos}" for qos in range(3)]


@VERSIONS
def test_retained(network: LocalNetwork, version: str) -> None:
    topic = f"kept/{version}"
    publish(network, "B2", "-t", topic, "-m", "old", "-r", version=version)
    publish(network, "B2", "-t", topic, "-m", "new", "-q", "1", "-r", version=version)
    network.wait_until_settled()
    with Subscriber(network, "B1", "-t", topic, version=version) as reader:
        assert reader.take(1) == [f"0 1 {topic} new"]


@VERSIONS
def test_a_will(network: LocalNetwork, version: str) -> None:
    topic = f"will/{version}"
    will = ("--will-topic", topic, "--will-payload", "gone", "--will-qos", "1")
    with (
        Subscriber(network, "B1", "-t", topic, "-q", "1", version=version) as reader,
        Subscriber(network, "B2", "-t", "mortal", *will, version=version) as mortal,
    ):
        network.wait_until_settled()
        mortal.process.kill()
        assert reader.take(1) == [f"1 0 {topic} gone"]


def test_a_shared_subscription(network: LocalNetwork) -> None:
    with ExitStack() as stack:
        members = [
            stack.enter_context(Subscriber(network, name, "-t", "$share/g/work", "-q", "1"))
            for name in ("B1", "B2")
        ]
        network.wait_until_settled()
        lines = "\n".join(map(str, range(10)))
        command = [str(PUB), *at(network, "B1", V5), "-t", "work", "-q", "1", "-l"]
        subprocess.run(command, input=lines, text=True, check=True, timeout=SETTLE_S)
        found = [line for member in members for line in member.take(5)]
    assert sorted(found) == [f"1 0 work {number}" for number in range(10)]


@VERSIONS
def test_roaming(network: LocalNetwork, version: str) -> None:
    """It subscribes at one broker, and gets what was published meanwhile at the other one."""
    topic = f"roam/{version}"
    lasting = ["-i", f"roamer-{version}", "-c", "-q", "2", "-t", topic]
    subscribe = [str(SUB), *at(network, "B1", version), *lasting, "-E"]
    subprocess.run(subscribe, check=True, timeout=SETTLE_S)
    network.wait_until_settled()
    for number in range(3):
        publish(network, "B1", "-t", topic, "-m", number, "-q", "2", version=version)
    with Subscriber(network, "B2", *lasting, version=version) as reader:
        publish(network, "B1", "-t", topic, "-m", "3", "-q", "2", version=version)
        assert reader.take(4) == [f"2 0 {topic} {number}" for number in range(4)]


def test_it_reconnects(tmp_path_factory: pytest.TempPathFactory) -> None:
    """By itself, after its broker was killed; what was published meanwhile comes."""
    directory = tmp_path_factory.mktemp("mosquitto")
    with network_in(directory, 2, mqtt={"listen": "127.0.0.1:0"}) as network:
        lasting = ["-i", "r", "-c", "-q", "2", "-t", "r", "-k", "5"]
        with Subscriber(network, "B1", *lasting) as reader:
            network.wait_until_settled()
            network.kill("B1")
            publish(network, "B2", "-t", "r", "-m", "meanwhile", "-q", "2")
            network.restart("B1")
            assert reader.take(1) == ["2 0 r meanwhile"]
