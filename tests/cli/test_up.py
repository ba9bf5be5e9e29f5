"""`sterna up`: a network of brokers as processes, started and stopped together."""

import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sterna.cli.up import _first_port
from sterna.net.local import LocalNetwork, wait_for
from sterna.net.observer import ask
from sterna.net.storage.locking import lock_directory
from tests.cli.conftest import WAIT_S, running, sterna

pytestmark = pytest.mark.spec("LV-7")


def started(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What a network says when it is ready."""
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert isinstance(told, dict)
    return told


def is_alive(pid: int) -> bool:
    """Whether a process is there, and has not ended (ours are collected by who started them)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.spec("LV-1")
def test_a_tree_of_brokers_starts_tells_of_deaths_and_stops(tmp_path: Path) -> None:
    options = ["--brokers", "3", "--port", "0", "--data", str(tmp_path), "--json"]
    with running("up", *options) as process:
        brokers = started(process)["brokers"]
        pids = [broker["pid"] for broker in brokers]
        assert [broker["name"] for broker in brokers] == ["B1", "B2", "B3"]
        for broker in brokers:
            topology = ask(broker["url"], "topology")
            assert topology["links"] == [["B1", "B2"], ["B1", "B3"]], "whole when it says so"

        os.kill(pids[2], signal.SIGKILL)
        assert process.stderr is not None
        assert select.select([process.stderr], [], [], WAIT_S)[0], "it says nothing"
        died = process.stderr.readline()
        assert died.startswith("B3 killed by SIGKILL")
        assert "sterna broker --config" in died, "how to start it again"

        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        assert not any(is_alive(pid) for pid in pids)


@pytest.mark.spec("MB-1")
def test_brokers_make_their_own_tree(tmp_path: Path) -> None:
    """It continues with its directory, and its status and topology say who leads."""
    options = ["--data", str(tmp_path), "--json"]
    with running("up", "--overlay", "elect", "--brokers", "3", "--port", "0", *options) as process:
        urls = [broker["url"] for broker in started(process)["brokers"]]
        leaders = {ask(url, "status")["election"]["leader"] for url in urls}
        assert len(leaders) == 1
        leader = leaders.pop()
        _, out, _ = sterna("status", urls[0])
        place = "this broker" if leader == "B1" else f"{leader}, 1 hop away by {leader}"
        assert f"leader         {place}, round " in out
        assert "partition      3 brokers" in out
        _, out, _ = sterna("topology", urls[0])
        assert f"{leader}  {'asked  ' * (leader == 'B1')}leader\n" in out
    with running("up", *options) as process:
        urls = [broker["url"] for broker in started(process)["brokers"]]
        assert ask(urls[0], "status")["overlay"] == "elect"

    status, _, err = sterna("up", "--overlay", "tree", "--data", str(tmp_path))
    assert status == 2
    assert "another overlay: give --config FILE as well" in err


@pytest.mark.spec("MB-1")
def test_what_does_not_go_with_an_election_is_said_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "common.toml"
    file.write_text('[network]\nhandover = "relocation"\n', encoding="utf-8")
    status, _, err = sterna("up", "--overlay", "elect", "--config", str(file))
    assert status == 2
    assert "network.handover: is 'relocation', which does not work on a tree that changes" in err


def test_brokers_end_with_whoever_started_them(tmp_path: Path) -> None:
    """Also when that one has no chance to stop them."""
    with running(
        "up", "--brokers", "2", "--port", "0", "--data", str(tmp_path), "--json"
    ) as process:
        pids = [broker["pid"] for broker in started(process)["brokers"]]
        process.kill()
        try:
            wait_for(
                lambda: not any(is_alive(pid) for pid in pids), "they stay behind", limit_s=WAIT_S
            )
        finally:
            for pid in filter(is_alive, pids):
                os.kill(pid, signal.SIGKILL)


def test_when_all_brokers_have_ended_it_ends_too(tmp_path: Path) -> None:
    with running(
        "up", "--brokers", "1", "--port", "0", "--data", str(tmp_path), "--json"
    ) as process:
        [broker] = started(process)["brokers"]
        os.kill(broker["pid"], signal.SIGTERM)
        _, err = process.communicate(timeout=WAIT_S)

    assert process.returncode == 1
    assert "B1 ended with status 0" in err


def test_the_configuration_counts_for_all_of_them(tmp_path: Path) -> None:
    config = tmp_path / "common.toml"
    config.write_text('name = "x"\n[durability]\nlevel = "none"\n')
    with running(
        *("up", "--brokers", "2", "--port", "0", "--config", str(config)),
        *("--data", str(tmp_path / "data")),
    ) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().split() for _ in range(2)]
        answers = [ask(url, "status") for _, url in told]
        process.terminate()
        process.communicate(timeout=WAIT_S)

    assert [name for name, _ in told] == ["B1", "B2"]
    assert [answer["name"] for answer in answers] == ["B1", "B2"]
    assert {answer["durability"] for answer in answers} == {"none"}
    assert process.returncode == 0


def test_a_wrong_configuration_starts_nothing(tmp_path: Path) -> None:
    config = tmp_path / "common.toml"
    config.write_text("[limits]\nquota = 1\n")

    status, _, err = sterna("up", "--config", str(config), "--data", str(tmp_path / "data"))

    assert status == 2
    assert "limits.quota" in err
    assert not (tmp_path / "data").exists()


def test_data_of_another_number_of_brokers_is_refused(tmp_path: Path) -> None:
    """They would wait for brokers that are not there."""
    for name in ("B1", "B2", "B3"):
        (tmp_path / name / "data").mkdir(parents=True)

    status, _, err = sterna("up", "--brokers", "2", "--data", str(tmp_path))

    assert status == 2
    assert "--brokers 3" in err


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with LocalNetwork(1, directory=tmp_path / "first") as network:
        port = network.addresses["B1"].port
        status, _, err = sterna(
            "up", "--brokers", "1", "--port", str(port), "--data", str(tmp_path / "second")
        )

    assert status == 2
    assert "cannot listen on" in err


def configurations(directory: Path) -> dict[str, str]:
    return {str(file): file.read_text() for file in sorted(directory.glob("B*/broker.toml"))}


def ended(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


def test_a_network_that_runs_is_left_alone(tmp_path: Path) -> None:
    """Whoever starts it a second time, with other ports, changes nothing of it."""
    with running("up", "--brokers", "2", "--port", "0", "--data", str(tmp_path)) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().split() for _ in range(2)]
        before = configurations(tmp_path)
        for options in ([], ["--port", "0"]):
            status, out, err = sterna("up", "--data", str(tmp_path), *options)
            assert (status, out) == (2, "")
            assert f"runs already, by process {process.pid}" in err.replace("\n", " ")
        assert configurations(tmp_path) == before
        assert ask(told[0][1], "topology")["links"] == [["B1", "B2"]]
        ended(process)


def test_a_network_continues_as_it_was_made(tmp_path: Path) -> None:
    """With its graph, its addresses and its number of brokers, although nobody names them again."""
    (tmp_path / "streets.csv").write_text("1st,2nd\n2nd,3rd\n")
    config = tmp_path / "common.toml"
    config.write_text('[places]\ngraph = "streets.csv"\n')
    data = tmp_path / "data"
    made = ["--brokers", "3", "--port", "0", "--config", str(config)]
    with running("up", "--data", str(data), "--json", *made) as process:
        urls = [broker["url"] for broker in started(process)["brokers"]]
        ended(process)
    edited = data / "B2" / "broker.toml"
    edited.write_text("# Mine.\n" + edited.read_text())
    before = configurations(data)

    with running("up", "--data", str(data), "--json") as process:
        assert [broker["url"] for broker in started(process)["brokers"]] == urls
        status, _, err = sterna("sub", urls[0], "x IN myloc", "--at", "nowhere")
        assert (status, "nowhere" in err) == (2, True), "it has places, and this is none"
        ended(process)
    assert configurations(data) == before

    with running("up", "--data", str(data), "--json", "--port", "0") as process:
        moved = [broker["url"] for broker in started(process)["brokers"]]
        assert not set(moved) & set(urls)
        assert ask(moved[0], "topology")["links"] == [["B1", "B2"], ["B1", "B3"]]
        ended(process)
    assert all("streets.csv" in text for text in configurations(data).values())


def test_a_change_that_does_not_start_changes_nothing(tmp_path: Path) -> None:
    with running(
        *("up", "--brokers", "2", "--port", "0", "--data", str(tmp_path / "data"), "--json")
    ) as process:
        started(process)
        ended(process)
    before = configurations(tmp_path / "data")
    with LocalNetwork(1, directory=tmp_path / "other") as network:
        taken = network.addresses["B1"].port
        status, _, err = sterna("up", "--data", str(tmp_path / "data"), "--port", str(taken - 1))
        assert (status, "cannot listen on" in err, "--port" in err) == (2, True, True)
        assert configurations(tmp_path / "data") == before
    release = lock_directory(tmp_path / "data" / "B2" / "data" / "log")
    with running("up", "--data", str(tmp_path / "data"), "--port", "0") as process:
        err = process.communicate(timeout=WAIT_S)[1].replace("\n", " ")
    release()
    assert (process.returncode, "B2 did not start" in err, "in use" in err) == (2, True, True)
    assert configurations(tmp_path / "data") == before


def test_a_detached_network_runs_until_it_is_taken_down(tmp_path: Path) -> None:
    options = ["--brokers", "2", "--port", "0", "--data", str(tmp_path / "net"), "--detach"]
    with running("up", *options, "--json") as process:
        out, err = process.communicate(timeout=WAIT_S)
    brokers = json.loads(out)["brokers"]
    try:
        assert (process.returncode, err) == (0, "")
        assert ask(brokers[1]["url"], "topology")["links"] == [["B1", "B2"]]
        status, out, err = sterna("up", *options)
        assert (status, out, "runs already" in err) == (2, "", True)
    finally:
        status, _, err = sterna("down", "--data", str(tmp_path / "net"))
    assert (status, "stopped" in err) == (0, True)
    assert not any(is_alive(broker["pid"]) for broker in brokers)
    assert sterna("down", "--data", str(tmp_path / "net"))[0] == 1


def test_a_detached_network_that_does_not_start_says_why(tmp_path: Path) -> None:
    with LocalNetwork(1, directory=tmp_path / "first") as network:
        port = str(network.addresses["B1"].port)
        options = ["--brokers", "1", "--port", port, "--data", str(tmp_path / "second")]
        status, out, err = sterna("up", "--detach", *options)
        assert (status, out, "cannot listen on" in err) == (2, "", True)
    assert sterna("down", "--data", str(tmp_path / "second"))[0] == 1


def test_ports() -> None:
    assert _first_port(0, 4) is None
    assert _first_port(9000, 4) == 9000
