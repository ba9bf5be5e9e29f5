"""Clients of live brokers that are elsewhere than at their home broker. (Burcea et al., 3.2.3)"""

import asyncio
from pathlib import Path

import pytest

from sterna.errors import SternaError
from tests.net.live import connect, gather_events, network_in, settle

MOST = 5


@pytest.mark.spec("LV-6", "DO-4")
def test_a_visitor_may_have_as_many_subscriptions_as_at_home_and_no_more(tmp_path: Path) -> None:
    """Those at its home count; the error says which limit it is, and nobody else notices."""

    async def run() -> None:
        network = network_in(
            tmp_path,
            2,
            network={"handover": "home"},
            limits={"subscriptions_per_client_max": MOST},
        )
        with network:
            home, elsewhere = (network.url(name) for name in network.names)
            async with (
                connect(elsewhere, client="pat") as pat,
                connect(elsewhere, client="bob") as bob,
            ):
                theirs = bob.subscribe("x = 1")
                ann = await connect(home, client="ann")
                for number in range(MOST - 1):
                    ann.subscribe(f"x = {number}")
                await settle(network, [ann, pat, bob])
                await ann.attach(elsewhere)
                last = ann.subscribe("x = 7")
                await settle(network, [ann, pat, bob])
                pat.publish(x=7)
                assert [event.attributes["x"] for event in await gather_events(last, 1)] == [7]

                ann.subscribe("x = 8")
                with pytest.raises(SternaError, match="subscriptions_per_client_max"):
                    async with asyncio.timeout(20):
                        await anext(last)

                known = {each["name"]: each for each in network.ask("B2", "clients")["clients"]}
                assert [each["filter"] for each in known["bob"]["subscriptions"]] == ["x = 1"]
                await ann.close(timeout=1)
                pat.publish(x=1)
                assert [event.attributes["x"] for event in await gather_events(theirs, 1)] == [1]
            assert network.died() == {}

    asyncio.run(run())
