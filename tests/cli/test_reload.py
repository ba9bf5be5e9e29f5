"""`sterna reload`: what a broker answers, and the exit status."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sterna.net.observer import ask
from tests.cli.conftest import running, sterna, sterna_json

pytestmark = pytest.mark.spec("LV-7", "LV-9")

BROKER = 'name = "file"\nlisten = "127.0.0.1:0"\n'


class Started(NamedTuple):
    """A broker that was started from a file, and with a name as an option."""

    file: Path
    url: str


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Started]:
    file = tmp_path / "broker.toml"
    file.write_text(BROKER, encoding="utf-8")
    with running("broker", "--config", str(file), "--name", "option") as process:
        assert process.stdout is not None
        yield Started(file, process.stdout.readline().strip())


def test_what_has_changed_is_applied(broker: Started) -> None:
    """Options count more than the file, as they did at the start."""
    assert sterna("reload", broker.url) == (0, "nothing has changed\n", "")
    text = '[network]\nstrategy = "simple"\n[durability]\nlevel = "sync"\n'
    broker.file.write_text(BROKER.replace("file", "other") + text, encoding="utf-8")

    status, out, err = sterna("reload", broker.url)

    assert (status, err) == (0, "")
    assert out == "applied: network.strategy\nneeds a restart: durability.level\n"
    assert ask(broker.url, "status")["strategy"] == "simple"
    status, document = sterna_json("reload", broker.url)
    assert status == 0
    assert (document["name"], document["applied"]) == ("option", [])
    assert document["needs_restart"] == ["durability.level"]


def test_a_wrong_file_is_told(broker: Started) -> None:
    broker.file.write_text(BROKER + "[limits]\nkept_s = -1\n", encoding="utf-8")

    status, out, err = sterna("reload", broker.url)

    assert (status, out) == (1, "")
    assert "option changes nothing: " in err
    assert "limits.kept_s: is -1" in err
    status, document = sterna_json("reload", broker.url)
    assert status == 1
    assert "limits.kept_s" in document["error"]


def test_who_does_not_answer_is_told() -> None:
    status, out, err = sterna("reload", "sterna://127.0.0.1:1")

    assert (status, out) == (2, "")
    assert "no broker answers" in err
