"""The runs of the experiment on replication: a car, watched by brokers around a centre."""

import random
import statistics
from collections.abc import Sequence

from sterna.core.component import BrokerComponent, Component
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Publish
from sterna.core.link import RELIABLE
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.replication.facts import GaveUp, HeldBack
from sterna.core.replication.options import Filtering, MergingOptions
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.experiments.experiment import DeliveryError, in_words
from sterna.experiments.replication_faults.settings import Measures, Setting, Trouble
from sterna.experiments.timeline import Plan, at_any_time, timed
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.model.replicas import inconsistent, judge, out_of_order
from sterna.sim.replicas import Application, ReplicatedSimulation
from sterna.sim.script import Die, Do, Drop, LinkModel, Script
from sterna.sim.topology import star

CENTRE = "B1"
PUBLISHERS = ("p", "q")
RATE = 20.0
"""Events per second of each publisher; every other one is wanted."""
LINK_US, FARTHEST_US, JITTER_US = 2_000, 40_000, 4_000
"""The latency of links to clients, the longest to a watching broker, and the extra delay."""
LOSS = 0.05
"""The share of events that get lost on their way to a watching broker."""
CUTS_PER_S, CUT_US = 0.25, 400_000
"""How often a watching broker is cut off, and for how long on average."""
DEATH_EVERY_US, NOTICED_US = 6_000_000, 500_000
"""How often a watching broker dies, and after what time its session is replaced."""
DRAIN_US = 10_000_000
WANTED = Filter("n > 0")


class Losing(BrokerComponent):
    """Loses events on their way to watching brokers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        del now
        if link in PUBLISHERS:
            return events
        return [event for event in events if self._rng.random() >= LOSS]


def measure(setting: Setting, seed: int) -> Measures:
    """Simulate once; DeliveryError if a filter has not kept what it promises."""
    rng = random.Random(f"replication {seed}")  # noqa: S311 - reproducible, not secret.
    end_us = setting.seconds * 1_000_000
    deaths = end_us // DEATH_EVERY_US if setting.trouble is Trouble.DEATHS else 0
    topology = star(1 + 2 + deaths)
    watching = topology.brokers[1:]
    clients = {f"car/{number}": broker for number, broker in enumerate(watching, 1)}
    names = list(clients)
    sessions = names[: setting.brokers]
    plan: Plan = []
    owed: dict[EventId, Time] = {}
    for publisher in PUBLISHERS:
        for seq, at in enumerate(at_any_time(rng, RATE, end_us), 1):
            n = rng.randrange(2)
            plan.append((at, Do(client=publisher, what=Publish(attributes={"n": n}))))
            if n:
                owed[EventId(publisher, seq)] = at
    latencies = [(CENTRE, broker, rng.randrange(LINK_US, FARTHEST_US)) for broker in watching]
    if setting.trouble is Trouble.CUTS:
        for broker in watching[:2]:
            for at in at_any_time(rng, CUTS_PER_S, end_us):
                us = round(rng.expovariate(1 / CUT_US)) + 1
                plan.append((at, Drop(a=CENTRE, b=broker, us=us)))
    script = Script(
        topology=topology,
        clients={**clients, **dict.fromkeys(PUBLISHERS, CENTRE)},
        steps=(),
        routing=RoutingOptions(strategy=Strategy.SIMPLE),
        link=LinkModel(latency_us=LINK_US, jitter_us=JITTER_US),
        latencies=tuple(latencies),
        handover=HandoverOptions(protocol=Handover.RELOCATION),
        timing=RELIABLE,
        seed=seed,
    )
    options = MergingOptions(filtering=setting.filtering, hold_us=setting.hold_ms * 1_000)
    application = Application("car", sessions, options)
    lossy = setting.trouble is Trouble.LOSSES
    losing = random.Random(f"losing {seed}")  # noqa: S311 - as above.

    def components(broker: NodeId) -> tuple[Component, ...]:
        return (Losing(losing),) if lossy and broker == CENTRE else ()

    simulation = ReplicatedSimulation(
        script, application, components=components, judged=setting.trouble is Trouble.NOTHING
    )
    simulation.settle()
    simulation.subscribe("1", WANTED)
    simulation.settle()
    begun, sent = simulation.network.kernel.now, _messages(simulation)
    spares = names[2:]
    replaced: dict[Time, tuple[NodeId, NodeId]] = {}
    for number in range(deaths):
        at = (number + 1) * DEATH_EVERY_US - DEATH_EVERY_US // 2
        victim = sessions[number % len(sessions)]
        sessions[number % len(sessions)] = spares[number]
        plan.append((at, Die(broker=clients[victim])))
        replaced[at + NOTICED_US] = (victim, spares[number])
    _perform(simulation, plan, replaced, clients)
    simulation.network.run(simulation.network.kernel.now + DRAIN_US)
    wrong = [str(finding) for finding in simulation.oracle.findings()] + _broken(
        setting, application
    )
    if wrong:
        raise DeliveryError(f"{in_words(setting)}, seed {seed}", wrong)
    shown = set(application.ids)
    ms = sorted((each.time - begun - owed[each.event]) / 1000 for each in application.displayed)
    return Measures(
        owed=len(owed),
        lost=len(owed.keys() - shown),
        late=len(set(application.received) - shown),
        doubled=len(inconsistent(application.ids)),
        disordered=len(out_of_order(application.ids)),
        held=_count(application, HeldBack),
        gave_up=_count(application, GaveUp),
        median_ms=statistics.median(ms),
        p99_ms=ms[len(ms) * 99 // 100],
        messages_per_event=(_messages(simulation) - sent) / len(owed),
    )


def _perform(
    simulation: ReplicatedSimulation,
    plan: Plan,
    replaced: dict[Time, tuple[NodeId, NodeId]],
    clients: dict[NodeId, NodeId],
) -> None:
    """Do everything in its time; in between, sessions of dead brokers are replaced."""
    begun = simulation.network.kernel.now
    waiting = sorted(replaced.items())
    for step in timed(plan):
        while waiting and simulation.network.kernel.now - begun >= waiting[0][0]:
            _, (victim, spare) = waiting.pop(0)
            simulation.replace(victim, spare, clients[spare], {"1": WANTED})
        simulation.do(step)


def _broken(setting: Setting, application: Application) -> list[str]:
    """The promises of the filter that do not hold."""
    verdict = judge(application.ids, application.received)
    filtering = setting.filtering
    promised = {
        "ordered": filtering in (Filtering.ORDER, Filtering.HOLDING),
        "consistent": filtering is not Filtering.NONE,
        "complete": filtering in (Filtering.NONE, Filtering.DUPLICATES)
        or (filtering is Filtering.HOLDING and not _count(application, GaveUp)),
    }
    return [
        f"the filter {filtering} is not {name}"
        for name, is_promised in promised.items()
        if is_promised and not getattr(verdict, name)
    ]


def _count(application: Application, kind: type[HeldBack | GaveUp]) -> int:
    found = [fact for fact in application.facts if type(fact) is kind]
    return sum(len(fact.events) for fact in found)


def _messages(simulation: ReplicatedSimulation) -> int:
    return sum(
        pipe.messages.total()
        for connection in simulation.network.connections
        for pipe in connection.pipes
    )
