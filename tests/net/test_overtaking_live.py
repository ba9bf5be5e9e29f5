"""New events that need not wait for a broker that cannot be reached, on sockets and processes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sterna.core.facts import Overtook
from sterna.sim.oracle import Oracle
from tests.net.live import SETTLE_S, connect, gather_events, network_in, settle


async def numbers(subscription: Any, count: int) -> list[object]:
    """The numbers of the next events of a subscription."""
    return [event.attributes["n"] for event in await gather_events(subscription, count)]


@pytest.mark.spec("RE-2", "LV-1", "LV-2")
def test_while_its_old_broker_is_down_a_client_gets_new_events(tmp_path: Path) -> None:
    """The old broker is killed. Beside it, a subscription with a strict order waits."""
    network = network_in(tmp_path, 3, protocols={"terms": {"clocks_differ_s": 0.0}})
    oracle = Oracle(("mobile", "strict", "meter"))
    overtook: list[int] = []

    def fact(fact: object) -> None:
        oracle.fact(fact)  # type: ignore[arg-type]
        if isinstance(fact, Overtook):
            overtook.extend(id_.seq for id_ in fact.events)

    async def run() -> None:
        url = network.url
        async with (
            asyncio.timeout(SETTLE_S),
            connect(url("B2"), client="mobile", facts=fact) as mobile,
            connect(url("B2"), client="strict", facts=oracle.fact) as strict,
            connect(url("B3"), client="meter", facts=oracle.fact) as meter,
        ):
            wanted = mobile.subscribe("n > 0", order="available")
            waiting = strict.subscribe("n > 0")
            for subscription in (wanted, waiting):
                await subscription.ready(timeout=10)
            await settle(network, (mobile, strict, meter), oracle.fact)
            await meter.publish(n=1)
            [event] = await gather_events(wanted, 1)
            assert event.attributes["n"] == 1
            before = event.seq - 1  # An event's number is this plus its n.
            assert await numbers(waiting, 1) == [1]
            for client in (mobile, strict):
                await client.detach()
            await meter.publish(n=2)
            await asyncio.to_thread(network.wait_until_settled)
            network.kill("B2")

            moving = [asyncio.create_task(each.attach(url("B3"))) for each in (mobile, strict)]
            sent = 2
            while not overtook:  # Until its broker knows what it wants.
                sent += 1
                await meter.publish(n=sent)
                await asyncio.sleep(0.02)
            first = overtook[0] - before
            assert await numbers(wanted, 1) == [first]

            await asyncio.to_thread(network.restart, "B2")
            await asyncio.gather(*moving)
            got = await numbers(wanted, sent - 2)
            assert sorted([first, *got]) == list(range(2, sent + 1))
            assert await numbers(waiting, sent - 1) == list(range(2, sent + 1))
            await settle(network, (mobile, strict, meter), oracle.fact)

    try:
        network.start()
        asyncio.run(run())
    finally:
        network.stop()
    assert oracle.findings() == []


@pytest.mark.spec("RE-2")
@pytest.mark.parametrize("order", ["", "Strict", "whatever"])
def test_an_order_that_is_none_is_refused(tmp_path: Path, order: str) -> None:
    network = network_in(tmp_path, 1)

    async def run() -> None:
        async with connect(network.url("B1"), client="c") as client:
            with pytest.raises(ValueError, match="order is 'strict' or 'available', not "):
                client.subscribe("n > 0", order=order)

    try:
        network.start()
        asyncio.run(run())
    finally:
        network.stop()
