"""Queues that take more memory than they may go to disk: real processes, by their memory.

A neighbour is down, or clients are away, and far more is published than the budget has room for.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec.structs import replace

from sterna.errors import SternaError
from sterna.net.config import Durability, LimitsConfig
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, Client, connect, network_in, settle, until
from tests.net.test_budget import wait_for
from tests.net.test_hostile import memory_bytes
from tests.net.test_hostile_pressure import status

MIB = 2**20
BUDGET = 16 * MIB
GROWTH_BYTES_MAX = BUDGET + 64 * MIB
PAYLOAD = bytes(2_000)
MANY = 48_000
"""So many events are about 100 MB: six times the budget."""

SAID = "wait for B2 (memory_bytes_max, spill_bytes_max)"
"""What a broker says when there is neither memory nor disk for more."""

LIMITS = {
    "memory_bytes_max": BUDGET,
    "queue_bytes_per_client_max": 2 * MIB,
    "in_flight_bytes_max": 2 * MIB,
}


def network_of(
    directory: Path, brokers: int, *, snapshot_bytes: int = 1024 * MIB, **limits: Any
) -> LocalNetwork:
    durability = {
        "snapshot_bytes": snapshot_bytes,
        "snapshot_inputs": 10**9,
        "segment_bytes": 16 * MIB,
        "bytes_max": 0,
    }
    return network_in(directory, brokers, limits={**LIMITS, **limits}, durability=durability)


def with_room_at_b2(network: LocalNetwork) -> LocalNetwork:
    """B2 keeps what its client has not fetched yet when both are back."""
    limits = LimitsConfig(queue_bytes_per_client_max=1024 * MIB)
    network.configs["B2"] = replace(network.configs["B2"], limits=limits)
    return network


def pages(network: LocalNetwork) -> list[Path]:
    return sorted(network.data("B1").glob("spill*/*.page"))


async def warm_up(network: LocalNetwork) -> int:
    """What a broker loads when it is first used does not count, nor do the last 10,000 events."""
    async with connect(network.url("B1"), client="warm", timeout=30) as client:
        for _ in range(100):
            await client.publish_all(({"warm": n}, PAYLOAD) for n in range(100))
    return memory_bytes(network)


class Growth:
    """Looks at the memory of B1 while something goes on."""

    def __init__(self, network: LocalNetwork, before: int) -> None:
        self._network = network
        self._before = before
        self._task: asyncio.Task[None] | None = None
        self.most = before

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        print(f"memory: {self._before / MIB:.0f} MiB, at most {self.most / MIB:.0f} MiB")

    async def _look(self) -> None:
        while True:
            if self._network.is_running("B1"):
                self.most = max(self.most, memory_bytes(self._network))
            await asyncio.sleep(0.02)

    @property
    def bytes(self) -> int:
        return self.most - self._before


async def publish(client: Client, numbers: range) -> float:
    """Publish with acknowledgements; return how long it took."""
    began = time.monotonic()
    for first in range(numbers.start, numbers.stop, 1_000):
        some = range(first, min(first + 1_000, numbers.stop))
        await client.publish_all(({"far": n}, PAYLOAD) for n in some)
    return time.monotonic() - began


@pytest.mark.spec("LV-6", "LV-1")
@pytest.mark.parametrize("snapshot_bytes", [1024 * MIB, 8 * MIB])
def test_what_waits_for_a_neighbour_that_is_down_is_on_disk(
    tmp_path: Path, snapshot_bytes: int
) -> None:
    """Publishers do not wait, and memory keeps to its budget, also after kill -9 and a restart.

    With small snapshots, the second process makes some meanwhile, and pages are removed later.
    """

    async def run(network: LocalNetwork) -> None:
        got: list[object] = []
        before = await warm_up(network)
        async with (
            connect(network.url("B2"), client="far", timeout=60) as far,
            connect(network.url("B1"), client="loud", timeout=60) as loud,
        ):
            far.subscribe("far >= 0", callback=lambda event: got.append(event.attributes["far"]))
            await settle(network, [far, loud])
            network.kill("B2")
            async with Growth(network, before) as growth:
                async with asyncio.timeout(SETTLE_S):
                    took = await publish(loud, range(MANY // 2))
                memory = (await status(network, "B1"))["memory"]
                print(f"published in {took:.1f} s", memory)
                assert memory["queue_events"] == MANY // 2
                assert memory["queue_bytes"] > MANY // 2 * len(PAYLOAD)
                assert memory["spilled_bytes"] > MANY // 4 * len(PAYLOAD)
                assert memory["bytes"] < BUDGET
                await asyncio.to_thread(network.kill, "B1")
                await asyncio.to_thread(network.restart, "B1")
                async with asyncio.timeout(SETTLE_S):
                    await publish(loud, range(MANY // 2, MANY))
                memory = (await status(network, "B1"))["memory"]
                assert memory["queue_events"] == MANY
                assert memory["bytes"] < BUDGET
                assert (await status(network, "B1"))["peers_waiting"] == 0
                await asyncio.to_thread(network.restart, "B2")
                await until(lambda: len(got) >= MANY, limit_s=2 * SETTLE_S)
            assert got == list(range(MANY))
            assert growth.bytes < GROWTH_BYTES_MAX
            await wait_for(network, lambda status: status["memory"]["spilled_bytes"] == 0)

    network = network_of(tmp_path, 2, snapshot_bytes=snapshot_bytes)
    with with_room_at_b2(network):
        asyncio.run(run(network))
        if snapshot_bytes < MANY * len(PAYLOAD):
            for _ in range(2):  # The last snapshot of each end; nothing needs pages after both.
                network.end("B1")
                network.restart("B1")
                network.wait_until_whole()
            asyncio.run(wait_until_gone(network))


async def wait_until_gone(network: LocalNetwork) -> None:
    """Pages that nobody needs are removed."""
    async with asyncio.timeout(SETTLE_S):
        while pages(network):
            await asyncio.sleep(0.05)


@pytest.mark.spec("LV-6", "LV-1")
def test_what_is_kept_for_clients_that_are_away_is_on_disk(tmp_path: Path) -> None:
    """Far more than their share of memory: all get everything, also after kill -9."""
    count, each = 40, 800

    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            clients = [
                await enter(connect(network.url("B1"), client=f"away-{n}", timeout=60))
                for n in range(count)
            ]
            loud = await enter(connect(network.url("B1"), client="loud", timeout=60))
            subscriptions = [client.subscribe(f"n = {n}") for n, client in enumerate(clients)]
            await settle(network, [*clients, loud])
            for client in clients:
                await client.detach()
            before = await warm_up(network)
            async with Growth(network, before) as growth, asyncio.timeout(120):
                for first in range(0, each, 200):
                    for n in range(count):
                        some = range(first, first + 200)
                        await loud.publish_all(({"n": n, "i": i}, PAYLOAD) for i in some)
                    if first == 200:
                        await asyncio.to_thread(network.kill, "B1")
                        await asyncio.to_thread(network.restart, "B1")
                memory = (await status(network, "B1"))["memory"]
                print(memory)
                assert memory["queue_events"] == count * each
                assert memory["away_bytes"] < BUDGET // 2
                assert memory["spilled_bytes"] > 10 * BUDGET // 4
                for n, client in enumerate(clients):
                    if n == count // 2:  # What the others got is in pages that a replay reads.
                        await asyncio.to_thread(network.kill, "B1")
                        await asyncio.to_thread(network.restart, "B1")
                    await client.attach(network.url("B1"))
                    await until(lambda s=subscriptions[n]: s.waiting >= each)  # type: ignore[misc]
                    assert [e.attributes["i"] for e in subscriptions[n].take()] == list(range(each))
                    assert client.missed == 0
            assert growth.bytes < GROWTH_BYTES_MAX
            await wait_for(network, lambda status: status["memory"]["spilled_bytes"] == 0)

    with network_of(tmp_path, 1) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-6", "LV-1")
def test_clients_that_come_back_together_get_everything(tmp_path: Path) -> None:
    """Together they take more than the share of connected clients: some have to come again."""
    count, each = 20, 600

    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            clients = [
                await enter(connect(network.url("B1"), client=f"away-{n}", timeout=60))
                for n in range(count)
            ]
            loud = await enter(connect(network.url("B1"), client="loud", timeout=60))
            subscriptions = [client.subscribe(f"n = {n}") for n, client in enumerate(clients)]
            await settle(network, [*clients, loud])
            for client in clients:
                await client.detach()
            for n in range(count):
                await loud.publish_all(({"n": n, "i": i}, PAYLOAD) for i in range(each))
            await asyncio.gather(*(client.attach(network.url("B1")) for client in clients))
            await until(lambda: all(each_.waiting >= each for each_ in subscriptions))
            for subscription in subscriptions:
                assert [e.attributes["i"] for e in subscription.take()] == list(range(each))
            assert not any(client.missed for client in clients)

    with network_of(tmp_path, 1) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-6", "LV-1")
def test_publishers_wait_when_the_disk_has_what_it_may(tmp_path: Path) -> None:
    """The bound of the spill is reached, and it is as without; a reload with more room helps."""
    spill_bytes_max = 8 * MIB

    async def run(network: LocalNetwork) -> None:
        got: list[object] = []
        async with (
            connect(network.url("B2"), client="far", timeout=60) as far,
            connect(network.url("B1"), client="loud", timeout=60) as loud,
        ):
            far.subscribe("far >= 0", callback=lambda event: got.append(event.attributes["far"]))
            await settle(network, [far, loud])
            network.kill("B2")
            publishing = asyncio.create_task(publish(loud, range(MANY // 4)))
            await wait_for(network, lambda s: s["memory"]["spilled_bytes"] >= spill_bytes_max)
            messages = network.messages("B1")
            await until(lambda: SAID in messages.read_text(encoding="utf-8"))
            await wait_for(network, lambda status: status["peers_waiting"] == 1)
            memory = (await status(network, "B1"))["memory"]
            assert memory["spilled_bytes"] < spill_bytes_max + 2 * MIB
            assert memory["bytes"] < BUDGET
            assert not publishing.done()
            limits = replace(network.configs["B1"].limits, spill_bytes_max=64 * MIB)
            network.configs["B1"] = replace(network.configs["B1"], limits=limits)
            await asyncio.to_thread(network.reload, "B1")
            async with asyncio.timeout(SETTLE_S):
                await publishing
            await asyncio.to_thread(network.restart, "B2")
            await until(lambda: len(got) >= MANY // 4)
            assert got == list(range(MANY // 4))

    network = network_of(tmp_path, 2, spill_bytes_max=spill_bytes_max)
    with with_room_at_b2(network):
        asyncio.run(run(network))


@pytest.mark.spec("LV-6")
def test_the_oldest_is_discarded_when_the_disk_has_what_it_may(tmp_path: Path) -> None:
    """It is the oldest, and the clients are told; what is on disk counts as kept."""
    count, each = 10, 1_800

    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            clients = [
                await enter(connect(network.url("B1"), client=f"away-{n}", timeout=60))
                for n in range(count)
            ]
            loud = await enter(connect(network.url("B1"), client="loud", timeout=60))
            subscriptions = [client.subscribe(f"n = {n}") for n, client in enumerate(clients)]
            await settle(network, [*clients, loud])
            for client in clients:
                await client.detach()
            for first in range(0, each, 200):
                for n in range(count):
                    some = range(first, first + 200)
                    await loud.publish_all(({"n": n, "i": i}, PAYLOAD) for i in some)
            missed = 0
            for client, subscription in zip(clients, subscriptions, strict=True):
                await client.attach(network.url("B1"))
                await until(
                    lambda s=subscription, c=client: s.waiting + c.missed >= each  # type: ignore[misc]
                )
                numbers = [event.attributes["i"] for event in subscription.take()]
                assert numbers == list(range(each))[client.missed :]
                missed += client.missed
            kept = count * each - missed
            print(f"missed {missed} of {count * each}")
            assert missed
            assert kept * len(PAYLOAD) > 8 * MIB  # More than memory alone would have had room for.

    limits = {"spill_bytes_max": 8 * MIB, "queue_bytes_per_client_max": 4 * MIB}
    with network_of(tmp_path, 1, **limits) as network:
        asyncio.run(run(network))


async def spill_for_a_neighbour(network: LocalNetwork, far: Client, loud: Client) -> list[object]:
    """B2 is down, and some of what waits for it is on disk; what it gets later is in the list."""
    got: list[object] = []
    far.subscribe("far >= 0", callback=lambda event: got.append(event.attributes["far"]))
    await settle(network, [far, loud])
    network.kill("B2")
    async with asyncio.timeout(SETTLE_S):
        await publish(loud, range(MANY // 8))
    assert pages(network)
    return got


@pytest.mark.spec("LV-6", "LV-1")
def test_a_damaged_page_ends_the_broker(tmp_path: Path) -> None:
    """It says which page is damaged, and nothing is lost silently. Without the page, it does not
    even start; with the page as it was, it goes on.
    """

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B2"), client="far", timeout=60) as far,
            connect(network.url("B1"), client="loud", timeout=60) as loud,
        ):
            got = await spill_for_a_neighbour(network, far, loud)
            page = pages(network)[1]
            intact = page.read_bytes()
            page.write_bytes(intact[:-1000] + b"x" + intact[-999:])
            await asyncio.to_thread(network.restart, "B2")
            await until(lambda: not network.is_running("B1"))
            assert f"{page.name} is damaged" in network.messages("B1").read_text()
            page.unlink()
            with pytest.raises(SternaError):
                await asyncio.to_thread(network.restart, "B1")
            assert f"{page.name} is missing" in network.messages("B1").read_text()
            page.write_bytes(intact)
            await asyncio.to_thread(network.restart, "B1")
            await until(lambda: len(got) >= MANY // 8)
            assert got == list(range(MANY // 8))

    with with_room_at_b2(network_of(tmp_path, 2)) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-6", "LV-1")
def test_without_a_disk_to_spill_to_publishers_wait(tmp_path: Path) -> None:
    """It is said once, and nothing is lost."""

    async def run(network: LocalNetwork) -> None:
        got: list[object] = []
        (network.data("B1") / "spill").write_text("in the way")
        async with (
            connect(network.url("B2"), client="far", timeout=60) as far,
            connect(network.url("B1"), client="loud", timeout=60) as loud,
        ):
            far.subscribe("far >= 0", callback=lambda event: got.append(event.attributes["far"]))
            await settle(network, [far, loud])
            network.kill("B2")
            publishing = asyncio.create_task(publish(loud, range(MANY // 8)))
            await wait_for(network, lambda status: status["peers_waiting"] == 1)
            await asyncio.sleep(0.5)
            memory = (await status(network, "B1"))["memory"]
            assert memory["spilled_bytes"] == 0
            assert memory["bytes"] < BUDGET
            assert not publishing.done()
            await asyncio.to_thread(network.restart, "B2")
            async with asyncio.timeout(SETTLE_S):
                await publishing
            await until(lambda: len(got) >= MANY // 8)
            assert got == list(range(MANY // 8))

    with with_room_at_b2(network_of(tmp_path, 2)) as network:
        asyncio.run(run(network))
        said = network.messages("B1").read_text(encoding="utf-8")
    assert said.count("cannot spill queues to") == 1


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("again", ["B1", "B2"])
def test_without_a_log_pages_go_with_the_memory(tmp_path: Path, again: str) -> None:
    """Of the broker itself, or of the neighbour, which is sent nothing of it then."""

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B2"), client="far", timeout=60) as far,
            connect(network.url("B1"), client="loud", timeout=60) as loud,
        ):
            await spill_for_a_neighbour(network, far, loud)
            if again == "B1":
                await asyncio.to_thread(network.kill, again)
            await asyncio.to_thread(network.restart, again)
            await wait_until_gone(network)
            assert network.is_running("B1")

    durability = {"level": "none"}
    with with_room_at_b2(network_in(tmp_path, 2, limits=LIMITS, durability=durability)) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-6", "LV-9")
def test_a_while_without_a_log_costs_nothing_that_is_on_disk(tmp_path: Path) -> None:
    """The log, which nobody touches meanwhile, still refers to the pages."""

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B2"), client="far", timeout=60) as far,
            connect(network.url("B1"), client="loud", timeout=60) as loud,
        ):
            got = await spill_for_a_neighbour(network, far, loud)
            for level in (Durability.NONE, Durability.BATCH):
                config = network.configs["B1"]
                await asyncio.to_thread(network.end, "B1")
                changed = replace(config.durability, level=level)
                network.configs["B1"] = replace(config, durability=changed)
                await asyncio.to_thread(network.restart, "B1")
            assert pages(network)
            await asyncio.to_thread(network.restart, "B2")
            await until(lambda: len(got) >= MANY // 8)
            assert got == list(range(MANY // 8))
            # Nobody needs the pages any more, but for a replay of the log.
            await until(lambda: not network.ask("B1", "status")["memory"]["spilled_bytes"])
            await asyncio.to_thread(network.kill, "B1")
            await asyncio.to_thread(network.restart, "B1")
            assert network.is_running("B1")
            assert await loud.publish(far=MANY)

    with with_room_at_b2(network_of(tmp_path, 2)) as network:
        asyncio.run(run(network))
