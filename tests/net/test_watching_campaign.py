"""Whatever happens to one broker after the other: a client that two watch for misses nothing."""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from sterna.net.client.watching import WatchingClient
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, network_in, until
from tests.net.test_watching import Tunnel
from tests.scale import CAMPAIGN

TROUBLES = ("killed", "hangs", "tunnel", "detached", "detached in a tunnel", "roams")
ROUNDS = max(1, CAMPAIGN)
EVERY_S = 0.01


async def happen(
    trouble: str, network: LocalNetwork, car: WatchingClient, tunnel: Tunnel, rng: random.Random
) -> None:
    """One trouble begins and ends."""
    broker, seconds = rng.choice(("B3", "B4")), rng.choice((0.05, 0.5, 1.0))
    match trouble:
        case "killed":
            network.kill(broker)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(network.restart, broker)
        case "hangs":
            os.kill(network.pid(broker), signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(network.pid(broker), signal.SIGCONT)
        case "tunnel":
            tunnel.enter()
            await asyncio.sleep(seconds)
            tunnel.leave()
        case "roams":
            await car.attach(*rng.sample([*network.urls.values()], 3))
        case _:
            if "tunnel" in trouble:
                tunnel.enter()
            await car.detach()
            await asyncio.sleep(seconds)
            tunnel.leave()
            await car.attach()


@pytest.mark.spec("RE-5", "RE-1")
def test_a_client_with_two_sessions_misses_nothing_whatever_goes_wrong(tmp_path: Path) -> None:
    """The brokers come back with what they had. Every third event is unwanted: there are gaps."""
    rng = random.Random(CAMPAIGN)  # noqa: S311 - reproducible, not secret.
    network = network_in(tmp_path, 4)
    tunnel = Tunnel()
    published = 0
    got: list[object] = []

    async def run() -> None:
        urls = [network.url(name) for name in ("B3", "B4", "B2")]
        async with (
            connect(*urls, client="car", watch=2, transport=tunnel, hold_s=SETTLE_S) as car,
            connect(network.url("B1"), client="p") as publisher,
        ):
            subscription = await car.subscribe("wanted").ready(SETTLE_S)

            async def publish() -> None:
                nonlocal published
                while True:
                    publisher.publish(n=published, wanted=published % 3 > 0)
                    published += 1
                    await asyncio.sleep(EVERY_S)

            publishing = asyncio.create_task(publish())
            for _ in range(ROUNDS):
                for trouble in rng.sample(TROUBLES, len(TROUBLES)):
                    await happen(trouble, network, car, tunnel, rng)
                    await until(lambda: len(car.brokers) == 2)
                    await subscription.ready(SETTLE_S)  # The next one may be at its broker.
            publishing.cancel()
            await publisher.drain(SETTLE_S)
            wanted = [number for number in range(published) if number % 3 > 0]
            while len(got) < len(wanted):
                got.append((await subscription.get(SETTLE_S)).attributes["n"])
            assert got == wanted
            assert subscription.late == 0

    with network:
        asyncio.run(run())
