"""Random programs in simulated networks, whose journals real writers write, as real clients do.

Programs start with and without a `state` and a `journal`, subscribe, publish, move, roam, detach,
close, are killed, and start again under the same name. Time is virtual. What a client records, and
what a kill leaves of that, is decided by `sterna.net.client.record` and `sterna.journal`; the
states of clients and the logs of brokers are in memory.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sterna.core import facts
from sterna.core.actions import Connect
from sterna.core.client import Client
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import (
    Attach,
    Detach,
    Leave,
    LinkDown,
    MoveTo,
    PublishMany,
    SetVariable,
    Subscribe,
    Unsubscribe,
)
from sterna.core.location.options import PlacesOptions
from sterna.core.names import Peer, Time
from sterna.core.settings import Settings
from sterna.journal import Journal
from sterna.model.delivery import Fault
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.net.client.record import Record
from sterna.net.records import Began
from sterna.sim.network import Network, Observer
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, LinkModel, Script
from sterna.sim.topology import Topology, random_tree

GRACE_US: Time = 5_000_000
"""Longer than anything takes in these runs, and than a real network needs on a busy machine."""
RUN_US: Time = 250_000_000
TICK_US: Time = 500_000
"""How often clients and brokers look whether their journals are due."""
SKEW_US: Time = 2_000_000
"""By how much the clock of a node is ahead or behind at most: two of them, and the time that
messages take, are within the grace period."""
CRASH_US: Time = 300_000
"""How long a broker is down at most."""

DOORS = (("hall", "lab"), ("hall", "office"), ("office", "yard"))
ROOMS = ("hall", "lab", "office", "yard")
PLAIN = ("kind = 'a'", "kind = 'b' AND n >= 3", "n < 8", "near(lat, lon, 52.52, 13.40, 900)")
MOVING = (
    "location IN myloc",
    "location IN myloc(1) AND kind = 'a'",
    "near(lat, lon, $lat, $lon, 900)",
)

Planted = tuple[Fault, str, str, int]
"""The fault, the client if it matters, and the publisher and number of the event."""


class Clock:
    """Virtual time, as the clock of a client's engine shows it."""

    def __init__(self, network: Network, ahead: Time) -> None:
        self._network, self._ahead = network, ahead

    def now(self) -> Time:
        return self._network.kernel.now + self._ahead

    def not_before(self, time: Time) -> None:
        assert self.now() >= time


class Memory:
    """A client's state: the node, and the facts since the last snapshot with their positions."""

    def __init__(self, directory: Path, began: Began) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.began = began
        self.node: Client | None = None
        self.appended = 1
        self.kept: list[tuple[int, list[Fact]]] = []

    def append(self, _record: bytes) -> int:
        self.appended += 1
        return self.appended


@dataclass
class Engine:
    """What a record wants to know of a client's engine."""

    clock: Clock
    node: Client
    began: Began
    inputs: int = 0


class Program:
    """A client's program: one run after the other under the same name."""

    def __init__(self, run: "Run", name: str, habits: dict[str, float]) -> None:
        self.run, self.name, self.habits = run, name, habits
        self.memory: Memory | None = None
        self.record: Record | None = None
        self.engine: Engine | None = None
        self.has_state = self.has_journal = self.is_running = False
        self.starts = 0

    @property
    def node(self) -> Client:
        node = self.run.network.hosts[self.name].node
        assert isinstance(node, Client)
        return node

    # ---- Starting and ending

    def start(self, broker: str) -> None:
        run, rng = self.run, self.run.rng
        host = run.network.hosts[self.name]
        other = run.network.hosts[broker]
        self.starts += 1
        self.has_state = rng.random() < self.habits["state"]
        self.has_journal = rng.random() < self.habits["journal"]
        directory = run.directory / "clients" if self.has_journal else None
        self.record = Record(directory, self.name, clock=lambda: run.now / 1e6)
        goes_on = self.has_state and self.memory is not None
        if goes_on:
            assert self.memory is not None
            assert self.memory.node is not None
            host.node = self.memory.node
            host._restarted()
        else:
            earlier: Any = other.node.earlier(self.name, other.now())  # type: ignore[attr-defined]
            host.live_again(earlier)
        began = Began(node=self.name, incarnation=self.node.incarnation, settings=Settings())
        if self.has_state and not goes_on:
            self.memory = Memory(run.directory / "states" / f"{self.name}-{self.starts}", began)
        self.engine = Engine(Clock(run.network, run.ahead[self.name]), self.node, began)
        self.is_running, host.is_down = True, False
        if self.has_state:
            assert self.memory is not None
            self.memory.node = self.node
            self.engine.began = self.memory.began
            self.record.open(self.memory, self.fail)  # type: ignore[arg-type]
            self.record.expect(self.memory.began)
            for position, stated in self.memory.kept:
                self.record.add(position, stated, 0)
            self.record.resume(self.engine, self.memory)  # type: ignore[arg-type]
        else:
            self.record.open(None, self.fail)
            self.record.begin(self.engine)  # type: ignore[arg-type]
        for link in [*self.node.peers]:
            if self.node.is_connected(link):
                run.network._turn(host, LinkDown(link=link))
        if goes_on and self.node.link == broker:
            run.network._act(host, Connect(broker))
        else:
            run.network._turn(host, Attach(broker=broker))

    def fail(self, error: Exception) -> None:
        raise error

    def close(self) -> None:
        """End as a program does that closes its client."""
        if not self.has_state and self.node.link is not None:
            self.run.give(self, Leave())
            self.run.wait(200_000)
        if self.is_running:
            self._vanish()
            if self.memory is not None and self.has_state:
                self.snapshot()
            assert self.record is not None
            self.record.close()

    def kill(self) -> None:
        """End without another word; what was not written is lost."""
        self._vanish()

    def snapshot(self) -> None:
        """The state has all; what led to it is forgotten."""
        if self.memory is not None and self.has_state:
            assert self.record is not None
            self.record.sync()
            self.memory.kept.clear()

    def _vanish(self) -> None:
        network, host = self.run.network, self.run.network.hosts[self.name]
        self.is_running, host.is_down = False, True
        for pipe in host.pipes.values():
            if pipe.connection.is_wanted:
                pipe.connection.is_wanted = False
                network._burden(pipe.connection)

    # ---- Recording

    def stated(self, fact: Fact) -> None:
        if not self.is_running or self.record is None or self.engine is None:
            return
        for each in self.run.recorded(fact):
            if self.has_state and self.memory is not None:
                position = self.memory.append(b"")
                self.memory.kept.append((position, [each]))
            else:
                self.engine.inputs += 1
                position = self.engine.inputs
            self.record.add(position, [each], 0)


class Notes:
    """A broker's journal; what a kill left out is recorded again, as from the broker's log."""

    def __init__(self, directory: Path, broker: str, clock: Callable[[], float]) -> None:
        self._directory, self._broker, self._clock = directory, broker, clock
        self._journal: Journal | None = None
        self._kept: list[Fact] = []

    def add(self, fact: Fact) -> None:
        self._kept.append(fact)
        if self._journal is None:
            end = len(self._kept)
            self._journal = Journal(self._directory, self._broker, log_end=end, clock=self._clock)
            for position, each in enumerate(self._kept, 1):
                self._journal.record(position, [each])
        else:
            self._journal.record(len(self._kept), [fact])

    def flush_if_due(self) -> None:
        if self._journal is not None:
            self._journal.flush_if_due()

    def kill(self) -> None:
        self._journal = None

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


Tamper = Callable[[str, Fact], list[Fact]]
"""What the journal of a node gets instead of a fact."""


class Run(Observer):
    """A network with a few programs, from beginning to end; the seed decides everything."""

    def __init__(self, seed: int, name: str, directory: Path, tamper: Tamper | None = None) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - reproducible, not secret.
        self.name, self.directory = name, directory
        self._tamper = tamper
        self.breaks: dict[str, list[Time]] = {}
        """When something happened to a client, or to what it had asked for."""
        self.published: dict[EventId, Time] = {}
        self.delivered: list[tuple[str, Time, Event]] = []
        """What came to programs that keep a journal."""
        brokers = self.rng.randint(1, 4)
        topology = _renamed(random_tree(brokers, seed), name)
        script = Script(
            topology=topology,
            clients={},
            # Nobody does these steps; those that are going to crash keep a log.
            steps=tuple(Crash(broker=broker, us=1) for broker in topology.brokers),
            link=LinkModel(latency_us=1_000, jitter_us=3_000),
            handover=HandoverOptions(protocol=Handover.RELOCATION),
            places=PlacesOptions(edges=DOORS),
            seed=seed,
        )
        self.brokers = topology.brokers
        self.notes = {
            broker: Notes(directory / "brokers", broker, lambda: self.now / 1e6)
            for broker in self.brokers
            if self.rng.random() < 0.95
        }
        simulation = Simulation(script, [self], judged=False)
        self.network = simulation.network
        self.programs: dict[str, Program] = {}
        for number in range(self.rng.randint(2, 5)):
            client = f"{name}.c{number}"
            habits = {
                "state": self.rng.choice((0, 1, 0.3, 0.5, 0.7)),
                "journal": self.rng.choice((0, 1, 1, 1, 1, 0.7)),
            }
            self.network.add(simulation._client(client), Peer.CLIENT).is_down = True
            self.programs[client] = Program(self, client, habits)
            self.breaks[client] = []
        self.ahead = {
            node: self.rng.randint(0, 2 * SKEW_US) for node in (*self.brokers, *self.programs)
        }
        """By how much the clock of each node is ahead of the slowest one there may be."""
        self.network.run(1_000)
        for program in self.programs.values():
            program.start(self.rng.choice(self.brokers))
            self._settle_in(program)

    @property
    def now(self) -> Time:
        return self.network.kernel.now

    # ---- Doing

    def play(self) -> "Run":
        while self.now < RUN_US:
            self.wait(self.rng.randint(1, 2_000_000))
            self._step(self.rng.choice(list(self.programs.values())))
        if self.rng.random() < 0.7:  # Brokers state something once more.
            for program in self.programs.values():
                if program.is_running:
                    program.kill() if self.rng.random() < 0.3 else program.close()
            self.wait(TICK_US * 4)
        for notes in self.notes.values():
            notes.kill() if self.rng.random() < 0.2 else notes.close()
        return self

    def wait(self, us: Time) -> None:
        until = self.now + us
        while self.now < until:
            tick = (self.now // TICK_US + 1) * TICK_US
            self.network.run(min(until, tick))
            if self.now == tick:
                for program in self.programs.values():
                    if program.is_running and program.record is not None:
                        program.record.flush_if_due()
                for notes in self.notes.values():
                    notes.flush_if_due()

    def give(self, program: Program, what: Any) -> None:
        self.network.give(program.name, what)

    def _settle_in(self, program: Program) -> None:
        """What a program does first if it remembers nothing."""
        rng = self.rng
        if not program.node.subscriptions:
            self.give(program, MoveTo(location=rng.choice(ROOMS)))
            self._set(program)
            for _ in range(rng.randint(0, 3)):
                self._subscribe(program)

    def _set(self, program: Program) -> None:
        self.give(program, SetVariable(name="lat", value=self.rng.choice((52.52, 52.53))))
        self.give(program, SetVariable(name="lon", value=13.4))

    def _subscribe(self, program: Program) -> None:
        free = [each for each in (*PLAIN, *MOVING) if each not in program.node.subscriptions]
        if free:
            text = self.rng.choice(free)
            filter_ = Filter(f"({text}) AND run = '{self.name}'")
            self.give(program, Subscribe(subscription=text, filter=filter_))

    def _step(self, program: Program) -> None:
        rng = self.rng
        if not program.is_running:
            if rng.random() < 0.3:
                self._break(program)
                program.start(rng.choice(self.brokers))
                self._settle_in(program)
            return
        kind = rng.choices(STEPS, WEIGHTS)[0]
        node = program.node
        match kind:
            case "publish":
                count = rng.choice((1, 1, 1, 2, 5))
                self.give(program, PublishMany(events=tuple(self._event() for _ in range(count))))
            case "subscribe":
                self._subscribe(program)
            case "unsubscribe" if node.subscriptions:
                name = rng.choice(list(node.subscriptions))
                self.give(program, Unsubscribe(subscription=name))
            case "move":
                self.give(program, MoveTo(location=rng.choice(ROOMS)))
            case "set":
                self._set(program)
            case "roam":
                self.give(program, Attach(broker=rng.choice(self.brokers)))
            case "detach" if node.link in node.up:
                self.give(program, Detach())
            case "snapshot":
                program.snapshot()
            case "kill":
                self._break(program)
                program.kill()
            case "close":
                self._break(program)
                program.close()
            case "crash":
                broker = rng.choice(self.brokers)
                if broker in self.notes:
                    self.notes[broker].kill()
                self.network.crash(broker, rng.randint(1, CRASH_US), forgets=False)
            case _:
                pass

    def _event(self) -> tuple[dict[str, Any], bytes]:
        rng = self.rng
        return {
            "run": self.name,
            "kind": rng.choice("abc"),
            "n": rng.randrange(10),
            "location": rng.choice(ROOMS),
            "lat": rng.choice((52.52, 52.53, 52.6)),
            "lon": 13.4,
        }, b""

    # ---- Watching

    def fact(self, fact: Fact) -> None:
        if fact.at in self.notes:
            for each in self.recorded(fact):
                self.notes[fact.at].add(each)
        program = self.programs.get(fact.at)
        if program is None or not program.is_running:
            return
        match fact:
            case facts.Published():
                self.published |= {event.id: fact.time for event in fact.events}
            case facts.Delivered() if program.has_journal:
                self.delivered += [(fact.at, fact.time, event) for event in fact.events]
            case facts.Attached() | facts.Detached() | facts.Unsubscribed() | facts.Subscribed():
                self._break(program)
            case facts.Adapted() | facts.Forgotten():
                self._break(program)
        program.stated(fact)

    def _break(self, program: Program) -> None:
        self.breaks[program.name].append(self.now)

    def recorded(self, fact: Fact) -> list[Fact]:
        """What the journal of a node gets, by the clock of the node."""
        stated = [fact] if self._tamper is None else self._tamper(fact.at, fact)
        return [replace(each, time=each.time + self.ahead[fact.at]) for each in stated]


STEPS = (
    *("publish", "subscribe", "unsubscribe", "move", "set", "roam", "detach", "snapshot"),
    *("kill", "close", "crash"),
)
WEIGHTS = (60, 6, 1, 2, 2, 4, 2, 2, 3, 3, 1)


def _renamed(topology: Topology, name: str) -> Topology:
    return Topology(
        brokers=tuple(f"{name}.{each}" for each in topology.brokers),
        links=tuple((f"{name}.{a}", f"{name}.{b}") for a, b in topology.links),
    )
