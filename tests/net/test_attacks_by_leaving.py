"""Broker processes while thousands of subscriptions end at once or come with a client, or many
advertisements begin: others do not notice, and no event loop stands still.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.core.messages import AdvertisementChange
from sterna.net.local import LocalNetwork
from tests.net.attacks import LATE_S, Attacker, witness
from tests.net.live import SETTLE_S, network_in

pytestmark = pytest.mark.spec("RT-2", "LV-6")

MANY = 3_000
"""So many took a quarter of a second for each neighbour, and more."""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[LocalNetwork]:
    """A broker with two neighbours."""
    with network_in(tmp_path, 3) as network:
        yield network
        assert network.died() == {}


async def has(network: LocalNetwork, name: str, least: int, most: int) -> None:
    """Wait until a broker has so many subscriptions, of clients and of neighbours."""
    async with asyncio.timeout(SETTLE_S):
        while True:
            status = await asyncio.to_thread(network.ask, name, "status")
            if least <= status["subscriptions"] <= most:
                return


def test_a_client_with_many_subscriptions_is_forgotten(network: LocalNetwork) -> None:
    async def attack() -> Attacker:
        leaver = await Attacker.come_in(network.addresses["B2"], "leaver")
        attacker = await Attacker.come_in(network.addresses["B2"])

        async def leave() -> None:
            await leaver.send(*leaver.subscription([f"n = {number}" for number in range(MANY)]))
            for name in ("B1", "B3"):
                await has(network, name, MANY, MANY + 10)
            leaver.leave()
            for name in ("B1", "B2", "B3"):
                await has(network, name, 0, 10)
            await attacker.send(attacker.publication(end=True))

        attacker.task = asyncio.create_task(leave())
        return attacker

    assert asyncio.run(witness(network, attack)) < LATE_S


def test_a_filter_that_covers_many_ends(network: LocalNetwork) -> None:
    async def attack() -> Attacker:
        narrow = await Attacker.come_in(network.addresses["B2"], "narrow")
        attacker = await Attacker.come_in(network.addresses["B2"])

        async def withdraw() -> None:
            await attacker.send(attacker.change(["n >= 0"]))
            await narrow.send(*narrow.subscription([f"n = {number}" for number in range(MANY)]))
            await has(network, "B2", MANY + 1, MANY + 10)
            await has(network, "B1", 1, 10)
            await attacker.send(attacker.withdrawal(0))
            for name in ("B1", "B3"):
                await has(network, name, MANY, MANY + 10)
            await attacker.send(attacker.publication(end=True))

        attacker.task = asyncio.create_task(withdraw())
        return attacker

    assert asyncio.run(witness(network, attack)) < LATE_S


def test_a_client_comes_with_many_subscriptions(network: LocalNetwork) -> None:
    async def attack() -> Attacker:
        comer = await Attacker.come_in(network.addresses["B2"], "comer")
        attacker = await Attacker.come_in(network.addresses["B2"])

        async def come() -> None:
            await comer.send(comer.arrival([f"n = {number}" for number in range(MANY)]))
            for name in ("B1", "B2", "B3"):
                await has(network, name, MANY, MANY + 10)
            await attacker.send(attacker.publication(end=True))

        attacker.task = asyncio.create_task(come())
        return attacker

    assert asyncio.run(witness(network, attack)) < LATE_S


def test_many_advertisements_in_one_frame(tmp_path: Path) -> None:
    filters = [f"n = {number} AND m > {number % 7}" for number in range(1_000)]
    with network_in(tmp_path, 2, network={"advertisements": True}) as network:

        async def attack() -> Attacker:
            attacker = await Attacker.come_in(network.addresses["B1"])
            advertised = attacker.change([*filters, "end = TRUE"], AdvertisementChange)
            await attacker.send(advertised, attacker.publication(end=True))
            return attacker

        assert asyncio.run(witness(network, attack)) < LATE_S
        assert network.died() == {}
