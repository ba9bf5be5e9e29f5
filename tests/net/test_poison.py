"""What one broker says another can read: no message comes between two brokers for ever.

In each attack, a witness at one broker goes on to get what is published at the other, and so it is
after a restart. The two brokers stay connected all the time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sterna.core.link import Data
from sterna.core.location.messages import MovingChange, MovingRoute
from sterna.model.filters import Filter
from sterna.net.local import LocalNetwork
from sterna.wire.frames import frame
from tests.net.live import Client, connect, gather_events, network_in
from tests.net.test_hostile import Attacker, attacker
from tests.poison import long_texts
from tests.wire.messages import raw

ROOT = Path(__file__).parents[2]
WITNESSED = 10

Attack = Callable[[LocalNetwork], AbstractAsyncContextManager[None]]


async def witness(network: LocalNetwork, subscription: Any, publisher: Client, first: int) -> None:
    """What is published at one broker comes to the other, and neither has hung up."""
    for number in range(first, first + WITNESSED):
        await publisher.publish(good=True, n=number)
    events = await gather_events(subscription, WITNESSED)
    assert [event.attributes["n"] for event in events] == list(range(first, first + WITNESSED))
    assert network.died() == {}


def withstand(network: LocalNetwork, attack: Attack, logged: tuple[str, ...] = ()) -> None:
    """Events go from B2 to B1 after an attack on B1, and after B1 was killed and has recovered."""

    async def run() -> None:
        async with (
            connect(network.url("B2"), client="good-publisher") as publisher,
            connect(network.url("B1"), client="good-subscriber") as subscriber,
        ):
            subscription = subscriber.subscribe("good = TRUE")
            await subscription.ready(timeout=30)
            await witness(network, subscription, publisher, 0)
            async with attack(network):
                await witness(network, subscription, publisher, 100)
                network.kill("B1")
                network.restart("B1")
                await again(subscriber)
                await witness(network, subscription, publisher, 200)
                assert network.end("B1") == 0  # With a snapshot.
                network.restart("B1")
                await again(subscriber)
                await witness(network, subscription, publisher, 300)

    async def again(subscriber: Client) -> None:
        network.wait_until_whole()
        await subscriber.attach()
        network.wait_until_settled()

    with network:
        asyncio.run(run())
        for name in network.names:
            messages = network.messages(name).read_text()
            assert "B1: not a frame" not in messages, messages
            assert "B2: not a frame" not in messages, messages
        said = network.messages("B1").read_text()
        assert all(each in said for each in logged), said


@asynccontextmanager
async def raw_client(network: LocalNetwork) -> AsyncIterator[Attacker]:
    async with attacker(network) as peer:
        await peer.come_in("raw")
        yield peer


@pytest.mark.spec("LV-6", "RT-1")
def test_long_filters_are_not_merged_into_what_a_neighbour_refuses(tmp_path: Path) -> None:
    network = network_in(tmp_path, 2, network={"strategy": "merging"})

    @asynccontextmanager
    async def attack(network: LocalNetwork) -> AsyncIterator[None]:
        async with (
            connect(network.url("B1"), client="many") as client,
            connect(network.url("B2"), client="other") as other,
        ):
            wanted = [client.subscribe(text, name=text[-12:-2]) for text in long_texts()]
            await asyncio.gather(*(each.ready(timeout=60) for each in wanted))
            await other.publish(a=1, b="07-0000003")
            (event,) = await gather_events(wanted[7], 1)
            assert event.attributes["b"] == "07-0000003"
            assert not any(each.waiting for each in wanted)
            yield
            await other.publish(a=1, b="08-0000004")
            (event,) = await gather_events(wanted[8], 1)
            assert event.attributes["b"] == "08-0000004"

    withstand(network, attack)


def moving(**numbers: int) -> MovingChange:
    route = MovingRoute(
        id="1", filter=Filter("zone IN myloc"), at="a", dwell_us=1_000, delay_us=1_000
    )
    return MovingChange(added=(msgspec.structs.replace(route, **numbers),))


@pytest.mark.spec("LV-6")
def test_a_delay_that_nobody_could_pass_on_is_refused(tmp_path: Path) -> None:
    """Also together with a delay that can just be passed on, which is counted as not known."""
    graph = tmp_path / "graph.json"
    graph.write_text('{"edges": [["a", "b"], ["b", "c"]]}')
    network = network_in(tmp_path / "network", 2, places={"graph": str(graph)})

    @asynccontextmanager
    async def attack(network: LocalNetwork) -> AsyncIterator[None]:
        for numbers in ({"delay_us": 2**64 - 1}, {"delay_us": 2**53 + 1}, {"dwell_us": 2**64 - 1}):
            async with raw_client(network) as peer:
                await peer.send(frame(raw(Data(1, 0, moving(**numbers)))))
                assert "us: " in (await peer.hung_up() or "")
        async with raw_client(network) as peer:
            await peer.say(moving(delay_us=2**53), moving(delay_us=2**53, dwell_us=2**53))
            yield

    withstand(network, attack)


@pytest.mark.spec("LV-6")
def test_a_message_that_cannot_be_sent_does_not_block_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever caused it is cut off, and what follows it goes on. Here, a protocol has a mistake."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    protocols = ["tests.net.protocols.overflowing:OVERFLOWING"]
    network = network_in(tmp_path, 2, network={"protocols": protocols})

    @asynccontextmanager
    async def attack(network: LocalNetwork) -> AsyncIterator[None]:
        async with raw_client(network) as peer:
            counted = {"type": "Counted", "number": 2**64 - 1}
            await peer.send(frame(msgspec.msgpack.encode((0, 1, 0, counted))))
            await peer.hung_up()
        yield

    withstand(network, attack, logged=("B1 cannot send Counted to B2",))
