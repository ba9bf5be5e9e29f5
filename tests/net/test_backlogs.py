"""What waits for a broker that was down is sent little by little when it is back."""

import asyncio
from pathlib import Path

import pytest

from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, gather_events, network_in, settle

COUNT = 1_500
TEXT = "x" * 20_000


@pytest.mark.spec("LV-1", "LV-6")
def test_a_long_backlog_holds_nobody(tmp_path: Path) -> None:
    """30 MB: all of it comes, in order, and the event loop never stands still."""

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B2"), client="subscriber", timeout=SETTLE_S) as subscriber,
            connect(network.url("B1"), client="publisher", timeout=SETTLE_S) as publisher,
        ):
            subscription = subscriber.subscribe("n >= 0")
            await settle(network, [subscriber, publisher])
            await asyncio.to_thread(network.kill, "B2")
            for first in range(0, COUNT, 40):
                numbers = range(first, min(first + 40, COUNT))
                await publisher.publish_all({"n": n, "text": TEXT} for n in numbers)
            await publisher.drain()
            await asyncio.to_thread(network.restart, "B2")
            got = await gather_events(subscription, COUNT)
            assert [event.attributes["n"] for event in got] == list(range(COUNT))
            assert (await asyncio.to_thread(network.held)).get("B1") is None

    with network_in(tmp_path, 2) as network:
        asyncio.run(run(network))
