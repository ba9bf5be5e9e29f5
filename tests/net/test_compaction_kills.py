"""Nothing is lost, whoever is killed while a snapshot is made."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sterna.net.local import LocalNetwork
from tests.net.live import Client, connect, network_in, settle, until
from tests.scale import CAMPAIGN

ROUNDS = 4 if CAMPAIGN == 1 else 4 * CAMPAIGN
MANY = 1_500


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("killed", ["second process", "broker", "both"])
def test_nothing_is_lost_whoever_is_killed_while_a_snapshot_is_made(
    tmp_path: Path, killed: str
) -> None:
    """At any moment; a client that was away gets each event once, and in order."""
    chance = random.Random(f"compaction {killed}")  # noqa: S311 - reproducible, not secret.
    network = network_in(tmp_path, 1, durability={"snapshot_inputs": 150})
    published: list[int] = []
    kills = 0

    async def publish(client: Client) -> None:
        while True:
            published.append(len(published))
            receipt = client.publish(n=published[-1])
            if len(published) % 10 == 0:
                await receipt

    async def run() -> list[object]:
        nonlocal kills
        url = network.url("B1")
        async with (
            connect(url, client="p", timeout=60) as publisher,
            connect(url, client="away", timeout=60) as away,
        ):
            subscription = away.subscribe("n >= 0")
            await settle(network, [publisher, away])
            await away.detach()
            task = asyncio.create_task(publish(publisher))
            for _ in range(ROUNDS):
                pids: list[int] = []
                await until(lambda pids=pids: bool(pids.extend(second_processes(network)) or pids))  # type: ignore[misc]
                await asyncio.sleep(chance.uniform(0, 0.8))
                if killed != "broker":
                    with suppress(ProcessLookupError):  # It may have been quicker.
                        os.kill(pids[0], signal.SIGKILL)
                        kills += 1
                if killed != "second process":
                    network.kill("B1")
                    kills += 1
                    await asyncio.to_thread(network.restart, "B1")
                    assert not list((network.data("B1") / "log").glob("*.new"))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await publisher.drain()
            await away.attach()
            await settle(network, [publisher, away])
            return [event.attributes["n"] for event in subscription.take()]

    with network:
        got = asyncio.run(run())
    assert got == published
    assert len(published) > MANY // 2
    assert kills > 0


def second_processes(network: LocalNetwork) -> Iterator[int]:
    """The processes that a broker has started."""
    for task in Path(f"/proc/{network.pid('B1')}/task").iterdir():
        with suppress(FileNotFoundError):
            yield from map(int, (task / "children").read_text().split())
