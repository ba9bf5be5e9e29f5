"""The audit judges MQTT clients by the journals of the brokers that host them."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sterna.core.facts import Settled
from sterna.journal import Journal
from sterna.net.local import LocalNetwork
from sterna.pipeline.audit import audit, in_journals
from tests.net.live import connect, network_in
from tests.net.mqtt_libraries import Paho

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Witness:
    """States when nothing is on its way."""

    def __init__(self, network: LocalNetwork, directory: Path) -> None:
        self._network = network
        self._journal = Journal(directory, "calm")
        self._count = 0

    async def settle(self) -> None:
        await asyncio.to_thread(self._network.wait_until_settled)
        self._count += 1
        fact = Settled(at="calm", time=time.time_ns() // 1000)
        self._journal.record(self._count, [fact])

    def close(self) -> None:
        self._journal.close()


async def drive(network: LocalNetwork, witness: Witness, journals: Path) -> int:
    """Publish, roam, kill a broker; how many events."""
    first, second = network.mqtt("B1"), network.mqtt("B2")
    reader, writer = Paho("reader"), Paho("writer")
    await reader.connect(first)
    await writer.connect(second)
    await reader.subscribe("d/#", 2)
    await witness.settle()

    async def publish() -> None:
        for number in range(3):
            await writer.publish("d/x", str(number), 2)

    await publish()
    await reader.vanish()
    await publish()
    await reader.connect(second)
    await publish()
    await reader.take(9)
    await witness.settle()
    await asyncio.to_thread(network.kill, "B2")
    await reader.vanish()
    await writer.vanish()
    await asyncio.to_thread(network.restart, "B2")
    await reader.connect(first)
    await writer.connect(second)
    await publish()
    async with connect(network.url("B1"), client="native", journal=journals) as native:
        await native.publish({"topic": "d/y"}, b"native")
        await reader.take(4)
        await witness.settle()
    for each in (reader, writer):
        await each.close()
    return 13


@pytest.mark.spec("PL-5", "LV-4")
def test_devices_are_judged_as_clients(spark: "SparkSession", tmp_path: Path) -> None:
    """Roaming, and with a broker that is killed: every delivery is owed, made, and no other one."""
    tables = {"journal": {"enabled": True}, "mqtt": {"listen": "127.0.0.1:0", "journal": True}}
    with network_in(tmp_path / "brokers", 2, **tables) as network:
        witness = Witness(network, tmp_path)
        count = asyncio.run(drive(network, witness, tmp_path))
        witness.close()

    verdict = audit(in_journals(spark, tmp_path), grace_us=1_000_000, partitions=2)
    assert verdict.findings == []
    assert verdict.published == count
    (reader,) = [each for each in verdict.accounts.clients if each.name == "mqtt:reader"]
    assert (reader.owed, reader.delivered, reader.open) == (count, count, 0)
    assert verdict.unjudged.witnesses.silent_clients == ()
