"""Waits until a network on this machine is idle, as demonstrations and tests have to."""

import asyncio
from collections.abc import Collection, Sequence

from sterna.errors import SternaError
from sterna.net.client import Client
from sterna.net.local import LocalNetwork


async def quiesce(
    network: LocalNetwork,
    clients: Sequence[Client],
    *,
    down: Collection[str] = (),
    limit_s: float = 60.0,
) -> None:
    """Wait until nothing is on its way: all report that twice, and have done nothing in between
    (but heartbeats).

    Brokers that are `down` are not asked. TimeoutError if it takes longer than `limit_s`.
    """
    before = None
    async with asyncio.timeout(limit_s):
        while True:
            now = await _inputs_if_idle(network, clients, down)
            if now is not None and now == before:
                return
            before = now
            await asyncio.sleep(0.002)


async def _inputs_if_idle(
    network: LocalNetwork, clients: Sequence[Client], down: Collection[str]
) -> list[int] | None:
    """How many inputs each node was given; None if one of them has something under way."""
    inputs: list[int] = []
    places: dict[str, list[str]] = {}
    for broker in network.names:
        if broker in down:
            continue
        try:
            status = await asyncio.to_thread(network.ask, broker, "status")
            queues = await asyncio.to_thread(network.ask, broker, "queues")
        except SternaError:
            return None
        if not status["is_settled"] or not all(status["neighbours"].values()):
            return None
        inputs.append(status["inputs"] - status["inputs_idle"])  # Heartbeats go on.
        for queue in queues["queues"]:
            if queue["role"] == "client" and queue["is_here"]:
                places.setdefault(queue["name"], []).append(broker)
    for client in clients:
        if client.is_on_its_way or not client.is_settled:
            return None
        # One side may have lost a connection while the other has not noticed.
        if places.get(client.name, []) != ([client.broker] if client.is_connected else []):
            return None
        inputs.append(client.inputs - client.inputs_idle)
    return inputs
