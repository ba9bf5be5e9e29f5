"""Packets as brokers that are processes send them: sizes, refusals, topic aliases, references."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Version,
    Will,
)
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, network_in
from tests.net.mqtt_peer import Peer

pytestmark = pytest.mark.spec("LV-4")

V311 = Version.V311


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    directory = tmp_path_factory.mktemp("mqtt")
    mqtt = {"listen": "127.0.0.1:0", "topic_aliases_max": 3, "keep_alive_max_s": 1}
    with network_in(directory, 1, mqtt=mqtt) as network:
        yield network


def subscribe(*topics: str, packet_id: int = 1, **more: Any) -> Subscribe:
    requests = tuple(SubscriptionRequest(topic, 2) for topic in topics)
    return Subscribe(packet_id, requests, **more)


async def answers(network: LocalNetwork, *packets: Packet, version: Version) -> list[Packet]:
    """All that the broker says to packets that are sent at once, until it hangs up."""
    peer = await Peer(version).open(network)
    await peer.say(*packets)
    return await peer.hear()


WRONG = [
    Connect(authentication_method="x"),
    Connect(client_id="x" * 300),
    Connect(client_id="w", will=Will("$SYS/broker/uptime", b"x")),
]


@pytest.mark.parametrize("connect", WRONG, ids=["method", "identifier", "will"])
def test_nothing_is_processed_behind_a_connect_that_is_refused(
    network: LocalNetwork, connect: Connect
) -> None:
    """MQTT-3.1.4-6; and no DISCONNECT comes instead of CONNACK (MQTT-3.14.0-1)."""

    async def run() -> tuple[list[Packet], list[Packet]]:
        publish = Publish("refused", b"x", 1, retain=True, packet_id=1)
        refused = await answers(network, connect, publish, version=Version.V5)
        reader = await Peer().open(network)
        await reader.say(Connect(), subscribe("refused"), Pingreq(), Disconnect())
        return refused, await reader.hear()

    refused, read = asyncio.run(run())
    (connack,) = refused
    assert isinstance(connack, Connack)
    assert connack.reason_code.is_failure
    assert {type(packet) for packet in read} <= {Connack, Pingresp, Suback}


def test_in_3_1_1_a_malformed_connect_is_answered_by_hanging_up(network: LocalNetwork) -> None:
    """MQTT-3.1.4-1: without CONNACK. A will for brokers is answered: not authorized."""
    good = encode(Connect(version=V311, client_id="abc"), V311)
    flagged = bytearray(good)
    flagged[9] |= 1  # The reserved flag.
    short = good[:-1]

    async def run() -> list[list[Packet]]:
        found = []
        for data in (bytes(flagged), bytes((0x10, len(short) - 2)) + short[2:]):
            peer = await Peer(V311).open(network)
            await peer.send(data)
            found.append(await peer.hear())
        will = Connect(version=V311, client_id="w", will=Will("$SYS/x"))
        return [*found, await answers(network, will, version=V311)]

    *malformed, (connack,) = asyncio.run(run())
    assert malformed == [[], []]
    assert isinstance(connack, Connack)
    assert connack.reason_code is ReasonCode.NOT_AUTHORIZED


@pytest.mark.parametrize("limit", [None, 400, 40])
def test_reasons_are_left_out_where_they_do_not_fit(
    network: LocalNetwork, limit: int | None
) -> None:
    """In CONNACK, SUBACK, PUBACK, PUBREC and DISCONNECT; and who disconnects hangs up."""

    async def run() -> list[Packet]:
        connect = Connect(client_id="small", maximum_packet_size=limit)
        refused = Connect(client_id="x" * 300, maximum_packet_size=limit)
        wrong = subscribe("x", user_properties=(("where", "price <" + " " * 50),))
        publishes = (Publish("$SYS/x", b"", qos, packet_id=qos) for qos in (1, 2))
        last = Publish("x", topic_alias=4)
        said = await answers(network, connect, wrong, *publishes, last, version=Version.V5)
        return [*await answers(network, refused, version=Version.V5), *said[1:]]

    found: list[Any] = asyncio.run(run())
    assert [type(packet) for packet in found] == [Connack, Suback, Puback, Pubrec, Disconnect]
    for packet in found:
        size = len(encode(packet, Version.V5))
        assert limit is None or size <= limit
        assert (packet.reason_string is None) is (limit == 40 and type(packet) is not Disconnect)
    assert found[-1].reason_code is ReasonCode.TOPIC_ALIAS_INVALID


def test_who_takes_no_answer_is_disconnected(network: LocalNetwork) -> None:
    """A SUBACK with many codes is larger than the client takes."""

    async def run() -> list[Packet]:
        connect = Connect(client_id="tiny", maximum_packet_size=40)
        many = subscribe(*(str(number) for number in range(60)))
        return await answers(network, connect, many, version=Version.V5)

    connack, last = asyncio.run(run())
    assert isinstance(connack, Connack)
    assert isinstance(last, Disconnect)
    assert last.reason_code is ReasonCode.PACKET_TOO_LARGE


@pytest.mark.parametrize(("maximum", "expected"), [(0, 0), (2, 2), (9, 3)])
def test_topic_aliases_for_clients(network: LocalNetwork, maximum: int, expected: int) -> None:
    """As many as both permit; the first message of a topic says what its alias stands for."""
    topics = [f"aliases/{number}" for number in (0, 1, 0, 0, 2, 1, 3, 4, 2, 3, 0)]

    async def run() -> list[Publish]:
        reader, writer = await Peer().open(network), await Peer().open(network)
        await reader.say(Connect(topic_alias_maximum=maximum), subscribe("aliases/+", "x"))
        assert [type(await reader.next()) for _ in range(2)] == [Connack, Suback]
        await writer.say(Connect(), *(Publish(topic, b"m") for topic in topics))
        got = []
        for _ in topics:
            packet = await reader.next()
            assert isinstance(packet, Publish)
            got.append(packet)
        await writer.say(Publish("x", b"m"))
        short = await reader.next()
        assert isinstance(short, Publish)
        assert (short.topic, short.topic_alias) == ("x", None)
        for peer in (reader, writer):
            await peer.say(Disconnect())
            await peer.hear()
        return got

    known: dict[int, str] = {}
    got = asyncio.run(run())
    for packet, topic in zip(got, topics, strict=True):
        if packet.topic_alias is None:
            assert packet.topic == topic
        elif packet.topic:
            assert packet.topic_alias not in known
            known[packet.topic_alias] = packet.topic
        else:
            assert known[packet.topic_alias] == topic
    assert sorted(known) == list(range(1, expected + 1))
    if expected == 3:
        assert [packet.topic for packet in got if packet.topic] == [
            f"aliases/{number}" for number in (0, 1, 2, 3, 4, 3)
        ]


def test_the_keep_alive_of_the_server(network: LocalNetwork) -> None:
    """A client that would be silent for long is told, and held to it."""

    async def run() -> list[Packet]:
        return await answers(network, Connect(keep_alive_s=3600), version=Version.V5)

    connack, last = asyncio.run(run())
    assert isinstance(connack, Connack)
    assert connack.server_keep_alive_s == 1
    assert isinstance(last, Disconnect)
    assert last.reason_code is ReasonCode.KEEP_ALIVE_TIMEOUT


def test_a_broker_that_stops_sends_its_clients_elsewhere(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Their sessions follow them, with what waits, before it ends."""
    reference = "127.0.0.1:1 127.0.0.1:2"
    mqtt = {"listen": "127.0.0.1:0", "server_reference": reference}
    with network_in(tmp_path_factory.mktemp("mqtt"), 2, mqtt=mqtt) as network:
        will = Will("gone", b"a", 1, retain=True)
        lasting = Connect(client_id="a", clean_start=False, session_expiry_s=100, will=will)

        async def run() -> tuple[Packet, list[Packet]]:
            short, peer = await Peer().open(network), await Peer().open(network)
            await short.say(Connect())
            await short.next()
            await peer.say(lasting, subscribe("x"))
            assert [type(await peer.next()) for _ in range(2)] == [Connack, Suback]
            await peer.say(Publish("x", b"1", 1, packet_id=7))
            got = [await peer.next() for _ in range(2)]
            assert {type(packet) for packet in got} == {Publish, Puback}
            ending = asyncio.create_task(asyncio.to_thread(network.end, "B1"))
            (first,) = await peer.hear()
            assert (await short.hear()) == [first]
            peer = await Peer().open(network, "B2")
            await peer.say(lasting)
            found = [await peer.next() for _ in range(2)]
            async with asyncio.timeout(SETTLE_S):
                assert await ending == 0
            reader = await Peer().open(network, "B2")
            await reader.say(Connect(), subscribe("gone"), Pingreq(), Disconnect())
            kinds = {type(packet) for packet in await reader.hear()}
            assert kinds == {Connack, Suback, Pingresp}  # And no will.
            return first, found

        told, (connack, again) = asyncio.run(run())
    assert isinstance(told, Disconnect)
    assert told.reason_code is ReasonCode.USE_ANOTHER_SERVER
    assert told.server_reference == reference
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert isinstance(again, Publish)
    assert (again.payload, again.dup) == (b"1", True)
