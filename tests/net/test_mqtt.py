"""MQTT clients that nobody here wrote, at brokers that are processes."""

import asyncio
import json
import queue
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import h3
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from sterna.net.address import Address
from sterna.net.local import LocalNetwork, wait_for
from tests.net.live import SETTLE_S, connect, gather_events, network_in
from tests.scale import CAMPAIGN

V5, V311 = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311


def properties_of(kind: int, **values: Any) -> Any:
    """Properties of a packet."""
    found: Any = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(found, name, value)
    return found


class Device:
    """A client of paho-mqtt, with its messages in a queue."""

    def __init__(
        self,
        client_id: str,
        version: MQTTProtocolVersion = V5,
        transport: Literal["tcp", "websockets"] = "tcp",
    ) -> None:
        more: dict[str, Any] = {} if version is V5 else {"clean_session": False}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=version,
            transport=transport,
            **more,
        )
        self.version = version
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.reason: Any = None
        self.is_present = False
        self._up, self._down, self._known = (threading.Event() for _ in range(3))
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        self.client.on_connect = self._connected
        self.client.on_subscribe = lambda *_: self._known.set()
        self.client.on_disconnect = self._disconnected

    def _connected(self, _client: Any, _data: Any, flags: Any, reason: Any, _: Any) -> None:
        self.reason, self.is_present = reason, flags.session_present
        self._up.set()

    def _disconnected(self, _client: Any, _data: Any, _flags: Any, reason: Any, _: Any) -> None:
        self.reason = reason
        self._down.set()

    def connect(self, at: Address, *, clean: bool = False) -> "Device":
        """Connect, and wait for CONNACK."""
        more: dict[str, Any] = {}
        if self.version is V5:
            properties = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=1000)
            more = {"clean_start": clean, "properties": properties}
        self._up.clear()
        self._down.clear()
        self.client.connect(at.host, at.port, **more)
        self.client.loop_start()
        assert self._up.wait(SETTLE_S)
        return self

    def subscribe(self, topic: str, qos: int = 2, **properties: Any) -> "Device":
        """Subscribe, and wait for SUBACK."""
        self._known.clear()
        if properties:
            more = properties_of(PacketTypes.SUBSCRIBE, **properties)
            self.client.subscribe(topic, qos, properties=more)
        else:
            self.client.subscribe(topic, qos)
        assert self._known.wait(SETTLE_S)
        return self

    def publish(self, topic: str, payload: str, qos: int = 2) -> paho.MQTTMessageInfo:
        """Publish; `wait_for_publish` of the result waits for the acknowledgement."""
        return self.client.publish(topic, payload, qos)

    def take(self, count: int) -> list[str]:
        """The payloads of the next so many messages."""
        return [self.messages.get(timeout=SETTLE_S).payload.decode() for _ in range(count)]

    def wait_until_down(self) -> None:
        """Wait until the connection is over."""
        assert self._down.wait(SETTLE_S)

    def vanish(self) -> None:
        """Lose the connection without DISCONNECT."""
        self.client.loop_stop()
        sock = self.client.socket()
        if sock is not None:
            sock.close()
        self.client._sock = None

    def close(self) -> None:
        """Disconnect for good."""
        self.client.disconnect()
        self.client.loop_stop()


Make = Callable[..., Device]


@pytest.fixture
def device() -> Iterator[Make]:
    made: list[Device] = []

    def make(*args: Any) -> Device:
        made.append(Device(*args))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """Two brokers that speak MQTT, for tests that leave them as they are."""
    directory = tmp_path_factory.mktemp("mqtt")
    mqtt = {"listen": "127.0.0.1:0", "websocket": "127.0.0.1:0"}
    with network_in(directory, 2, mqtt=mqtt) as network:
        yield network


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("version", [V5, V311], ids=["5.0", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_cross_the_network(
    network: LocalNetwork, device: Make, version: MQTTProtocolVersion, qos: int
) -> None:
    """From a device at one broker to a device at another one, in order."""
    name = f"{version.value}-{qos}"
    reader = device(f"reader-{name}", version).connect(network.mqtt("B2"))
    reader.subscribe(f"{name}/#", qos)
    network.wait_until_settled()
    writer = device(f"writer-{name}", version).connect(network.mqtt("B1"))
    sent = [writer.publish(f"{name}/{n % 3}", str(n), qos) for n in range(100)]
    for each in sent:
        each.wait_for_publish(SETTLE_S)

    assert reader.take(100) == [str(n) for n in range(100)]


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("qos", [0, 1])
def test_many_messages_at_once_for_devices_of_both_versions(
    network: LocalNetwork, device: Make, qos: int
) -> None:
    at = network.mqtt("B1")
    topic = f"at-once/{qos}"
    devices = [
        device(f"ann-{qos}", V5).connect(at).subscribe(topic, qos),
        device(f"bob-{qos}", V311).connect(at).subscribe(topic, qos),
        device(f"cid-{qos}", V5).connect(at).subscribe(topic, qos, SubscriptionIdentifier=7),
    ]
    writer = device(f"dan-{qos}").connect(at)

    for number in range(200):
        writer.publish(topic, str(number), qos)

    got = [[each.messages.get(timeout=SETTLE_S) for _ in range(200)] for each in devices]
    for messages in got:
        assert [each.payload.decode() for each in messages] == [*map(str, range(200))]
    identifiers = [getattr(each.properties, "SubscriptionIdentifier", None) for each in got[2]]
    assert identifiers == [[7]] * 200


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("size", [0, 1, 200, 70_000])
def test_web_sockets(network: LocalNetwork, device: Make, size: int) -> None:
    """Messages of all sizes that WebSockets frame differently."""
    address = Address.parse(network.ask("B1", "status")["mqtt"]["websocket"])
    one = device(f"web-{size}", V5, "websockets").connect(address).subscribe(f"web/{size}")
    one.publish(f"web/{size}", "x" * size).wait_for_publish(SETTLE_S)

    assert one.take(1) == ["x" * size]


@pytest.mark.spec("LV-4", "LV-11")
def test_native_clients_and_devices_see_each_others_events(
    network: LocalNetwork, device: Make
) -> None:
    phone = device("phone").connect(network.mqtt("B1")).subscribe("to/phone")

    async def talk() -> None:
        async with connect(network.url("B2"), client="native") as client:
            subscription = client.subscribe("price < 3 AND topic MATCHES 'from/+'")
            await subscription.ready()
            told = [("price", "2.50"), ("name", "x")]
            properties = properties_of(PacketTypes.PUBLISH, UserProperty=told)
            phone.client.publish("from/phone", b"hello", 1, properties=properties)
            (event,) = await gather_events(subscription, 1)
            assert event.attributes["price"] == 2.5
            assert event.attributes["name"] == "x"
            assert event.payload == b"hello"
            assert event.publisher == "mqtt:phone"
            await client.publish(topic="to/phone", price=1)
            await client.publish({"topic": "to/phone", "price": 1}, b"bytes")

    asyncio.run(talk())
    first, second = (phone.messages.get(timeout=SETTLE_S) for _ in range(2))
    assert first.payload == b'{"price":1}'
    assert second.payload == b"bytes"
    assert second.properties is not None
    assert getattr(second.properties, "UserProperty", None) == [("price", "1")]


@pytest.mark.spec("LV-4", "LV-11")
def test_a_phone_with_owntracks_gets_what_is_near(tmp_path: Path, device: Make) -> None:
    """It moves, and goes to another broker; a place that is none is refused."""
    mqtt = {"listen": "127.0.0.1:0"}
    with network_in(tmp_path, 2, mqtt=mqtt, places={"grid": 9}) as network:
        shop = device("shop").connect(network.mqtt("B1"))
        phone = device("phone").connect(network.mqtt("B2"))
        codes: queue.Queue[Any] = queue.Queue()
        phone.client.on_publish = lambda _client, _data, _mid, code, _properties: codes.put(code)

        def be(topic: str, payload: str) -> Any:
            phone.publish(topic, payload, 1)
            code = codes.get(timeout=SETTLE_S)
            network.wait_until_settled()
            return code

        def offer(at: tuple[float, float], name: str) -> None:
            told = [("cell", h3.latlng_to_cell(*at, 9))]
            properties = properties_of(PacketTypes.PUBLISH, UserProperty=told)
            shop.client.publish("offers", name, 1, properties=properties).wait_for_publish(SETTLE_S)

        here, there = (50.1, 8.7), (52.5, 13.4)
        message = {"_type": "location", "lat": here[0], "lon": here[1], "tid": "ph"}
        assert be("owntracks/me/phone", json.dumps(message)).value == 0
        phone.subscribe("offers", UserProperty=[("where", "cell IN myloc(1)")])
        network.wait_until_settled()
        offer(there, "1 there")
        offer(here, "1 here")
        assert phone.take(1) == ["1 here"]
        assert be("$sterna/location", "nowhere").value == 0x99
        assert be("$sterna/location", f"{there[0]},{there[1]}").value == 0
        offer(here, "2 here")
        offer(there, "2 there")
        assert phone.take(1) == ["2 there"]
        phone.vanish()
        phone.connect(network.mqtt("B1"))
        offer(here, "3 here")
        offer(there, "3 there")
        assert phone.take(1) == ["3 there"]


@pytest.mark.spec("LV-4", "LV-11")
def test_the_other_face_of_an_event(tmp_path: Path, device: Make) -> None:
    """What is in a payload can be filtered by, and what has no topic gets one."""
    mqtt = {
        "listen": "127.0.0.1:0",
        "lift": [{"topics": "from/#", "depth_max": 2}],
        "topic": "vehicles/{id}",
        "payload": "json",
    }
    with network_in(tmp_path, 2, mqtt=mqtt) as network:
        phone = device("phone").connect(network.mqtt("B1")).subscribe("vehicles/7")
        network.wait_until_settled()

        async def talk() -> None:
            async with connect(network.url("B2"), client="native") as client:
                subscription = client.subscribe('"at.lat" > 50 AND n = 1')
                await subscription.ready()
                phone.publish("from/phone", '{"n": 1, "at": {"lat": 40}}')
                phone.publish("from/phone", '{"n": 1, "at": {"lat": 50.5}}')
                (event,) = await gather_events(subscription, 1)
                assert event.payload == b'{"n": 1, "at": {"lat": 50.5}}'
                assert event.attributes["at.lat"] == 50.5
                await client.publish({"id": 8, "speed": 1})
                await client.publish({"id": 7, "speed": 3.5}, b"bytes")

        asyncio.run(talk())
        message = phone.messages.get(timeout=SETTLE_S)
        assert (message.topic, message.payload) == ("vehicles/7", b'{"id":7,"speed":3.5}')


@pytest.mark.spec("LV-4")
def test_content_filters(network: LocalNetwork, device: Make) -> None:
    """A user property of SUBSCRIBE filters by content."""
    reader = device("by-content").connect(network.mqtt("B2"))
    reader.subscribe("cars/#", 1, UserProperty=("where", "speed > 100"))
    network.wait_until_settled()
    writer = device("car").connect(network.mqtt("B1"))
    for speed in ("90", "110", "120.5", "fast"):
        properties = properties_of(PacketTypes.PUBLISH, UserProperty=("speed", speed))
        writer.client.publish("cars/1", speed, 1, properties=properties)

    assert reader.take(2) == ["110", "120.5"]


@pytest.mark.spec("LV-4")
def test_a_shared_subscription(network: LocalNetwork, device: Make) -> None:
    """Members at two brokers share what comes."""
    members = [
        device(f"member-{broker}").connect(network.mqtt(broker)).subscribe("$share/g/shared", 1)
        for broker in ("B1", "B2")
    ]
    network.wait_until_settled()
    writer = device("sharer").connect(network.mqtt("B2"))
    for number in range(20):
        writer.publish("shared", str(number), 1)

    got = [member.take(10) for member in members]
    assert sorted(map(int, got[0] + got[1])) == list(range(20))


@pytest.mark.spec("LV-4")
def test_what_a_broker_tells_about_itself(tmp_path: Path, device: Make) -> None:
    """At once and then in intervals, to those who ask for it, at this broker, not in its log."""
    mqtt = {"listen": "127.0.0.1:0", "sys_interval_s": 1}
    with network_in(tmp_path, 2, mqtt=mqtt) as network:
        at = network.mqtt("B1")
        others = device("others").connect(at).subscribe("#").subscribe("+/broker/version")
        others.client.publish("kept", "x", 1, retain=True).wait_for_publish(SETTLE_S)
        assert others.take(1) == ["x"]
        away = device("away").connect(network.mqtt("B2")).subscribe("away")
        away.connect(at)
        away.vanish()

        def is_away() -> bool:
            return bool(network.ask("B1", "status")["mqtt"]["clients_away"] == 1)

        def busy() -> int:
            status = network.ask("B1", "status")
            return int(status["inputs"] - status["inputs_idle"])

        wait_for(is_away, "the device is not away", limit_s=SETTLE_S)
        reader = device("reader", V311).connect(at).subscribe("$SYS/broker/#")
        first = [reader.messages.get(timeout=SETTLE_S) for _ in range(8)]
        network.wait_until_settled()
        before = busy()
        second = [reader.messages.get(timeout=SETTLE_S) for _ in range(8)]
        assert busy() == before

        told = {each.topic.removeprefix("$SYS/broker/"): each.payload.decode() for each in first}
        assert told.pop("version").startswith("sterna version ")
        assert told.pop("uptime").endswith(" seconds")
        assert int(told.pop("messages/received")) >= 7
        assert int(told.pop("messages/sent")) >= 7
        assert told == {
            "clients/connected": "2",
            "clients/total": "3",
            "subscriptions/count": "4",
            "retained messages/count": "1",
        }
        assert all(each.retain for each in first)
        assert not any(each.retain for each in second)
        assert [each.topic for each in second] == [each.topic for each in first]
        only = device("only").connect(at).subscribe("$SYS/broker/clients/+")
        assert only.take(2) == ["3", "4"]
        assert others.messages.empty()
        elsewhere = device("elsewhere").connect(network.mqtt("B2"))
        assert elsewhere.subscribe("$SYS/broker/clients/total").take(1) == ["1"]


@pytest.mark.spec("LV-4")
def test_a_broker_that_is_to_tell_nothing_about_itself(tmp_path: Path, device: Make) -> None:
    with network_in(tmp_path, 1, mqtt={"listen": "127.0.0.1:0", "sys_interval_s": 0}) as network:
        reader = device("reader").connect(network.mqtt("B1")).subscribe("$SYS/#").subscribe("x")
        reader.publish("x", "the first").wait_for_publish(SETTLE_S)
        assert reader.take(1) == ["the first"]


@pytest.mark.spec("LV-4")
def test_a_device_roams(network: LocalNetwork, device: Make) -> None:
    """Its session travels: nothing is lost, nothing comes twice, and the order holds."""
    reader = device("roamer").connect(network.mqtt("B1")).subscribe("r")
    writer = device("writer").connect(network.mqtt("B2"))
    expected = []
    for place in ("B2", "B1", "B2", "B2", "B1"):
        for step in range(10):
            if step == 5:
                reader.vanish()
            expected.append(f"{place} {step}")
            writer.publish("r", expected[-1]).wait_for_publish(SETTLE_S)
        reader.connect(network.mqtt(place))
        assert reader.is_present

    assert reader.take(len(expected)) == expected
    assert reader.messages.empty()


@pytest.mark.spec("LV-4")
def test_a_session_is_held_once(network: LocalNetwork, device: Make) -> None:
    """Who connects elsewhere takes over, and the other one is told."""
    first = device("twice").connect(network.mqtt("B1"))
    device("twice").connect(network.mqtt("B2"))
    first.wait_until_down()

    assert "taken over" in str(first.reason)


@pytest.mark.spec("LV-4")
def test_a_killed_broker_loses_nothing(tmp_path: Path, device: Make) -> None:
    """What was acknowledged is delivered once with QoS 2; sessions are still there."""
    with network_in(tmp_path, 1, mqtt={"listen": "127.0.0.1:0"}) as network:
        at = network.mqtt("B1")
        reader = device("reader").connect(at).subscribe("k")
        writer = device("writer", V311).connect(at)
        for start in range(0, 300, 100):
            sent = [writer.publish("k", str(n)) for n in range(start, start + 100)]
            sent[50].wait_for_publish(SETTLE_S)
            network.kill("B1")
            writer.client.loop_stop()
            reader.client.loop_stop()
            network.restart("B1")
            reader.connect(at)
            writer.connect(at)
            assert reader.is_present
            assert writer.is_present
            for each in sent:
                each.wait_for_publish(SETTLE_S)

        assert reader.take(300) == [str(n) for n in range(300)]
        assert reader.messages.empty()


@pytest.mark.spec("LV-4")
def test_devices_roam_while_brokers_are_killed(tmp_path: Path, device: Make) -> None:
    """With QoS 2 each of them gets everything, once, in the order of each publisher."""
    rng = random.Random("roam")  # noqa: S311 - reproducible, not secret.
    with network_in(tmp_path, 3, mqtt={"listen": "127.0.0.1:0"}) as network:
        names = list(network.names)

        def settle(each: Device) -> None:
            """Connect somewhere; who is refused tries again, as libraries do."""
            each.vanish()
            each.connect(network.mqtt(rng.choice(names)))
            while each.reason != "Success":
                each.vanish()
                each.connect(network.mqtt(rng.choice(names)))

        readers = [device(f"reader {n}", (V5, V311)[n % 2]) for n in range(4)]
        writers = [device(f"writer {n}", (V5, V311)[n % 2]) for n in range(2)]
        for each in (*readers, *writers):
            each.connect(network.mqtt(rng.choice(names)))
        for reader in readers:
            reader.subscribe("roam/+")
        network.wait_until_settled()
        count = 0
        for _ in range(3 * CAMPAIGN):
            killed = rng.choice(names)
            for step in range(20):
                if step == 10:
                    network.kill(killed)
                for number, writer in enumerate(writers):
                    writer.publish(f"roam/{number}", str(count))
                count += 1
                if step in (5, 15):
                    roaming = rng.choice(readers)
                    roaming.vanish()
            network.restart(killed)
            for each in (*readers, *writers):
                settle(each)
            wait_for(lambda: all(not each.client._out_messages for each in writers), "unpublished")

        for reader in readers:
            got = [reader.messages.get(timeout=SETTLE_S) for _ in range(count * len(writers))]
            for number in range(len(writers)):
                mine = [m.payload.decode() for m in got if m.topic == f"roam/{number}"]
                assert mine == [str(each) for each in range(count)]
            assert reader.messages.empty()
