"""Devices without a fixed broker, on sockets: clients find one, or one of the devices serves."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sterna.model.event import EventId
from tests.net.devices import Devices
from tests.net.live import Client, until

pytestmark = pytest.mark.spec("RE-4", "LV-1")


def run(doing: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(doing())  # type: ignore[arg-type]


async def publish(client: Client, first: int, last: int) -> list[EventId]:
    """Publish numbers in one batch; a broker has accepted all."""
    receipts = [client.publish(n=number) for number in range(first, last + 1)]
    await client.drain(timeout=60)
    return [receipt.id for receipt in receipts]


def test_a_broker_is_found_or_elected_and_another_one_when_it_is_killed(tmp_path: Path) -> None:
    """What it had acknowledged comes, too, when it is back: once, and in order."""

    async def doing() -> None:
        devices = Devices(tmp_path, 3)
        async with devices.started():
            assert await devices.serving() == {}
            client = await devices.client(1)
            assert not client.is_connected
            await publish(client, -1, -1)
            assert client.broker in await devices.serving()

            await devices.subscribe(2, 3)
            (first,) = await devices.whole(at_most=1)
            await until(lambda: devices.are_at({first}))
            events = await publish(client, 1, 20)
            await devices.kill(first)
            after = await devices.whole()  # The others go on by themselves.
            assert first not in after
            await devices.restart(first)
            for number in (2, 3):
                assert await devices.get(number, events) == events

            (second,) = await devices.whole(at_most=1)
            events += await publish(client, 21, 30)
            for number in (2, 3):
                assert await devices.get(number, events) == events
            await devices.kill(second)  # For good.
            await devices.whole()
            await until(lambda: client.broker != second or not client.is_connected)
            events += await publish(client, 31, 40)
            for number in (2, 3):
                assert await devices.get(number, events) == events
            assert not devices.late

    run(doing)


def test_two_networks_that_meet_become_one(tmp_path: Path) -> None:
    """What each has published before is not told to the other; all after that is, once."""

    async def doing() -> None:
        devices = Devices(tmp_path, 4)
        parts = ({"B1", "B2"}, {"B3", "B4"})
        async with devices.started(apart=parts[0]):
            await devices.subscribe(1, 2, 3)
            for part in parts:
                await devices.whole(part)
            assert len(await devices.serving()) >= 2
            here, there = await devices.client(1), await devices.client(4)
            before = await publish(here, 1, 5), await publish(there, 1, 5)
            assert await devices.get(2, before[0]) == before[0]
            assert await devices.get(3, before[1]) == before[1]

            devices.fences.join()
            (only,) = await devices.whole(at_most=1)
            await until(lambda: devices.are_at({only}))
            after = await publish(here, 6, 10), await publish(there, 6, 10)
            for number, own in ((1, before[0]), (2, before[0]), (3, before[1])):
                got = await devices.get(number, {*after[0], *after[1]})
                for publisher, said in (("c1", after[0]), ("c4", after[1])):
                    earlier = [id_ for id_ in own if id_.publisher == publisher]
                    assert [id_ for id_ in got if id_.publisher == publisher] == [*earlier, *said]
            told = await devices.ask(min({"B1", "B2"} - {only}), "topology")
            assert told["ad_hoc"]["serving"] == [only]

    run(doing)
