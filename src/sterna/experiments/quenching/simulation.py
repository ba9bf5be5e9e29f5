"""The runs of the quenching experiment: a ring road, and every byte on the publishers' links."""

import math
import random
from collections import Counter
from typing import NamedTuple

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.inputs import Publish, Subscribe, Unsubscribe
from sterna.core.link import RELIABLE, Data, Frame
from sterna.core.messages import InterestAsked, InterestKnown, Message, SubscriptionChange
from sterna.core.names import NodeId, RouteId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.experiments.experiment import DeliveryError
from sterna.experiments.quenching.settings import Setting
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Drop, Script, Settle, Wait
from sterna.sim.topology import line

BROKER = "B1"
PUBLISHERS = ("P1", "P2")
SUBSCRIBER = "C1"
"""Holds all subscriptions; to a publisher it makes no difference which client does."""

SEGMENTS = 2000
"""How many segments the road is divided into."""
STRETCH = (5, 15)
"""How many segments a subscription asks for, at least and at most."""
ADVANCE = (1, 40)
"""How many segments a publisher drives from one event to the next, at least and at most."""
PAYLOAD = bytes(64)

REST_US = 50_000
"""After the changes of a round, and after its events: longer than acknowledgements wait."""
CYCLE_ROUNDS = 50
"""With disconnections, each cycle of so many rounds ends with some without a connection."""


# ---- The workload


def subscriptions(match_rate: float) -> int:
    """How many subscriptions on random stretches it takes for so many events to be wanted."""
    return max(1, round(-math.log(1 - match_rate) * SEGMENTS / (sum(STRETCH) / 2)))


def make_script(setting: Setting, seed: int, *, quenching: bool) -> Script:
    """Cars on a ring road report where they are; each subscription asks for a stretch of it.

    When all subscriptions are there, publishers publish for the first time and learn c_all. Then,
    in each round, some subscriptions are replaced by others, and each publisher publishes. The
    first `Settle` precedes the first events, the second follows them.
    """
    rng = random.Random(f"quenching {seed}")  # noqa: S311 - reproducible, not secret.
    held = list(range(subscriptions(setting.match_rate)))
    at = {publisher: rng.randrange(SEGMENTS) for publisher in PUBLISHERS}
    steps: list[Do | Drop | Wait | Settle] = [_subscribe(number, rng) for number in held]
    steps += [Settle(), *_publish(at, rng), Settle()]
    down_rounds = round(setting.disconnected * CYCLE_ROUNDS)
    changes = 0
    for round_ in range(setting.events):
        left = CYCLE_ROUNDS - round_ % CYCLE_ROUNDS
        if left == down_rounds:
            down_us = 2 * down_rounds * REST_US
            steps += [Drop(a=publisher, b=BROKER, us=down_us) for publisher in PUBLISHERS]
        # Nothing settles while a connection is missing.
        rest = [Settle(), Wait(us=REST_US)] if left > down_rounds else [Wait(us=REST_US)]
        while changes < int((round_ + 1) * setting.change_rate):
            place = rng.randrange(len(held))
            old, held[place] = held[place], len(held) + changes
            steps += [_subscribe(held[place], rng), _unsubscribe(old)]
            changes += 1
        steps += [*rest, *_publish(at, rng), *rest]
    return Script(
        topology=line(1),
        clients=dict.fromkeys([*PUBLISHERS, SUBSCRIBER], BROKER),
        steps=tuple(steps),
        routing=RoutingOptions(
            strategy=Strategy.SIMPLE, interest_members_max=setting.interest_members_max
        ),
        client=ClientOptions(quenching=quenching, buffer_events_max=setting.buffer_events_max),
        timing=RELIABLE,
        seed=seed,
    )


def _subscribe(number: int, rng: random.Random) -> Do:
    length = rng.randint(*STRETCH)
    first = rng.randrange(SEGMENTS - length + 1)
    stretch = Filter(f"segment BETWEEN {first} AND {first + length - 1}")
    return Do(client=SUBSCRIBER, what=Subscribe(subscription=str(number), filter=stretch))


def _unsubscribe(number: int) -> Do:
    return Do(client=SUBSCRIBER, what=Unsubscribe(subscription=str(number)))


def _publish(at: dict[NodeId, int], rng: random.Random) -> list[Do]:
    """Each publisher drives on and publishes its position."""
    steps = []
    for publisher in PUBLISHERS:
        at[publisher] = (at[publisher] + rng.randint(*ADVANCE)) % SEGMENTS
        attributes = {"segment": at[publisher], "speed": round(rng.uniform(0, 120), 1)}
        what = Publish(attributes=attributes, payload=PAYLOAD)
        steps.append(Do(client=publisher, what=what))
    return steps


# ---- Counting


class Watch(Observer):
    """Notes which events were wanted, which were discarded, and c_all at the first publisher."""

    def __init__(self) -> None:
        self.published = 0
        self.wanted: set[EventId] = set()
        self.quenched: set[EventId] = set()
        self.purged: set[EventId] = set()
        self.known: set[RouteId] = set()
        self._filters: dict[str, Filter] = {}

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Subscribed():
                self._filters[fact.subscription] = fact.filter
            case facts.Unsubscribed():
                del self._filters[fact.subscription]
            case facts.Published():
                self.published += len(fact.events)
                for event in fact.events:
                    if any(each.matches(event.attributes) for each in self._filters.values()):
                        self.wanted.add(event.id)
            case facts.Quenched():
                self.quenched.update(event.id for event in fact.events)
            case facts.Purged():
                self.purged.update(event.id for event in fact.events)
            case _:
                pass

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del fate, now
        if pipe.target.node.id == PUBLISHERS[0] and isinstance(frame, Data):
            message = frame.message
            if isinstance(message, SubscriptionChange):
                self.known |= {route.id for route in message.added}
                self.known -= set(message.removed)


class Run(NamedTuple):
    """The results of a run."""

    watch: Watch
    first: "Bytes"
    """Bytes on the publishers' links, to learn of all subscriptions."""
    bytes: "Bytes"
    """Bytes on the publishers' links after that."""
    delivered: int


Bytes = Counter[type[Message] | None]


def run(script: Script, where: str) -> Run:
    """Simulate a script; DeliveryError if the oracle finds anything wrong."""
    watch = Watch()
    simulation = Simulation(script, [watch], count_bytes=True)
    settled: list[Bytes] = []
    for step in script.steps:
        simulation.do(step)
        if isinstance(step, Settle) and len(settled) < 2:
            settled.append(_sent(simulation))
    simulation.settle()
    findings = simulation.oracle.findings()
    if findings:
        raise DeliveryError(where, findings)
    alone, connected = settled
    return Run(watch, connected - alone, _sent(simulation) - connected, simulation.oracle.delivered)


def compare(off: Run, on: Run, where: str) -> None:
    """Quenching must not discard what is wanted, nor change what is delivered."""
    both = sorted(on.watch.quenched & on.watch.wanted)
    wrong = [f"quenched, but wanted: {id_.publisher} #{id_.seq}" for id_ in both]
    if on.delivered != off.delivered:
        wrong.append(f"{on.delivered} events delivered, {off.delivered} without quenching")
    if wrong:
        raise DeliveryError(where, wrong)


def _sent(simulation: Simulation) -> Bytes:
    hosts = simulation.network.hosts
    counted: Bytes = Counter()
    for publisher in PUBLISHERS:
        counted += hosts[publisher].pipes[BROKER].bytes
        counted += hosts[BROKER].pipes[publisher].bytes
    return counted


def updates(counted: Bytes) -> int:
    """Bytes that announce to publishers what is wanted."""
    return counted[SubscriptionChange] + counted[InterestKnown] + counted[InterestAsked]
