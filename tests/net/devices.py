"""Devices alone on this machine: each has a broker process, and a client that finds one itself.

Who is in reach of whom is up to the fences between them, for brokers and clients alike.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.errors import SternaError
from sterna.model.event import EventId
from sterna.net.client.handles import Subscription
from tests.net.fences import Fences
from tests.net.live import SETTLE_S, Client, connect, network_in

BEAT_US = 500_000
POLL_S = 0.02


class Devices:
    """Brokers `B1`, `B2`, …, and on some of these devices a client `c1`, `c2`, …"""

    def __init__(self, directory: Path, count: int, *, seed: int = 0) -> None:
        self.network = network_in(
            directory,
            count,
            network={"overlay": "ad-hoc"},
            protocols={"election": {"beat_us": BEAT_US}, "ad-hoc": {"beat_us": BEAT_US}},
            heartbeat={"every_s": 1.0, "missed_max": 2},
        )
        self.fences = Fences(self.network.addresses, Random(seed))  # noqa: S311 - reproducible.
        self.clients: dict[str, Client] = {}
        self.down: set[str] = set()
        self.late: dict[str, set[EventId]] = defaultdict(set)
        """The events of which clients had later ones already."""
        self._subscriptions: dict[str, Subscription] = {}
        self._got: dict[str, list[EventId]] = defaultdict(list)

    @asynccontextmanager
    async def started(self, *, apart: Collection[str] = ()) -> AsyncIterator["Devices"]:
        """Run; devices that are `apart` are out of reach of the others."""
        try:
            await self.fences.open()
            self.fences.split(set(apart))
            for name, config in self.network.configs.items():
                network = replace(config.network, neighbours=self.fences.candidates(name))
                self.network.configs[name] = replace(config, network=network)
            await asyncio.to_thread(self.network.start)
            yield self
        finally:
            for client in self.clients.values():
                await client.close(timeout=0.2)
            await self.fences.close()
            await asyncio.to_thread(self.network.stop, patience_s=5)

    # ---- Clients

    async def client(self, number: int) -> Client:
        """The client on a device."""
        name = f"c{number}"
        if name not in self.clients:
            url = self.network.url(f"B{number}")
            self.clients[name] = await connect(url, client=name, facts=self._fact, timeout=30)
        return self.clients[name]

    async def subscribe(self, *numbers: int, where: str = "n >= 0") -> None:
        """The clients on these devices want events."""
        for number in numbers:
            client = await self.client(number)
            self._subscriptions[client.name] = client.subscribe(where, name="n")

    def got(self, number: int) -> list[EventId]:
        """What the client on a device has got so far, in this order."""
        name = f"c{number}"
        self._got[name] += [event.id for event in self._subscriptions[name].take()]
        return self._got[name]

    async def get(self, number: int, wanted: Collection[EventId]) -> list[EventId]:
        """Wait until a client has got these; return all that it has got."""
        async with asyncio.timeout(SETTLE_S):
            while not {*wanted} <= {*self.got(number)}:
                await asyncio.sleep(POLL_S)
        return self.got(number)

    def _fact(self, fact: Fact) -> None:
        if isinstance(fact, facts.Purged):
            self.late[fact.at].update(event.id for event in fact.events)

    # ---- Brokers

    async def kill(self, broker: str) -> None:
        """End a broker with SIGKILL."""
        self.down.add(broker)
        await asyncio.to_thread(self.network.kill, broker)

    async def restart(self, broker: str) -> None:
        """Start it again from its log."""
        await asyncio.to_thread(self.network.restart, broker)
        self.down.discard(broker)

    async def ask(self, broker: str, what: str) -> Any:
        return await asyncio.to_thread(self.network.ask, broker, what)

    async def serving(self, part: Collection[str] = ()) -> dict[str, Any]:
        """The brokers of a part, or of all, that serve, with their status."""
        names = [name for name in part or self.network.names if name not in self.down]
        told = {name: await self.ask(name, "status") for name in names}
        return {name: each for name, each in told.items() if each["ad_hoc"]["serves"]}

    async def whole(self, part: Collection[str] = (), *, at_most: int | None = None) -> set[str]:
        """Wait until the devices of a part are one network; return the brokers that serve.

        All that serve know each other, follow one leader, and know what the subscribers of this
        part want. There are `at_most` so many.
        """
        part = part or self.network.names
        wanting = {name for name in self._subscriptions if f"B{name[1:]}" in part}
        serving: dict[str, Any] = {}
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            try:
                serving = await self.serving(part)
                if self._are_one(serving, len(wanting)) and (
                    at_most is None or len(serving) <= at_most
                ):
                    return set(serving)
            except SternaError:
                pass
            await asyncio.sleep(POLL_S)
        told = [(name, e["ad_hoc"], e["election"], e["neighbours"]) for name, e in serving.items()]
        raise AssertionError(f"not one network: {told}, {self.clients}")

    def _are_one(self, serving: dict[str, Any], wanting: int) -> bool:
        leaders = {told["election"] and told["election"]["leader"] for told in serving.values()}
        return len(leaders) == 1 and all(
            set(told["neighbours"]) <= set(serving)
            and all(told["neighbours"].values())
            and told["ad_hoc"]["subscribers"] - told["ad_hoc"]["subscribers_lost"] >= wanting
            for told in serving.values()
        )

    def are_at(self, brokers: Collection[str]) -> bool:
        """Whether all clients that want something are connected to these brokers."""
        return all(
            client.is_connected and client.broker in brokers
            for name, client in self.clients.items()
            if name in self._subscriptions
        )
