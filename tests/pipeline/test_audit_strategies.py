"""The audit on Spark is clean for live brokers with each strategy for disconnected operation."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sterna.errors import NotConnectedError
from sterna.net.client import Client
from sterna.net.local import LocalNetwork
from sterna.pipeline.audit import audit_journals
from tests.net.live import connect, network_in, settle
from tests.net.test_disconnected import VARIANTS, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VICTIM = "B3"


@pytest.mark.spec("DO-1", "DO-2", "DO-3", "DO-4", "DO-5")
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_audit_of_a_live_network_is_clean(
    variant: str, tmp_path: Path, spark: "SparkSession"
) -> None:
    """Clients roam, and a broker is killed with -9 and started again."""
    journals = tmp_path / "journals"
    network = network_in(
        tmp_path / "network", 4, **tables_of(variant, tmp_path), journal={"enabled": True}
    )
    with network:
        asyncio.run(roam(network, journals / "clients"))
        assert network.died() == {}
    for name in network.names:
        (journals / name).symlink_to(network.data(name) / "journal", target_is_directory=True)

    verdict = audit_journals(spark, journals)

    assert verdict.is_clean, verdict.findings
    assert verdict.delivered == verdict.accounts.total.judged == 4 * verdict.published == 240


async def roam(network: LocalNetwork, journal: Path) -> None:
    """Clients go from broker to broker while events are published, and one broker dies."""
    rng = random.Random(1)  # noqa: S311 - reproducible.
    urls = list(network.urls.values())
    async with AsyncExitStack() as stack:

        async def enter(name: str, place: int) -> Client:
            others = [urls[place], *(url for url in urls if url != urls[place])]
            client = connect(*others, client=name, journal=journal, timeout=30)
            return await stack.enter_async_context(client)

        publisher = await enter("publisher", 0)
        roaming = [await enter(f"roaming-{place}", place) for place in range(4)]
        for client in roaming:
            client.subscribe("n > 0")
        await settle(network, [publisher, *roaming])
        tasks: list[asyncio.Task[None]] = []
        for step in range(30):
            publisher.publish(n=step + 1)
            client = rng.choice(roaming)
            await client.detach()
            publisher.publish(n=step + 1)
            if step == 10:
                await asyncio.to_thread(network.kill, VICTIM)
                tasks.append(asyncio.create_task(asyncio.to_thread(network.restart, VICTIM)))
            with suppress(NotConnectedError):  # It is elsewhere, or on its way.
                up = [url for name, url in network.urls.items() if network.is_running(name)]
                await client.attach(rng.choice(up))
        await asyncio.gather(*tasks)
        await publisher.drain()
        await settle(network, [publisher, *roaming])
