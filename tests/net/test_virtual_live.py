"""Virtual clients of a car that drives through a live network, while a broker is killed."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, network_in, settle

pytestmark = pytest.mark.spec("PA-1", "PA-4", "LV-1", "LV-2")

SERVES = {"north": "B1", "center": "B2", "south": "B3"}
GRAPH = "north,center\ncenter,south\n"


def test_a_car_gets_what_its_virtual_client_has_kept(tmp_path: Path) -> None:
    """Nobody else has anything: brokers remember nothing, and do not search."""

    async def run(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            lights = await stack.enter_async_context(connect(network.url("B1"), client="lights"))
            car = await stack.enter_async_context(connect(network.url("B1"), client="car"))
            car.move("north")
            states = car.subscribe("street IN myloc", past=1)
            await settle(network, [lights, car])
            for light in ("green", "red"):
                await lights.publish(street="center", light=light)
            await settle(network, [lights, car])
            await asyncio.to_thread(network.kill, "B2")
            await asyncio.to_thread(network.restart, "B2")
            await settle(network, [lights, car])

            car.move("center")
            await car.attach(network.url("B2"))
            state = await states.get(timeout=SETTLE_S)

            assert state.attributes["light"] == "red"
            await lights.publish(street="center", light="amber")
            assert (await states.get(timeout=SETTLE_S)).attributes["light"] == "amber"

    (tmp_path / "graph.csv").write_text(GRAPH)
    with network_in(
        tmp_path / "data",
        3,
        places={"graph": str(tmp_path / "graph.csv")},
        network={"handover": "relocation", "protocols": ["presubscribing"]},
        protocols={"presubscribing": {"serves": SERVES}},
        history={"search": "none", "memory_events_max": 0, "publisher_events_max": 0},
    ) as network:
        asyncio.run(run(network))
        assert network.died() == {}
