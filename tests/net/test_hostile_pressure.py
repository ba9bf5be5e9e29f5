"""More than a neighbour takes: publishers wait, nobody waits for ever, and nothing is lost."""

import asyncio
import os
import random
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sterna.core.facts import Forwarded
from sterna.model.event import Event
from sterna.net.broker import BrokerServer
from sterna.net.broker.native import NativeSession
from sterna.net.config import BrokerConfig
from sterna.net.local import LocalNetwork
from sterna.net.observer import ask
from sterna.wire.frames import Role
from tests.net.live import (
    SETTLE_S,
    Client,
    connect,
    gather_events,
    network_in,
    settle,
    until,
)
from tests.net.proxy import Proxy

COUNT = 5_000
PAYLOAD = bytes(2_000)
FLOOD = 10_000
"""So many events are more than sockets and buffers hold."""
FROZEN_S = 5.0
"""If others had to wait for a frozen neighbour, it would take longer than this."""

LIMITS = {
    "frame_bytes_max": 300_000,
    "in_flight_bytes_max": 300_000,
    "queue_bytes_per_client_max": 2_000_000,
    "slow_consumer": "block",
}
"""So that a connection is full long before all has passed. Subscribers share their process with the
publishers; where they are late, publishers wait."""


async def exchange(network: LocalNetwork, *, trouble: Proxy | None = None) -> None:
    """Events go both ways between two brokers, as fast as they can, and all arrive in order."""
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        got: dict[str, list[object]] = {"B1": [], "B2": []}
        for here, there in (("B1", "B2"), ("B2", "B1")):
            publisher = connect(network.url(here), client=f"p{here}", timeout=30)
            subscriber = connect(network.url(there), client=f"s{here}", timeout=30)
            clients += [
                await stack.enter_async_context(publisher),
                await stack.enter_async_context(subscriber),
            ]
            subscriber.subscribe(
                f"{here} >= 0",
                callback=lambda event, here=here: got[here].append(event.attributes[here]),  # type: ignore[misc]
            )
        await settle(network, clients)
        if trouble is not None:
            trouble.freeze()
        async with asyncio.timeout(SETTLE_S):
            await asyncio.gather(_publish(clients[0], "B1"), _publish(clients[2], "B2"))
        await until(lambda: all(len(numbers) >= COUNT for numbers in got.values()))
        assert got == {"B1": list(range(COUNT)), "B2": list(range(COUNT))}


async def _publish(client: Client, name: str) -> None:
    await client.publish_all(({name: number}, PAYLOAD) for number in range(COUNT))


@pytest.mark.spec("LV-6")
def test_two_brokers_that_are_full_of_each_other_go_on(tmp_path: Path) -> None:
    """Each stops reading when the other does not take what it has, but not from that other."""
    with network_in(tmp_path, 2, limits=LIMITS) as network:
        asyncio.run(exchange(network))


@pytest.mark.spec("LV-1", "LV-6")
def test_a_neighbour_that_takes_nothing_any_more_is_given_up(tmp_path: Path) -> None:
    """The connection looks well and nothing comes through. Publishers wait for it; then it is
    found out, and the next connection takes it all.
    """
    network = network_in(tmp_path, 2, limits=LIMITS, heartbeat={"every_s": 0.2, "missed_max": 2})

    async def run() -> None:
        rng = random.Random("pressure")  # noqa: S311 - reproducible, not secret.
        proxy = await Proxy(network.addresses["B1"], rng).start()
        config = network.configs["B2"]
        network.configs["B2"] = replace(
            config, network=replace(config.network, neighbours=(proxy.url,))
        )
        await asyncio.to_thread(network.start)
        try:
            await exchange(network, trouble=proxy)
        finally:
            await proxy.stop()
            await asyncio.to_thread(network.stop)

    asyncio.run(run())


# ---- Who has to wait for whom


class Pipe(asyncio.Transport):
    """A transport that only knows whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True
        self.is_open = True

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It takes anything."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """It takes anything."""

    def abort(self) -> None:
        self.is_open = False


class Ends:
    """A broker with sessions that only know whether they are read."""

    def __init__(self, directory: Path, **limits: object) -> None:
        tables = {"name": "B1", "data": str(directory), "limits": limits}
        self.server = BrokerServer(BrokerConfig.from_mapping(tables))
        self.pipes: dict[str, Pipe] = {}
        self.connections: dict[str, NativeSession] = {}
        for name, role in (
            ("B2", Role.BROKER), ("B3", Role.BROKER), ("c", Role.CLIENT), ("d", Role.CLIENT),
            ("o", Role.OBSERVER),
        ):  # fmt: skip
            session = self.server._native.session()
            self.connections[name], self.pipes[name] = session, Pipe()
            session.connection_made(self.pipes[name])
            session.peer = name
            self.server.sessions.roles[session] = role
            if role is not Role.OBSERVER:
                self.server.sessions.links[name] = session

    def unread(self) -> set[str]:
        return {name for name, pipe in self.pipes.items() if not pipe.reads}

    def full(self, name: str) -> set[str]:
        self.connections[name].pause_writing()
        return self.unread()

    def relieved(self, name: str) -> set[str]:
        self.connections[name].resume_writing()
        return self.unread()

    def routed(self, source: str, *targets: str) -> set[str]:
        """Events go from one peer to others."""
        forwarded = Forwarded(at="B1", time=0, source=source, to=dict.fromkeys(targets, ()))
        self.server.pausing.routed((forwarded,))
        return self.unread()

    def queued(self, *overdue: str) -> set[str]:
        self.server.pausing.queued(frozenset(overdue))
        return self.unread()


@pytest.mark.spec("LV-6")
def test_a_source_waits_for_its_own_targets_alone(tmp_path: Path) -> None:
    """A client that does not read stops nobody, and an observer that does not read is sent away."""

    async def run() -> None:
        ends = Ends(tmp_path)
        assert ends.full("B2") == set()
        assert ends.routed("d", "c") == set()  # It has nothing to do with B2.
        assert ends.routed("c", "d", "B2") == {"c"}
        assert ends.full("d") == {"c"}
        assert ends.routed("d", "d") == {"c"}
        assert ends.relieved("d") == {"c"}
        assert ends.relieved("B2") == set()
        assert ends.full("o") == set()
        assert [name for name, pipe in ends.pipes.items() if not pipe.is_open] == ["o"]

    asyncio.run(run())


@pytest.mark.spec("LV-6")
def test_a_neighbour_is_a_source_of_many_and_waits_when_memory_is_used_up(tmp_path: Path) -> None:
    """Two brokers that are full of each other must not wait for each other."""

    async def run() -> None:
        ends = Ends(tmp_path)
        ends.full("B2")
        assert ends.routed("B3", "B2") == set()
        ends.queued("B2")
        assert ends.routed("B3", "B2") == {"B3"}
        assert ends.routed("c", "B3") == {"B3"}
        assert ends.full("B3") == set()  # Else B3 could not even confirm.
        assert ends.relieved("B3") == {"B3"}
        assert ends.relieved("B2") == {"B3"}
        assert ends.queued() == set()

    asyncio.run(run())


@pytest.mark.spec("LV-6")
def test_with_block_the_sources_of_a_slow_client_wait(tmp_path: Path) -> None:
    async def run() -> None:
        ends = Ends(tmp_path, slow_consumer="block")
        ends.full("c")
        assert ends.routed("B2", "c", "d") == {"B2"}
        assert ends.routed("B3", "d") == {"B2"}
        assert ends.routed("d", "c") == {"B2", "d"}
        ends.server.sessions._drop(ends.connections["c"])  # It is gone.
        assert ends.unread() == set()

    asyncio.run(run())


class Stuck(Pipe):
    """A transport whose other end takes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting_bytes = 100

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._waiting_bytes += len(data)

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("slow_consumer", ["block", "disconnect"])
def test_nobody_waits_for_ever_for_a_client_that_takes_nothing(
    tmp_path: Path, slow_consumer: str
) -> None:
    """Even if it gives signs of life. If others do not wait for it, its queue has limits."""

    async def run() -> None:
        ends = Ends(tmp_path, slow_consumer=slow_consumer)
        session, stuck = ends.connections["c"], Stuck()
        session.connection_made(stuck)
        for _ in range(ends.server.config.heartbeat.missed_max + 2):
            assert stuck.is_open
            session.heard = True
            ends.server._limits._look_for_the_silent()
        assert stuck.is_open == (slow_consumer == "disconnect")

    asyncio.run(run())


@pytest.mark.spec("LV-6")
def test_all_wait_for_a_slow_disk(tmp_path: Path) -> None:
    async def run() -> None:
        ends = Ends(tmp_path)
        ends.server.pausing.received(17 * 2**20)
        assert ends.unread() == {"B2", "B3", "c", "d"}
        assert ends.full("B2") == {"B3", "c", "d"}
        assert ends.routed("c", "B2") == {"B3", "c", "d"}
        ends.server.pausing.committed()
        assert ends.unread() == {"c"}

    asyncio.run(run())


# ---- A neighbour that is frozen


@pytest.mark.spec("LV-6")
def test_a_frozen_neighbour_stops_only_those_that_publish_to_it(tmp_path: Path) -> None:
    """B3 stands still. Others go on at B1, and between B1 and B2, as if nothing had happened, while
    two publishers have much for B3. When it goes on, it gets all of that.
    """
    # What is in flight has passed before anybody can wait, so it must be much less than a flood.
    limits = {"queue_bytes_per_client_max": 16 * 2**20, "in_flight_bytes_max": 2 * 2**20}
    with network_in(tmp_path, 3, limits=limits) as network:
        asyncio.run(_freeze(network))


async def _freeze(network: LocalNetwork) -> None:
    async with AsyncExitStack() as stack:

        async def client(name: str, at: str) -> Client:
            connected = connect(network.url(at), client=name, timeout=30)
            return await stack.enter_async_context(connected)

        far = await client("far", "B3")
        flooding = {at: await client(f"flood-{at}", at) for at in ("B1", "B2")}
        good = {at: await client(f"good-{at}", at) for at in ("B1", "B2")}
        witness = await client("witness", "B1")
        got: dict[str, list[object]] = {"B1": [], "B2": []}
        far.subscribe("flood IS NOT NULL", callback=lambda e: got[_at(e)].append(e.attributes["n"]))
        subscription = witness.subscribe("good IS NOT NULL")
        await settle(network, [far, witness, *flooding.values(), *good.values()])
        os.kill(network.pid("B3"), signal.SIGSTOP)
        try:
            floods = [asyncio.create_task(_flood(each, at)) for at, each in flooding.items()]
            async with asyncio.timeout(SETTLE_S):
                while not (await status(network, "B1"))["peers_waiting"]:
                    await asyncio.sleep(0.02)
            longest = 0.0
            for n in range(100):
                began = time.perf_counter()
                await asyncio.gather(*(each.publish(good=at, n=n) for at, each in good.items()))
                longest = max(longest, time.perf_counter() - began)
            events = await gather_events(subscription, 200)
            assert not floods[0].done()  # It waits for B3.
            assert longest < FROZEN_S
            for at in good:
                numbers = [e.attributes["n"] for e in events if e.attributes["good"] == at]
                assert numbers == list(range(100))
        finally:
            os.kill(network.pid("B3"), signal.SIGCONT)
        async with asyncio.timeout(SETTLE_S):
            await asyncio.gather(*floods)
        await until(lambda: all(len(numbers) >= FLOOD for numbers in got.values()))
        assert got == {"B1": list(range(FLOOD)), "B2": list(range(FLOOD))}


async def _flood(client: Client, at: str) -> None:
    await client.publish_all(({"flood": at, "n": number}, PAYLOAD) for number in range(FLOOD))


async def status(network: LocalNetwork, name: str) -> dict[str, Any]:
    """What a broker reports of itself, while clients of this process go on."""
    return cast("dict[str, Any]", await asyncio.to_thread(ask, network.url(name), "status"))


def _at(event: Event) -> str:
    return str(event.attributes["flood"])
