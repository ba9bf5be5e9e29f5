"""Amozarrain and Larrea 2019: brokers that move, message by message."""

import pytest

from sterna.core.handover.options import HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.mobile.simple import SimpleRouting
from sterna.core.routing.options import RoutingOptions
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Do, EndLink, Migrate, Script
from sterna.sim.topology import Topology
from sterna.sim.trace import Trace
from tests.goldens import assert_golden

BROKERS = tuple(f"b{number}" for number in range(1, 8))
FIGURE_1 = Topology(
    BROKERS,
    (("b1", "b2"), ("b1", "b3"), ("b2", "b4"), ("b2", "b5"), ("b3", "b6"), ("b3", "b7")),
)


def network(protocol: str) -> tuple[Simulation, Trace]:
    """The network of Fig. 1: a subscriber at each broker."""
    script = Script(
        topology=FIGURE_1,
        clients={f"s{broker[1:]}": broker for broker in BROKERS},
        steps=(),
        routing=RoutingOptions(announces=False),
        protocols=(protocol,),
    )
    trace = Trace()
    simulation = Simulation(script, [trace])
    for number in range(1, 8):
        wanted = Subscribe(subscription="f", filter=Filter(f"f = {number}"))
        simulation.do(Do(client=f"s{number}", what=wanted))
        simulation.settle()
    trace.lines.clear()
    return simulation, trace


def tables(simulation: Simulation, protocol: str) -> str:
    """The next hop to each subscriber, at each broker."""
    lines = []
    for broker in BROKERS:
        part = simulation.network.hosts[broker].node.part(protocol)
        assert isinstance(part, SimpleRouting)
        hops = " ".join(
            f"{name}:{part.subscribers[name].next_hop}" for name in sorted(part.subscribers)
        )
        lines.append(f"{broker}  {hops}\n")
    return "".join(lines)


def figure_1_a(simulation: Simulation) -> None:
    """b3 leaves b1 and joins b2."""
    simulation.do(Migrate(broker="b3", before="b1", to="b2"))
    simulation.settle()


def figure_1_b(simulation: Simulation) -> None:
    """b3 has left b1, and b6 has left b3, when b6 joins b5; after that, b3 joins b2."""
    simulation.do(EndLink(a="b3", b="b1"))
    simulation.do(Migrate(broker="b6", before="b3", to="b5"))
    simulation.settle()
    simulation.do(Migrate(broker="b3", before="b1", to="b2"))
    simulation.settle()


@pytest.mark.spec("MB-2", "MB-3")
def test_phoenix() -> None:
    """Algorithms 1 and 2: s6 goes from b6 to b5; what came meanwhile follows it, and no flood."""
    script = Script(
        topology=FIGURE_1,
        clients={"s6": "b6", "p": "b7"},
        steps=(),
        routing=RoutingOptions(announces=False),
        protocols=("simple-routing",),
        handover=HandoverOptions(protocol="phoenix"),
    )
    trace = Trace()
    simulation = Simulation(script, [trace])
    simulation.settle()
    simulation.do(Do(client="s6", what=Subscribe(subscription="f", filter=Filter("f = 6"))))
    simulation.settle()
    simulation.do(Do(client="s6", what=Detach()))
    simulation.do(Do(client="p", what=Publish(attributes={"f": 6})))
    simulation.settle()
    simulation.do(Do(client="s6", what=Attach(broker="b5")))
    simulation.settle()
    simulation.do(Do(client="p", what=Publish(attributes={"f": 6})))
    simulation.settle()
    assert_golden("amozarrain-phoenix.txt", trace.text() + tables(simulation, "simple-routing"))


MOVES = {"1a": figure_1_a, "1b": figure_1_b}


@pytest.mark.spec("MB-4", "MB-5")
@pytest.mark.parametrize(
    ("protocol", "figure", "messages"),
    [
        ("modular", "1a", 13),  # Fig. 2 a
        ("modular", "1b", 12),  # Fig. 2 b
        ("efficient", "1a", 2),  # Fig. 3
        ("efficient", "1b", 13),  # Fig. 4
        ("reversing", "1a", 3),
        ("reversing", "1b", 7),
    ],
)
def test_figures_2_to_4(protocol: str, figure: str, messages: int) -> None:
    """Each message and table as printed, in order, but for the errata that the modules name."""
    simulation, trace = network(protocol)
    MOVES[figure](simulation)
    assert sum(" → " in line for line in trace.lines) == messages
    text = trace.text() + tables(simulation, protocol)
    assert_golden(f"amozarrain-{protocol}-{figure}.txt", text)
