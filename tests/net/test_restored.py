"""Brokers that come back with an old memory: a copied directory, a salvaged log, a level changed
and changed back. Both ends of each link notice it, and all that is published from then on arrives.
"""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from sterna.net.config.sections import Durability
from sterna.net.local import LocalNetwork
from tests.net.attacks import undisturbed
from tests.net.live import Client, connect, gather_events, network_in, settle

Disaster = Callable[[LocalNetwork, Path], None]
"""What happens to B1 while it is down, and how it comes back."""


def copy(network: LocalNetwork, to: Path) -> None:
    """Copy the directory of B1 as it is: its owner's backup."""
    network.end("B1")
    shutil.copytree(network.data("B1"), to)
    network.restart("B1")


def restored(network: LocalNetwork, backup: Path) -> None:
    """B1 is killed and its directory replaced with the backup."""
    network.kill("B1")
    shutil.rmtree(network.data("B1"))
    shutil.copytree(backup, network.data("B1"))
    network.restart("B1")


def without_a_log_for_a_while(network: LocalNetwork, _backup: Path) -> None:
    """B1 runs without durability, then again with its old directory."""
    for level in (Durability.NONE, Durability.BATCH):
        network.end("B1")
        configure(network, level=level)
        network.restart("B1")
        network.wait_until_whole()


def configure(network: LocalNetwork, **durability: object) -> None:
    config = network.configs["B1"]
    network.configs["B1"] = replace(config, durability=replace(config.durability, **durability))


def salvaged(network: LocalNetwork, _backup: Path) -> None:
    """The log of B1 is damaged near its end, and what comes before is salvaged."""
    network.kill("B1")
    log = max(network.data("B1").rglob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data.rstrip(b"\0")) * 3 // 4] ^= 0xFF
    log.write_bytes(data)
    configure(network, salvage=True)
    network.restart("B1")


async def exchange(publisher: Client, subscription: object, first: int) -> None:
    """A hundred events get through."""
    await publisher.publish_all({"n": number} for number in range(first, first + 100))
    await publisher.drain()
    got = await gather_events(subscription, 100)
    assert [event.attributes["n"] for event in got] == list(range(first, first + 100))


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("disaster", [restored, salvaged, without_a_log_for_a_while])
def test_links_to_a_broker_with_an_old_memory_begin_anew(
    tmp_path: Path, disaster: Disaster
) -> None:
    """B2 - B1 - B3: what is published at each end arrives at the other end, before and after.

    Two clients of B2 notice nothing.
    """

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B2"), client="ann", timeout=30) as ann,
            connect(network.url("B3"), client="bob", timeout=30) as bob,
            connect(network.url("B1"), client="pat", timeout=30) as pat,
        ):
            clients = [ann, bob, pat]
            heard = {client: client.subscribe("n >= 0") for client in (ann, bob)}
            await settle(network, clients)
            await exchange(pat, heard[ann], 0)
            await gather_events(heard[bob], 100)
            await asyncio.to_thread(copy, network, tmp_path / "backup")
            await settle(network, clients)
            for first in (100, 200):
                await exchange(pat, heard[ann], first)
                await gather_events(heard[bob], 100)
            async with undisturbed(network, "B2"):
                await asyncio.to_thread(disaster, network, tmp_path / "backup")
                await asyncio.to_thread(network.wait_until_whole)
            await settle(network, clients)
            await exchange(pat, heard[ann], 300)
            await gather_events(heard[bob], 100)
            await exchange(ann, heard[bob], 400)
            await gather_events(heard[ann], 100)  # Its own.
            async with connect(network.url("B3"), client="new", timeout=30) as new:
                await exchange(new, heard[ann], 500)
                await gather_events(heard[bob], 100)
            assert [each.take() for each in heard.values()] == [[], []]

    with network_in(tmp_path / "network", 3) as network:
        asyncio.run(run(network))
    told = [network.messages(name).read_text(encoding="utf-8") for name in ("B1", "B2")]
    assert any("remember different things" in each for each in told)
