"""Settings change in a live network, broker by broker, and no client notices."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sterna.core.facts import Fact, Missed
from sterna.core.routing.options import Strategy
from sterna.demo.city import STREETS, City
from sterna.net.broker import BrokerServer
from sterna.net.config import BrokerConfig, MobilityConfig, NetworkConfig, PlacesConfig
from sterna.sim.oracle import Oracle
from tests.mobility import model_of
from tests.net.live import connect, gather_events, network_in, settle, until
from tests.net.test_server import config_in, run

pytestmark = pytest.mark.spec("LV-9")

SHORTCUTS = (("Airport", "Harbour"), ("Park", "Stadium"))
"""Streets that only the other graph has."""

Change = Callable[[str], Awaitable[None]]
"""Has a broker work by the configuration that the network has for it now."""


class Rolling:
    """A network with places, and clients that publish, roam and move while brokers change."""

    def __init__(self, directory: Path) -> None:
        self.graphs = [directory / "streets.csv", directory / "with-shortcuts.csv"]
        self.models = [graph.with_suffix(".sterna-model") for graph in self.graphs]
        for graph, model, streets, dwell_s in zip(
            self.graphs, self.models, (STREETS, (*STREETS, *SHORTCUTS)), (0.25, 0.5), strict=True
        ):
            graph.write_text("\n".join(map(",".join, streets)), encoding="utf-8")
            model_of({(a, b): n for n, (a, b) in enumerate(streets, 1)}, dwell_s).save(model)
        self.network = network_in(
            directory,
            5,
            places={"graph": str(self.graphs[0])},
            mobility={"model": str(self.models[0])},  # It has the dwell time.
            durability={"snapshot_inputs": 500},
        )
        self.oracle = Oracle()
        self.missed: list[Missed] = []
        self._is_over = False

    async def go(self, *steps: Callable[[BrokerConfig], BrokerConfig], change: Change) -> None:
        """Give one broker after the other each configuration, and judge what clients got."""
        city = City(self.network.urls, sensors=6, vehicles=10, seed=5, facts=self._heard)
        await city.enter()
        await settle(self.network, city.clients, self.oracle.fact)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._live(city))
            group.create_task(self._roll(steps, change))
        await settle(self.network, city.clients, self.oracle.fact)

        assert self.oracle.findings() == []
        assert self.network.died() == {}
        assert self.missed == []
        assert [client.name for client in city.clients if client.missed] == []
        assert self.oracle.owed() > 200  # There was something to lose.
        assert min(city.tally.roamed, city.tally.moved, city.tally.here) > 20
        await city.leave()

    async def _live(self, city: City) -> None:
        while not self._is_over:
            await city.live(2.0)

    async def _roll(
        self, steps: tuple[Callable[[BrokerConfig], BrokerConfig], ...], change: Change
    ) -> None:
        for step in steps:
            for name in self.network.names:
                await asyncio.sleep(0.5)
                self.network.configs[name] = step(self.network.configs[name])
                await change(name)
        await asyncio.sleep(1.0)
        self._is_over = True

    def _heard(self, fact: Fact) -> None:
        self.oracle.fact(fact)
        if isinstance(fact, Missed):
            self.missed.append(fact)

    # ---- Configurations

    def other_strategy_graph_model_and_limits(self, config: BrokerConfig) -> BrokerConfig:
        return replace(
            config,
            network=replace(config.network, strategy=Strategy.MERGING),
            places=replace(config.places, graph=str(self.graphs[1])),
            mobility=replace(config.mobility, model=str(self.models[1])),
            limits=replace(
                config.limits,
                queue_events_per_client_max=50_000,
                queue_bytes_per_client_max=32 * 2**20,
                frame_bytes_max=2 * 2**20,
                in_flight_bytes_max=4 * 2**20,
                subscriptions_per_client_max=100,
                kept_s=600.0,
            ),
        )

    def advertisements_and_quenching(self, config: BrokerConfig) -> BrokerConfig:
        network = replace(
            config.network, strategy=Strategy.SIMPLE, advertisements=True, quenching=True
        )
        return replace(config, network=network)

    def back_again(self, config: BrokerConfig) -> BrokerConfig:
        network = replace(NetworkConfig(), neighbours=config.network.neighbours)
        places = replace(PlacesConfig(), graph=str(self.graphs[0]))
        mobility = replace(MobilityConfig(), model=str(self.models[0]))
        return replace(config, network=network, places=places, mobility=mobility)


def test_brokers_restart_one_after_another_with_other_settings(tmp_path: Path) -> None:
    """Another strategy, another graph, another model and other limits; some brokers stop in good
    order, and others are killed. Every event is with everyone who was subscribed, once and in
    order.
    """
    rolling = Rolling(tmp_path)
    network = rolling.network

    async def restart(name: str) -> None:
        if network.names.index(name) % 2:
            await asyncio.to_thread(network.kill, name)
        await asyncio.to_thread(network.restart, name)

    with network:
        asyncio.run(rolling.go(rolling.other_strategy_graph_model_and_limits, change=restart))


def test_brokers_reload_one_after_another(tmp_path: Path) -> None:
    """The same without any restart, then advertisements and quenching, then all of it back."""
    rolling = Rolling(tmp_path)
    network = rolling.network
    applied: set[str] = set()

    async def reload(name: str) -> None:
        report = await asyncio.to_thread(network.reload, name)
        assert (report["error"], report["needs_restart"]) == (None, [])
        applied.update(report["applied"])

    with network:
        asyncio.run(
            rolling.go(
                rolling.other_strategy_graph_model_and_limits,
                rolling.advertisements_and_quenching,
                rolling.back_again,
                change=reload,
            )
        )
    assert {"network.strategy", "network.advertisements"} <= applied
    assert {"places.graph", "mobility.model"} <= applied
    assert len(applied) == 11


CHANGES = [
    *(({"strategy": old}, {"strategy": new}) for old, new in permutations(Strategy, 2)),
    *(
        ({"strategy": strategy, "advertisements": old}, {"advertisements": not old})
        for strategy in Strategy
        for old in (False, True)
    ),
]


@pytest.mark.parametrize(
    ("old", "new"), CHANGES, ids=lambda each: "-".join(map(str, each.values()))
)
def test_what_is_queued_is_delivered_whatever_the_settings(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any]
) -> None:
    """A broker has events for a client that is away, and its neighbour has events for it. It comes
    back with other settings, and all of them are delivered.
    """

    async def change() -> None:
        servers: dict[str, BrokerServer] = {}

        async def start(name: str, listen: str, **tables: Any) -> None:
            config = config_in(tmp_path / name, name=name, listen=listen, **tables)
            servers[name] = BrokerServer(config)
            await servers[name].start()

        await start("B1", "127.0.0.1:0", network=old)
        url = servers["B1"].address.url
        await start("B2", "127.0.0.1:0", network={**old, "neighbours": [url]})
        publisher = connect(servers["B2"].address.url, client="p", timeout=30)
        subscriber = connect(url, client="s", timeout=30)
        async with publisher, subscriber:
            publisher.advertise("n >= 0")
            subscription = subscriber.subscribe("n >= 0")
            router = servers["B2"].node.router
            await until(lambda: bool(router.subscriptions.routes("B1")))
            await publisher.publish(n=0)
            await gather_events(subscription, 1)
            await subscriber.detach()
            await publisher.publish_all({"n": n} for n in range(1, 20))
            await servers["B1"].stop()
            await publisher.publish_all({"n": n} for n in range(20, 40))
            limits = {"queue_events_per_client_max": 40, "kept_s": 100}
            await start("B1", str(servers["B1"].address), network={**old, **new}, limits=limits)
            await subscriber.attach()
            got = await gather_events(subscription, 39)
            await publisher.publish(n=40)
            got += await gather_events(subscription, 1)
            assert [event.attributes["n"] for event in got] == list(range(1, 41))
            assert subscriber.missed == 0
        for server in servers.values():
            await server.stop()

    run(change())
