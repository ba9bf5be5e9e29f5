"""One run: its people, its script, and what is counted in it."""

from collections.abc import Callable
from dataclasses import dataclass

from sterna.core.names import NodeId
from sterna.experiments.burcea.counting import Tally
from sterna.experiments.burcea.deliveries import Deliveries
from sterna.experiments.burcea.journeys import People, people
from sterna.experiments.burcea.script import make_script
from sterna.experiments.burcea.settings import Setting
from sterna.experiments.experiment import DeliveryError, in_words
from sterna.sim.host import Host
from sterna.sim.network import Observer
from sterna.sim.run import Simulation


@dataclass(frozen=True)
class Run:
    """What came out of a run."""

    setting: Setting
    everybody: People
    tally: Tally
    deliveries: Deliveries
    simulation: Simulation


class Watch(Observer):
    """An observer that also looks at the nodes themselves."""

    hosts: dict[NodeId, Host]


def run(setting: Setting, seed: int, watch: Callable[[People], Watch] | None = None) -> Run:
    """Simulate once; DeliveryError if any subscriber did not get each event once and in order."""
    return simulate(setting, people(setting, seed), seed, watch)


def simulate(
    setting: Setting,
    everybody: People,
    seed: int,
    watch: Callable[[People], Watch] | None = None,
) -> Run:
    """Simulate what these people do."""
    tally, deliveries = Tally(setting), Deliveries(setting, everybody)
    watching = [] if watch is None else [watch(everybody)]
    script = make_script(setting, everybody, seed)
    simulation = Simulation(script, [tally, deliveries, *watching], judged=False)
    for each in watching:
        each.hosts = simulation.network.hosts
    simulation.run()
    problems = deliveries.check()
    if problems:
        raise DeliveryError(f"{in_words(setting)}, seed {seed}", problems)
    return Run(setting, everybody, tally, deliveries, simulation)
