"""Broker processes while a client comes or goes with thousands of advertisements, while somebody
advertises what thousands have waited for, and while somebody has to be told everything for the
first time: others do not notice, and no event loop stands still.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from sterna.core.messages import AdvertisementChange
from sterna.net.local import LocalNetwork
from sterna.wire.frames import Role
from tests.net.attacks import LATE_S, Attacker, witness
from tests.net.live import SETTLE_S, network_in
from tests.net.test_attacks_by_leaving import has

pytestmark = pytest.mark.spec("RT-2", "RT-3", "LV-6")

MANY = 2_000
"""So many took a fifth of a second, and more."""

FILTERS = [f"n = {number} AND witness = FALSE" for number in range(MANY)]
"""The witnesses have nothing to do with them."""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[LocalNetwork]:
    """Three brokers in a line, with B1 in the middle, that route by advertisements."""
    with network_in(tmp_path, 3, network={"advertisements": True}) as network:
        yield network
        assert network.died() == {}


def assert_unnoticed(
    network: LocalNetwork, attack: Callable[[Attacker, Attacker], Awaitable[None]]
) -> None:
    """Two clients of a broker attack; the witnesses are at its neighbour in the middle."""

    async def begin() -> Attacker:
        first = await Attacker.come_in(network.addresses["B2"], "first")
        second = await Attacker.come_in(network.addresses["B2"], "second")
        attacker = await Attacker.come_in(network.addresses["B1"])

        async def run() -> None:
            await attack(first, second)
            offer = attacker.change(["end = TRUE"], AdvertisementChange)
            await attacker.send(offer, attacker.publication(end=True))

        attacker.task = asyncio.create_task(run())
        return attacker

    assert asyncio.run(witness(network, begin)) < LATE_S


async def offers(network: LocalNetwork, name: str, least: int, most: int) -> None:
    """Wait until a broker knows so many advertisements."""
    async with asyncio.timeout(SETTLE_S):
        while True:
            status = await asyncio.to_thread(network.ask, name, "status")
            if least <= status["advertisements"] <= most:
                return


def test_many_subscriptions_have_waited_for_an_advertisement(network: LocalNetwork) -> None:
    async def attack(waiting: Attacker, _other: Attacker) -> None:
        await waiting.send(*waiting.subscription(FILTERS))
        await has(network, "B2", MANY, MANY + 10)
        for name in ("B1", "B3"):
            await has(network, name, 0, 10)
        publisher = await Attacker.come_in(network.addresses["B1"], "publisher-of-all")
        await publisher.send(publisher.change(["n >= 0 AND witness = FALSE"], AdvertisementChange))
        await has(network, "B1", MANY, MANY + 10)
        await publisher.send(publisher.withdrawal(0, kind=AdvertisementChange))
        await has(network, "B1", 0, 10)

    assert_unnoticed(network, attack)


def test_a_neighbour_comes_that_knows_nothing(tmp_path: Path) -> None:
    with network_in(tmp_path, 2) as network:

        async def attack(subscriber: Attacker, other: Attacker) -> None:
            await subscriber.send(*subscriber.subscription(FILTERS))
            await has(network, "B2", MANY, MANY + 10)
            neighbour = await Attacker.come_in(network.addresses["B2"], "B9", Role.BROKER)
            async with asyncio.timeout(SETTLE_S):
                while not await asyncio.to_thread(_is_up, network, "B9"):
                    pass
            await other.send(other.question())
            neighbour.leave()

        assert_unnoticed(network, attack)
        assert network.died() == {}


def _is_up(network: LocalNetwork, neighbour: str) -> bool:
    topology = network.ask("B2", "topology")
    return any(e["name"] == neighbour and e["is_up"] for e in topology["neighbours"])


def test_a_client_comes_and_goes_with_many_advertisements(network: LocalNetwork) -> None:
    async def attack(comer: Attacker, leaver: Attacker) -> None:
        some = FILTERS[: MANY // 2]
        await leaver.send(leaver.change(some, AdvertisementChange))
        await offers(network, "B3", len(some), len(some) + 10)
        leaver.leave()
        await offers(network, "B3", 0, 10)
        await comer.send(comer.arrival(FILTERS, "advertisements"))
        await offers(network, "B3", MANY, MANY + 10)

    assert_unnoticed(network, attack)
