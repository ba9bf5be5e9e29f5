"""`sterna pub` and `sterna sub` with mqtt://: by MQTT 5, at brokers that are processes."""

import json
import signal
from collections.abc import Iterator

import pytest

from sterna.net.local import LocalNetwork
from tests.cli.conftest import WAIT_S, running, sterna, sterna_json, subscribed
from tests.net.live import network_in

pytestmark = pytest.mark.spec("LV-4", "LV-7")


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """Two brokers that speak MQTT."""
    directory = tmp_path_factory.mktemp("over-mqtt")
    with network_in(directory, 2, mqtt={"listen": "127.0.0.1:0"}) as network:
        yield network


def url(network: LocalNetwork, broker: str) -> str:
    return f"mqtt://{network.mqtt(broker)}"


def test_from_the_command_line_to_the_command_line(devices: LocalNetwork) -> None:
    """Attributes are user properties, and the payload is the payload."""
    wish = ("--topic", "line/+", "price < 3", "--client", "reader")
    with running("sub", url(devices, "B2"), *wish, "--count", "2", "--json") as reader:
        subscribed(devices, "mqtt:reader", at="B2")
        for price, payload in (("2.5", "first"), ("9", "dear"), ("1", "second")):
            words = ("topic=line/1", f"price={price}", "name=Elm", "--payload", payload)
            status, document = sterna_json("pub", url(devices, "B1"), *words)
            assert (status, document["acknowledged"]) == (0, 1)
        out, err = reader.communicate(timeout=WAIT_S)

    assert (reader.returncode, err) == (0, f"listening at {devices.mqtt('B2')}\n")
    first, second = (json.loads(line) for line in out.splitlines())
    assert first["publisher"] == url(devices, "B2")
    assert first["attributes"] == {
        "topic": "line/1",
        "mqtt.qos": 1,
        "price": 2.5,
        "name": "Elm",
    }
    assert [first["payload"], second["payload"]] == ["first", "second"]
    assert [first["seq"], second["seq"]] == [1, 2]


def test_native_clients_get_it(devices: LocalNetwork) -> None:
    words = ("topic=native", "n=1", "mqtt.qos=2", "mqtt.retain=true", "--client", "me")
    assert sterna("pub", url(devices, "B1"), *words)[0] == 0

    status, out, _ = sterna(
        *("sub", devices.url("B1"), "topic = 'native'", "--past", "1", "--count", "1", "--json")
    )
    event = json.loads(out)
    assert (status, event["publisher"]) == (0, "mqtt:me")
    assert event["attributes"] == {"topic": "native", "n": 1, "mqtt.qos": 2, "mqtt.retain": True}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_lines_arrive_in_order(devices: LocalNetwork, qos: int) -> None:
    """More than the broker takes without acknowledgement; then the past of the topic."""
    count = 5_000
    line = '{{"topic": "many/{}", "n": {}, "mqtt.qos": {}}}\n'
    lines = "".join(line.format(qos, n, qos) for n in range(count))
    assert sterna_json("pub", url(devices, "B1"), stdin=lines)[1]["acknowledged"] == count

    status, out, _ = sterna(
        *("sub", url(devices, "B1"), "--topic", f"many/{qos}", "--format", "{n}"),
        *("--past", "1000", "--count", "1000"),
    )
    assert status == 0
    assert out.split() == [str(n) for n in range(count - 1_000, count)]


def test_a_client_with_a_name_continues(devices: LocalNetwork) -> None:
    """What comes while it is away waits, and nothing is printed twice, also at another broker."""
    found = []
    for turn, broker in enumerate(("B1", "B2", "B1")):
        with running(
            *("sub", url(devices, broker), "--topic", "kept", "--client", "keeper"),
            *("--format", "{n}", "--count", "3"),
        ) as reader:
            if turn == 0:
                subscribed(devices, "mqtt:keeper")
            for n in range(4):
                words = ("topic=kept", f"n={turn * 4 + n}", "mqtt.qos=2")
                assert sterna("pub", url(devices, "B1"), *words)[0] == 0
            found += reader.communicate(timeout=WAIT_S)[0].split()
            assert reader.returncode == 0

    assert found == [str(n) for n in range(9)]


def test_a_stopped_subscriber_ends_well(devices: LocalNetwork) -> None:
    with running("sub", url(devices, "B1"), "--topic", "x", "--client", "stopped") as reader:
        subscribed(devices, "mqtt:stopped")
        reader.send_signal(signal.SIGTERM)
        assert reader.communicate(timeout=WAIT_S)[0] == ""
    assert reader.returncode == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("pub", "price=1"), "over MQTT an event needs a topic without + and #"),
        (("pub", "topic=a/+"), "over MQTT an event needs a topic without + and #"),
        (("pub", "topic=a", "mqtt.qos=3"), "mqtt.qos is 0, 1 or 2, not 3"),
        (("pub", "topic=a", "--journal", "d"), "--journal makes no sense over MQTT"),
        (("pub", "topic=a", "--also", "sterna://127.0.0.1:1"), "give mqtt:// for all brokers"),
        (("sub", "TRUE", "--walk", "a,b"), "--walk makes no sense over MQTT"),
        (("sub", "TRUE", "--past", "1,5m"), "--past N,DURATION makes no sense over MQTT"),
        (("sub", "TRUE", "--order", "available"), "--order makes no sense over MQTT"),
        (("sub", "speed < $limit"), "cannot use $variables"),
        (("sub", "--topic", "a#"), "topic filter"),
    ],
)
def test_what_makes_no_sense_is_refused(
    devices: LocalNetwork, words: tuple[str, ...], why: str
) -> None:
    status, out, err = sterna(words[0], url(devices, "B1"), *words[1:])

    assert (status, out) == (2, "")
    assert why in " ".join(err.split())


def test_errors_about_brokers(devices: LocalNetwork, network: LocalNetwork) -> None:
    native = network.url("B1")
    assert "--topic goes with mqtt://" in sterna("sub", native, "--topic", "a")[2]
    assert "is no address" in sterna("pub", "mqtt://here:port", "topic=a")[2]
    status, _, err = sterna("pub", "mqtt://127.0.0.1:1", "topic=a")
    assert status == 2
    assert "no MQTT broker lets it in: 127.0.0.1:1:" in err
    with running("sub", url(devices, "B2"), "--topic", "x", "--client", "taken") as reader:
        subscribed(devices, "mqtt:taken", at="B2")
        words = ("--topic", "x", "--client", "taken", "--timeout", "0.01s")
        assert sterna("sub", url(devices, "B1"), *words)[0] == 0
        err = reader.communicate(timeout=WAIT_S)[1]
    assert reader.returncode == 2
    assert "session taken over" in err
