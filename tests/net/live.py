"""A live network for tests: broker processes, clients in this process, and what happens at them."""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from sterna.core.facts import Fact, Settled
from sterna.net.client import Client, connect
from sterna.net.errors import SternaError
from sterna.net.local import LocalNetwork

QUIET: Mapping[str, Any] = {"journal": {"enabled": False}, "log": {"level": "warning"}}
"""What most tests want of brokers."""

SETTLE_S = 10.0 if "STERNA_MUTANT" in os.environ else 60.0
"""So long the slowest machine may take; a network that settles takes much less."""


def network_in(directory: Path, brokers: int, **tables: Any) -> LocalNetwork:
    """Brokers with little to say; each table of the configuration as a keyword."""
    return LocalNetwork(brokers, directory=directory, config={**QUIET, **tables})


async def settle(
    network: LocalNetwork,
    clients: Iterable[Client],
    state: Callable[[Fact], None] = lambda _: None,
    *,
    down: Collection[str] = (),
) -> None:
    """Wait until all say twice that they are settled, with no input in between."""
    clients = list(clients)
    async with asyncio.timeout(SETTLE_S):
        before = None
        while True:
            now = await _at_rest(network, clients, down)
            if now is not None and now == before:
                break
            before = now
            await asyncio.sleep(0.002)
    state(Settled(at="", time=0))


async def _at_rest(
    network: LocalNetwork, clients: list[Client], down: Collection[str]
) -> list[int] | None:
    """How many inputs each node has had, if all have settled."""
    inputs = []
    for name in network.names:
        if name in down:
            continue
        try:
            status = await asyncio.to_thread(network.ask, name, "status")
        except SternaError:
            return None
        if not status["is_settled"] or not all(status["neighbours"].values()):
            return None
        inputs.append(status["inputs"])
    for client in clients:
        if client._task is not None and not client.is_connected:
            return None  # It is on its way back.
        engine = client._engine
        if engine is None or engine.held or client._pending or not engine.node.is_settled:
            return None
        inputs.append(engine.inputs)
    return inputs


async def until(condition: Callable[[], bool], *, limit_s: float = SETTLE_S) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.002)


async def gather_events(subscription: Any, count: int) -> list[Any]:
    """The next so many events of a subscription."""
    async with asyncio.timeout(SETTLE_S):
        return [await anext(subscription) for _ in range(count)]


__all__ = ["Client", "connect", "gather_events", "network_in", "settle", "until"]
