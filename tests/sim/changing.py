"""Random networks that make their own tree, whose brokers get out of reach and crash meanwhile."""

from collections import defaultdict
from random import Random
from typing import Any

from sterna.core import facts
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Advertise, Attach, Detach, Publish, Subscribe
from sterna.core.overlay.branch_parts import BranchGivenUp
from sterna.core.overlay.branches import Branches
from sterna.core.overlay.election import ElectionTiming
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, Doing, LinkModel, Reach, Script, Wait
from sterna.sim.topology import Topology
from tests.sim.overlay import Facts

BEAT_US = ElectionTiming().beat_us
CALM = 16
"""After so many rounds all is as it should be."""

STRATEGIES = [each for each in Strategy if each is not Strategy.FLOODING]

Edge = tuple[str, str]


class Changing:
    """Brokers on a graph that changes, publishers, and subscribers that want all the time."""

    def __init__(
        self, seed: int, *, protocols: tuple[str, ...] = ("election", "branches"),
        moves: bool = False, handover: Handover = Handover.STANDARD, advertises: bool = False,
        brokers: int | None = None, options: dict[str, dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        rng = self.rng = Random(seed)  # noqa: S311 - reproducible.
        self.seed = seed
        count = rng.randint(3, 8) if brokers is None else brokers
        self.brokers = [f"B{number}" for number in range(1, count + 1)]
        self.pairs: list[Edge] = [
            (a, b) for place, a in enumerate(self.brokers) for b in self.brokers[place + 1 :]
        ]
        share = rng.uniform(0.2, 0.7)
        self.reach = {pair for pair in self.pairs if rng.random() < share}
        self.reach |= set(zip(self.brokers, self.brokers[1:], strict=False))
        self.publishers = [f"p{number}" for number in range(rng.randint(1, 4))]
        self.subscribers = [f"s{number}" for number in range(rng.randint(1, 4))]
        self.moves = moves
        clients = {c: rng.choice(self.brokers) for c in (*self.publishers, *self.subscribers)}
        script = Script(
            topology=Topology(tuple(self.brokers), (), reach=tuple(sorted(self.reach))),
            clients=clients,
            steps=tuple(Crash(broker=broker, us=0) for broker in self.brokers),  # They log.
            protocols=protocols,
            routing=RoutingOptions(strategy=rng.choice(STRATEGIES), advertisements=advertises),
            client=ClientOptions(advertisements=advertises),
            handover=HandoverOptions(protocol=handover),
            options=options or {},
            link=LinkModel(latency_us=2_000, jitter_us=rng.choice([0, 5_000])),
            seed=seed,
        )
        self.facts = Facts()
        self.simulation = Simulation(script, [self.facts])
        self.wanted: dict[str, Filter] = {}
        self.wait(8)
        for client in self.publishers:
            if advertises:
                self.do(client, Advertise(advertisement="1", filter=Filter("TRUE")))
        for client in self.subscribers:
            numbers = sorted(rng.sample(range(1, 4), rng.randint(1, 3)))
            self.wanted[client] = Filter(f"f IN ({', '.join(map(str, numbers))})")
            self.do(client, Subscribe(subscription="1", filter=self.wanted[client]))
        self.wait(2)

    def do(self, client: str, what: Doing) -> None:
        self.simulation.do(Do(client=client, what=what))

    def wait(self, rounds: float) -> None:
        self.simulation.do(Wait(us=int(rounds * BEAT_US)))

    def publish(self) -> None:
        event = Publish(attributes={"f": self.rng.randint(1, 3)})
        self.do(self.rng.choice(self.publishers), event)

    def set_reach(self, pair: Edge, *, up: bool) -> None:
        (self.reach.add if up else self.reach.discard)(pair)
        self.simulation.do(Reach(a=pair[0], b=pair[1], up=up))

    def walk(self, steps: int) -> None:
        for _ in range(steps):
            chance = self.rng.random()
            if chance < 0.7:
                self.publish()
            elif chance < 0.85:
                pair = self.rng.choice(self.pairs)
                self.set_reach(pair, up=pair not in self.reach)
            elif chance < 0.9:
                us = self.rng.randint(0, 3 * BEAT_US)
                self.simulation.do(Crash(broker=self.rng.choice(self.brokers), us=us))
            elif self.moves:
                self.move()
            self.wait(self.rng.choice([0, 0.001, 0.01, 0.1, 0.5, 3]))

    def move(self) -> None:
        """A client goes to another broker, when all brokers are one network."""
        self.join()
        self.wait(CALM)
        client = self.rng.choice([*self.subscribers, *self.publishers])
        if self.rng.random() < 0.3:
            self.do(client, Detach())
            self.publish()
            self.wait(1)
        self.do(client, Attach(broker=self.rng.choice(self.brokers)))
        self.publish()
        self.wait(2)

    def join(self) -> None:
        """All can reach each other, some of them by others only."""
        for pair in zip(self.brokers, self.brokers[1:], strict=False):
            if pair not in self.reach:
                self.set_reach(pair, up=True)

    def heal(self) -> None:
        self.join()
        for _ in range(5):
            self.publish()
            self.wait(1)
        self.wait(2 * CALM)

    # ---- What must hold

    def delivered(self) -> dict[str, list[EventId]]:
        found: dict[str, list[EventId]] = defaultdict(list)
        for fact in self.facts.all:
            if isinstance(fact, facts.Delivered):
                found[fact.at] += [event.id for event in fact.events]
        return found

    def repeated(self) -> dict[str, set[EventId]]:
        """What came to each client that it took for repeated: it had later ones."""
        found: dict[str, set[EventId]] = defaultdict(set)
        for fact in self.facts.all:
            if isinstance(fact, facts.Repeated):
                found[fact.at].update(event.id for event in fact.events)
        return found

    def published(self) -> list[Event]:
        return [e for f in self.facts.all if isinstance(f, facts.Published) for e in f.events]

    def owed(self) -> dict[str, set[EventId]]:
        """What each subscriber has to get: they have subscribed before the first event."""
        published = self.published()
        return {
            client: {event.id for event in published if filter_.matches(event.attributes)}
            for client, filter_ in self.wanted.items()
        }

    def problems(self) -> list[str]:
        """What is wrong in this run, in words."""
        found, delivered = [], self.delivered()
        for client, owed in self.owed().items():
            got = delivered[client]
            lost = sorted(owed - set(got))
            if lost:
                found.append(f"{client} lacks {len(lost)} of {len(owed)}: {lost[:3]}")
            if len(set(got)) < len(got):
                found.append(f"{client} has some twice")
            last: dict[str, int] = {}
            for id_ in got:
                if id_.seq <= last.get(id_.publisher, 0):
                    found.append(f"{client} got {id_} out of order")
                last[id_.publisher] = id_.seq
        return found

    # ---- What brokers keep

    def branches(self, broker: str) -> Branches:
        part = self.simulation.network.hosts[broker].node.part("branches")
        assert isinstance(part, Branches)
        return part

    def home_of(self, client: str) -> str:
        """Where a client is that does not move."""
        return self.simulation.script.clients[client]

    def given_up(self) -> dict[str, int]:
        """How many events each broker has stated to keep no longer."""
        found: dict[str, int] = defaultdict(int)
        for fact in self.facts.all:
            if isinstance(fact, BranchGivenUp):
                found[fact.at] += fact.events
        return found
