"""A client that speaks MQTT 5 over TCP, for the command line: publish, subscribe, acknowledge."""

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from sterna.devices.faces import QOS, attributes_of, publish_of
from sterna.devices.options import NEVER_S
from sterna.errors import ClosedError, NotConnectedError
from sterna.model.event import Event, Scalar
from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    MqttError,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Role,
    Suback,
    Subscribe,
    SubscriptionRequest,
    UserProperties,
    Version,
)
from sterna.net.address import Address, AddressError

SCHEME = "mqtt"
PORT = 1883
"""The port on which MQTT brokers listen by default."""

ANSWER_S = 30.0
"""How long it waits for CONNACK and SUBACK; a session may have to come from another broker."""

KEEP_ALIVE_S = 60
RECEIVE_MAXIMUM = 1_000
"""So many messages may come before they are acknowledged."""

ARRIVED_MAX = 4_096
"""So many messages wait here to be taken before nothing more is read."""

IDS_MAX = 65_535

_READ_BYTES = 2**16
_URL = re.compile(rf"{SCHEME}://(?P<host>\[[^\]/]*\]|[^:/\[]+)(?P<port>:\d+)?/?", re.ASCII)


def is_mqtt(url: str) -> bool:
    """Whether a URL stands for a broker that speaks MQTT."""
    return url.startswith(f"{SCHEME}://")


def address_of(url: str) -> Address:
    """Read `mqtt://127.0.0.1:1883`; without a port, the default one."""
    parts = _URL.fullmatch(url)
    try:
        address = Address.parse("" if parts is None else parts[1] + (parts[2] or f":{PORT}"))
    except AddressError:
        address = Address("", 0)
    if not address.port:
        raise AddressError(
            f"{url!r} is no address of a broker: write {SCHEME}://host:port, "
            f"such as {SCHEME}://127.0.0.1:{PORT}"
        )
    return address


def message_of(attributes: Mapping[str, Scalar], payload: bytes) -> Publish:
    """An event as a message, with QoS 1 unless `mqtt.qos` says another one."""
    whole = {QOS: 1, **attributes}
    qos = whole[QOS]
    if type(qos) is not int or not 0 <= qos <= 2:
        raise ValueError(f"mqtt.qos is 0, 1 or 2, not {qos!r}")
    found = publish_of(Event(publisher=SCHEME, seq=1, time_us=0, attributes=whole, payload=payload))
    if found is None:
        raise ValueError("over MQTT an event needs a topic without + and #: give topic=NAME")
    return found


class MqttClient:
    """A connection to an MQTT broker; use it as a context manager. It does not reconnect."""

    def __init__(self, *urls: str, client: str | None = None) -> None:
        """Connect to the first broker that lets it in. With a name, its session lasts."""
        self._addresses = [address_of(url) for url in urls]
        self._name = client
        self.broker: str = str(self._addresses[0])
        """The address of the broker."""
        self.acknowledged = 0
        """How many messages the broker has; those with QoS 0 count when they are sent."""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._decoder: Decoder
        self._tasks: list[asyncio.Task[None]] = []
        self._sent: dict[int, int] = {}
        """The QoS of the messages that are not acknowledged."""
        self._next_id = 1
        self._send_max = IDS_MAX
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._suback: Suback | None = None
        self._arrived: deque[Publish] = deque()
        self._unreleased: dict[int, None] = {}
        """The messages with QoS 2 that are here, and whose PUBREL has not come."""

    # ---- The connection

    async def __aenter__(self) -> Self:
        problems = []
        for address in self._addresses:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._connect(address)
            except (OSError, TimeoutError, EOFError, MqttError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                problems.append(f"{address}: {why or 'no answer'}")
            else:
                self.broker = str(address)
                self._tasks = [asyncio.create_task(self._read())]
                return self
        tried = tuple(str(address) for address in self._addresses)
        raise NotConnectedError(f"no MQTT broker lets it in: {'; '.join(problems)}", brokers=tried)

    async def _connect(self, address: Address) -> None:
        self._reader, self._writer = await asyncio.open_connection(address.host, address.port)
        try:
            self._decoder = Decoder(Role.CLIENT, Version.V5)
            connect = Connect(
                client_id=self._name or "",
                clean_start=self._name is None,
                session_expiry_s=0 if self._name is None else NEVER_S,
                keep_alive_s=KEEP_ALIVE_S,
                receive_maximum=RECEIVE_MAXIMUM,
            )
            self._send(connect)
            packets: list[Packet] = []
            while not packets:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    raise EOFError("it has closed the connection")
                packets = self._decoder.feed(data)
            connack, *rest = packets
            if not isinstance(connack, Connack):
                raise EOFError("it does not answer CONNECT")
            if connack.reason_code.is_failure:
                raise EOFError(_why(connack))
        except BaseException:
            self._writer.close()
            raise
        self._send_max = connack.receive_maximum
        keep_alive_s = connack.server_keep_alive_s
        self._ping_s = (KEEP_ALIVE_S if keep_alive_s is None else keep_alive_s) / 2
        for packet in rest:
            self._handle(packet)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(OSError, TimeoutError):
            self._send(Disconnect())
            self._writer.close()
            async with asyncio.timeout(1):
                await self._writer.wait_closed()

    def _send(self, packet: Packet) -> None:
        self._writer.write(encode(packet, Version.V5))

    async def _read(self) -> None:
        """Read until the connection is over."""
        try:
            while True:
                while len(self._arrived) >= ARRIVED_MAX:
                    self._changed.clear()
                    await self._changed.wait()
                try:
                    async with asyncio.timeout(self._ping_s or None):
                        data = await self._reader.read(_READ_BYTES)
                except TimeoutError:
                    self._send(Pingreq())
                    continue
                if not data:
                    raise EOFError("it has closed the connection")
                for packet in self._decoder.feed(data):
                    self._handle(packet)
        except (OSError, EOFError, MqttError) as error:
            self._failure = error
        finally:
            self._changed.set()

    def _handle(self, packet: Packet) -> None:
        match packet:
            case Publish():
                if packet.packet_id not in self._unreleased:
                    self._arrived.append(packet)
                elif packet.qos == 2:
                    self._send(Pubrec(packet.packet_id))
            case Puback() | Pubcomp():
                self._done(packet)
            case Pubrec():
                if packet.reason_code.is_failure:
                    self._done(packet)
                else:
                    self._send(Pubrel(packet.packet_id))
            case Pubrel():
                self._unreleased.pop(packet.packet_id, None)
                self._send(Pubcomp(packet.packet_id))
            case Suback():
                self._suback = packet
            case Disconnect():
                raise EOFError(_why(packet))
            case _:
                pass
        self._changed.set()

    def _done(self, packet: Puback | Pubcomp | Pubrec) -> None:
        if self._sent.pop(packet.packet_id, None) is None:
            return
        if packet.reason_code.is_failure:
            raise EOFError(f"it refuses a message: {_why(packet)}")
        self.acknowledged += 1

    def _check(self) -> None:
        if self._failure is not None:
            raise ClosedError(f"lost {self.broker}: {self._failure}", broker=self.broker)

    async def _wait(self) -> None:
        self._check()
        self._changed.clear()
        await self._changed.wait()
        self._check()

    # ---- Publishing

    async def publish(self, message: Publish) -> None:
        """Publish a message, once the broker takes more; ValueError if it cannot be sent."""
        self._check()
        packet_id = 0
        if message.qos:
            while len(self._sent) >= self._send_max:
                await self._wait()
            while self._next_id in self._sent:
                self._next_id = self._next_id % IDS_MAX + 1
            packet_id = self._next_id
        self._send(replace(message, packet_id=packet_id))
        if message.qos:
            self._next_id = packet_id % IDS_MAX + 1
            self._sent[packet_id] = message.qos
        else:
            self.acknowledged += 1
        await self._drain()

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            self._failure = self._failure or error
            self._check()

    async def settle(self) -> None:
        """Wait until the broker has acknowledged everything."""
        await self._drain()
        while self._sent:
            await self._wait()

    # ---- Subscribing

    async def subscribe(
        self, topics: Sequence[str], properties: UserProperties
    ) -> "MqttSubscription":
        """Subscribe with QoS 2; MqttError says why it is refused."""
        requests = tuple([SubscriptionRequest(each, 2, retain_handling=1) for each in topics])
        try:
            self._send(Subscribe(self._next_id, requests, user_properties=properties))
        except ValueError as error:
            raise MqttError(ReasonCode.TOPIC_FILTER_INVALID, str(error)) from None
        self._next_id += 1
        try:
            async with asyncio.timeout(ANSWER_S):
                while self._suback is None:
                    await self._wait()
        except TimeoutError:
            raise NotConnectedError(f"{self.broker} does not answer SUBSCRIBE") from None
        for code in self._suback.reason_codes:
            if code.is_failure:
                raise MqttError(code, self._suback.reason_string or _words(code.name))
        return MqttSubscription(self)

    async def next(self) -> Publish:
        """Wait for the next message."""
        while not self._arrived:
            await self._wait()
        self._changed.set()
        return self._arrived.popleft()

    @property
    def waiting(self) -> int:
        """How many messages are here that were not taken."""
        return len(self._arrived)

    def acknowledge(self, message: Publish) -> None:
        """Have the broker forget a message: it is done with."""
        if message.qos == 1:
            self._send(Puback(message.packet_id))
        elif message.qos:
            self._unreleased[message.packet_id] = None
            self._send(Pubrec(message.packet_id))


class MqttSubscription:
    """What comes, as events: `seq` counts what has come, `time_us` is when it was taken."""

    def __init__(self, client: MqttClient) -> None:
        self._client = client
        self._taken: dict[int, Publish] = {}
        """The messages that were taken and not acknowledged, by the `seq` of their events."""
        self._seq = 0

    @property
    def waiting(self) -> int:
        """How many events are here that were not taken."""
        return self._client.waiting

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        message = await self._client.next()
        self._seq += 1
        self._taken[self._seq] = message
        return Event(
            publisher=f"{SCHEME}://{self._client.broker}",
            seq=self._seq,
            time_us=time.time_ns() // 1_000,
            attributes=attributes_of(message, message.topic),
            payload=message.payload,
        )

    def acknowledge(self, event: Event) -> None:
        """Have the broker forget an event: it is done with."""
        self._client.acknowledge(self._taken.pop(event.seq))


def _why(packet: Connack | Disconnect | Puback | Pubcomp | Pubrec) -> str:
    words = _words(packet.reason_code.name)
    return f"{words}: {packet.reason_string}" if packet.reason_string else words


def _words(name: str) -> str:
    return name.lower().replace("_", " ")
