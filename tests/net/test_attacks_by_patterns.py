"""A broker process under attack by patterns: others do not notice.

The attacker subscribes with patterns that almost fit everywhere, and publishes the text for them.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from unittest.mock import patch

import pytest

from sterna.core.broker import Broker
from sterna.core.inputs import Input, Received
from sterna.core.link import Data
from sterna.core.messages import Events, Message, SubscriptionChange
from sterna.net.broker import BrokerServer
from sterna.net.config import BrokerConfig
from sterna.net.engine import Engine
from sterna.net.local import LocalNetwork
from sterna.wire.codec import LENGTH_BYTES, decode
from tests.net.attacks import LATE_S, Attacker, witness
from tests.net.live import SETTLE_S, connect, network_in, until

LETTERS = "abcdefghijklm"
THREE = list(product(LETTERS, repeat=3))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("patterns"), 1) as network:
        asyncio.run(_use(network))
        yield network
        assert network.died() == {}


async def _use(network: LocalNetwork) -> None:
    """What a broker loads when it is first used is not an attack's doing."""
    async with connect(network.url("B1"), client="first") as client:
        for number in range(100):
            client.subscribe(f"n = {number} AND m LIKE '%a_{number}%'")
        await client.publish_all({"n": number, "m": "a"} for number in range(500))


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ([f"x LIKE '%{'a_' * 500}b%'"], "a" * 900_000),
        (["x LIKE '%{}_{}%_{}%'".format(*each) for each in THREE[:2_000]], LETTERS * 70_000),
        ([f"x LIKE '%{'a_' * 40}{'_'.join(each)}%'" for each in THREE[-700:]], "a" * 900_000),
        (["x MATCHES '+/{}/+/{}{}/#'".format(*each) for each in THREE[:2_000]], "a/" * 450_000),
    ],
    ids=["one long pattern", "many patterns", "many long patterns", "topics"],
)
def test_others_are_served_meanwhile(network: LocalNetwork, filters: list[str], text: str) -> None:
    """Two witnesses exchange events all the time: none is lost, and none is late."""

    async def attack() -> Attacker:
        attacker = await Attacker.come_in(network.addresses["B1"])
        await attacker.send(*attacker.subscription(filters))
        await attacker.send(attacker.publication(x=text), attacker.publication(end=True))
        return attacker

    assert asyncio.run(witness(network, attack)) < LATE_S


@pytest.mark.spec("LV-6")
def test_no_turn_of_the_loop_takes_long(tmp_path: Path) -> None:
    """Filters and the event for them come in one piece. By processor time, so a busy machine fails
    no test.
    """
    filters = [f"x LIKE '%{'a_' * 40}{'_'.join(each)}%'" for each in THREE[-700:]]

    async def run() -> float:
        server = BrokerServer(BrokerConfig.from_mapping({"name": "B1", "data": str(tmp_path)}))
        await server.start()
        async with connect(server.address.url, client="subscriber") as subscriber:
            subscription = subscriber.subscribe("end = TRUE")
            await subscription.ready(timeout=SETTLE_S)
            attacker = await Attacker.come_in((server.address.host, server.address.port))
            await until(lambda: attacker.name in server.driver.node.up)
            pieces = [
                *attacker.subscription(filters),
                attacker.publication(x="a" * 900_000),
                attacker.publication(end=True),
            ]
            known = [
                decode(piece[LENGTH_BYTES:]) for piece in pieces
            ]  # They are quickly read again.
            session = server.sessions.links[attacker.name]
            began = time.thread_time()
            session.data_received(b"".join(pieces))  # type: ignore[attr-defined]
            longest = time.thread_time() - began
            async with asyncio.timeout(SETTLE_S):
                while not subscription.waiting:
                    began = time.thread_time()
                    await asyncio.sleep(0)
                    longest = max(longest, time.thread_time() - began)
            attacker.leave()
        await server.stop()
        assert len(known) == len(pieces)
        return longest

    longest = asyncio.run(run())
    assert longest < 0.5


@pytest.mark.spec("LV-6")
def test_events_are_handled_in_another_turn_than_the_filters_before_them(tmp_path: Path) -> None:
    """Only then can it be foreseen what they match."""
    given: list[set[type[Message]]] = []
    give = Engine.give

    def note(engine: Engine[Broker], received: Input, raw: bytes = b"") -> None:
        if isinstance(received, Received):
            given.append({type(each.message) for each in received.frames if type(each) is Data})
        give(engine, received, raw)

    async def run() -> None:
        server = BrokerServer(BrokerConfig.from_mapping({"name": "B1", "data": str(tmp_path)}))
        await server.start()
        attacker = await Attacker.come_in((server.address.host, server.address.port))
        await until(lambda: attacker.name in server.driver.node.up)
        pieces = [*attacker.subscription(["x LIKE '%a_b%'"]), attacker.publication(x="a" * 5_000)]
        with patch.object(Engine, "give", note):
            session = server.sessions.links[attacker.name]
            session.data_received(b"".join(pieces))  # type: ignore[attr-defined]
            await until(lambda: any(Events in each for each in given))
        attacker.leave()
        await server.stop()

    asyncio.run(run())
    assert [each for each in given if each] == [{SubscriptionChange}, {Events}]
