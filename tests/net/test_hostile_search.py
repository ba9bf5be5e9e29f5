"""A broker that hostile neighbours and careless clients have search: others do not notice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sterna.core.history.messages import (
    SEARCH,
    HistoryAsked,
    HistoryExpected,
    HistoryFound,
    PastAsked,
)
from sterna.model.ranges import INT_MAX
from sterna.net.local import LocalNetwork
from sterna.wire.frames import Role
from tests.net.attacks import Attacker, undisturbed
from tests.net.live import SETTLE_S, Client, connect, network_in, until
from tests.net.test_hostile import memory_bytes

EVENTS = 10_000
GROWTH_BYTES_MAX = 64 << 20

pytestmark = pytest.mark.spec("LV-6", "PA-2")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[LocalNetwork]:
    """Two brokers; a third one never comes back, so each test has its own network."""
    with network_in(tmp_path, 2) as network:
        yield network
        assert network.died() == {}
        assert network.held() == {}


@asynccontextmanager
async def searched(network: LocalNetwork) -> AsyncIterator[Client]:
    """A client of B2, where nothing is; B1 has seen all the events that it remembers."""
    async with (
        connect(network.url("B1"), client="pat") as publisher,
        connect(network.url("B2"), client="ann") as client,
    ):
        await publisher.publish_all({"n": n, "text": f"abc {n} " * 5} for n in range(EVENTS))
        await check_past(client, "n >= 0", EVENTS)
        yield client


async def check_past(client: Client, where: str, end: int, count: int = 50) -> None:
    """A subscription begins with the last events, whatever others do."""
    subscription = client.subscribe(where, past=count)
    got = [(await subscription.get(timeout=SETTLE_S)).attributes["n"] for _ in range(count)]
    assert got == list(range(end - count, end))
    await subscription.close()


async def neighbour(network: LocalNetwork, name: str) -> Attacker:
    address = network.addresses["B1"]
    return await Attacker.come_in(address, name, Role.BROKER, more_features=(SEARCH,))


def test_a_flood_of_questions(network: LocalNetwork) -> None:
    """Each has the broker go through all it has, and nobody reads its answers."""

    async def run() -> None:
        async with searched(network) as ann, undisturbed(network, "B1"):
            before = memory_bytes(network)
            eve = await neighbour(network, "B8")
            for number in range(200):
                filter_ = f"text LIKE '%c {number}_%b%c%' AND n >= 0"
                asked = eve.said(HistoryAsked, path=["B8"], number=number, filter=filter_)
                await eve.send(asked)
            await check_past(ann, "n >= 0", EVENTS)
            assert memory_bytes(network) - before < GROWTH_BYTES_MAX
            eve.leave()

    asyncio.run(run())


def test_forged_messages(network: LocalNetwork) -> None:
    """Answers that nobody has asked for, ways that do not exist, counts beyond all bounds."""
    ways: list[list[str]] = [[], ["B2"], ["B1"], ["B7", "B2"], ["B2", "B7"], ["x"] * 5_000, ["B7"]]
    run_ = {"publisher": "first", "first": 0, "last": INT_MAX, "place": "here"}

    async def run() -> None:
        async with searched(network) as ann, undisturbed(network, "B1"):
            eve = await neighbour(network, "B7")
            for number in range(1, 40):
                for path in ways:
                    same = {"path": path, "number": number}
                    await eve.send(
                        eve.said(HistoryExpected, **same, count=INT_MAX),
                        eve.said(HistoryFound, **same, runs=[[*run_.values()]], more=True),
                        eve.said(HistoryFound, **same, runs=[[*run_.values()]]),
                        eve.said(HistoryAsked, **same, filter="n >= 0 AND n IN myloc"),
                        eve.said(HistoryAsked, **same, filter="n > 9990"),
                    )
            await check_past(ann, "n >= 0", EVENTS)
            eve.leave()

    asyncio.run(run())


def test_a_neighbour_that_never_answers(network: LocalNetwork) -> None:
    """A search ends without it, after `history.search_timeout_s`."""

    async def run() -> None:
        async with searched(network) as ann:
            eve = await neighbour(network, "B6")
            await until(lambda: "B6" in str(network.ask("B1", "topology")))
            loop = asyncio.get_running_loop()
            began = loop.time()
            await check_past(ann, "n >= 0 AND n < 8000", 8_000)
            assert loop.time() - began > 1.0
            eve.leave()

    asyncio.run(run())


@pytest.mark.parametrize("other", ["B1", "B2"])
def test_a_client_that_asks_for_the_past_of_everything(network: LocalNetwork, other: str) -> None:
    """All brokers have to search for it, and it takes nothing of what they find."""

    async def run() -> None:
        async with searched(network) as ann, undisturbed(network, other):
            before = memory_bytes(network)
            eve = await Attacker.come_in(network.addresses["B2"], "eve")
            for number in range(500):
                route = {"id": f"eve/{number}", "filter": f"n >= -{number}"}
                await eve.send(eve.said(PastAsked, route=route, events_max=5_000, in_parts=True))
            await check_past(ann, "n >= 0", EVENTS)
            assert memory_bytes(network) - before < GROWTH_BYTES_MAX
            eve.leave()

    asyncio.run(run())
