"""`sterna broker`: one broker as a process, as those who run it see it."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sterna as library
from sterna.errors import SternaError
from sterna.net.config import BrokerConfig
from sterna.net.local import wait_for
from sterna.net.observer import ask
from tests.cli.conftest import COMMAND, WAIT_S, running, sterna, sterna_json

pytestmark = pytest.mark.spec("LV-7")


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def started(process: "subprocess.Popen[str]") -> str:
    """The address of a broker that was started with `--json`."""
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    assert isinstance(url, str)
    return url


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    """Exit status 0, and what it knew is there at the next start: a client that is away."""
    options = ["--name", "b1", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    with running("broker", *options, "--json") as process:
        url = started(process)
        with library.blocking.connect(url, client="ann", state=tmp_path / "ann") as ann:
            ann.subscribe("price < 3")
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in err

    with running("broker", *options, "--json") as process:
        status = ask(started(process), "status")
        assert (status["clients_away"], status["subscriptions"]) == (1, 1)
        assert status["log"]["inputs_since_snapshot"] == 0, "it left a snapshot"


def test_without_json_the_address_is_the_line_that_is_printed(tmp_path: Path) -> None:
    options = ["--name", "b1", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    with running("broker", *options) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()

        assert ask(url, "status")["name"] == "b1"


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Both signals reach it in one moment, so that there is no time for the first one's work."""
    options = ["--name", "b1", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    with running("broker", *options, "--json") as process:
        started(process)
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            process.send_signal(number)
        process.communicate(timeout=WAIT_S)

        assert process.returncode in {128 + signal.SIGTERM, 128 + signal.SIGINT}


@pytest.mark.spec("LV-1")
def test_a_log_that_fails_stops_it_with_one_line(tmp_path: Path) -> None:
    """A broker that cannot write acknowledges nothing more: exit status 1, and why."""
    config = write(
        tmp_path / "b1.toml",
        'name = "b1"\nlisten = "127.0.0.1:0"\n[journal]\nenabled = false\n',
    )
    most = 3 * 2**20
    with running(
        *("broker", "--config", config, "--json"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    ) as process:
        client = library.blocking.connect(started(process), client="ann")
        for _ in range(8):
            client.publish({"x": 1}, b"x" * 2**19)
        _, err = process.communicate(timeout=WAIT_S)
        client.close(timeout=0.1)

    last = err.splitlines()[-1]
    assert process.returncode == 1
    assert last.startswith("error: b1 stops: ")
    assert "Traceback" not in err


def test_all_problems_of_the_configuration_are_told_at_once(tmp_path: Path) -> None:
    config = write(tmp_path / "b1.toml", 'name = "b1"\n[limits]\nframe_bytes_max = 0\nquota = 1\n')

    status, out, err = sterna(
        "broker", "--config", config, "--listen", "nowhere", "--join", "http://x"
    )

    assert (status, out) == (2, "")
    for problem in ("frame_bytes_max", "quota", "--listen: 'nowhere'", "--join: 'http://x'"):
        assert problem in err
    assert sterna_json("broker", "--config", config)[1]["problems"]


def test_options_over_environment_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(
        tmp_path / "b1.toml",
        'name = "file"\nlisten = "127.0.0.1:1"\n[network]\nneighbours = ["sterna://127.0.0.1:9"]\n',
    )
    monkeypatch.setenv("STERNA_NAME", "environment")
    monkeypatch.setenv("STERNA_LISTEN", "127.0.0.1:2")
    monkeypatch.chdir(tmp_path)

    status, out, _ = sterna(
        *("broker", "--config", config, "--listen", "127.0.0.1:3", "--data", "here"),
        *("--join", "sterna://127.0.0.1:8", "--print-config"),
    )
    printed = BrokerConfig.load(Path(write(tmp_path / "printed.toml", out)))

    assert status == 0
    assert (printed.name, printed.listen) == ("environment", "127.0.0.1:3")
    assert printed.data == str(tmp_path / "here"), "as seen from where the command was typed"
    assert printed.network.neighbours == ("sterna://127.0.0.1:9", "sterna://127.0.0.1:8")


def test_a_printed_configuration_is_one_to_begin_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first lines of operate.md have it: print it, check it, start it."""
    monkeypatch.chdir(tmp_path)
    status, out, err = sterna("broker", "--print-config")
    file = write(tmp_path / "broker.toml", out)

    assert (status, err) == (0, "")
    assert sterna("broker", "--check", "--config", file) == (
        *(0, "the configuration of b1 is right\n", ""),
    )
    monkeypatch.setenv("STERNA_NAME", "mine")
    assert 'name = "mine"' in sterna("broker", "--print-config")[1]


def test_check_starts_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"

    assert sterna_json("broker", "--name", "b1", "--data", str(data), "--check") == (
        0,
        {"valid": True, "name": "b1"},
    )
    assert "is right" in sterna("broker", "--name", "b1", "--data", str(data), "--check")[1]
    assert sterna("broker", "--check")[0] == 2
    assert not data.exists()


@pytest.mark.spec("LV-1")
def test_a_broker_joins_another(tmp_path: Path) -> None:
    options = ["--listen", "127.0.0.1:0", "--json"]
    with running("broker", "--name", "b1", "--data", str(tmp_path / "1"), *options) as first:
        url = started(first)
        with running(
            "broker", "--name", "b2", "--data", str(tmp_path / "2"), *options, "--join", url
        ) as second:
            started(second)
            wait_for(
                lambda: ask(url, "topology")["links"] == [["b1", "b2"]],
                "b2 does not join",
                limit_s=WAIT_S,
            )


def test_an_address_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run(
            [COMMAND, "broker", "--name", "b1", "--listen", address, "--data", tmp_path / "data"],
            capture_output=True,
            text=True,
            check=False,
        )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"cannot listen on {address}" in ended.stderr.splitlines()[-1]


def test_data_of_another_broker_is_not_touched(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running(
        "broker", "--name", "b1", "--listen", "127.0.0.1:0", "--data", data, "--json"
    ) as process:
        started(process)
        process.terminate()
        process.communicate(timeout=WAIT_S)
    ended = subprocess.run(
        [COMMAND, "broker", "--name", "b2", "--listen", "127.0.0.1:0", "--data", data],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert "is of broker 'b1'" in ended.stderr


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("levels", [("none", "none"), ("none", "batch"), ("batch", "none")])
def test_two_brokers_do_not_share_a_directory(tmp_path: Path, levels: tuple[str, str]) -> None:
    """Not even those that keep nothing there but a journal; the second one says so and ends."""
    options = ["--name", "b1", "--listen", "127.0.0.1:0", "--data", str(tmp_path), "--json"]
    first, second = ({**os.environ, "STERNA_DURABILITY_LEVEL": level} for level in levels)
    with running("broker", *options, env=first) as process:
        url = started(process)
        ended = run_broker(*options, env=second)
        fails_in_one_line(ended, "is in use by another process")
        with library.blocking.connect(url, client="ann") as ann:
            ann.publish(n=1).wait(WAIT_S)
        process.terminate()
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
    with running("broker", *options, env=first) as process:
        started(process)


def test_without_anything_to_write_the_directory_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    levels = {"STERNA_DURABILITY_LEVEL": "none", "STERNA_JOURNAL_ENABLED": "false"}
    options = ["--name", "b1", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "file")]
    with running("broker", *options, "--json", env={**os.environ, **levels}) as process:
        started(process)


def run_broker(*options: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, "broker", *options],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=WAIT_S,
    )


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = subprocess.run(
        [COMMAND, "broker", "--name", "b1", "--listen", "127.0.0.1:0", "--data", tmp_path / "file"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in ended.stderr


PLUG_IN = """
from sterna.core.component import BrokerComponent
from sterna.core.protocol import Protocol


class Part(BrokerComponent):
    name = "plug-in"


PROTOCOL = Protocol(name="plug-in", broker=Part)
"""


def fails_in_one_line(ended: "subprocess.CompletedProcess[str]", said: str) -> None:
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last


def test_data_that_needs_a_protocol_that_is_gone_is_one_line(tmp_path: Path) -> None:
    """It was removed from the configuration together with its module."""
    module = tmp_path / "plug_in.py"
    module.write_text(PLUG_IN, encoding="utf-8")
    python_path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": python_path}
    options = ["--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--json"]
    config = write(tmp_path / "b1.toml", 'name = "b1"\n[network]\nprotocols = ["plug_in:PROTOCOL"]')
    with running("broker", "--config", config, *options, env=environment) as process:
        started(process)
        process.terminate()
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
    module.unlink()

    ended = subprocess.run(
        [COMMAND, "broker", "--name", "b1", *options],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    fails_in_one_line(ended, "'plug_in:PROTOCOL' cannot be imported")


def test_a_journal_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "journal").write_text("")
    ended = subprocess.run(
        [COMMAND, "broker", "--name", "b1", "--listen", "127.0.0.1:0", "--data", tmp_path / "data"],
        capture_output=True,
        text=True,
        check=False,
    )

    fails_in_one_line(ended, "cannot be written")


@pytest.mark.parametrize("level", ["none", "batch"])
def test_a_journal_that_is_gone_when_it_stops_is_one_line(tmp_path: Path, level: str) -> None:
    """The last snapshot fails for it; without one, it is noticed when the journal is closed."""
    data = tmp_path / "data"
    options = ["--name", "b1", "--listen", "127.0.0.1:0", "--data", str(data), "--json"]
    variables = {"STERNA_JOURNAL_FLUSH_S": "1000", "STERNA_DURABILITY_LEVEL": level}
    environment = {**os.environ, **variables}
    with running("broker", *options, env=environment) as process:
        with library.blocking.connect(started(process), client="ann") as ann:
            ann.publish(n=1).wait(WAIT_S)
        shutil.rmtree(data / "journal")
        (data / "journal").write_text("")
        process.terminate()
        out, err = process.communicate(timeout=WAIT_S)

    fails_in_one_line(subprocess.CompletedProcess([], process.returncode, out, err), "b1 stops: ")


def test_a_graph_that_is_gone_when_it_starts_is_one_line(tmp_path: Path) -> None:
    """It was there when the configuration was read."""
    (tmp_path / "graph.csv").write_text("a,b\n")
    config = write(tmp_path / "b1.toml", 'name = "b1"\n[places]\ngraph = "graph.csv"')
    program = (
        "import sys; from pathlib import Path; from sterna.net import daemon\n"
        f"config = daemon.BrokerConfig.load(Path({config!r}))\n"
        f"Path({str(tmp_path / 'graph.csv')!r}).unlink()\n"
        "sys.exit(daemon.run_broker(config, print, daemon._complain))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    fails_in_one_line(ended, "graph.csv")


def test_what_does_not_answer_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(SternaError):
        ask(f"sterna://127.0.0.1:{silent.getsockname()[1]}", "status", timeout_s=0.05)
