"""The past across a live network of eight brokers, while others publish and a broker is killed."""

import asyncio
import json
import sys
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sterna.model.event import Event
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, Client, connect, network_in, settle, until

pytestmark = pytest.mark.spec("PA-2", "PA-3", "LV-1", "LV-2")

PUBLISHERS = 50
PAST = 100
WANTED = "kind = 'x'"


class City:
    """Publishers at all brokers; every second event of each is wanted."""

    def __init__(self, network: LocalNetwork) -> None:
        self.network = network
        self.clients: list[Client] = []
        self.published: dict[str, int] = defaultdict(int)
        """How many events each publisher has published so far."""
        self._is_over = False

    async def enter(self, stack: AsyncExitStack) -> None:
        names = self.network.names
        for number in range(PUBLISHERS):
            url = self.network.url(names[number % len(names)])
            client = await stack.enter_async_context(connect(url, client=f"p{number}"))
            self.clients.append(client)

    async def publish(self, client: Client) -> None:
        number = self.published[client.name]
        self.published[client.name] += 1
        await client.publish(kind="x" if number % 2 == 0 else "y", n=number)

    async def publish_each(self, count: int) -> None:
        """One after the other, so that it is known which events are the last ones."""
        for _ in range(count):
            for client in self.clients:
                await self.publish(client)

    async def live(self) -> None:
        """Publish until it is over."""

        async def one(client: Client) -> None:
            while not self._is_over:
                await self.publish(client)
                await asyncio.sleep(0.05)  # As a publisher does; nothing waits for it.

        async with asyncio.TaskGroup() as group:
            for client in self.clients:
                group.create_task(one(client))

    def end(self) -> None:
        self._is_over = True

    def wanted(self) -> dict[str, list[int]]:
        """The numbers of all wanted events of each publisher."""
        return {name: list(range(0, count, 2)) for name, count in self.published.items()}


def numbers(events: list[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        found[event.publisher].append(event.attributes["n"])
    return found


def check(city: City, events: list[Event], what: str) -> None:
    """From the first event of each publisher on, none is missing, none comes twice, all in order;
    and all that were published later are there.
    """
    wanted, found = city.wanted(), numbers(events)
    for name, all_of_it in wanted.items():
        assert found[name], (what, name)
        assert found[name] == all_of_it[-len(found[name]) :], (what, name)


class Watcher:
    """A client that subscribes into the past."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.subscription = client.subscribe(WANTED, past=PAST)
        self.got: list[Event] = []

    @classmethod
    async def begin(cls, stack: AsyncExitStack, url: str, name: str) -> "Watcher":
        return cls(await stack.enter_async_context(connect(url, client=name)))

    async def get(self, count: int) -> None:
        self.got += [await self.subscription.get(timeout=SETTLE_S) for _ in range(count)]

    def has_from_each(self, city: City) -> bool:
        """Whether it has an event of each publisher: its subscription has reached them all."""
        self.got += self.subscription.take()
        return numbers(self.got).keys() == city.published.keys()


async def past_of_command(url: str) -> list[tuple[str, int]]:
    """What `sterna sub --past 100` prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sterna.cli", "sub", url, WANTED, "--past", str(PAST)),
        *("--count", str(PAST), "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    events = [json.loads(line) for line in out.decode().splitlines()]
    return [(event["publisher"], event["attributes"]["n"]) for event in events]


def test_the_past_is_right_while_others_publish_and_a_broker_is_killed(tmp_path: Path) -> None:
    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            city = City(network)
            await city.enter(stack)
            await city.publish_each(5)
            # The last 100 of all publishers: their third and fifth events, in the order of time.
            last = [(client.name, number) for number in (2, 4) for client in city.clients]
            assert await past_of_command(network.url("B8")) == last

            living = asyncio.create_task(city.live())
            calm = await Watcher.begin(stack, network.url("B8"), "calm")
            await calm.get(PAST)
            assert len(numbers(calm.got)) > PUBLISHERS / 2
            await asyncio.to_thread(network.kill, "B2")
            # The way from B8 to most publishers is cut: it goes on with what is there.
            during = await Watcher.begin(stack, network.url("B8"), "during")
            await during.get(1)
            await asyncio.to_thread(network.restart, "B2")
            await until(lambda: during.has_from_each(city))  # All links are there again.
            after = await Watcher.begin(stack, network.url("B5"), "after")
            await after.get(PAST)
            assert len(numbers(after.got)) > PUBLISHERS / 2
            watchers = (calm, during, after)
            await until(lambda: all(each.has_from_each(city) for each in watchers))
            city.end()
            await living
            await settle(network, [*city.clients, *(each.client for each in watchers)])
            for each in watchers:
                check(city, [*each.got, *each.subscription.take()], each.client.name)

    with network_in(tmp_path, 8) as network:
        asyncio.run(run(network))
        assert network.died() == {}
