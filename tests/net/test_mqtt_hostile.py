"""Hostile MQTT clients: each gets a reason code or is hung up on, and others do not notice."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as web_socket
from websockets.typing import Subprotocol

from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    MqttError,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Role,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Version,
    Will,
)
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, network_in
from tests.net.mqtt_peer import Peer
from tests.scale import CAMPAIGN

pytestmark = pytest.mark.spec("LV-4", "LV-6")

ATTACKERS = 240 * CAMPAIGN
AT_ONCE = 40


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    limits = {
        "handshake_s": 0.5,
        "connections_max": 60,
        "frame_bytes_max": 65_536,
        "subscriptions_per_client_max": 50,
    }
    mqtt = {"listen": "127.0.0.1:0", "websocket": "127.0.0.1:0"}
    with network_in(tmp_path_factory.mktemp("mqtt"), 1, mqtt=mqtt, limits=limits) as network:
        yield network
        assert network.is_running("B1")
        assert network.died() == {}
        assert "Traceback" not in network.messages("B1").read_text(encoding="utf-8")


def packets_of(rng: random.Random, version: Version) -> list[Packet]:
    """What a client may say."""
    will = Will("w", b"gone", 1) if rng.random() < 0.3 else None
    connect = Connect(version=version, client_id=f"c{rng.randrange(5)}", will=will, keep_alive_s=1)
    return [
        connect,
        Subscribe(1, (SubscriptionRequest("a/+", 2), SubscriptionRequest("#", 1))),
        Publish("a/b", b"payload", rng.randrange(3) or 1, packet_id=rng.randrange(1, 9)),
        *(kind(rng.randrange(1, 9)) for kind in (Puback, Pubrec, Pubrel, Pubcomp)),
        Publish("a/c", b"x" * rng.randrange(300)),
        Unsubscribe(2, ("a/+",)),
        Pingreq(),
    ]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Bytes with something wrong."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found))
        match rng.randrange(4):
            case 0:
                found[at] = rng.randrange(256)
            case 1:
                del found[at]
            case 2:
                found[at:at] = rng.randbytes(rng.randint(1, 4))
            case _:
                del found[at:]
        if not found:
            break
    return bytes(found)


def test_damaged_packets_disturb_nobody(network: LocalNetwork) -> None:
    """A native pair goes on, in order, while damaged packets come from many connections."""
    rng = random.Random("mqtt")  # noqa: S311 - reproducible, not secret.

    async def attack() -> None:
        version = rng.choice(list(Version))
        peer = await Peer(version).open(network)
        parts = [encode(packet, version) for packet in packets_of(rng, version)]
        begin = parts[0] if rng.random() < 0.8 else b""
        await peer.send(begin + damaged(rng, b"".join(parts[1 if begin else 0 :])))
        if rng.random() < 0.5:
            peer.writer.close()
        else:
            with suppress(MqttError):  # What a damaged client is sent may be for another version.
                await peer.hear()

    async def run() -> list[Any]:
        async with (
            connect(network.url("B1"), client="reader") as reader,
            connect(network.url("B1"), client="writer") as writer,
        ):
            subscription = reader.subscribe("n >= 0")
            await subscription.ready()
            sent = 0
            for _ in range(0, ATTACKERS, AT_ONCE):
                attacks = [asyncio.create_task(attack()) for _ in range(AT_ONCE)]
                for _ in range(20):
                    await writer.publish(n=sent)
                    sent += 1
                await asyncio.gather(*attacks)
            async with asyncio.timeout(SETTLE_S):
                return [(await anext(subscription)).attributes["n"] for _ in range(sent)]

    assert asyncio.run(run()) == list(range(20 * (ATTACKERS // AT_ONCE)))


def _refused_with(network: LocalNetwork, *packets: Packet) -> ReasonCode:
    """The reason code that the broker sends before it hangs up."""

    async def run() -> Packet:
        peer = await Peer().open(network)
        await peer.say(*packets)
        return (await peer.hear())[-1]

    last = asyncio.run(run())
    assert isinstance(last, Connack | Disconnect)
    return last.reason_code


@pytest.mark.parametrize(
    ("packets", "code"),
    [
        ([Connect(authentication_method="x")], ReasonCode.BAD_AUTHENTICATION_METHOD),
        ([Connect(client_id="x" * 300)], ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        ([Connect(client_id="a\nb")], ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        ([Connect(client_id="x"), Connect(client_id="x")], ReasonCode.PROTOCOL_ERROR),
        ([Connect(), Publish("x", b"y" * 70_000)], ReasonCode.PACKET_TOO_LARGE),
        ([Connect(keep_alive_s=1)], ReasonCode.KEEP_ALIVE_TIMEOUT),
        (
            [Connect(), Subscribe(1, tuple(SubscriptionRequest(f"{n}") for n in range(60)))],
            ReasonCode.QUOTA_EXCEEDED,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ReasonCode) else "",
)
def test_a_client_is_told_why(
    network: LocalNetwork, packets: list[Packet], code: ReasonCode
) -> None:
    assert _refused_with(network, *packets) is code


def test_who_says_nothing_is_hung_up_on(network: LocalNetwork) -> None:
    async def run() -> list[Packet]:
        return await (await Peer().open(network)).hear()

    assert asyncio.run(run()) == []


def test_an_identifier_is_assigned(network: LocalNetwork) -> None:
    async def run() -> list[Packet]:
        peer = await Peer().open(network)
        await peer.say(Connect(), Disconnect())
        return await peer.hear()

    (connack,) = asyncio.run(run())
    assert isinstance(connack, Connack)
    assert connack.assigned_client_id


def test_pings_are_answered_and_nothing_follows_disconnect(network: LocalNetwork) -> None:
    async def run() -> list[Packet]:
        peer = await Peer().open(network)
        await peer.say(Connect(client_id="p"), Pingreq(), Pingreq())
        await peer.say(Disconnect(), Publish("x", b"", 1, packet_id=1), Pingreq())
        return await peer.hear()

    kinds = [type(packet) for packet in asyncio.run(run())]
    assert kinds == [Connack, Pingresp, Pingresp]


@pytest.mark.parametrize("client_id", ["a", "abcdefghijklmnopqrstuvw", "0123456789ABCDEFGHIJKLM"])
def test_identifiers_of_letters_and_digits_are_accepted(
    network: LocalNetwork, client_id: str
) -> None:
    async def run() -> list[Packet]:
        peer = await Peer(Version.V311).open(network)
        await peer.say(Connect(version=Version.V311, client_id=client_id), Disconnect())
        return await peer.hear()

    (connack,) = asyncio.run(run())
    assert isinstance(connack, Connack)
    assert connack.reason_code is ReasonCode.SUCCESS


def test_3_1_1_needs_an_identifier_for_a_session_that_lasts(network: LocalNetwork) -> None:
    async def run() -> list[Packet]:
        peer = await Peer(Version.V311).open(network)
        await peer.say(Connect(version=Version.V311, clean_start=False), Pingreq())
        return await peer.hear()

    (connack,) = asyncio.run(run())
    assert isinstance(connack, Connack)
    assert connack.reason_code is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert not connack.session_present


def test_web_sockets_carry_binary_frames_only(network: LocalNetwork) -> None:
    """Packets may be cut anywhere; text ends the connection; the subprotocol is mqtt."""
    url = f"ws://{network.ask('B1', 'status')['mqtt']['websocket']}"
    data = encode(Connect(client_id="ws"), Version.V5)
    with web_socket(url, subprotocols=[Subprotocol("mqtt")]) as socket:
        assert socket.subprotocol == "mqtt"
        for at in range(len(data)):
            socket.send(data[at : at + 1])
        answer = socket.recv(SETTLE_S)
        assert isinstance(answer, bytes)
        (connack,) = Decoder(Role.CLIENT, Version.V5).feed(answer)
        assert isinstance(connack, Connack)
        socket.send("text")
        with pytest.raises(ConnectionClosed):
            socket.recv(SETTLE_S)
    with pytest.raises(InvalidStatus), web_socket(url):
        pass


def test_a_stopping_broker_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("mqtt")
    with network_in(directory, 1, mqtt={"listen": "127.0.0.1:0"}) as network:

        async def run() -> Packet:
            peer = await Peer().open(network)
            await peer.say(Connect())
            await peer.reader.readexactly(1)
            await asyncio.to_thread(network.end, "B1")
            rest = await peer.reader.read()
            return Decoder(Role.CLIENT, Version.V5).feed(b"\x20" + rest)[-1]

        last = asyncio.run(run())
    assert isinstance(last, Disconnect)
    assert last.reason_code is ReasonCode.SERVER_SHUTTING_DOWN
