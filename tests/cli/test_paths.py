"""A file or a directory that cannot be used is told with its path, whatever the command."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, WAIT_S

pytestmark = pytest.mark.spec("LV-7")

NOWHERE = "sterna://127.0.0.1:1"


def told(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=WAIT_S
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "up --brokers 1 --data {path}",
        "broker --name B1 --listen 127.0.0.1:0 --data {path}",
        "broker --config {path}",
        f"sub {NOWHERE} a --client q --state {{path}}",
        f"pub {NOWHERE} a=1 --payload @{{path}}",
        "demo --rounds 1 --no-pipeline --data {path}",
        "sim run --brokers 2 --events 1 --journal {path}",
        "sim run --brokers 2 --events 1 --picture {path}.svg",
        "sim run --brokers 2 --events 1 --script {path}",
        "sim replay {path}",
        "filter match a --events {path}",
        "filter match a --graph {path} --at x",
        "experiment run routing --quick --out {path}",
    ],
)
def test_a_file_among_the_folders_is_named(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "below"

    ended = told(*arguments.format(path=path).split())

    assert ended.returncode in {1, 2}
    assert str(tmp_path / "file") in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "Check the disk" not in ended.stderr


def test_so_it_is_in_json(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    ended = told("up", "--brokers", "1", "--data", str(tmp_path / "file"), "--json")

    assert ended.returncode == 2
    assert json.loads(ended.stdout)["error"].startswith(f"cannot use {tmp_path / 'file'}")
