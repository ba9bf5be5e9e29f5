"""A client that is closed is closed, whatever happens meanwhile."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import sterna
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, Client, connect, network_in, until
from tests.net.proxy import Proxy

pytestmark = pytest.mark.spec("LV-2")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("closing"), 1) as network:
        yield network


async def is_over(client: Client, again: Client) -> None:
    """A client has ended, and another one can have its state and all that it had published."""
    published = client._driver.engine.node.published if client._driver.engine else 0
    assert not client.is_connected
    with pytest.raises(sterna.ClosedError):
        client.publish(n=0)
    async with again:
        assert again.published == published
        await again.drain(timeout=SETTLE_S)


def test_a_close_that_is_cancelled_while_it_waits_for_the_broker(
    network: LocalNetwork, tmp_path: Path
) -> None:
    async def run() -> None:
        rng = random.Random("proxy")  # noqa: S311 - reproducible, not secret.
        proxy = await Proxy(network.addresses["B1"], rng).start()
        client = await connect(proxy.url, client="waits", state=tmp_path)
        proxy.silence()
        client.publish(n=1)
        closing = asyncio.create_task(client.close(timeout=None))
        await until(lambda: client._life.is_closing)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(closing, SETTLE_S)
        await is_over(client, connect(network.url("B1"), client="waits", state=tmp_path))
        await proxy.stop()

    asyncio.run(run())


def test_a_close_that_is_cancelled_while_it_saves_the_state(
    network: LocalNetwork, tmp_path: Path
) -> None:
    async def run() -> None:
        client = await connect(network.url("B1"), client="saves", state=tmp_path)
        client.publish(n=1)
        closing = asyncio.create_task(client.close(timeout=0))
        while not client._life.is_closed:
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(closing, SETTLE_S)
        assert list(tmp_path.glob("*.snapshot"))
        await is_over(client, connect(network.url("B1"), client="saves", state=tmp_path))

    asyncio.run(run())


def test_a_client_that_is_closed_cannot_be_started_again(
    network: LocalNetwork, tmp_path: Path
) -> None:
    async def run() -> None:
        client = await connect(network.url("B1"), client="once", state=tmp_path)
        await client.close()
        with pytest.raises(sterna.ClosedError):
            await client
        await is_over(client, connect(network.url("B1"), client="once", state=tmp_path))

    asyncio.run(run())
