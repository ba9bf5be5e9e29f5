"""A disk that is slower than what arrives makes peers wait, and not the event loop."""

import asyncio
import threading
from pathlib import Path

import pytest

from sterna.core.facts import Accepted
from sterna.journal import Journal, facts_in, read_journal, writing
from sterna.net.broker import BrokerServer
from sterna.net.client import Client
from sterna.net.observer import ask
from tests.net.live import connect, gather_events, until
from tests.net.test_server import config_in, run

SIZE_BYTES = 20_000
MOST_BYTES = 8 * SIZE_BYTES

pytestmark = pytest.mark.spec("LV-6")


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "PENDING_BYTES_MAX", MOST_BYTES)
    monkeypatch.setattr(writing, "BEHIND_MAX", 10_000)


def journal_of(broker: BrokerServer) -> Journal:
    journal = broker.driver.journalist.journal
    assert journal is not None
    return journal


@pytest.mark.parametrize("level", ["none", "batch"])
def test_a_slow_disk_makes_publishers_wait_and_the_broker_goes_on(
    tmp_path: Path, level: str
) -> None:
    """What is collected stays bounded; when the disk is back, all has come and is recorded."""
    is_fast = threading.Event()
    count = 1_000

    async def publish(client: Client) -> None:
        for first in range(0, count, 50):
            numbers = range(first, first + 50)
            await client.publish_all({"n": number, "text": "x" * SIZE_BYTES} for number in numbers)
        await client.drain()

    async def work() -> None:
        broker = BrokerServer(config_in(tmp_path, durability={"level": level}))
        await broker.start()
        url = broker.address.url
        async with connect(url, client="s") as subscriber, connect(url, client="p") as publisher:
            subscription = subscriber.subscribe("n >= 0")
            await subscription.ready()
            broker.driver.journalist._thread.submit(is_fast.wait)
            publishing = asyncio.create_task(publish(publisher))
            await until(lambda: not all(map(broker.pausing.reads, broker.sessions.roles)))
            status = await asyncio.to_thread(ask, url, "status")
            assert status["name"] == "B1"
            assert not publishing.done()
            # A read may bring as much again as the window of a publisher has.
            assert journal_of(broker)._pending_bytes < MOST_BYTES + 4 * 2**20
            is_fast.set()
            got = await gather_events(subscription, count)
            assert [event.attributes["n"] for event in got] == list(range(count))
            await publishing
            await until(lambda: all(map(broker.pausing.reads, broker.sessions.roles)))
        await broker.stop()

    try:
        run(work())
    finally:
        is_fast.set()
    batches = list(read_journal(tmp_path / "data" / "journal", "B1"))
    facts = [fact for batch in batches for fact in facts_in(batch)]
    accepted = [event.seq for f in facts if isinstance(f, Accepted) for event in f.events]
    assert len(accepted) == count
    assert len(batches) > 5
