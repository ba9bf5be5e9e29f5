"""A live network for tests: broker processes, clients in this process, and what happens at them."""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from sterna.core.facts import Fact, Settled
from sterna.net.client import Client, connect
from sterna.net.local import LocalNetwork
from sterna.net.quiescence import quiesce

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
    """Wait until nothing is on its way, and say so."""
    await quiesce(network, list(clients), down=down, limit_s=SETTLE_S)
    state(Settled(at="", time=0))


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
