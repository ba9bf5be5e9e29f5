"""Processes that are killed and come back: brokers from their logs, clients from their state."""

import asyncio
import random
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

import sterna.net.storage.format as log_format
from sterna.errors import SternaError
from sterna.net.broker import STATE_KIND
from sterna.net.local import LocalNetwork
from sterna.net.storage import Log
from tests.net.live import Client, connect, network_in, settle, until
from tests.scale import CAMPAIGN

KILLS = 3 if CAMPAIGN == 1 else 3 * CAMPAIGN


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("level", ["batch", "sync"])
def test_nothing_acknowledged_is_lost_and_nothing_comes_twice(tmp_path: Path, level: str) -> None:
    """A broker is killed again and again while it is published to, with much on its way."""
    rng = random.Random(f"kills {level}")  # noqa: S311 - reproducible, not secret.
    network = network_in(
        tmp_path,
        1,
        durability={"level": level, "snapshot_inputs": 200},
        limits={"in_flight_bytes_max": 50_000, "frame_bytes_max": 50_000},
    )
    published: list[int] = []
    acknowledged: list[int] = []

    async def publish(client: Client) -> None:
        while True:
            number = len(published)
            published.append(number)
            receipt = client.publish(n=number, text="x" * 200)
            if number % 10 == 0:
                await receipt
                acknowledged.append(number)

    async def run() -> list[object]:
        url = network.url("B1")
        async with (
            connect(url, client="p", timeout=30) as publisher,
            connect(url, client="s", timeout=30) as subscriber,
        ):
            subscription = subscriber.subscribe("n >= 0")
            await settle(network, [publisher, subscriber])
            task = asyncio.create_task(publish(publisher))
            got: list[object] = []
            for _ in range(KILLS):
                goal = len(acknowledged) + rng.randrange(20, 60)
                await until(lambda goal=goal: len(acknowledged) > goal)  # type: ignore[misc]
                network.kill("B1")
                got += [event.attributes["n"] for event in subscription.take()]
                await asyncio.to_thread(network.restart, "B1")
            task.cancel()
            await publisher.drain()
            await settle(network, [publisher, subscriber])
            return got + [event.attributes["n"] for event in subscription.take()]

    with network:
        got = asyncio.run(run())
    assert len(acknowledged) > 20 * KILLS
    assert got == published


@pytest.mark.spec("LV-1")
def test_a_broker_comes_back_as_it_was(tmp_path: Path) -> None:
    """What it says of itself, its neighbours and its clients is the same after a kill."""

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B2"), client="p", timeout=30) as publisher,
            connect(network.url("B2"), client="away", timeout=30) as away,
            connect(network.url("B1"), client="s", timeout=30) as subscriber,
        ):
            for client in (away, subscriber):
                client.subscribe("n > 1")
                client.subscribe("kind = 'car'")
            await settle(network, [publisher, away, subscriber])
            clients = [publisher, away, subscriber]
            await away.detach()
            await settle(network, clients)  # Its broker has noticed.
            await publisher.publish_all({"n": number} for number in range(50))
            await settle(network, clients)
            before = _said_by(network, "B2")
            network.kill("B2")
            await asyncio.to_thread(network.restart, "B2")
            await until(lambda: publisher.is_connected)
            await settle(network, clients)
            assert _said_by(network, "B2") == before
            assert before["away"]["kept_events"] == 48
            await away.attach()

    with network_in(tmp_path, 2) as network:
        asyncio.run(run(network))


def _said_by(network: LocalNetwork, name: str) -> dict[str, dict[str, object]]:
    queues = network.ask(name, "queues")["queues"]
    topology = network.ask(name, "topology")
    subscriptions = network.ask(name, "status")["subscriptions"]
    return {queue["name"]: queue for queue in queues} | {
        "": {"links": topology["links"], "subscriptions": subscriptions}
    }


# ---- Disks


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("how", ["full", "quota"])
def test_a_broker_whose_disk_is_full_stops_and_loses_nothing(tmp_path: Path, how: str) -> None:
    """It says what to do and ends with status 1; with room again, all that was acknowledged is
    there, and what was not is sent again.
    """
    quota = {"bytes_max": 300_000, "segment_bytes": 100_000, "snapshot_bytes": 100_000}
    network = network_in(tmp_path, 1, durability=quota if how == "quota" else {})

    async def run() -> list[object]:
        url = network.url("B1")
        async with (
            connect(url, client="p", timeout=30) as publisher,
            connect(url, client="s", timeout=30) as subscriber,
        ):
            subscription = subscriber.subscribe("n >= 0")
            await settle(network, [publisher, subscriber])
            await subscriber.detach()  # What is kept for it has to be kept on disk.
            if how == "full":
                limit = (100_000, 100_000)
                resource.prlimit(network.pid("B1"), resource.RLIMIT_FSIZE, limit)
            task = asyncio.create_task(
                publisher.publish_all(({"n": n}, bytes(500)) for n in range(2_000))
            )
            await until(lambda: not network.is_running("B1"))
            (ended,) = network.died().values()
            assert "status 1" in ended
            assert "then start again: what was acknowledged is recovered" in ended
            config = network.configs["B1"]
            network.configs["B1"] = replace(
                config, durability=replace(config.durability, bytes_max=0)
            )
            await asyncio.to_thread(network.restart, "B1")
            assert await task == 2_000
            await subscriber.attach()
            await settle(network, [publisher, subscriber])
            return [event.attributes["n"] for event in subscription.take()]

    with network:
        assert asyncio.run(run()) == list(range(2_000))


@pytest.mark.spec("LV-1")
def test_a_snapshot_of_another_kind_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    network = network_in(tmp_path, 1)
    log, _ = Log.open(network.data("B1") / "log", kind="broker state of long ago")
    log.append(b"something")
    log.snapshot(b"a state", 1)
    log.close()
    with pytest.raises(SternaError, match="holds a state of kind 'broker state of long ago'"):
        network.start()
    assert STATE_KIND in network.messages("B1").read_text()


@pytest.mark.spec("LV-1")
def test_a_log_of_another_format_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    network = network_in(tmp_path, 1)
    with network:
        pass
    (segment,) = (network.data("B1") / "log").glob("*.log")
    data = segment.read_bytes()
    with patch.object(log_format, "FORMAT", 99):
        start = log_format._start(log_format.SEGMENT_MAGIC)
    segment.write_bytes(start + data[len(start) :])
    for snapshot in (network.data("B1") / "log").glob("*.snapshot"):
        snapshot.unlink()
    with pytest.raises(SternaError, match="has format 99; this version reads"):
        network.start()


@pytest.mark.spec("LV-1")
def test_data_of_another_broker_is_refused(tmp_path: Path) -> None:
    network = network_in(tmp_path, 1)
    with network:
        pass
    network.configs["B1"] = replace(network.configs["B1"], name="B9")
    with pytest.raises(SternaError, match="is of broker 'B1', not of 'B9'"):
        network.start()


# ---- Clients


@pytest.mark.spec("LV-2")
def test_clients_with_a_state_go_on_after_they_were_killed(tmp_path: Path) -> None:
    """What they published is published once. What they took they get no more, but for the event
    that they were at when they were killed.
    """
    count = 3_000
    rng = random.Random("clients")  # noqa: S311 - reproducible, not secret.
    output = tmp_path / "output"
    running: dict[str, subprocess.Popen[bytes]] = {}
    kills: Counter[str] = Counter()

    def start(what: str) -> None:
        arguments = [what, url, str(tmp_path / what), str(count), str(output)]
        running[what] = subprocess.Popen(
            [sys.executable, "-m", "tests.net.live_client", *arguments]
        )

    async def run() -> None:
        start("sub")
        # So that it is subscribed before the first event.
        await until(lambda: network.ask("B1", "status")["subscriptions"] > 0)
        start("pub")
        while running:
            for what, process in list(running.items()):
                before = _length(output)
                goal = before + rng.randrange(1, 400)
                await until(
                    lambda p=process, goal=goal: p.poll() is not None or _length(output) > goal  # type: ignore[misc]
                )
                if process.poll() is not None:
                    assert process.returncode == 0
                    del running[what]
                elif kills[what] < KILLS:
                    process.kill()
                    process.wait()
                    kills[what] += 1
                    start(what)

    with network_in(tmp_path / "network", 1) as network:
        url = network.url("B1")
        try:
            asyncio.run(run())
        finally:
            for process in running.values():
                process.kill()
    numbers = [int(line) for line in output.read_text().split()]
    assert list(dict.fromkeys(numbers)) == list(range(count))  # All, and in order.
    assert len(numbers) - count <= kills["sub"]
    assert kills["sub"] > 0


def _length(output: Path) -> int:
    return output.read_bytes().count(b"\n") if output.exists() else 0
