"""mqtt.js under Node: connect, all QoS, retained, will, shared, reconnect, roam."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.net.live import SETTLE_S, network_in
from tests.net.node import NODE, PAGE, SCRIPTS, needs_mqtt_js


@pytest.mark.spec("LV-4")
@needs_mqtt_js
@pytest.mark.parametrize(
    ("version", "scheme"), [("5", "mqtt"), ("5", "ws"), ("4", "mqtt")], ids=["5.0", "web", "3.1.1"]
)
def test_mqtt_js(tmp_path: Path, version: str, scheme: str) -> None:
    mqtt = {"listen": "127.0.0.1:0", "websocket": "127.0.0.1:0"}
    with network_in(tmp_path, 2, mqtt=mqtt) as network:
        where = network.mqtt if scheme == "mqtt" else network.mqtt_websocket
        urls = [f"{scheme}://{where(name)}" for name in ("B1", "B2")]
        script = SCRIPTS / "mqtt_client.mjs"
        command: list[str | Path] = [NODE, script, PAGE / "package.json", version, *urls]
        todo: dict[str, Callable[[], object]] = {
            "settle": network.wait_until_settled,
            "kill": lambda: network.kill("B1"),
            "restart": lambda: network.restart("B1"),
        }
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            told = ""
            for line in client.stdout:
                told = line
                if line.strip() in todo:
                    todo[line.strip()]()
                    client.stdin.write("done\n")
                    client.stdin.flush()
            assert client.wait(SETTLE_S) == 0

    found = json.loads(told)
    shared = found.pop("shared", None)
    assert found == {
        "qos": [[f"js/{qos}", "all", qos, False] for qos in range(3)],
        "retained": [["kept/1", "retained", 2, True]],
        "will": [["will/js", "gone", 2, False]],
        "reconnected": ["0", "1", "2"],
        "roamed": ["0", "1", "2"],
        "present": [False, True, True],
    }
    if version == "5":
        assert all(shared)
        assert sorted(each for got in shared for each in got) == [str(n) for n in range(10)]
