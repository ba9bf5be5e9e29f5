"""A broker in the process of the test: how it starts, what it counts, and what it can be set to."""

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sterna.net.broker import BrokerServer, StartError
from sterna.net.config import BrokerConfig
from sterna.net.loop import new_event_loop
from sterna.net.storage import Log
from tests.net.live import SETTLE_S, connect, gather_events, until

LOOPS = [asyncio.new_event_loop, new_event_loop]


def config_in(directory: Path, **tables: Any) -> BrokerConfig:
    tables = {"name": "B1", "listen": "127.0.0.1:0", "data": str(directory / "data"), **tables}
    return BrokerConfig.from_mapping(tables)


def run(
    doing: Coroutine[Any, Any, None],
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(doing, 60))


def number(server: BrokerServer, name: str) -> float:
    """The value of a metric without labels."""
    found = re.search(rf"^{name} (\S+)$", server.metrics.text().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("level", ["none", "batch", "sync"])
def test_metrics_of_what_is_sent_grow_with_traffic(tmp_path: Path, level: str) -> None:
    """Frames, bytes, and how long it takes from an input to what it causes."""

    async def traffic() -> None:
        server = BrokerServer(config_in(tmp_path, durability={"level": level}))
        await server.start()
        names = [
            *("sterna_sent_bytes_total", "sterna_sent_frames_total"),
            *("sterna_release_seconds_count", "sterna_release_seconds_sum"),
        ]
        async with connect(server.address.url, client="c") as client:
            subscription = client.subscribe("n >= 0")
            await client.publish(n=0)
            await gather_events(subscription, 1)
            before = {name: number(server, name) for name in names}
            await client.publish_all(({"n": n}, bytes(100)) for n in range(50))
            await gather_events(subscription, 50)
            grown = {name: number(server, name) - before[name] for name in names}
        await server.stop()
        assert grown["sterna_sent_bytes_total"] > 50 * 100
        assert grown["sterna_sent_frames_total"] > 0
        assert grown["sterna_release_seconds_count"] > 0
        assert 0 < grown["sterna_release_seconds_sum"] < 60

    run(traffic())


@pytest.mark.spec("LV-6")
def test_a_broker_whose_disk_is_slow_pauses_and_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads no more than it may hold, and the rest when that is on the disk."""
    is_quick = threading.Event()
    is_quick.set()
    commit = Log.commit

    def slow(log: Log, *, sync: bool = True) -> int:
        is_quick.wait()
        return commit(log, sync=sync)

    monkeypatch.setattr(Log, "commit", slow)
    limits = {"in_flight_bytes_max": 50_000, "frame_bytes_max": 50_000}

    async def publish() -> None:
        server = BrokerServer(config_in(tmp_path, limits=limits))
        await server.start()
        async with connect(server.address.url, client="c") as client:
            is_quick.clear()
            for n in range(1_000):
                client.publish(n=n, text="x" * 200)
                if n % 100 == 99:
                    await asyncio.sleep(0)  # Each frame is short enough.
            await until(lambda: server.pausing.is_paused)
            is_quick.set()
            await client.drain(timeout=SETTLE_S)
            assert not server.pausing.is_paused
        await server.stop()

    run(publish())


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("key", ["listen", "http.listen"])
def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path, key: str) -> None:
    """The same process can start a broker with the same data and addresses once there is room."""

    async def start_twice() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            tables = {"http": {"listen": address}} if "." in key else {"listen": address}
            with pytest.raises(StartError, match=f"cannot listen on {address}.*`{key}`"):
                await BrokerServer(config_in(tmp_path, **tables)).start()
        server = BrokerServer(config_in(tmp_path, **tables))
        await server.start()
        await server.stop()

    run(start_twice())


@pytest.mark.spec("LV-1")
def test_data_of_another_broker_is_left_alone(tmp_path: Path) -> None:
    """A start with it fails, and its owner can start afterwards."""

    async def start() -> None:
        for name in ("B1", "B2", "B1"):
            server = BrokerServer(config_in(tmp_path, name=name))
            if name == "B2":
                with pytest.raises(StartError, match="is of broker 'B1', not of 'B2'"):
                    await server.start()
            else:
                await server.start()
                await server.stop()

    run(start())


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "default"])
def test_queues_may_be_longer_than_an_event_loop_can_count(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    limits = {"queue_bytes_per_client_max": "16 GiB", "queue_bytes_max": "64 GiB"}

    async def connects() -> None:
        server = BrokerServer(config_in(tmp_path, limits=limits))
        await server.start()
        async with connect(server.address.url, client="c") as client:
            await until(lambda: client.is_connected)
            await client.publish(n=1)
        await server.stop()

    run(connects(), loop)
