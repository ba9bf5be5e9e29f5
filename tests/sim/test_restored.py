"""Brokers that come back with an old memory: restored from a copy, or cut off where it was damaged;
and two brokers of one name, of which now one and now the other is there. And all that together with
what else may happen: neighbours that freeze, clocks that jump, filters that cannot be joined.

Some of what happened since the copy cannot be known any more. But both ends of each link notice it
and begin anew, so that nothing is lost that somebody still has, and all that follows arrives.
"""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.client import Client
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe, Unsubscribe
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.delivery import Fault
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, JUMP_US, Faults
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import ClockJump, Crash, Do, Doing, Drop, LinkModel, Pause, Script
from sterna.sim.topology import from_parents, line
from tests.poison import unreadable_together
from tests.scale import examples
from tests.sim.overlay import RELOCATION, Overlay
from tests.sim.test_poison import Readers


def overlay(brokers: int = 2) -> Overlay:
    """A line of brokers with a subscriber at its begin and a publisher at its end."""
    run = Overlay(
        line(brokers),
        {"ann": "B1", "pat": f"B{brokers}"},
        handover=RELOCATION,
        crashing=tuple(f"B{number}" for number in range(1, brokers + 1)),
    )
    return run.subscribe("ann", "x > 0").settle()


def now(run: Overlay) -> Time:
    return run.simulation.network.kernel.now


@pytest.mark.parametrize("broker", ["B1", "B2", "B3"])
def test_a_link_to_a_broker_with_an_old_memory_begins_anew(broker: str) -> None:
    run = overlay(3)
    for _ in range(10):
        run.publish("pat", x=1).settle()

    run.fault(Crash(broker=broker, us=20_000, back_us=now(run) // 2))
    run.settle().publish("pat", x=1).settle().publish("pat", x=1).settle()

    assert run.received("ann") == [f"pat#{number}" for number in range(1, 13)]
    differ = [fact for fact in run.facts.all if isinstance(fact, facts.MemoriesDiffer)]
    assert broker in {name for fact in differ for name in (fact.at, fact.link)}
    assert run.outcome().findings == []


def test_what_was_published_at_the_restored_broker_arrives() -> None:
    """It has more to send than the other end is said to have: that must not count as received."""
    run = overlay()
    run.publish("pat", x=1).settle()
    copied = now(run)
    for _ in range(3):
        run.wait(1_000).publish("pat", x=1).settle()
    run.fault(Drop(a="B1", b="B2", us=200_000)).wait(5_000)

    run.fault(Crash(broker="B2", us=10_000, back_us=now(run) - copied)).wait(50_000)
    for _ in range(5):
        run.publish("pat", x=1)
    run.settle()

    assert run.received("ann") == [f"pat#{number}" for number in range(1, 10)]
    assert run.facts_of(facts.MemoriesDiffer)


def test_what_waits_for_the_restored_broker_arrives() -> None:
    run = overlay()
    for _ in range(4):
        run.publish("pat", x=1).settle()
    run.fault(Crash(broker="B1", us=50_000, back_us=now(run) // 2))
    run.wait(10_000).publish("pat", x=1).publish("pat", x=1).settle()

    assert run.received("ann") == [f"pat#{number}" for number in range(1, 7)]


def test_events_pass_while_routes_are_announced_anew() -> None:
    """What a neighbour had announced holds until it has announced all of it again."""
    run = overlay(3)
    copied = now(run)
    for _ in range(3):
        run.wait(1_000).publish("pat", x=1).settle()

    run.fault(Crash(broker="B2", us=20_000, back_us=now(run) - copied))
    for _ in range(100):
        run.publish("pat", x=1).wait(1_000)
    run.settle()

    assert run.received("ann") == [f"pat#{number}" for number in range(1, 104)]
    assert run.facts_of(facts.MemoriesDiffer)


def test_a_client_that_was_elsewhere_since_is_told_that_it_was_forgotten() -> None:
    """The restored broker believes that it never left, and does not know where it was."""
    run = overlay()
    copied = now(run)
    run.wait(1_000).attach("ann", "B2").settle().detach("ann").settle()
    run.publish("pat", x=1).settle()

    run.fault(Crash(broker="B1", us=20_000, back_us=now(run) - copied)).settle()
    run.attach("ann", "B1").settle().publish("pat", x=1).settle()

    assert [fact.at for fact in run.facts_of(facts.Forgotten)] == ["ann"]
    assert run.received("ann") == ["pat#2"]


def test_what_is_not_announced_again_ends() -> None:
    run = overlay(3).subscribe("ann", "y > 0", "2").settle()
    run.wait(2_000).unsubscribe("ann", "2").settle()
    assert run.table("B3") == {"B2": ["x > 0"]}

    run.fault(Crash(broker="B2", us=20_000, back_us=now(run) // 2))
    run.settle()

    assert run.table("B3") == {"B2": ["x > 0"]}
    assert run.table("B2") == {"B1": ["x > 0"]}
    assert run.unsubscribe("ann").settle().table("B3") == {}


# ---- At random


class Story:
    """Clients subscribe, publish and move at random, and brokers come back with old memories.

    In some stories, brokers freeze for so long that their neighbours give them up, clocks jump, or
    there are filters whose join nobody could read.
    """

    def __init__(self, seed: int, faults: Faults, observers: Sequence[Observer] = ()) -> None:
        self._rng = rng = Random(f"restored {seed}")  # noqa: S311 - reproducible, not secret.
        self._brokers = from_parents([rng.randrange(n) for n in range(1, rng.randint(1, 5))])
        self.clients = {client: self._broker() for client in ("ann", "bob", "pat")}
        self._whats = [*(["publish"] * 5), "subscribe", "subscribe", "unsubscribe", "move", "nap"]
        self._whats += ["crash", "restore", "restore", "swap", *(["pause"] * faults.pauses)]
        self._whats += [each for each in ("freeze", "jump", "drop") if rng.random() < 0.3]
        if rng.random() < 0.1:
            self._whats.append("poison")
            observers = [*observers, Readers()]
        script = Script(
            topology=self._brokers,
            clients=self.clients,
            steps=tuple(Crash(broker=broker, us=0) for broker in self._brokers.brokers),
            handover=HandoverOptions(protocol=Handover.RELOCATION),
            routing=RoutingOptions(strategy=rng.choice(list(Strategy))),
            link=LinkModel(jitter_us=1_000, loss=faults.loss, duplication=faults.duplication),
        )
        self.simulation = Simulation(script, observers)

    def tell(self) -> None:
        for _ in range(self._rng.randint(5, 40)):
            getattr(self, f"_{self._rng.choice(self._whats)}")(self._rng.choice(list(self.clients)))
            network = self.simulation.network
            network.run(network.kernel.now + self._rng.choice((0, 500, 3_000, 20_000)))
        for client in self.clients:
            self._move(client)
        self.simulation.settle()

    def check(self) -> None:
        """From now on nothing is lost, and never did anything come twice or out of order."""
        for client in self.clients:
            self._do(client, Subscribe(subscription="last", filter=Filter("x >= 0")))
        self.simulation.settle()
        last = {client: self._client(client).published for client in self.clients}
        for client in [*self.clients, *self.clients]:
            self._publish(client)
        self.simulation.settle()
        assert [
            finding
            for finding in self.simulation.outcome().findings
            if finding.fault is not Fault.LOST or finding.event.seq > last[finding.event.publisher]
        ] == []

    def _publish(self, client: NodeId) -> None:
        self._do(client, Publish(attributes={"x": 1}))

    def _subscribe(self, client: NodeId) -> None:
        name = self._rng.choice("12")
        if name not in self._client(client).subscriptions:
            self._do(client, Subscribe(subscription=name, filter=Filter("x > 0")))

    def _poison(self, client: NodeId) -> None:
        place = self._rng.randrange(2)
        if f"poison{place}" not in self._client(client).subscriptions:
            filter_ = unreadable_together()[place]
            self._do(client, Subscribe(subscription=f"poison{place}", filter=filter_))

    def _unsubscribe(self, client: NodeId) -> None:
        for name in list(self._client(client).subscriptions)[:1]:
            self._do(client, Unsubscribe(subscription=name))

    def _move(self, client: NodeId) -> None:
        self._do(client, Attach(broker=self._broker()))

    def _nap(self, client: NodeId) -> None:
        self._do(client, Detach())

    def _pause(self, _client: NodeId) -> None:
        self.simulation.do(Pause(broker=self._broker(), us=self._while()))

    def _freeze(self, _client: NodeId) -> None:
        us = self._rng.randint(1_000_000, 60_000_000)
        self.simulation.do(Pause(broker=self._broker(), us=us))

    def _jump(self, client: NodeId) -> None:
        node = self._rng.choice((client, self._broker()))
        self.simulation.do(ClockJump(node=node, us=self._rng.randint(-JUMP_US, JUMP_US)))

    def _drop(self, _client: NodeId) -> None:
        if self._brokers.links:
            a, b = self._rng.choice(self._brokers.links)
            self.simulation.do(Drop(a=a, b=b, us=self._while()))

    def _crash(self, _client: NodeId) -> None:
        self.simulation.do(Crash(broker=self._broker(), us=self._while()))

    def _restore(self, _client: NodeId) -> None:
        back_us = self._rng.randint(1_000, 100_000)
        self.simulation.do(Crash(broker=self._broker(), us=self._while(), back_us=back_us))

    def _swap(self, _client: NodeId) -> None:
        self.simulation.do(Crash(broker=self._broker(), us=self._while(), twin=True))

    def _do(self, client: NodeId, what: Doing) -> None:
        self.simulation.do(Do(client=client, what=what))

    def _client(self, name: NodeId) -> Client:
        node = self.simulation.network.hosts[name].node
        assert isinstance(node, Client)
        return node

    def _broker(self) -> NodeId:
        return self._rng.choice(self._brokers.brokers)

    def _while(self) -> Time:
        return self._rng.randint(1_000, 50_000)


@pytest.mark.parametrize("faults", ["none", "heavy"])
def test_whatever_was_forgotten_all_that_follows_arrives(faults: str) -> None:
    @examples(250, long=5)
    @given(st.integers(0, 2**32))
    @example(5_006_321)  # Bob is born anew, does not hear of it, and goes on elsewhere.
    def runs(seed: int) -> None:
        story = Story(seed, FAULTS[faults])
        story.tell()
        story.check()

    runs()
