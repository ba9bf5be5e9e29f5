"""The past across a live network of eight brokers, while others publish and a broker is killed.

Nothing here depends on how fast the machine is: whoever waits for the past gets it before others
have published as many events as it has asked for, and no search ends early.
"""

import asyncio
import json
import signal
import sys
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, Client, connect, network_in, settle, until

pytestmark = pytest.mark.spec("PA-2", "PA-3", "LV-1", "LV-2")

PUBLISHERS = 50
PAST = 100
WANTED = "kind = 'x'"
PATIENT = {"search_timeout_s": SETTLE_S, "hold_s": SETTLE_S}


class City:
    """Publishers at all brokers; every second event of each is wanted."""

    def __init__(self, network: LocalNetwork) -> None:
        self.network = network
        self.clients: list[Client] = []
        self.times: dict[str, list[int]] = defaultdict(list)
        """When each publisher published its events, or a little earlier."""
        self._is_over = False
        self._left: int | None = None
        """How many more events there may be for now; None if any number."""

    async def enter(self, stack: AsyncExitStack) -> None:
        names = self.network.names
        for number in range(PUBLISHERS):
            url = self.network.url(names[number % len(names)])
            client = await stack.enter_async_context(connect(url, client=f"p{number}"))
            self.clients.append(client)

    async def publish(self, client: Client) -> None:
        number = len(self.times[client.name])
        self.times[client.name].append(time.time_ns() // 1000)
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
                if self._left is None or self._left > 0:
                    self._left = None if self._left is None else self._left - 1
                    await self.publish(client)
                await asyncio.sleep(0.05)  # As a publisher does; nothing waits for it.

        async with asyncio.TaskGroup() as group:
            for client in self.clients:
                group.create_task(one(client))

    def restrain(self) -> None:
        """Publish less than somebody who begins now asks for, so that it waits for the past."""
        self._left = PAST

    def go_on(self) -> None:
        self._left = None

    def end(self) -> None:
        self._is_over = True

    def wanted(self) -> dict[str, list[int]]:
        """The numbers of all wanted events of each publisher."""
        return {name: list(range(0, len(times), 2)) for name, times in self.times.items()}


class Watcher:
    """`sterna sub --past 100`, and what it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def begin(cls, stack: AsyncExitStack, url: str, *more: str) -> Self:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sterna.cli", "sub", url, WANTED, "--past", str(PAST)),
            *("--json", "--quiet", *more),
            stdout=asyncio.subprocess.PIPE,
        )
        watcher = cls(process)
        stack.push_async_callback(watcher.end)
        return watcher

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(json.loads(line))

    async def ended(self) -> int:
        """Its exit status, when it has printed everything."""
        async with asyncio.timeout(SETTLE_S):
            await asyncio.shield(self._reading)
            return await self.process.wait()

    async def end(self) -> int:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    def has(self, count: int) -> bool:
        """Whether it has printed so many events."""
        return len(self.events) >= count

    def numbers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for event in self.events:
            found[event["publisher"]].append(event["attributes"]["n"])
        return found

    def has_from_each(self, city: City) -> bool:
        """Whether it has an event of each publisher: its subscription has reached them all."""
        return self.numbers().keys() == city.times.keys()

    def has_last_of_each(self, city: City) -> bool:
        found = self.numbers()
        return all(found[name][-1:] == all_of_it[-1:] for name, all_of_it in city.wanted().items())

    def check(self, city: City, *, is_all: bool) -> None:
        """From its first event on, no event of any publisher is missing, or twice, or out of order.

        If not all brokers could answer, that holds from the first event of each publisher on.
        """
        found, began = self.numbers(), self.events[0]["time_us"]
        for name, all_of_it in city.wanted().items():
            assert found[name] == all_of_it[-len(found[name]) :], name
            since = [number for number in all_of_it if city.times[name][number] > began]
            assert not is_all or len(found[name]) >= len(since), name


def test_the_past_is_right_while_others_publish_and_a_broker_is_killed(tmp_path: Path) -> None:
    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            city = City(network)
            await city.enter(stack)
            await city.publish_each(5)
            await settle(network, city.clients)
            quiet = await Watcher.begin(stack, network.url("B8"), "--count", str(PAST))
            assert await quiet.ended() == 0
            # The last 100 of all publishers: their third and fifth events, in the order of time.
            last = [(client.name, number) for number in (2, 4) for client in city.clients]
            assert [(e["publisher"], e["attributes"]["n"]) for e in quiet.events] == last

            city.restrain()
            living = asyncio.create_task(city.live())
            calm = await Watcher.begin(stack, network.url("B8"))
            await until(lambda: calm.has(PAST))
            city.go_on()
            await asyncio.to_thread(network.kill, "B2")
            # The way from B8 to most publishers is cut: it goes on with what is there.
            during = await Watcher.begin(stack, network.url("B8"))
            await until(lambda: during.has(1))
            await asyncio.to_thread(network.restart, "B2")
            await until(lambda: during.has_from_each(city))  # All links are there again.
            city.restrain()
            after = await Watcher.begin(stack, network.url("B5"))
            await until(lambda: after.has(PAST))
            city.go_on()
            watchers = (calm, during, after)
            await until(lambda: all(each.has_from_each(city) for each in watchers))
            city.end()
            await living
            await until(lambda: all(each.has_last_of_each(city) for each in watchers))
            assert [await each.end() for each in watchers] == [0, 0, 0]
            for each in watchers:
                each.check(city, is_all=each is not during)

    with network_in(tmp_path, 8, history=PATIENT) as network:
        asyncio.run(run(network))
        assert network.died() == {}
