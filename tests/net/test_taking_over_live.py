"""Live brokers get another handover protocol, one after the other, while a client is away."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from sterna.core.handover.options import Handover
from tests.net.live import connect, gather_events, network_in, settle

STORY = (
    (Handover.HOME, "B3"),
    (Handover.RELOCATION, "B1"),
    (Handover.LOGGING, "B2"),
    (Handover.RELOCATION, "B3"),
)
"""The protocols that come one after the other, and where the client is when it is back."""


@pytest.mark.spec("LV-9", "LV-3", "PM-4")
def test_what_is_kept_for_a_client_survives_each_change_of_the_protocol(tmp_path: Path) -> None:
    """Brokers restart with other settings, and one of them is killed each time."""

    async def run() -> None:
        network = network_in(tmp_path, 3)
        with network:
            urls = [network.url(name) for name in network.names]
            async with (
                connect(*urls, client="pat") as pat,
                connect(urls[2], client="ann") as ann,
            ):
                wanted = ann.subscribe("n > 0")
                await settle(network, [ann, pat])
                published = 0
                for place, (protocol, broker) in enumerate(STORY):
                    await ann.detach()
                    for number, name in enumerate(network.names):
                        published += 1
                        await pat.publish(n=published)
                        config = network.configs[name]
                        network.configs[name] = replace(
                            config, network=replace(config.network, handover=protocol.value)
                        )
                        if number == place % 3:
                            await asyncio.to_thread(network.kill, name)
                        await asyncio.to_thread(network.restart, name)
                    await settle(network, [pat])
                    assert network.ask(broker, "status")["handover"] == protocol

                    await ann.attach(network.url(broker))
                    published += 1
                    await pat.publish(n=published)

                    came = await gather_events(wanted, 4)
                    expected = list(range(published - 3, published + 1))
                    assert [event.attributes["n"] for event in came] == expected, protocol
                await settle(network, [ann, pat])
                assert ann.missed == 0
            assert network.died() == {}

    asyncio.run(run())
