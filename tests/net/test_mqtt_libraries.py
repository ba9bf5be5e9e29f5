"""Other libraries for MQTT: what they do by themselves works, and their sessions roam."""

import asyncio
from collections.abc import Iterator
from typing import Any

import aiomqtt
import gmqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, network_in, until

pytestmark = pytest.mark.spec("LV-4")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """Two brokers that speak MQTT."""
    directory = tmp_path_factory.mktemp("mqtt")
    with network_in(directory, 2, mqtt={"listen": "127.0.0.1:0"}) as network:
        yield network


def test_aiomqtt(network: LocalNetwork) -> None:
    """Its session is at the other broker when it comes there."""

    def client(name: str, broker: str) -> aiomqtt.Client:
        at = network.mqtt(broker)
        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 100
        return aiomqtt.Client(
            at.host, at.port, identifier=name, protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False, properties=properties,
        )  # fmt: skip

    async def run() -> list[bytes]:
        got: list[bytes] = []
        async with client("aio", "B1") as reader:
            await reader.subscribe("aio/#", qos=2)
        async with client("aio-writer", "B2") as writer:
            for number in range(10):
                await writer.publish(f"aio/{number}", str(number), qos=2)
        async with asyncio.timeout(SETTLE_S), client("aio", "B2") as reader:
            async for message in reader.messages:
                assert isinstance(message.payload, bytes)
                got.append(message.payload)
                if len(got) == 10:
                    break
        return got

    assert asyncio.run(run()) == [str(number).encode() for number in range(10)]


def test_gmqtt(network: LocalNetwork) -> None:
    """With a will, a retained message, and user properties."""

    async def run() -> tuple[list[bytes], list[tuple[str, str]]]:
        got: list[bytes] = []
        properties: list[tuple[str, str]] = []

        def on_message(_c: object, _t: str, payload: bytes, _q: int, told: dict[str, Any]) -> int:
            got.append(payload)
            properties.extend(told.get("user_property", []))
            return 0

        will = gmqtt.Message("g/will", "gone", will_delay_interval=0)
        first, second = network.mqtt("B1"), network.mqtt("B2")
        writer = gmqtt.Client("gm-writer", will_message=will)
        await writer.connect(first.host, first.port)
        writer.publish("g/kept", "kept", qos=1, retain=True, user_property=[("a", "1")])
        await asyncio.to_thread(network.wait_until_settled)
        reader = gmqtt.Client("gm-reader")
        reader.on_message = on_message
        await reader.connect(second.host, second.port)
        reader.subscribe("g/#", qos=1)
        await until(lambda: got == [b"kept"])
        await asyncio.to_thread(network.wait_until_settled)
        writer._connection._transport.abort()
        await until(lambda: len(got) == 2)
        await reader.disconnect()
        await writer.disconnect()
        return got, properties

    assert asyncio.run(run()) == ([b"kept", b"gone"], [("a", "1")])
