"""What a client gets over its link that was away: bytes by queue policy and time away. (Huang, 4.3)

A client follows the sensors of a town, goes away, and comes back at another broker. The same events
are published in each run of a seed, and wait under another policy.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.link import RELIABLE
from sterna.core.terms.messages import Terms
from sterna.experiments.experiment import (
    MEDIANS,
    Claim,
    DeliveryError,
    Experiment,
    Point,
    PrintedTable,
    in_words,
)
from sterna.experiments.papers import HUANG
from sterna.experiments.plot import error_bars, panels
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, Script, Settle, Wait
from sterna.sim.topology import line

CLIENT, PUBLISHER = "car", "town"
OLD, NEW = "B1", "B2"
SENSORS = 20
PERIOD_US = 200_000
"""The time from one event to the next one, of any sensor."""
PAYLOAD = bytes(64)

ALL = "all"
"""Stands for no policy."""
POLICIES = (ALL, "ring(100)", "ttl(30s)", "last_per(sensor)", "max(level)")
AWAY_S = (10, 30, 60, 300, 600, 1_800)
COLOURS = ("#222222", "#8a8a8a", "#c2571a", "#0b6e99", "#3a8f3a")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run."""

    policy: str
    away_s: int


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run."""

    client_bytes: float
    """Bytes on the client's link since it is back, in both directions."""
    brokers_bytes: float
    """Bytes between the old broker and the new one since then."""
    waited: float
    """How many events came while the client was away."""
    delivered: float
    purged: float


Points = Sequence[Point[Setting, Measures]]


class QueuePolicies(Experiment[Setting, Measures]):
    name = "queue-policies"
    about = "Bytes to a client that was away, by what its subscription wants kept and for how long."
    takes = "about two minutes"
    paper = HUANG

    def settings(self, *, quick: bool) -> list[Setting]:
        away_s = (10, 60) if quick else AWAY_S
        return [Setting(policy=policy, away_s=s) for policy in POLICIES for s in away_s]

    def measure(self, setting: Setting, seed: int) -> Measures:
        watch = Watch()
        simulation = Simulation(make_script(setting, seed), [watch], count_bytes=True)
        before = 0, 0
        for step in simulation.script.steps:
            if isinstance(step, Do) and isinstance(step.what, Attach):
                before = _sent(simulation)
            simulation.do(step)
        where = f"{in_words(setting)}, seed {seed}"
        findings = [*simulation.oracle.findings()]
        if findings:
            raise DeliveryError(where, findings)
        check(watch, where)
        to_client, between = _sent(simulation)
        return Measures(
            client_bytes=to_client - before[0],
            brokers_bytes=between - before[1],
            waited=len(watch.published),
            delivered=len(watch.delivered),
            purged=len(watch.purged),
        )

    def work(self, setting: Setting) -> float:
        return setting.away_s

    def claims(self, points: Points) -> list[Claim]:
        longest = max(point.setting.away_s for point in points)
        bytes_ = {
            point.setting.policy: point.median.client_bytes
            for point in points
            if point.setting.away_s == longest
        }
        shares = {name: each / bytes_[ALL] for name, each in bytes_.items() if name != ALL}
        seen = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        return [
            Claim(
                "Transmitting all queued events may be unreasonable; the semantics of a "
                "subscription help (Huang, 4.3)",
                f"of the bytes without a policy after {longest} s: {seen}",
                holds=max(shares.values()) < 1,
                why="it depends on how often things change: policies help as soon as the client "
                "is away for longer than what they keep takes to come",
            )
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        note = f"All are {MEDIANS}; {SENSORS} sensors, {1_000_000 // PERIOD_US} events a second."
        return [
            _table(points, "kB on the client's link, by seconds away", _kilobytes, note),
            _table(points, "Events delivered", lambda m: f"{m.delivered:,.0f}", ""),
            _table(points, "kB between the brokers", _kilobytes_between, ""),
        ]

    def summary(self, points: Points) -> dict[str, Any]:
        return {
            "client_bytes": {
                policy: {
                    str(point.setting.away_s): point.median.client_bytes
                    for point in points
                    if point.setting.policy == policy
                }
                for policy in POLICIES
            }
        }

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 1, (6.4, 4.2)) as (axes,):
            for policy, colour in zip(POLICIES, COLOURS, strict=True):
                curve = [point for point in points if point.setting.policy == policy]
                away_s = [point.setting.away_s for point in curve]
                axes.plot(away_s, [point.median.client_bytes / 1_000 for point in curve], "o-",
                          color=colour, markersize=4, label=policy)  # fmt: skip
                error_bars(axes, away_s, curve, lambda m: m.client_bytes / 1_000, colour)
            axes.set(
                xscale="log",
                yscale="log",
                xlabel="seconds away",
                ylabel="kB on the client's link",
                title="What it costs a client to come back",
            )
            axes.legend(frameon=False, fontsize=8)


# ---- The workload


def make_script(setting: Setting, seed: int) -> Script:
    """Sensors report their levels; the client is away for a time, and comes back elsewhere."""
    rng = random.Random(f"queue policies {seed}")  # noqa: S311 - reproducible, not secret.
    terms = Terms() if setting.policy == ALL else Terms(keep=setting.policy)
    subscribe = Subscribe(subscription="levels", filter=Filter("level >= 0"), terms=terms)
    steps: list[AnyStep] = [
        *(Do(client=CLIENT, what=subscribe), Settle(), Do(client=CLIENT, what=Detach()), Settle())
    ]
    for _ in range(setting.away_s * 1_000_000 // PERIOD_US):
        level = {"sensor": rng.randrange(SENSORS), "level": round(rng.uniform(0, 100), 1)}
        steps.append(Do(client=PUBLISHER, what=Publish(attributes=level, payload=PAYLOAD)))
        steps.append(Wait(us=PERIOD_US))
    steps += [Do(client=CLIENT, what=Attach(broker=NEW)), Settle()]
    return Script(
        topology=line(3),
        clients={CLIENT: OLD, PUBLISHER: "B3"},
        steps=tuple(steps),
        handover=HandoverOptions(protocol=Handover.RELOCATION),
        protocols=("terms",),
        timing=RELIABLE,
        seed=seed,
    )


# ---- Counting


class Watch(Observer):
    """Notes which events were published, delivered and purged."""

    def __init__(self) -> None:
        self.published: set[EventId] = set()
        self.delivered: set[EventId] = set()
        self.purged: set[EventId] = set()

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Published():
                self.published.update(event.id for event in fact.events)
            case facts.Delivered():
                self.delivered.update(event.id for event in fact.events)
            case facts.Discarded() if fact.policy:
                self.purged.update(event.id for event in fact.events)
            case _:
                pass


def check(watch: Watch, where: str) -> None:
    """DeliveryError unless each event was either delivered or purged by the policy."""
    lost = watch.published - watch.delivered - watch.purged
    both = watch.delivered & watch.purged
    wrong = [f"neither delivered nor purged: {id_.publisher} #{id_.seq}" for id_ in sorted(lost)]
    wrong += [f"delivered and purged: {id_.publisher} #{id_.seq}" for id_ in sorted(both)]
    if wrong:
        raise DeliveryError(where, wrong)


def _sent(simulation: Simulation) -> tuple[int, int]:
    """How many bytes have gone over the client's links, and between the brokers it visits."""
    hosts = simulation.network.hosts

    def between(a: str, b: str) -> int:
        pipes = [hosts[x].pipes.get(y) for x, y in ((a, b), (b, a))]
        return sum(pipe.bytes.total() for pipe in pipes if pipe is not None)

    return between(CLIENT, OLD) + between(CLIENT, NEW), between(OLD, NEW)


# ---- Showing


def _kilobytes(measures: Measures) -> str:
    return f"{measures.client_bytes / 1_000:,.1f}"


def _kilobytes_between(measures: Measures) -> str:
    return f"{measures.brokers_bytes / 1_000:,.1f}"


def _table(points: Points, title: str, shown: Any, note: str) -> PrintedTable:
    away_s = sorted({point.setting.away_s for point in points})
    median = {(p.setting.policy, p.setting.away_s): p.median for p in points}
    rows = [(policy, *(shown(median[policy, s]) for s in away_s)) for policy in POLICIES]
    return PrintedTable(title, ("policy", *map(str, away_s)), rows, note)
