"""Libraries for MQTT that nobody here wrote, each behind the same few calls."""

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from sterna.net.address import Address
from tests.net.live import SETTLE_S


class Got(NamedTuple):
    """A message that came."""

    topic: str
    payload: str
    qos: int
    retain: bool


class Library(ABC):
    """A client whose session lasts."""

    reconnects = True
    """Whether it connects again by itself."""
    shares = True
    """Whether its version of MQTT has shared subscriptions."""

    def __init__(self, client_id: str, will: str = "") -> None:
        self.client_id = client_id
        self.will = will
        """The topic of its will, if it has one; it is sent with QoS 2."""
        self.got: asyncio.Queue[Got] = asyncio.Queue()

    @abstractmethod
    async def connect(self, at: Address) -> None:
        """Connect, with the session that there is."""

    @abstractmethod
    async def subscribe(self, topic: str, qos: int) -> None:
        """Subscribe, and wait until that is acknowledged."""

    @abstractmethod
    async def publish(self, topic: str, payload: str, qos: int, *, retain: bool = False) -> None:
        """Publish."""

    @abstractmethod
    async def vanish(self) -> None:
        """Break the connection without DISCONNECT, and stay away."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect for good."""

    async def take(self, count: int) -> list[Got]:
        """The next so many messages."""
        async with asyncio.timeout(SETTLE_S):
            return [await self.got.get() for _ in range(count)]


def _expiry() -> Any:
    properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 100
    return properties


class Paho(Library):
    """paho-mqtt, with its thread."""

    version = MQTTProtocolVersion.MQTTv5

    def __init__(self, client_id: str, will: str = "") -> None:
        super().__init__(client_id, will)
        loop = asyncio.get_running_loop()
        is_5 = self.version is MQTTProtocolVersion.MQTTv5
        self._connected, self._subscribed = asyncio.Event(), asyncio.Event()
        self._more: dict[str, Any] = {}
        if is_5:
            self._more = {"clean_start": False, "properties": _expiry()}
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if is_5 else False,
            protocol=self.version,
            reconnect_on_failure=True,
        )
        if will:
            self._client.will_set(will, "gone", 2)

        def on_message(_client: object, _data: object, each: paho.MQTTMessage) -> None:
            got = Got(each.topic, each.payload.decode(), each.qos, each.retain)
            loop.call_soon_threadsafe(self.got.put_nowait, got)

        def on_connect(*_: object) -> None:
            loop.call_soon_threadsafe(self._connected.set)

        def on_subscribe(*_: object) -> None:
            loop.call_soon_threadsafe(self._subscribed.set)

        self._client.on_message = on_message
        self._client.on_connect = on_connect
        self._client.on_subscribe = on_subscribe

    async def connect(self, at: Address) -> None:
        self._connected.clear()
        await asyncio.to_thread(self._client.connect, at.host, at.port, **self._more)
        self._client.loop_start()
        async with asyncio.timeout(SETTLE_S):
            await self._connected.wait()

    async def subscribe(self, topic: str, qos: int) -> None:
        self._subscribed.clear()
        self._client.subscribe(topic, qos)
        async with asyncio.timeout(SETTLE_S):
            await self._subscribed.wait()

    async def publish(self, topic: str, payload: str, qos: int, *, retain: bool = False) -> None:
        info = self._client.publish(topic, payload, qos, retain)
        await asyncio.to_thread(info.wait_for_publish, SETTLE_S)

    async def vanish(self) -> None:
        await asyncio.to_thread(self._client.loop_stop)
        sock = self._client.socket()
        if sock is not None:
            sock.close()
        self._client._sock = None

    async def close(self) -> None:
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)


class Paho311(Paho):
    """The same with MQTT 3.1.1."""

    version = MQTTProtocolVersion.MQTTv311
    shares = False


class Aiomqtt(Library):
    """aiomqtt: who uses it connects again."""

    reconnects = False

    def __init__(self, client_id: str, will: str = "") -> None:
        super().__init__(client_id, will)
        self._client: aiomqtt.Client
        self._reading: asyncio.Task[None]

    async def connect(self, at: Address) -> None:
        self._client = aiomqtt.Client(
            at.host,
            at.port,
            identifier=self.client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            properties=_expiry(),
            will=aiomqtt.Will(self.will, "gone", 2) if self.will else None,
        )
        await self._client.__aenter__()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for each in self._client.messages:
                assert isinstance(each.payload, bytes)
                payload = each.payload.decode()
                self.got.put_nowait(Got(str(each.topic), payload, each.qos, each.retain))
        except aiomqtt.MqttError:
            return

    async def subscribe(self, topic: str, qos: int) -> None:
        await self._client.subscribe(topic, qos)

    async def publish(self, topic: str, payload: str, qos: int, *, retain: bool = False) -> None:
        await self._client.publish(topic, payload, qos, retain)

    async def vanish(self) -> None:
        sock = self._client._client.socket()
        if isinstance(sock, socket.socket):
            sock.shutdown(socket.SHUT_RDWR)
        async with asyncio.timeout(SETTLE_S):
            await self._reading

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)
        self._reading.cancel()


class Gmqtt(Library):
    """gmqtt; its `publish` does not wait."""

    def __init__(self, client_id: str, will: str = "") -> None:
        super().__init__(client_id, will)
        self._subscribed = asyncio.Event()
        self._client: gmqtt.Client

    async def connect(self, at: Address) -> None:
        will = gmqtt.Message(self.will, "gone", qos=2) if self.will else None
        self._client = gmqtt.Client(
            self.client_id, clean_session=False, will_message=will, session_expiry_interval=100
        )
        self._client.set_config({"reconnect_retries": -1, "reconnect_delay": 0.1})
        self._client.on_message = self._came
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        await self._client.connect(at.host, at.port)

    def _came(self, _c: object, topic: str, payload: bytes, qos: int, told: dict[str, Any]) -> int:
        self.got.put_nowait(Got(topic, payload.decode(), qos, bool(told["retain"])))
        return 0

    async def subscribe(self, topic: str, qos: int) -> None:
        self._subscribed.clear()
        self._client.subscribe(topic, qos)
        async with asyncio.timeout(SETTLE_S):
            await self._subscribed.wait()

    async def publish(self, topic: str, payload: str, qos: int, *, retain: bool = False) -> None:
        self._client.publish(topic, payload, qos, retain)

    async def vanish(self) -> None:
        self._client.set_config({"reconnect_retries": 0})
        self._client._connection._transport.abort()

    async def close(self) -> None:
        await self._client.disconnect()


LIBRARIES: tuple[type[Library], ...] = (Paho, Paho311, Aiomqtt, Gmqtt)
