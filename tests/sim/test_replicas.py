"""One application that several brokers serve at once, each through a session of its own.

Whatever sessions and publishers do, and whatever goes wrong, each filter keeps its promises. If a
broker dies for good, the application misses nothing that a session got which did not depend on it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.handover.cache import read
from sterna.core.handover.hosting import Hosting
from sterna.core.inputs import Attach, Detach, Publish
from sterna.core.names import NodeId, Time
from sterna.core.replication.facts import CameLate, GaveUp, HeldBack
from sterna.core.replication.options import Filtering, MergingOptions
from sterna.core.replication.verdicts import judge_facts
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.model.replicas import judge, missing
from sterna.sim.replicas import Application, ReplicatedSimulation
from sterna.sim.script import (
    AnyStep,
    Crash,
    Die,
    Do,
    Drop,
    LinkModel,
    Partition,
    Pause,
    Script,
    Slow,
    Wait,
)
from sterna.sim.topology import Topology, from_parents, star
from tests.scale import examples
from tests.sim.overlay import RELOCATION, Facts

ONE, TWO, SPARE = "car/1", "car/2", "car/3"
HOP_US: Time = 1_000
HOLD_US: Time = 60_000_000
"""Longer than anything takes that ends."""
END_US: Time = 200_000_000


class Told:
    """A story of a car with two sessions, and a publisher; each method does one thing."""

    def __init__(self, filtering: Filtering, hold_us: Time = HOLD_US) -> None:
        """B1 in the middle has the publisher, B2 and B3 a session of the car each."""
        self.script = Script(
            topology=star(4),
            clients={ONE: "B2", TWO: "B3", SPARE: "B4", "p": "B1"},
            steps=(),
            handover=RELOCATION,
        )
        self.car = Application(
            "car", (ONE, TWO), MergingOptions(filtering=filtering, hold_us=hold_us)
        )
        self.simulation = ReplicatedSimulation(self.script, self.car)
        self.simulation.settle()
        self.wanted = {"1": Filter("price > 0")}
        self.simulation.subscribe("1", self.wanted["1"])
        self.simulation.settle()

    def publish(self, price: int) -> "Told":
        return self.do(Do(client="p", what=Publish(attributes={"price": price})))

    def do(self, *steps: AnyStep) -> "Told":
        for step in steps:
            self.simulation.do(step)
        return self

    def wait(self, us: Time) -> "Told":
        return self.do(Wait(us=us))

    @property
    def displayed(self) -> list[int]:
        return [id_.seq for id_ in self.car.ids]


@pytest.mark.spec("RE-1")
@pytest.mark.parametrize(
    ("filtering", "displayed"),
    [
        (Filtering.NONE, [1, 1, 2, 2]),
        (Filtering.DUPLICATES, [1, 2]),
        (Filtering.ORDER, [1, 2]),
        (Filtering.HOLDING, [1, 2]),
    ],
)
def test_both_sessions_bring_everything(filtering: Filtering, displayed: list[int]) -> None:
    story = Told(filtering).publish(1).wait(10 * HOP_US).publish(2).wait(10 * HOP_US)

    assert story.displayed == displayed


@pytest.mark.spec("RE-1")
def test_the_session_that_is_faster_sets_the_pace() -> None:
    story = Told(Filtering.HOLDING).do(Slow(a="B1", b="B3", latency_us=50 * HOP_US))
    story.publish(1).publish(2).wait(3 * HOP_US)

    assert story.displayed == [1, 2]


@pytest.mark.spec("RE-1")
def test_a_gap_waits_for_the_slower_session() -> None:
    """Nobody wants event 2, which only the slower session can say: by bringing 3."""
    story = Told(Filtering.HOLDING).do(Slow(a="B1", b="B3", latency_us=50 * HOP_US))
    story.publish(1).publish(0).publish(3).wait(51 * HOP_US)
    assert story.displayed == [1]

    story.wait(HOP_US)
    assert story.displayed == [1, 3]
    assert not any(type(fact) is GaveUp for fact in story.car.facts)


@pytest.mark.spec("RE-1")
def test_waiting_is_bounded_in_a_running_network() -> None:
    story = Told(Filtering.HOLDING, hold_us=20 * HOP_US)
    story.do(Drop(a="B1", b="B3", us=500 * HOP_US))
    story.publish(1).publish(0).publish(3).wait(22 * HOP_US)
    assert story.displayed == [1]

    story.wait(HOP_US)
    assert story.displayed == [1, 3]
    (given_up,) = [fact for fact in story.car.facts if type(fact) is GaveUp]
    assert given_up.sessions == (TWO,)


@pytest.mark.spec("RE-5")
@pytest.mark.parametrize("dying", ["B2", "B3"])
def test_a_broker_that_dies_for_good_leaves_no_gap(dying: NodeId) -> None:
    """It dies with an event on its way through it; the other session brings that."""
    story = Told(Filtering.HOLDING).publish(1).wait(10 * HOP_US)
    story.publish(2).wait(HOP_US).do(Die(broker=dying)).wait(2 * HOP_US)
    assert story.displayed == [1, 2]

    lost = {"B2": ONE, "B3": TWO}[dying]
    story.publish(3).wait(10 * HOP_US)
    story.simulation.replace(lost, SPARE, "B4", story.wanted)
    story.wait(10 * HOP_US).publish(4).wait(10 * HOP_US)

    assert story.displayed == [1, 2, 3, 4]
    assert story.car.received.count(EventId("p", 4)) == 2
    assert list(story.car.merging.sessions) == [TWO if lost == ONE else ONE, SPARE]


@pytest.mark.spec("RE-5")
def test_what_the_other_broker_had_accepted_comes_although_nobody_can_send_it_again() -> None:
    """Both sessions are away. The broker that dies had the event, and was the way to the other."""
    script = Script(
        topology=star(3),
        clients={ONE: "B1", TWO: "B3", SPARE: "B3", "p": "B2"},
        steps=(),
        handover=RELOCATION,
    )
    car = Application("car", (ONE, TWO))
    simulation = ReplicatedSimulation(script, car)
    simulation.subscribe("1", Filter("TRUE"))
    simulation.settle()
    for session in (ONE, TWO):
        simulation.do(Do(client=session, what=Detach()))
    simulation.do(Do(client="p", what=Publish(attributes={})))
    simulation.settle()
    assert accepted(simulation, ONE) == accepted(simulation, TWO) == {EventId("p", 1)}
    simulation.do(Die(broker="B1"))
    assert accepted(simulation, ONE) == set()
    simulation.replace(ONE, SPARE, "B3", {"1": Filter("TRUE")})
    simulation.do(Do(client=TWO, what=Attach(broker="B3")))
    simulation.do(Wait(us=10 * HOP_US))

    assert car.ids == [EventId("p", 1)]


@pytest.mark.spec("RE-5")
def test_with_a_session_in_each_part_of_a_network_that_has_fallen_apart_nothing_is_lost() -> None:
    """B1 in the middle dies. What is published on either side comes through the session there."""
    script = Script(
        topology=star(3),
        clients={ONE: "B2", TWO: "B3", "p": "B2", "q": "B3"},
        steps=(),
        handover=RELOCATION,
    )
    car = Application("car", (ONE, TWO))
    simulation = ReplicatedSimulation(script, car)
    simulation.subscribe("1", Filter("TRUE"))
    simulation.settle()
    simulation.do(Die(broker="B1"))
    for publisher in ("p", "q", "p"):
        simulation.do(Do(client=publisher, what=Publish(attributes={})))
    simulation.do(Wait(us=10 * HOP_US))

    assert car.ids == [EventId("p", 1), EventId("q", 1), EventId("p", 2)]


# ---- Whatever happens


@dataclass
class Run:
    """A random run: its script, and who dies and replaces whom."""

    script: Script
    wanted: Filter
    spare_at: NodeId
    lost: NodeId | None
    """The session that is replaced, if a broker dies."""

    def staying(self) -> list[NodeId]:
        """The first sessions that are not lost, and whose brokers can reach each other always."""
        part = parts(self.script.topology, self.dead)
        return [
            session
            for session in (ONE, TWO)
            if session != self.lost
            and len({part.get(broker, "") for broker in self.places[session]} | {""}) == 2
            and not self.places[session] & self.dead
        ]

    @cached_property
    def dead(self) -> set[NodeId]:
        return {step.broker for step in self.script.steps if isinstance(step, Die)}

    @cached_property
    def places(self) -> dict[NodeId, set[NodeId]]:
        """At which brokers each client is in the course of the run."""
        places = {client: {broker} for client, broker in self.script.clients.items()}
        for step in self.script.steps:
            if isinstance(step, Do) and isinstance(step.what, Attach):
                places[step.client].add(step.what.broker)
        return places

    def safe(self) -> list[EventId]:
        """The events that a session gets on ways on which no broker dies."""
        places, dead = self.places, self.dead
        published: list[tuple[EventId, Publish]] = []
        count: Counter[NodeId] = Counter()
        for step in self.script.steps:
            if isinstance(step, Do) and isinstance(step.what, Publish):
                count[step.client] += 1
                published.append((EventId(step.client, count[step.client]), step.what))
        part = parts(self.script.topology, dead)

        def together(a: NodeId, b: NodeId) -> bool:
            return len({part.get(broker, "") for broker in places[a] | places[b]} | {""}) == 2

        return [
            id_
            for id_, what in published
            if self.wanted.matches(what.attributes)
            and not (places[id_.publisher] & dead)
            and any(
                together(session, id_.publisher) and not (places[session] & dead)
                for session in (ONE, TWO)
                if session != self.lost
            )
        ]


def parts(topology: Topology, dead: Iterable[NodeId]) -> dict[NodeId, NodeId]:
    """For each broker that lives, the first one of the part that it is in."""
    part = {broker: broker for broker in topology.brokers if broker not in set(dead)}
    for upper, lower in topology.links:  # From the root on: a part has one topmost broker.
        if upper in part and lower in part:
            part[lower] = part[upper]
    return part


@st.composite
def replicated(draw: st.DrawFn, *, dies: bool) -> Run:
    """Sessions and publishers roam in a small network with faults; maybe a broker dies for good."""
    count = draw(st.integers(3, 7))
    topology = from_parents([draw(st.integers(0, child - 1)) for child in range(1, count)])
    doomed = draw(st.sampled_from(topology.brokers)) if dies else None
    living = st.sampled_from([broker for broker in topology.brokers if broker != doomed])
    anywhere = st.sampled_from(topology.brokers)
    publishers = ["p", "q"][: draw(st.integers(1, 2))]
    at_doomed = doomed is not None and draw(st.booleans())
    clients = {ONE: doomed if at_doomed and doomed else draw(anywhere), TWO: draw(living)}
    clients |= {SPARE: draw(living), **{publisher: draw(living) for publisher in publishers}}
    lost = ONE if clients[ONE] == doomed or draw(st.booleans()) else None

    def publish() -> AnyStep:
        what = Publish(attributes={"n": draw(st.integers(0, 3))})
        return Do(client=draw(st.sampled_from(publishers)), what=what)

    movers = [TWO, *publishers] + [ONE] * (not dies or lost is None)

    def move() -> AnyStep:
        return Do(client=draw(st.sampled_from(movers)), what=Attach(broker=draw(living)))

    def nap() -> AnyStep:
        return Do(client=TWO, what=Detach())

    def fault() -> AnyStep:
        us = draw(st.integers(1, 300)) * HOP_US
        broker = draw(living)
        link = draw(st.sampled_from(topology.links))
        faults: tuple[AnyStep, ...] = (
            Drop(a=link[0], b=link[1], us=us),
            Drop(a=TWO, b=broker, us=us),
            Pause(broker=broker, us=us),
            Crash(broker=broker, us=us),
            Partition(brokers=(broker,), us=us),
        )
        return draw(st.sampled_from(faults))

    steps: list[AnyStep] = []
    happenings = st.sampled_from(
        (publish, publish, publish, publish, move, nap, fault) if draw(st.booleans()) else
        (publish, publish, publish, move)
    )  # fmt: skip
    length = draw(st.integers(5, 30))
    death = draw(st.integers(0, length - 1)) if dies else -1
    naps = False
    for place in range(length):
        if place == death and doomed is not None:
            steps.append(Die(broker=doomed))
        kind = draw(happenings)
        if kind is nap and naps:
            continue
        step = kind()
        steps.append(step)
        if isinstance(step, Do) and step.client == TWO:
            naps = isinstance(step.what, Detach)
        steps.append(Wait(us=draw(st.sampled_from((0, 300, 1_500, 20_000, 300_000)))))
    steps += [Do(client=TWO, what=Attach(broker=draw(living)))] if naps else []
    script = Script(
        topology=topology,
        clients=clients,
        steps=tuple(steps),
        routing=RoutingOptions(strategy=draw(st.sampled_from(Strategy))),
        link=LinkModel(
            jitter_us=draw(st.sampled_from((0, 2_000))),
            loss=draw(st.sampled_from((0, 0, 0.1))),
            duplication=draw(st.sampled_from((0, 0.1))),
        ),
        latencies=tuple(
            (a, b, draw(st.sampled_from((0, 1_000, 30_000)))) for a, b in topology.links
        ),
        handover=RELOCATION,
        seed=draw(st.integers(0, 2**16)),
    )
    return Run(script, Filter("n > 0"), draw(living), lost if dies else None)


def accepted(simulation: ReplicatedSimulation, session: NodeId) -> set[EventId]:
    """What brokers that live have for a session: kept, or sent to it and not confirmed."""
    found: set[EventId] = set()
    for name in simulation.script.topology.brokers:
        host = simulation.network.hosts[name]
        if host.is_down:
            continue
        (hosting,) = (each for each in host.node.components if isinstance(each, Hosting))
        guest = hosting.guests.get(session)
        if guest is not None:
            waiting = [*read(guest.cache.events(), host.node.depot), *guest.lost]
            found |= {event.id for event in waiting}
        unconfirmed = host.node.unconfirmed(session) if session in host.node.peers else ()
        for message in unconfirmed:
            found |= {event.id for event in getattr(message, "events", ())}
    return found


def simulate(
    run: Run, filtering: Filtering, facts: Facts, seen: set[EventId]
) -> tuple[Application, ReplicatedSimulation]:
    """Run it; what brokers have accepted for the sessions that stay is put into `seen`."""
    car = Application("car", (ONE, TWO), MergingOptions(filtering=filtering, hold_us=HOLD_US))
    simulation = ReplicatedSimulation(run.script, car, [facts])
    simulation.subscribe("1", run.wanted)
    simulation.settle()
    died = False
    for step in run.script.steps:
        simulation.do(step)
        for session in run.staying():
            seen |= accepted(simulation, session)
        if isinstance(step, Die):
            died = True
            if run.lost:
                simulation.replace(run.lost, SPARE, run.spare_at, {"1": run.wanted})
    if died:
        simulation.do(Wait(us=END_US))
    else:
        simulation.settle()
    return car, simulation


def check(run: Run, filtering: Filtering, seen: Counter[str]) -> None:
    """The promises of each filter, about what the sessions got and about what was safe."""
    facts = Facts()
    held: set[EventId] = set()
    car, simulation = simulate(run, filtering, facts, held)
    verdict = judge(car.ids, car.received)
    assert verdict == judge_facts([*facts.all, *car.facts], "car", (ONE, TWO, SPARE))
    safe = run.safe()
    gave_up = any(type(fact) is GaveUp for fact in car.facts)
    if filtering is not Filtering.NONE:
        assert verdict.consistent
    if filtering in (Filtering.ORDER, Filtering.HOLDING):
        assert verdict.ordered
    if filtering in (Filtering.NONE, Filtering.DUPLICATES):
        assert verdict.complete
    if filtering is not Filtering.ORDER:
        assert missing(car.ids, safe) == []
        assert missing(car.ids, sorted(held)) == []
    late = {id_ for fact in car.facts if type(fact) is CameLate for id_ in fact.events}
    if filtering is Filtering.HOLDING:
        assert verdict.complete or gave_up or run.lost  # Nothing waits for a new session.
    assert set(missing(car.ids, car.received)) <= late
    if not run.lost and not any(isinstance(step, Die) for step in run.script.steps):
        assert simulation.oracle.findings() == []
    seen.update(
        runs=1,
        safe=len(safe),
        kept=len(held),
        twice=not judge(car.received, ()).consistent,
        unordered=not judge(car.received, ()).ordered,
        held=any(type(fact) is HeldBack for fact in car.facts),
        gave_up=gave_up,
        missed=not verdict.complete,
    )


@pytest.mark.spec("RE-1")
@pytest.mark.parametrize("filtering", Filtering)
def test_each_filter_keeps_its_promises_over_roaming_sessions(filtering: Filtering) -> None:
    seen: Counter[str] = Counter()

    @examples(30)
    @given(replicated(dies=False))
    def runs(run: Run) -> None:
        check(run, filtering, seen)

    runs()
    assert seen["safe"] > seen["runs"]
    assert seen["twice"] > seen["runs"] / 2
    assert seen["unordered"] > 0


@pytest.mark.spec("RE-5", "RE-1")
@pytest.mark.parametrize("filtering", Filtering)
def test_a_broker_that_dies_for_good_loses_nothing_that_another_watches(
    filtering: Filtering,
) -> None:
    seen: Counter[str] = Counter()

    @examples(40)
    @given(replicated(dies=True))
    def runs(run: Run) -> None:
        check(run, filtering, seen)

    runs()
    assert seen["safe"] > seen["runs"]
    assert seen["kept"] > 0
    assert seen["twice"] > 0
