"""Traces of small runs, compared with golden files; and that they are the same every time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sterna.core.inputs import Publish, Subscribe
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, Drop, LinkModel, Script, Settle
from sterna.sim.topology import line, random_tree, tree
from sterna.sim.trace import Trace
from tests.goldens import assert_golden
from tests.sim.overlay import Overlay


@pytest.mark.spec("RT-1", "RT-2")
@pytest.mark.parametrize("strategy", Strategy)
def test_two_subscribers_one_covers_the_other(strategy: Strategy) -> None:
    """Fiege, 2.2: what each strategy says about the same two filters, and their withdrawal."""
    run = Overlay(
        line(3), {"ann": "B1", "bob": "B1", "pat": "B3"}, RoutingOptions(strategy=strategy)
    )
    run.subscribe("ann", "price > 10").settle()
    run.subscribe("bob", "price > 20").settle()
    run.publish("pat", price=15).publish("pat", price=25).settle()
    run.unsubscribe("ann").settle()
    run.publish("pat", price=15).publish("pat", price=25).settle()

    assert run.outcome().findings == []
    assert_golden(f"routing-{strategy}.txt", run.trace.text())


@pytest.mark.spec("RT-3")
def test_a_late_advertisement() -> None:
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B3"},
        RoutingOptions(advertisements=True),
        ClientOptions(advertisements=True),
    )
    run.subscribe("ann", "price > 10").settle()
    run.advertise("pat", "price BETWEEN 0 AND 99").settle()
    run.publish("pat", price=15).settle()
    run.unadvertise("pat").settle()

    assert_golden("advertisements.txt", run.trace.text())


@pytest.mark.spec("RT-4")
def test_a_hierarchy() -> None:
    """Burcea, Fig. 1: subscriptions go up, events go up, and down only to interest."""
    run = Overlay(tree(2, 3), {"pat": "B4", "ann": "B6"}, RoutingOptions(hierarchical=True))
    run.subscribe("ann", "stock = 'IBM'").settle()
    run.publish("pat", stock="IBM").publish("pat", stock="Dell").settle()

    assert_golden("hierarchy-burcea-fig-1.txt", run.trace.text())


@pytest.mark.spec("QU-1", "QU-2")
def test_quenching() -> None:
    """Huang, Fig. 3: c_all goes to the source, which discards what it rejects."""
    run = Overlay(line(1), {"es": "B1", "ed": "B1"}, client=ClientOptions(quenching=True))
    run.subscribe("ed", "value > 10").settle()
    run.publish("es", value=5).publish("es", value=15).settle()
    run.fault(Drop(a="es", b="B1", us=50_000)).wait(1_000)
    run.subscribe("ed", "value = 5", "2").wait(1_000)
    run.publish("es", value=5).publish("es", value=6).settle()

    assert run.received("ed") == ["es#2", "es#3"]
    assert_golden("quenching-huang-fig-3.txt", run.trace.text())


def test_a_link_recovers() -> None:
    """Frames get lost and come twice, the connection breaks, a broker starts again from its log."""
    script = Script(
        topology=line(2),
        clients={"ann": "B1", "pat": "B2"},
        link=LinkModel(loss=0.3, duplication=0.2),
        steps=(
            Do(client="ann", what=Subscribe(subscription="1", filter=Filter("x > 0"))),
            Settle(),
            Do(client="pat", what=Publish(attributes={"x": 1})),
            Drop(a="B1", b="B2", us=30_000),
            Do(client="pat", what=Publish(attributes={"x": 2})),
            Settle(),
            Crash(broker="B1", us=20_000),
            Do(client="pat", what=Publish(attributes={"x": 3})),
        ),
        seed=4,
    )
    trace = Trace(frames=True)
    simulation = Simulation(script, [trace])

    assert simulation.run().findings == []
    assert len(simulation.oracle.received("ann")) == 3
    assert_golden("link-recovers.txt", trace.text())


PROGRAM = """
import sys
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.run import Simulation
from sterna.sim.topology import random_tree
from sterna.sim.trace import Trace
from sterna.core.settings import ClientOptions
from sterna.core.routing.options import RoutingOptions, Strategy

for strategy in Strategy:
    plan = Plan(
        topology=random_tree(10, 3), clients=12, subscriptions=120, events=40, variety=5,
        routing=RoutingOptions(strategy=strategy, advertisements=True),
        client=ClientOptions(advertisements=True, quenching=True), faults=FAULTS["heavy"],
    )
    trace = Trace(frames=True)
    Simulation(generate(plan, 7), [trace]).run()
    sys.stdout.write(trace.text())
"""


def test_a_run_is_the_same_under_every_hash_seed() -> None:
    """Two processes that hash strings differently write the same trace, byte for byte."""
    traces = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parent,
        ).stdout
        for seed in ("1", "2")
    ]

    assert len(traces[0]) > 100_000
    assert traces[0] == traces[1]


def test_a_run_is_the_same_twice_and_another_with_another_seed() -> None:
    plan = Plan(topology=random_tree(6, 1), faults=FAULTS["heavy"])

    def trace_of(seed: int) -> str:
        trace = Trace(frames=True)
        Simulation(generate(plan, seed), [trace]).run()
        return trace.text()

    assert trace_of(1) == trace_of(1)
    assert trace_of(1) != trace_of(2)
