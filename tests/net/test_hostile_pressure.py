"""More than a neighbour takes: publishers wait, nobody waits for ever, and nothing is lost."""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from sterna.net.broker import BrokerServer
from sterna.net.config import BrokerConfig
from sterna.net.connection import Connection
from sterna.net.local import LocalNetwork
from sterna.wire.frames import Role
from tests.net.live import SETTLE_S, Client, connect, network_in, settle, until
from tests.net.proxy import Proxy

COUNT = 5_000
PAYLOAD = bytes(2_000)

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

    def abort(self) -> None:
        self.is_open = False


@pytest.mark.spec("LV-6")
def test_a_full_neighbour_is_read_and_all_others_wait(tmp_path: Path) -> None:
    """Two brokers that are full of each other must not wait for each other. A client that does not
    read stops nobody, and an observer that does not read is sent away.
    """

    async def run() -> None:
        server = BrokerServer(BrokerConfig.from_mapping({"name": "B1", "data": str(tmp_path)}))
        pipes: dict[str, Pipe] = {}
        connections: dict[str, Connection] = {}
        for name, role in (
            ("B2", Role.BROKER), ("B3", Role.BROKER), ("c", Role.CLIENT), ("o", Role.OBSERVER),
        ):  # fmt: skip
            connection = connections[name] = server._native.session()
            pipes[name] = Pipe()
            connection.connection_made(pipes[name])
            server.sessions.roles[connection] = role

        def reading(name: str, *, full: bool) -> set[str]:
            connection = connections[name]
            (connection.pause_writing if full else connection.resume_writing)()
            return {name for name, pipe in pipes.items() if pipe.reads}

        assert reading("c", full=True) == {"B2", "B3", "c", "o"}
        assert reading("B2", full=True) == {"B2", "o"}
        assert reading("B3", full=True) == {"B2", "B3", "o"}
        assert reading("B2", full=False) == {"B3", "o"}
        assert reading("B3", full=False) == {"B2", "B3", "c", "o"}
        assert reading("o", full=True) == {"B2", "B3", "c", "o"}
        assert [name for name, pipe in pipes.items() if not pipe.is_open] == ["o"]

    asyncio.run(run())
