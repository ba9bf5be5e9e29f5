"""The audit on Spark finds what the oracle of the simulator finds, in runs with planted faults.

All runs go through Spark together, each as a world of its own. Some more go through it as journals
of brokers and clients, whose clocks are all that compares, and where nobody knows when nothing was
on its way.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.location.steps import StepRule
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.journal import rows_of
from sterna.model.delivery import Fault
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.pipeline.audit import Finding, Verdict, audit, in_table, wanted
from sterna.pipeline.schemas import FACTS
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.network import Observer
from sterna.sim.oracle import Oracle
from sterna.sim.run import Simulation
from sterna.sim.script import Script
from sterna.sim.topology import random_tree
from tests.scale import CAMPAIGN, examples
from tests.sim.test_roaming_campaign import plans
from tests.sim.walks import walks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = 40
"""With roaming clients, and half as many with clients that walk about."""
LIVE_RUNS = 8
GRACE_US = 300_000
"""Longer than anything takes in the runs that are journals of brokers and clients."""

OF_ORACLE = (Fault.LOST, Fault.DUPLICATED, Fault.REORDERED, Fault.UNASKED, Fault.UNPUBLISHED)
"""The faults that a simulation's oracle finds; others are those of journals."""

Named = tuple[str, Fault, str, str, int, tuple[str, ...]]


class Facts(Observer):
    """All facts of a run, in order."""

    def __init__(self) -> None:
        self.all: list[Fact] = []

    def fact(self, fact: Fact) -> None:
        self.all.append(fact)


class Run:
    """The facts of a simulation, some of them changed, and what the oracle makes of them."""

    def __init__(self, name: str, script: Script, seed: int) -> None:
        self.name = name
        kept = Facts()
        Simulation(script, [kept], judged=False).run()
        needs_offers = script.client.advertisements
        offers = facts.Advertised | facts.Unadvertised
        stated = [fact for fact in kept.all if needs_offers or not isinstance(fact, offers)]
        self.facts = corrupted(stated, random.Random(seed))  # noqa: S311 - no secret.
        self.oracle = Oracle(script.clients, advertisements=needs_offers)
        for fact in self.facts:
            self.oracle.fact(fact)

    def findings(self) -> "Counter[Named]":
        return Counter(
            (self.name, found.fault, found.client, *found.event, tuple(sorted(found.path)))
            for found in self.oracle.findings()
        )


class Told(Run):
    """Facts that were made up, for what hardly ever happens in random runs."""

    def __init__(self, name: str, *stated: Fact) -> None:
        self.name = name
        self.facts = list(stated)
        self.oracle = Oracle()
        for fact in stated:
            self.oracle.fact(fact)


def made_up() -> list[Run]:
    """A stray nobody can explain any more; a delivery after the end of what was asked; a farewell
    after the first of two events had arrived.
    """
    first, second = (
        Event(publisher="p", seq=seq, time_us=0, attributes={"x": 1}) for seq in (1, 2)
    )
    asked = facts.Subscribed(at="s", time=0, subscription="1", filter=Filter("x > 0"))
    ended = facts.Unsubscribed(at="s", time=0, subscription="1")
    calm = facts.Settled(at="", time=0)
    published = facts.Published(at="p", time=0, events=(first, second))
    stray = facts.Stray(at="s", time=0, events=(first,))
    delivered = facts.Delivered(at="s", time=0, events=(first,))
    left = facts.Left(at="p", time=0, published=1)
    gone = facts.Detached(at="p", time=0, link="B1")
    return [
        Told("stray", asked, calm, ended, calm, published, stray, calm),
        Told("late", asked, calm, ended, calm, published, delivered, calm),
        Told("farewell", asked, calm, published, left, gone, calm),
    ]


@dataclass
class Judged:
    """What went to Spark, and what it answered."""

    runs: list[Run] = field(default_factory=list)
    live: list["LiveRun"] = field(default_factory=list)
    verdict: Verdict | None = None

    def found(self, *, live: bool) -> list[Finding]:
        assert self.verdict is not None
        return [found for found in self.verdict.findings if (not found.world) == live]


@pytest.fixture(scope="module")
def judged(spark: "SparkSession") -> Judged:
    """One job for all of them."""
    judged = Judged(live=[LiveRun(number) for number in range(LIVE_RUNS * CAMPAIGN)])
    shapes = st.one_of(
        *(
            plans(
                *(Strategy.COVERING, FAULTS["light"], handover),
                advertisements=advertisements,
                leaves=(0, 0, 1, 5),
            )
            for handover in (
                HandoverOptions(protocol=Handover.RELOCATION),
                HandoverOptions(
                    protocol=Handover.RELOCATION, cache_events_max=1, away_max_us=50_000
                ),
                HandoverOptions(protocol=Handover.NAIVE),
            )
            for advertisements in (False, True)
        )
    )

    @given(shapes, st.integers(0, 2**32))
    @examples(RUNS)
    def roam(plan: Plan, seed: int) -> None:
        name = f"roaming-{len(judged.runs)}"
        judged.runs.append(Run(name, generate(plan, seed), seed))

    @given(st.data(), st.booleans(), st.integers(0, 2**32))
    @examples(RUNS // 2)
    def walk(data: st.DataObject, advertisements: bool, seed: int) -> None:
        town = data.draw(walks(RoutingOptions(advertisements=advertisements)))
        name = f"walking-{len(judged.runs)}"
        judged.runs.append(Run(name, town.script(StepRule.FLOOR), seed))

    roam()
    walk()
    judged.runs += made_up()
    worlds = [table(run.facts, run.name) for run in judged.runs]
    journals = [table(run.facts) for run in judged.live]
    together = pa.concat_tables([*worlds, *journals])
    facts = in_table(spark.createDataFrame(together, FACTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "ASKS_MIN", 2)  # Many short slices of time.
        judged.verdict = audit(facts, grace_us=GRACE_US, partitions=2)
    return judged


@pytest.mark.spec("PL-5")
def test_the_audit_agrees_with_the_oracle(judged: Judged) -> None:
    """Whatever was lost, repeated, swapped, forged or misled, roaming and walking clients alike."""
    found = Counter(
        (each.world, each.fault, each.client, each.publisher, each.seq, tuple(sorted(each.path)))
        for each in judged.found(live=False)
    )
    expected = sum((run.findings() for run in judged.runs), Counter())

    assert found == expected
    seen = Counter(fault for _, fault, *_ in expected.elements())
    assert all(seen[fault] >= RUNS / 20 for fault in OF_ORACLE), seen


@pytest.mark.spec("PL-5")
def test_it_counts_as_the_oracle_does(judged: Judged) -> None:
    """What was published and delivered, and what was owed; that of journals by clocks is known."""
    verdict = judged.verdict
    assert verdict is not None
    oracles = [run.oracle for run in judged.runs]
    published = sum(len(fact.events) for fact in _all(judged.live, facts.Published))
    delivered = sum(len(fact.events) for fact in _all(judged.live, facts.Delivered))

    assert verdict.published == sum(oracle.published for oracle in oracles) + published
    assert verdict.delivered == sum(oracle.delivered for oracle in oracles) + delivered
    owed = verdict.owed - sum(oracle.owed() for oracle in oracles)
    assert delivered / 4 < owed < delivered


# ---- What is changed in runs


def corrupted(run: list[Fact], rng: random.Random) -> list[Fact]:
    """The same facts, but for some events that are lost, repeated, changed, early or elsewhere."""
    run = list(run)
    for _ in range(rng.choice((0, 1, 2, 3, 6))):
        kinds: tuple[type[Fact], ...] = (facts.Delivered, facts.Stray)
        if rng.random() < 0.2:
            kinds = (facts.Published,)
        places = [place for place, fact in enumerate(run) if isinstance(fact, kinds)]
        if places:
            rng.choice(CORRUPTIONS)(run, rng.choice(places), rng)
    return run


def lose(run: list[Any], place: int, rng: random.Random) -> None:
    events = list(run[place].events)
    del events[rng.randrange(len(events))]
    left = msgspec.structs.replace(run[place], events=tuple(events))
    run[place : place + 1] = [left] if events else []


def repeat(run: list[Any], place: int, rng: random.Random) -> None:
    if not isinstance(run[place], facts.Published):
        for _ in range(rng.choice((1, 1, 2))):
            run.insert(rng.randint(place + 1, len(run)), run[place])


def move(run: list[Any], place: int, rng: random.Random) -> None:
    fact = run.pop(place)
    run.insert(rng.randint(0, len(run)), fact)


def swap(run: list[Any], place: int, rng: random.Random) -> None:
    fact = run[place]
    others = [
        other
        for other, each in enumerate(run)
        if other != place and type(each) is type(fact) and each.at == fact.at
    ]
    if others:
        other = rng.choice(others)
        run[place], run[other] = run[other], run[place]


def forge(run: list[Any], place: int, rng: random.Random) -> None:
    """Another event, that may have been published or not."""
    fact = run[place]
    if not isinstance(fact, facts.Published):
        known = {event.id: event for each in _all([run], facts.Published) for event in each.events}
        first = fact.events[0]
        forged = Event(publisher=first.publisher, seq=first.seq + rng.choice((1, 999)), time_us=0)
        events = (known.get(forged.id, forged), *fact.events[1:])
        run[place] = msgspec.structs.replace(fact, events=events)


def mislead(run: list[Any], place: int, rng: random.Random) -> None:
    """To somebody that it was not for."""
    nodes = sorted({fact.at for fact in run if isinstance(fact, facts.Subscribed | facts.Attached)})
    if not isinstance(run[place], facts.Published):
        run[place] = msgspec.structs.replace(run[place], at=rng.choice(nodes))


def excuse(run: list[Any], place: int, rng: random.Random) -> None:
    """An event is lost, and that was stated."""
    fact = run[place]
    if isinstance(fact, facts.Published):
        run.insert(place + 1, facts.Purged(at=fact.at, time=fact.time, events=fact.events[:1]))
    elif rng.random() < 0.5:
        run[place] = facts.Purged(at=fact.at, time=fact.time, events=fact.events)
    else:
        run[place] = facts.Discarded(at="B1", time=fact.time, client=fact.at, events=fact.events)


CORRUPTIONS = (lose, lose, repeat, move, swap, swap, forge, mislead, excuse)


# ---- By clocks


class LiveRun:
    """The same as journals of brokers and clients, with names of its own."""

    def __init__(self, seed: int) -> None:
        plan = Plan(
            topology=random_tree(4, seed),
            clients=5,
            subscriptions=12,
            events=40,
            moves=6 * (seed % 2),
            variety=3,
            wait_us=2 * GRACE_US,
            settle=0.0,
            handover=HandoverOptions(protocol=Handover.RELOCATION if seed % 2 else Handover.NONE),
        )
        script = generate(plan, seed)
        kept = Facts()
        ended_us = Simulation(script, [kept]).run().ended_us
        stated = [
            renamed(fact, f"{seed}.") for fact in kept.all if not isinstance(fact, facts.Settled)
        ]
        self.lost: set[tuple[str, str, int]] = set()
        rng = random.Random(seed)  # noqa: S311 - no secret.
        if seed % 4 > 1:
            place = rng.choice(
                [place for place, fact in enumerate(stated) if isinstance(fact, facts.Delivered)]
            )
            lost: Any = stated.pop(place)
            self.lost = {(lost.at, *event.id) for event in lost.events}
        self.facts: list[Fact] = [
            *stated,
            *(  # A sign of life at the end.
                facts.Moved(at=f"{seed}.{client}", time=ended_us + 3 * GRACE_US, location="x")
                for client in script.clients
            ),
        ]


def renamed(fact: Any, prefix: str) -> Fact:
    """The fact of a node with a longer name, about clients with longer names."""
    changes: dict[str, Any] = {"at": prefix + fact.at}
    for name in ("client", "link", "source"):
        if hasattr(fact, name):
            changes[name] = prefix + getattr(fact, name)
    if hasattr(fact, "filter"):  # Each run is about events of its own.
        changes["filter"] = Filter(f"({fact.filter}) AND run = '{prefix}'")
    if hasattr(fact, "events"):
        changes["events"] = _renamed(fact.events, prefix)
    if isinstance(fact, facts.Forwarded):
        changes["to"] = {prefix + to: _renamed(events, prefix) for to, events in fact.to.items()}
    return msgspec.structs.replace(fact, **changes)  # type: ignore[no-any-return]


def _renamed(events: Iterable[Event], prefix: str) -> tuple[Event, ...]:
    return tuple(
        msgspec.structs.replace(
            event,
            publisher=prefix + event.publisher,
            attributes={**event.attributes, "run": prefix},
        )
        for event in events
    )


@pytest.mark.spec("PL-5")
def test_by_clocks_nobody_is_accused_wrongly_and_what_is_lost_is_mostly_found(
    judged: Judged,
) -> None:
    """No message is on its way for longer than the grace period, so a finding is a fault."""
    found = {(each.client, each.publisher, each.seq) for each in judged.found(live=True)}
    lost = set().union(*(run.lost for run in judged.live))

    assert {each.fault for each in judged.found(live=True)} == {Fault.LOST}
    assert found <= lost
    assert len(found) >= len(lost) / 4


# ---- Tables


def table(stated: Sequence[Fact], journal: str | None = None) -> pa.Table:
    """Facts as the data source gives them: all in one journal, or each in that of its node."""
    rows = rows_of((position, 0, fact) for position, fact in enumerate(stated))
    columns = {name: rows[name] for name in rows.schema.names}
    columns["journal"] = (
        columns["at"] if journal is None else pa.array([journal] * len(rows), pa.string())
    )
    columns["time"] = columns["time_us"].cast(pa.timestamp("us", "UTC"))
    return pa.table({name: columns[name] for name in FACTS.names})


def frame(spark: "SparkSession", stated: Sequence[Fact]) -> "DataFrame":
    return spark.createDataFrame(table(stated), FACTS)


def _all(runs: Iterable[Any], kind: type[Fact]) -> list[Any]:
    stated = (run.facts if isinstance(run, LiveRun) else run for run in runs)
    return [fact for each in stated for fact in each if isinstance(fact, kind)]
