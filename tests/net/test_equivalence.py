"""A script gives the same deliveries in the simulator and on real processes."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.core.inputs import Attach, Detach, Publish, Subscribe, Unsubscribe
from sterna.core.names import NodeId
from sterna.model.event import EventId
from sterna.net.client.handles import Subscription
from sterna.net.local import LocalNetwork
from sterna.sim.generate import Plan, generate
from sterna.sim.oracle import Oracle
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, Script, Settle, Wait
from sterna.sim.topology import Topology
from tests.net.live import Client, connect, network_in, settle
from tests.scale import CAMPAIGN
from tests.sim.overlay import RELOCATION

BROKERS = 4
SEEDS = 4 if CAMPAIGN == 1 else 10 * CAMPAIGN


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    directory: Path = tmp_path_factory.mktemp("equivalence")
    with network_in(directory, BROKERS) as network:
        yield network


@pytest.mark.spec("LV-1", "LV-3")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_deliveries_as_in_the_simulator(network: LocalNetwork, seed: int) -> None:
    """Clients subscribe, publish, move and nap; what each gets does not depend on the driver."""
    script = _script(network, seed)
    simulation = Simulation(script)
    assert simulation.run().findings == []

    oracle = asyncio.run(_run_live(network, script, f"seed{seed}-"))

    assert oracle.findings() == []
    for client in script.clients:
        live = _of_each_publisher(oracle.received(f"seed{seed}-{client}"), oracle)
        simulated = _of_each_publisher(simulation.oracle.received(client), simulation.oracle)
        assert {k.removeprefix(f"seed{seed}-"): v for k, v in live.items()} == simulated
    assert oracle.delivered == simulation.oracle.delivered > 20


def _script(network: LocalNetwork, seed: int) -> Script:
    topology = Topology(
        brokers=tuple(network.names),
        links=tuple((upper, lower) for lower, upper in network.links.items()),
    )
    plan = Plan(
        topology=topology, clients=5, subscriptions=14, events=40, moves=10, naps=6, variety=3,
        settle=0.05, wait_us=0, handover=RELOCATION,
    )  # fmt: skip
    script = generate(plan, seed)
    return Script(
        topology=topology,
        clients=script.clients,
        steps=tuple(_unambiguous(script)),
        handover=RELOCATION,
        seed=seed,
    )


def _unambiguous(script: Script) -> Iterator[AnyStep]:
    """Before and after each change of what a client wants, all has to arrive that is on its way:
    else it would be random which events come. Moves need no such care.
    """
    offline: set[NodeId] = set()
    changed: set[NodeId] = set()
    yield Settle()
    for step in script.steps:
        match step:
            case Wait():
                continue
            case Do(what=Subscribe() | Unsubscribe()):
                is_sensitive = True
                if step.client in offline:
                    changed.add(step.client)
            case Do(what=Attach()):
                is_sensitive = step.client in changed
                offline.discard(step.client)
                changed.discard(step.client)
            case Do(what=Detach()):  # Has the broker what the client has just published?
                is_sensitive = True
                offline.add(step.client)
            case _:
                is_sensitive = False
        if is_sensitive:
            yield Settle()
        yield step
        if is_sensitive:
            yield Settle()


async def _run_live(network: LocalNetwork, script: Script, prefix: str) -> Oracle:
    """Clients are known under names of their own, for the network goes on."""
    oracle = Oracle(prefix + client for client in script.clients)
    clients: dict[NodeId, Client] = {}
    subscriptions: dict[tuple[NodeId, str], Subscription] = {}
    for name, broker in script.clients.items():
        client = connect(network.url(broker), client=prefix + name, facts=oracle.fact)
        clients[name] = await client
    for step in (*script.steps, Settle()):
        match step:
            case Do(client=name, what=Subscribe() as what):
                subscription = clients[name].subscribe(what.filter, name=what.subscription)
                subscriptions[name, what.subscription] = subscription
            case Do(client=name, what=Unsubscribe() as what):
                await subscriptions.pop((name, what.subscription)).close()
            case Do(client=name, what=Publish() as what):
                clients[name].publish(what.attributes)
            case Do(client=name, what=Attach() as what):
                await clients[name].attach(network.url(what.broker))
            case Do(client=name, what=Detach()):
                await clients[name].detach()
            case _:
                await settle(network, clients.values(), oracle.fact)
    for client in clients.values():
        await client.close()
    return oracle


def _of_each_publisher(received: list[EventId], oracle: Oracle) -> dict[NodeId, list[int]]:
    """What came from each publisher, counted from its first event."""
    numbers: dict[EventId, int] = {}
    count: Counter[NodeId] = Counter()
    for id_ in oracle._published:
        count[id_.publisher] += 1
        numbers[id_] = count[id_.publisher]
    found: dict[NodeId, list[int]] = {}
    for id_ in received:
        found.setdefault(id_.publisher, []).append(numbers[id_])
    return found
