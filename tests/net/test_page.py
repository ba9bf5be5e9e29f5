"""The example with a page: what it loads is there, and its program does what the page shows."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.net.live import SETTLE_S
from tests.net.node import NODE, PAGE, SCRIPTS, needs_mqtt_js

pytestmark = [pytest.mark.spec("LV-4"), needs_mqtt_js]


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """The address of the page."""
    command: list[str | Path] = [sys.executable, PAGE / "serve.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(2)
        assert server.wait(SETTLE_S) == 0


def test_all_that_the_page_loads_is_there(page: str) -> None:
    with urlopen(page) as answer:  # noqa: S310 - it begins with http.
        text = answer.read().decode()
    loaded = re.findall(r'from "\./([^"]+)"', text)
    assert len(loaded) == 2
    assert "http" not in text
    for name in loaded:
        with urlopen(f"{page}/{name}") as answer:  # noqa: S310 - so does this.
            assert "javascript" in answer.headers["Content-Type"]
            assert answer.read()


def test_the_page_follows_the_offers_from_broker_to_broker(page: str, tmp_path: Path) -> None:
    command: list[str | Path] = [NODE, SCRIPTS / "page.mjs", PAGE, tmp_path / "mqtt.mjs", page]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SETTLE_S)
    assert ended.returncode == 0, ended.stderr[-2000:]
    for offer in json.loads(ended.stdout):
        assert offer["park"] in {"Elm", "Oak", "Fir"}
        assert offer["text"].endswith(" free")
        assert 1 <= offer["price"] < 3
