"""The memory of a broker process: each kind of queue keeps to its share, and others go on.

In each test a witness publishes and gets its own events at the same broker, and is never late.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sterna.core.assembly import make_broker
from sterna.core.handover.messages import Arrival
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import LinkUp, Received
from sterna.core.link import RELIABLE, Data, Resume
from sterna.core.messages import Events, Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.broker import BrokerServer
from sterna.net.broker.budget import own_part
from sterna.net.config import BrokerConfig, LimitsConfig
from sterna.net.local import LocalNetwork
from tests.net.live import (
    SETTLE_S,
    Client,
    connect,
    gather_events,
    network_in,
    settle,
    until,
)
from tests.net.test_hostile import Attacker, attacker, memory_bytes
from tests.net.test_hostile_pressure import status

MIB = 2**20
BUDGET = 16 * MIB
GROWTH_BYTES_MAX = 40 * MIB
"""What a broker may grow by: its budget, what is on its way, and what Python keeps."""
PAYLOAD = bytes(2_000)
MANY = 40_000
"""So many events take twice what a broker may grow by."""
COUNT = 80
"""So many unfinished frames take more than a broker may grow by, too."""
LATE_S = 2.0
"""How long an event of the witness may take, on a slow machine."""

LIMITS = {
    "spill_bytes_max": 0,
    "memory_bytes_max": BUDGET,
    "queue_bytes_per_client_max": 8 * MIB,
    "in_flight_bytes_max": 2 * MIB,
}


def network_of(directory: Path, brokers: int, **limits: Any) -> LocalNetwork:
    durability = {"snapshot_bytes": 1024 * MIB, "snapshot_inputs": 10**9, "bytes_max": 0}
    return network_in(directory, brokers, limits={**LIMITS, **limits}, durability=durability)


class Watch:
    """A client of B1 that gets its own events, and looks at the memory of B1."""

    def __init__(self, network: LocalNetwork, client: Client) -> None:
        self._network = network
        self._client = client
        self._subscription = client.subscribe("witness = TRUE")
        self._before = memory_bytes(network)
        self.most = self._before
        self.latest_s = 0.0

    async def go_on(self) -> None:
        while True:
            await self.look()

    async def look(self) -> None:
        began = time.perf_counter()
        await self._client.publish(witness=True)
        async with asyncio.timeout(SETTLE_S):
            await anext(self._subscription)
        self.latest_s = max(self.latest_s, time.perf_counter() - began)
        self.most = max(self.most, memory_bytes(self._network))
        await asyncio.sleep(0.01)

    @property
    def growth_bytes(self) -> int:
        return self.most - self._before


@asynccontextmanager
async def watched(network: LocalNetwork) -> AsyncIterator[Watch]:
    """While this is on, memory stays within its limits and the witness gets its events in time."""
    async with connect(network.url("B1"), client="witness") as client:
        for _ in range(20):  # What a broker loads when it is first used does not count.
            await client.publish_all(({"warm": n}, PAYLOAD) for n in range(100))
        watch = Watch(network, client)
        await watch.look()
        task = asyncio.create_task(watch.go_on())
        try:
            yield watch
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        assert watch.growth_bytes < GROWTH_BYTES_MAX
        assert watch.latest_s < LATE_S
        assert network.is_running("B1")


async def wait_for(network: LocalNetwork, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the status of B1 is as it should be."""
    async with asyncio.timeout(SETTLE_S):
        while not holds(await status(network, "B1")):
            await asyncio.sleep(0.02)


@pytest.mark.spec("LV-6", "LV-1")
def test_publishers_wait_for_a_neighbour_that_is_down(tmp_path: Path) -> None:
    """What waits for it is counted and bounded; when it is back, it gets everything."""

    async def run(network: LocalNetwork) -> None:
        got: list[object] = []
        async with (
            connect(network.url("B2"), client="far", timeout=30) as far,
            connect(network.url("B1"), client="loud", timeout=30) as loud,
        ):
            far.subscribe("far >= 0", callback=lambda event: got.append(event.attributes["far"]))
            await settle(network, [far, loud])
            network.kill("B2")
            async with watched(network):
                publishing = asyncio.create_task(
                    loud.publish_all(({"far": n}, PAYLOAD) for n in range(MANY))
                )
                await wait_for(network, lambda status: status["peers_waiting"] == 1)
                memory = (await status(network, "B1"))["memory"]
                share = 3 * BUDGET // 8
                assert share // 2 < memory["queue_bytes"] < memory["bytes"] < BUDGET
                assert memory["queue_events"] > share // 4_000
                assert not publishing.done()
                later = memory
                for _ in range(50):
                    later = (await status(network, "B1"))["memory"]
                assert later["queue_bytes"] < memory["queue_bytes"] + MIB  # Publishers still wait.
            network.restart("B2")
            async with asyncio.timeout(SETTLE_S):
                await publishing
            await until(lambda: len(got) >= MANY)
            assert got == list(range(MANY))

    network = network_of(tmp_path, 2)
    network.configs["B2"] = replace(network.configs["B2"], limits=LimitsConfig())
    with network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-6", "LV-1")
def test_clients_that_are_away_lose_the_oldest_and_are_told(tmp_path: Path) -> None:
    """Those for which the most is kept lose first, and what is kept for all is bounded."""
    count, each = 10, MANY // 10

    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            clients = [
                await enter(connect(network.url("B1"), client=f"away-{n}", timeout=30))
                for n in range(count)
            ]
            loud = await enter(connect(network.url("B1"), client="loud", timeout=30))
            modest = await enter(connect(network.url("B1"), client="modest", timeout=30))
            subscriptions = [client.subscribe(f"n = {n}") for n, client in enumerate(clients)]
            little = modest.subscribe("modest = TRUE")
            await settle(network, [*clients, modest])
            for client in (modest, *clients):
                await client.detach()
            await loud.publish_all(({"modest": True}, PAYLOAD) for _ in range(100))
            async with watched(network):
                for first in range(0, each, 500):
                    for n in range(count):
                        events = range(first, first + 500)
                        await loud.publish_all(({"n": n, "i": i}, PAYLOAD) for i in events)
                await wait_for(network, lambda s: s["memory"]["away_bytes"] <= BUDGET // 4)
            for client in (modest, *clients):
                await client.attach(network.url("B1"))
            await until(lambda: little.waiting >= 100)
            assert modest.missed == 0
            for client, subscription in zip(clients, subscriptions, strict=True):
                await until(
                    lambda s=subscription, c=client: s.waiting + c.missed >= each  # type: ignore[misc]
                )
                numbers = [event.attributes["i"] for event in subscription.take()]
                assert numbers == list(range(each))[client.missed :]
                assert each // 2 < client.missed < each - 100

    with network_of(tmp_path, 1) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-6")
def test_unfinished_frames_count_and_end(tmp_path: Path) -> None:
    """Whoever sends frames without their ends is disconnected: at once if there are too many of
    them, else after a while. A byte now and then does not help.
    """

    async def begin(peer: Attacker, name: str, size: int) -> None:
        await peer.come_in(name)
        await peer.reader.readexactly(1)  # A stranger may send less than a client.
        await peer.send((900_000).to_bytes(4, "big") + bytes(size))

    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack, watched(network):
            slow = await stack.enter_async_context(attacker(network))
            await begin(slow, "slow", 10)
            hung_up = asyncio.create_task(slow.hung_up())
            while not hung_up.done():
                await slow.send(b"x")
                await asyncio.wait([hung_up], timeout=0.05)
            peers = [await stack.enter_async_context(attacker(network)) for _ in range(COUNT)]
            for n, peer in enumerate(peers):
                await begin(peer, f"half-{n}", 890_000)
            await wait_for(network, lambda s: s["connections"] < COUNT // 4)
            await wait_for(network, lambda s: s["memory"]["unfinished_bytes"] <= BUDGET // 8)

    with network_of(tmp_path, 1, frame_s=1.0) as network:
        asyncio.run(run(network))
        messages = network.messages("B1").read_text()
        assert "too much memory is taken by unfinished frames (memory_bytes_max)" in messages
        assert "a frame was not finished in time (frame_s)" in messages


@pytest.mark.spec("LV-6")
def test_new_clients_are_refused_when_memory_is_used_up(tmp_path: Path) -> None:
    """One for which something is kept is let in: it takes that away."""

    async def run() -> None:
        server = BrokerServer(BrokerConfig.from_mapping({"name": "B1", "data": str(tmp_path)}))
        await server.start()
        url = server.address.url
        async with connect(url, client="old") as old:
            subscription = old.subscribe("n >= 0")
            await subscription.ready(timeout=SETTLE_S)
            await old.detach()
            async with connect(url, client="p") as publisher:
                await publisher.publish(n=1)
                assert server.budget.count().queued.events == 1
                assert server.budget.count().away > 500
                server.budget.is_used_up = True
                server.budget.check = lambda: None  # type: ignore[method-assign]
                await old.attach(url)
                assert (await anext(subscription)).attributes["n"] == 1
                reader, writer = await asyncio.open_connection(*server.address)
                peer = Attacker(reader, writer)
                await peer.hello("new")
                assert await peer.hung_up() == "no memory for more clients (memory_bytes_max)"
                writer.close()
        await server.stop()

    asyncio.run(run())


@pytest.mark.spec("LV-6")
def test_a_burst_for_many_does_not_count_for_each_of_them(tmp_path: Path) -> None:
    """Nobody is disconnected because many are sent the same, and have not confirmed it yet."""

    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(connect(network.url("B1"), client=f"c{number}"))
                for number in range(20)
            ]
            got = [client.subscribe("n >= 0") for client in clients]
            await settle(network, clients)
            publisher = await stack.enter_async_context(connect(network.url("B1"), client="p"))
            await publisher.publish_all(({"n": n}, PAYLOAD) for n in range(1_000))
            for subscription in got:
                events = await gather_events(subscription, 1_000)
                assert [event.attributes["n"] for event in events] == list(range(1_000))

    with network_of(tmp_path, 1) as network:
        asyncio.run(run(network))
        said = network.messages("B1").read_text(encoding="utf-8")
    assert "does not take what there is for it" not in said


@pytest.mark.spec("LV-6")
def test_what_connected_clients_do_not_confirm_counts_for_all_together(tmp_path: Path) -> None:
    """Each keeps to its own limit and reads everything, but none confirms any of its events."""
    count, each = 10, 3_000

    async def take(peer: Attacker, number: int) -> None:
        name = f"taker-{number}"
        route = Route(f"{name}/1", Filter(f"n = {number}"))
        await peer.come_in(name)
        await peer.say(
            Arrival(visit=1, born=0, stay=0, received=0), SubscriptionChange(added=(route,))
        )

    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(attacker(network)) for _ in range(count)]
            reading = [asyncio.create_task(peer.hung_up()) for peer in peers]
            for number, peer in enumerate(peers):
                await take(peer, number)
            await wait_for(network, lambda status: status["subscriptions"] == count)
            loud = await stack.enter_async_context(
                connect(network.url("B1"), client="loud", timeout=30)
            )
            async with watched(network):
                for first in range(0, each, 100):
                    for number in range(count):
                        events = range(first, first + 100)
                        await loud.publish_all(({"n": number, "i": i}, PAYLOAD) for i in events)
                await wait_for(network, lambda s: s["memory"]["bytes"] < BUDGET)
            assert any(task.done() for task in reading)
            for task in reading:
                task.cancel()

    with network_of(tmp_path, 1) as network:
        asyncio.run(run(network))
        said = network.messages("B1").read_text(encoding="utf-8")
    assert "does not take what there is for it" in said


def publication(seq: int) -> Data:
    event = Event(publisher="p", seq=seq, time_us=0, attributes={"n": seq % 2 + 1})
    return Data(seq + 1, 0, Events(events=(event,)))


@pytest.mark.spec("LV-6")
def test_how_much_of_what_a_client_was_sent_is_for_it_alone() -> None:
    settings = Settings(handover=HandoverOptions(protocol=Handover.NONE))
    broker = make_broker("B1", settings, timing=RELIABLE)
    for link in ("alone", *(f"c{n}" for n in range(10))):
        broker.handle(LinkUp(link=link, peer=Peer.CLIENT), 0)
        text = "n = 1" if link == "alone" else "n = 2"
        change = SubscriptionChange(added=(Route(f"{link}/1", Filter(text)),))
        frames = (Resume(1, None, 0, True), Data(1, 0, change))
        broker.handle(Received(link=link, frames=frames, size=0), 0)
    for seq in range(1, 101):
        broker.handle(Received(link="c0", frames=(publication(seq),), size=0), 0)
    assert broker.queued("alone").events == broker.queued("c1").events == 50
    assert own_part(broker, "alone", 16) > 0.8
    assert own_part(broker, "c1", 16) < 0.2
