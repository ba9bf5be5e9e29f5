"""Brokers that elect a leader, make their own tree, and route on it, with clients that roam."""

from collections import defaultdict
from itertools import pairwise
from random import Random

import pytest

from sterna.core import facts
from sterna.core.handover.options import HandoverOptions
from sterna.core.inputs import Attach, Publish, Subscribe, Unsubscribe
from sterna.core.mobile.simple import SimpleRouting
from sterna.core.overlay.election import ElectionTiming
from sterna.core.routing.options import RoutingOptions
from sterna.experiments.mft.network import behind, near
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, LinkModel, Pause, Script
from sterna.sim.topology import Topology
from tests.scale import many_seeds
from tests.sim.overlay import Facts
from tests.sim.test_election import OUTAGE, ROUNDS, Field, random_reach

BEAT_US = ElectionTiming().beat_us


class Roaming(Field):
    """Brokers in a random graph of possible links, with a subscriber at most of them."""

    def __init__(self, seed: int, protocol: str) -> None:
        rng = self.rng = Random(f"roaming {seed}")  # noqa: S311 - reproducible.
        self.protocol = protocol
        self.brokers = [f"B{number}" for number in range(1, rng.randint(1, 12) + 1)]
        self.reach = random_reach(rng, self.brokers)
        self.dead: set[str] = set()
        self.homes = {f"s{b[1:]}": b for b in self.brokers if rng.random() < 0.7}
        self.wanted: dict[str, set[str]] = {name: set() for name in self.homes}
        script = Script(
            topology=Topology(
                tuple(self.brokers),
                (),
                reach=tuple((a, b) for a, b in map(sorted, sorted(map(sorted, self.reach)))),
            ),
            clients=dict(self.homes),
            steps=tuple(Crash(broker=broker, us=0) for broker in self.brokers),  # They log.
            protocols=("election", protocol),
            handover=HandoverOptions(protocol="phoenix"),
            routing=RoutingOptions(announces=False),
            link=LinkModel(latency_us=2_000, jitter_us=rng.choice([0, 5_000])),
            seed=seed,
        )
        self.facts = Facts()
        self.simulation = Simulation(script, [self.facts], judged=False)
        self.network = self.simulation.network

    def calm(self) -> None:
        self.wait(OUTAGE + ROUNDS)

    # ---- What happens

    def subscribe(self) -> None:
        if self.homes:
            name, number = self.rng.choice(sorted(self.homes)), str(self.rng.randint(1, 3))
            held = self.wanted[name]
            if number in held:
                held.remove(number)
                self.simulation.do(Do(client=name, what=Unsubscribe(subscription=number)))
            else:
                held.add(number)
                what = Subscribe(subscription=number, filter=Filter(f"f = {number}"))
                self.simulation.do(Do(client=name, what=what))

    def publish(self) -> None:
        if self.homes:
            what = Publish(attributes={"f": self.rng.randint(1, 3)})
            self.simulation.do(Do(client=self.rng.choice(sorted(self.homes)), what=what))

    def roam(self) -> None:
        if self.homes:
            self._attach(self.rng.choice(sorted(self.homes)))

    def _attach(self, name: str) -> None:
        self.homes[name] = self.rng.choice([b for b in self.brokers if b not in self.dead])
        self.simulation.do(Do(client=name, what=Attach(broker=self.homes[name])))

    def move(self) -> None:
        """Two brokers come into reach of each other, or get out of it."""
        if len(self.brokers) > 1:
            edge = frozenset(self.rng.sample(self.brokers, 2))
            self.set_reach(edge, up=edge not in self.reach)

    def pause(self) -> None:
        what = Pause(broker=self._any(), us=self.rng.randint(0, OUTAGE * BEAT_US))
        self.simulation.do(what)

    def restart(self) -> None:
        us = self.rng.randint(0, OUTAGE * BEAT_US)
        self.simulation.do(Crash(broker=self._any(), us=us))

    def forget(self) -> None:
        us = self.rng.randint(0, OUTAGE * BEAT_US)
        self.simulation.do(Crash(broker=self._any(), us=us, forgets=True))

    def lose(self) -> None:
        """A broker dies for good."""
        if len(self.dead) + 1 < len(self.brokers):
            self.die(self._any())

    def _any(self) -> str:
        return self.rng.choice([b for b in self.brokers if b not in self.dead])

    def meet(self, *, patient: bool = False) -> None:
        """All brokers that live reach each other, and all subscribers are at one that lives."""
        living = [broker for broker in self.brokers if broker not in self.dead]
        for a, b in pairwise(living):
            if frozenset((a, b)) not in self.reach:
                self.set_reach(frozenset((a, b)), up=True)
                if patient:
                    self.calm()
        self.calm()
        for name in sorted(self.homes):
            if self.homes[name] in self.dead:
                self._attach(name)
        self.calm()
        self.check()

    # ---- What is wrong

    def wrong(self) -> list[tuple[str, str]]:
        """The brokers that are wrong about a subscriber."""
        links = [(a, b) for a, b in map(sorted, sorted(map(sorted, self.edges())))]
        found = []
        for broker in self.brokers:
            if broker in self.dead:
                continue
            part = self.network.hosts[broker].node.part(self.protocol)
            assert isinstance(part, SimpleRouting)
            next_hops = {
                far: first for first in near(links, broker) for far in behind(links, broker, first)
            }
            for name, wanted in self.wanted.items():
                each = part.subscribers.get(name)
                known = set() if each is None else {id_.split("/")[1] for id_ in each.filters}
                way = next_hops.get(self.homes[name], name)
                is_there = each is not None and not each.is_lost and each.next_hop == way
                if known != wanted or (wanted and not is_there) or (each and each.queue):
                    found.append((broker, name))
        return found

    def unexplained(self) -> list[tuple[str, EventId]]:
        """What subscribers wanted and neither got, in order and once, nor count as too late."""
        found = []
        published = [
            event
            for fact in self.facts.all
            if isinstance(fact, facts.Published)
            for event in fact.events
        ]
        last: dict[tuple[str, str], int] = defaultdict(int)
        known: set[tuple[str, EventId]] = set()
        for fact in self.facts.all:
            if isinstance(fact, facts.Delivered | facts.Purged):
                for event in fact.events:
                    known.add((fact.at, event.id))
                    if isinstance(fact, facts.Delivered):
                        if event.seq <= last[fact.at, event.publisher]:
                            found.append((fact.at, event.id))
                        last[fact.at, event.publisher] = event.seq
        return found + [
            (name, event.id)
            for name, wanted in self.wanted.items()
            for event in published
            if str(event.attributes["f"]) in wanted and (name, event.id) not in known
        ]


def run(seed: int, protocol: str, *, patient: bool) -> Roaming:
    """Everything happens, one thing at a time or not."""
    field = Roaming(seed, protocol)
    rng = field.rng
    for _ in range(6):
        field.subscribe()
    field.calm()
    for _ in range(rng.randint(1, 8)):
        what = [field.move] * 4 + [field.pause, field.restart, field.forget, field.lose]
        rng.choice(what)()
        if patient:
            field.calm()
        for _ in range(2):
            rng.choice([field.roam, field.subscribe])()
            if patient:
                field.calm()
        field.wait(rng.choice([0, 0.3, 1, 3]))
    field.calm()
    return field


@pytest.mark.spec("MB-1", "MB-5", "MB-7")
def test_on_a_tree_that_brokers_make_tables_are_those_of_a_fresh_start() -> None:
    for seed in many_seeds(400):
        field = run(seed, "reversing", patient=False)
        field.meet()
        assert field.wrong() == [], f"seed {seed}"


@pytest.mark.spec("MB-1", "MB-4", "MB-7")
def test_modular_tables_on_such_a_tree_one_thing_at_a_time() -> None:
    for seed in many_seeds(100):
        field = run(seed, "modular", patient=True)
        field.meet(patient=True)
        assert field.wrong() == [], f"seed {seed}"


@pytest.mark.spec("MB-1", "MB-7")
def test_on_such_a_tree_events_come_once_and_in_order_or_count_as_too_late() -> None:
    for seed in many_seeds(200):
        field = Roaming(seed, "reversing")
        rng = field.rng
        field.meet()
        for _ in range(8):
            field.subscribe()
        field.calm()
        for _ in range(rng.randint(1, 8)):
            rng.choice([field.move, field.move, field.move, field.pause, field.restart])()
            for _ in range(3):
                rng.choice([field.roam, field.publish, field.publish])()
                field.wait(rng.choice([0, 0.01, 0.3, 1, 3]))
        field.meet()
        assert field.wrong() == [], f"seed {seed}"
        assert field.unexplained() == [], f"seed {seed}"
