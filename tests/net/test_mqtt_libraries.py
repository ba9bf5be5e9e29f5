"""Other libraries for MQTT: what they do by themselves works, and their sessions roam."""

import asyncio
from collections.abc import Iterator

import pytest

from sterna.net.local import LocalNetwork
from tests.net.live import network_in
from tests.net.mqtt_libraries import LIBRARIES, Got, Library


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """Two brokers that speak MQTT."""
    directory = tmp_path_factory.mktemp("mqtt")
    with network_in(directory, 2, mqtt={"listen": "127.0.0.1:0"}) as network:
        yield network


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__.lower())
def test_a_library(network: LocalNetwork, library: type[Library]) -> None:
    """Connect, all QoS, retained, will, shared, reconnect, roam."""
    asyncio.run(use(network, library))


async def use(network: LocalNetwork, library: type[Library]) -> None:
    """Try everything, with several clients; with QoS 1, a kill may bring messages again."""
    first, second = network.mqtt("B1"), network.mqtt("B2")
    name = library.__name__

    async def settle() -> None:
        await asyncio.to_thread(network.wait_until_settled)

    reader, writer = library(f"{name}-reader"), library(f"{name}-writer")
    await reader.connect(first)
    await writer.connect(second)
    await reader.subscribe(f"{name}/+", 2)
    await settle()
    for qos in range(3):
        await writer.publish(f"{name}/{qos}", "all", qos)
    assert sorted(await reader.take(3)) == [
        Got(f"{name}/{q}", "all", q, retain=False) for q in range(3)
    ]

    await writer.publish(f"kept/{name}", "retained", 2, retain=True)
    await settle()
    await reader.subscribe(f"kept/{name}", 2)
    assert await reader.take(1) == [Got(f"kept/{name}", "retained", 2, retain=True)]

    mortal = library(f"{name}-mortal", f"{name}/will")
    await mortal.connect(second)
    await mortal.vanish()
    assert await reader.take(1) == [Got(f"{name}/will", "gone", 2, retain=False)]

    if library.shares:
        await share(network, library, writer)

    async def publish(topic: str) -> None:
        for number in range(3):
            await writer.publish(f"{name}/{topic}", str(number), 2)

    await asyncio.to_thread(network.kill, "B1")
    await publish("down")
    await asyncio.to_thread(network.restart, "B1")
    if not library.reconnects:
        await reader.connect(first)
    assert [each.payload for each in await reader.take(3)] == ["0", "1", "2"]

    await reader.vanish()
    await publish("away")
    await reader.connect(second)
    assert [each.payload for each in await reader.take(3)] == ["0", "1", "2"]
    assert reader.got.empty()
    for each in (reader, writer):
        await each.close()


async def share(network: LocalNetwork, library: type[Library], writer: Library) -> None:
    """Two members at two brokers share what is published."""
    members = [library(f"{library.__name__}-{broker}") for broker in ("B1", "B2")]
    topic = f"work/{library.__name__}"
    for member, broker in zip(members, ("B1", "B2"), strict=True):
        await member.connect(network.mqtt(broker))
        await member.subscribe(f"$share/g/{topic}", 1)
    await asyncio.to_thread(network.wait_until_settled)
    for number in range(10):
        await writer.publish(topic, str(number), 1)
    got = [each.payload for member in members for each in await member.take(5)]
    assert sorted(got) == [str(number) for number in range(10)]
    for member in members:
        await member.close()
