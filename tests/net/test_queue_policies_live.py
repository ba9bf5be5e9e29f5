"""Queue policies on sockets: what a client gets that was away."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from sterna import blocking
from sterna.core.facts import Discarded, Fact
from sterna.model.event import Scalar
from sterna.model.queue_policies import PolicyError
from sterna.net.client import Client, connect
from sterna.sim.oracle import Oracle
from tests.net.live import SETTLE_S, gather_events, network_in, settle


async def publish(meter: Client, *events: Mapping[str, Scalar]) -> None:
    for event in events:
        await meter.publish(event)


@pytest.mark.spec("RE-3", "LV-1", "LV-2")
def test_a_client_that_was_away_gets_what_its_policies_keep(tmp_path: Path) -> None:
    """It comes back elsewhere; meanwhile its broker is killed and started again."""
    network = network_in(tmp_path, 3)
    oracle, seen = Oracle(("mobile", "meter")), list[Fact]()

    def fact(fact: Fact) -> None:
        oracle.fact(fact)
        seen.append(fact)

    async def run() -> None:
        url = network.url
        async with (
            asyncio.timeout(SETTLE_S),
            connect(url("B2"), client="mobile", facts=fact) as mobile,
            connect(url("B3"), client="meter", facts=fact) as meter,
        ):
            sensors = mobile.subscribe("sensor > 0", keep="last_per(sensor)")
            highest = mobile.subscribe("height > 0", keep="max(height * 2)")
            for subscription in (sensors, highest):
                await subscription.ready(timeout=10)
            await mobile.detach()
            await publish(meter, *({"sensor": n % 2 + 1, "n": n} for n in range(6)))
            await settle(network, (meter,), fact)
            await asyncio.to_thread(network.kill, "B2")
            await asyncio.to_thread(network.restart, "B2")
            await publish(meter, {"height": 3}, {"height": 5}, {"height": 4}, {"sensor": 2, "n": 6})
            await asyncio.to_thread(network.wait_until_settled)
            await mobile.attach(url("B3"))
            await publish(meter, {"sensor": 1, "n": 7}, {"height": 1})
            assert [each.attributes["n"] for each in await gather_events(sensors, 3)] == [4, 6, 7]
            assert [each.attributes["height"] for each in await gather_events(highest, 2)] == [5, 1]
            assert mobile.missed == 0

    try:
        network.start()
        asyncio.run(run())
    finally:
        network.stop()
    assert not any(isinstance(each, Discarded) for each in seen), "only brokers state that"


@pytest.mark.spec("RE-3")
def test_a_policy_that_is_none_is_told_at_once(tmp_path: Path) -> None:
    network = network_in(tmp_path, 1)

    async def run() -> None:
        async with connect(network.url("B1"), client="c") as client:
            with pytest.raises(PolicyError, match="there is none of the name latest; write ttl"):
                client.subscribe("n > 0", keep="latest(n)")
            with pytest.raises(PolicyError, match="it is not of the form"):
                client.subscribe("n > 0", keep="")
            await client.subscribe("n > 0", keep="ring(1)").ready(timeout=10)

    try:
        network.start()
        asyncio.run(run())
        with blocking.connect(network.url("B1"), client="b") as client:
            with pytest.raises(PolicyError, match=r"'ttl\(9\)' is no queue policy"):
                client.subscribe("n > 0", keep="ttl(9)")
            waiting = client.subscribe("n > 0", keep="ring(1)").ready(timeout=10)
            client.detach()
            with blocking.connect(network.url("B1"), client="p") as other:
                for n in (1, 2):
                    other.publish(n=n).wait(timeout=10)
            client.attach()
            assert waiting.get(timeout=10).attributes["n"] == 2
    finally:
        network.stop()
