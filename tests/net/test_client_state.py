"""What a client with a state remembers, and what it does when it has more than it can take."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.core.inputs import Publish, SetVariable
from sterna.core.link import Ack
from sterna.core.names import LocalProtocolError
from sterna.net.client import deliveries
from sterna.net.local import LocalNetwork
from sterna.net.records import decode_record, encode_record
from sterna.wire.codec import Bodies, encode
from tests.net.live import SETTLE_S, connect, gather_events, network_in, settle, until

LIMITS = {"in_flight_bytes_max": 100_000, "frame_bytes_max": 100_000}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    directory = tmp_path_factory.mktemp("client-state")
    with network_in(directory, 1, limits=LIMITS) as network:
        yield network


@pytest.mark.spec("LV-2")
@pytest.mark.parametrize("value", [math.inf, -math.inf, 1.5, 2**62])
def test_numbers_come_back_from_the_log_as_they_were(value: float) -> None:
    for given in (
        Publish(attributes={"x": value}, payload=b"\x00\xff"),
        SetVariable(name="x", value=1, low=-math.inf, high=value),
    ):
        assert decode_record(encode_record(given, 7)) == (given, 7)


@pytest.mark.spec("LV-2")
def test_what_the_application_has_in_hand_comes_again_unless_it_is_done(
    network: LocalNetwork, tmp_path: Path
) -> None:
    """A program that fails while it handles an event gets it again; one that ends well does not."""
    url, state = network.url("B1"), tmp_path / "state"

    async def run() -> list[list[int]]:
        seen: list[list[int]] = []
        async with connect(url, client="in-hand-p") as publisher:
            for fails in (True, False, False):
                seen.append([])
                try:
                    async with connect(url, client="in-hand-s", state=state) as subscriber:
                        wanted = subscriber.subscribe("hand > 0")
                        if fails:
                            await settle(network, [publisher, subscriber])
                            await publisher.publish_all({"hand": n} for n in range(1, 6))
                        for _ in range(2):
                            (event,) = await gather_events(wanted, 1)
                            seen[-1].append(int(event.attributes["hand"]))
                        if fails:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
        return seen

    assert asyncio.run(run()) == [[1, 2], [2, 3], [4, 5]]


@pytest.mark.spec("LV-2", "LV-6")
def test_a_full_subscription_that_is_closed_does_not_block_the_others(
    network: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "QUEUE_EVENTS_MAX", 10)

    async def run() -> list[int]:
        url = network.url("B1")
        async with connect(url, client="full-p") as publisher, connect(url, client="full-s") as s:
            full, other = s.subscribe("full = 1"), s.subscribe("full = 2")
            await settle(network, [publisher, s])
            for _ in range(5):
                await publisher.publish_all({"full": 1} for _ in range(20))
            await until(lambda: full.waiting > 10)
            await full.close()
            await publisher.publish(full=2, n=7)
            return [int(event.attributes["n"]) for event in await gather_events(other, 1)]

    assert asyncio.run(run()) == [7]


@pytest.mark.spec("LV-2")
def test_a_subscription_that_cannot_be_made_leaves_nothing_behind(network: LocalNetwork) -> None:
    async def run() -> None:
        async with connect(network.url("B1"), client="cannot") as client:
            with pytest.raises(LocalProtocolError):
                client.subscribe("place IN myloc", past=3)
            for number in range(3):
                client.subscribe(f"text = '{number:010000}'")
            with pytest.raises(ValueError, match="frame_bytes_max"):
                client.subscribe(f"text = '{4:010000}'")
            assert (await client.publish(n=1)).publisher == "cannot"

    asyncio.run(run())


@pytest.mark.spec("LV-6")
def test_acknowledgements_alone_stop_nobody(network: LocalNetwork) -> None:
    """They need not be durable by themselves, and must not count as if they waited for that."""

    async def run() -> str:
        async with connect(network.url("B1"), client="acks") as client:
            connection = client._keeper.connection
            assert connection is not None
            for _ in range(10):
                for _ in range(10_000):
                    connection.put(encode(Ack(0), Bodies()))
                connection.flush()
                await asyncio.sleep(0)
            return (await client.publish(n=1)).publisher

    assert asyncio.run(asyncio.wait_for(run(), SETTLE_S)) == "acks"
