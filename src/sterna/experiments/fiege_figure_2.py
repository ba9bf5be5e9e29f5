"""Whether a client that moves loses events or gets them twice: naive handover and relocation.

Fiege, Fig. 2: even if all events are flooded and the move takes no time, an event can be at the new
broker before the client and at the old one after it, or the other way round.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.link import RELIABLE
from sterna.core.names import NodeId
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.experiments.counting import between_brokers, control
from sterna.experiments.experiment import (
    MEDIANS,
    Claim,
    DeliveryError,
    Experiment,
    Point,
    PrintedTable,
    in_words,
)
from sterna.experiments.papers import FIEGE
from sterna.experiments.plot import Axes, panels
from sterna.experiments.timeline import Plan, at_any_time, timed
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import Do, LinkModel, Script, Settle
from sterna.sim.topology import line

CLIENT = "C"
LINK_MS = 10
"""How long an event takes from one broker to the next; to the client it takes no time."""
STAY_MS = 500
"""How long the client stays at a broker."""
AWAY_MS, HOPS, RATE = 0, 4, 50
"""The values of the parameters that do not vary."""
PROTOCOLS = (Handover.NAIVE, Handover.RELOCATION)
STRATEGIES = (Strategy.FLOODING, Strategy.COVERING)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run."""

    protocol: Handover
    strategy: Strategy
    away_ms: int
    """How long the client has no broker when it moves; 0: it moves in an instant."""
    hops: int
    """The hops from the old broker to the new one."""
    rate: int
    """Events per second of each of the two producers, one at each of these brokers."""
    moves: int


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """How many events were lost, repeated or reordered. All of them are wanted."""

    published: float
    missed: float
    """Events that the client never received."""
    duplicated: float
    """Events that the client received once more."""
    reordered: float
    """Events that arrived after a later one of the same producer."""
    missed_per_move: float
    duplicated_per_move: float
    control_per_move: float
    """Messages between brokers other than events."""


Points = Sequence[Point[Setting, Measures]]


class FiegeFigure2(Experiment[Setting, Measures]):
    name = "fiege-figure-2"
    about = "Events that a moving client misses or gets twice: naive handover and relocation."
    takes = "about a minute"
    paper = FIEGE

    def settings(self, *, quick: bool) -> list[Setting]:
        base = {"away_ms": AWAY_MS, "hops": HOPS, "rate": RATE}
        ranges: dict[str, tuple[int, ...]] = {
            "away_ms": (0, 100) if quick else (0, 20, 100, 500, 2000),
            "hops": (4, 8) if quick else (1, 2, 4, 8, 16),
            "rate": (50,) if quick else (10, 50, 200),
        }
        places = [base | {name: value} for name, values in ranges.items() for value in values]
        return [
            Setting(protocol=protocol, strategy=strategy, moves=40 if quick else 60, **place)
            for place in {tuple(place.items()): place for place in places}.values()
            for strategy in STRATEGIES
            for protocol in PROTOCOLS
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        watch = Watch()
        simulation = Simulation(make_script(setting, seed), [watch], judged=False)
        before = 0
        for step in simulation.script.steps:
            simulation.do(step)
            if isinstance(step, Settle) and not watch.published:
                before = control(between_brokers(simulation))
        times = Counter(watch.received)
        missed = sum(id_ not in times for id_ in watch.published)
        duplicated = times.total() - len(times)
        reordered = sum(
            later.seq < earlier.seq
            for producer in producers(setting)
            for earlier, later in pairwise(
                id_ for id_ in watch.received if id_.publisher == producer
            )
        )
        if setting.protocol == Handover.RELOCATION and (missed or duplicated or reordered):
            wrong = f"missed {missed}, duplicated {duplicated}, out of order {reordered}"
            raise DeliveryError(f"{in_words(setting)}, seed {seed}", [wrong])
        return Measures(
            published=len(watch.published),
            missed=missed,
            duplicated=duplicated,
            reordered=reordered,
            missed_per_move=missed / setting.moves,
            duplicated_per_move=duplicated / setting.moves,
            control_per_move=(control(between_brokers(simulation)) - before) / setting.moves,
        )

    def work(self, setting: Setting) -> float:
        return setting.hops * setting.rate * (STAY_MS + setting.away_ms)

    def claims(self, points: Points) -> list[Claim]:
        def total(protocol: Handover, *, flooded: bool) -> tuple[int, int, int]:
            chosen = [
                point.median
                for point in points
                if point.setting.protocol is protocol
                and (not flooded or _is_figure_2(point.setting))
            ]
            return (
                round(sum(each.published for each in chosen)),
                round(sum(each.missed for each in chosen)),
                round(sum(each.duplicated for each in chosen)),
            )

        naive = total(Handover.NAIVE, flooded=True)
        kept = total(Handover.RELOCATION, flooded=False)
        return [
            Claim(
                "Naive handover misses and repeats events, even if they are flooded and the move "
                "takes no time (3.2, Fig. 2)",
                f"of {naive[0]:,} events {naive[1]:,} missed, {naive[2]:,} twice",
                holds=naive[1] > 0 and naive[2] > 0,
            ),
            Claim(
                "Relocation loses nothing and delivers nothing twice (4)",
                f"of {kept[0]:,} events in all settings {kept[1]:,} missed, {kept[2]:,} twice",
                holds=kept[1:] == (0, 0),
            ),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        rows = []
        pairs = {_place(point.setting): point for point in points}
        for point in points:
            setting, naive = point.setting, point.median
            if setting.protocol != Handover.NAIVE:
                continue
            kept = pairs[_place(msgspec.structs.replace(setting, protocol=Handover.RELOCATION))]
            missed, duplicated = expected(setting)
            rows.append(
                (
                    str(setting.strategy),
                    f"{setting.away_ms}",
                    f"{setting.hops}",
                    f"{setting.rate}",
                    f"{point.text(lambda m: m.missed_per_move, '.1f')} ({missed:.1f})",
                    f"{point.text(lambda m: m.duplicated_per_move, '.1f')} ({duplicated:.1f})",
                    f"{kept.median.missed:.0f}, {kept.median.duplicated:.0f}",
                    f"{naive.control_per_move:.0f}, {kept.median.control_per_move:.0f}",
                )
            )
        rows.sort(key=lambda row: row[0] != Strategy.FLOODING)
        head = ("strategy", "ms away", "hops", "rate", "naive: missed", "naive: twice",
                "relocation: both", "control: both")  # fmt: skip
        note = (
            f"Per move, {MEDIANS}; in brackets what the lengths of the paths let one compute. "
            "relocation: missed and twice. control: messages between brokers other than events, of "
            f"naive handover and of relocation. {LINK_MS} ms a hop; rate: events per second and "
            "producer, of which there are two."
        )
        return [PrintedTable("Missed and delivered twice, per move", head, rows, note)]

    def summary(self, points: Points) -> dict[str, Any]:
        computed = []
        for point in points:
            if point.setting.protocol == Handover.NAIVE:
                missed, duplicated = expected(point.setting)
                place = msgspec.to_builtins(point.setting)
                computed.append(
                    place | {"missed_per_move": missed, "duplicated_per_move": duplicated}
                )
        return {"computed": computed}

    def draw(self, points: Points, path: Path) -> None:
        axes_of = {
            "away_ms": "ms without a broker",
            "hops": "hops from old to new broker",
            "rate": "events per second and producer",
        }
        base = {"away_ms": AWAY_MS, "hops": HOPS, "rate": RATE}
        with panels(path, 1, 3, (12, 4)) as axes:
            for each, (varied, label) in zip(axes, axes_of.items(), strict=True):
                chosen = [
                    point
                    for point in points
                    if all(
                        getattr(point.setting, name) == value
                        for name, value in base.items()
                        if name != varied
                    )
                ]
                _curves(each, chosen, attrgetter(varied))
                each.set(xlabel=label, ylabel="events per move")
                each.set_ylim(bottom=-0.02 * each.dataLim.ymax)
                ticks = sorted({getattr(point.setting, varied) for point in chosen})
                if varied == "away_ms":
                    each.set_xscale("symlog", linthresh=20)
                    each.set_xlim(-4, 3000)
                each.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                each.set_xticks([], minor=True)
            axes[0].set_yscale("symlog", linthresh=1)
            axes[0].set_ylim(-0.1, 1000)
            axes[0].set_yticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
            axes[2].legend(frameon=False, fontsize=8)
            axes[0].set_title("a longer break")
            axes[1].set_title("a longer way (no break)")
            axes[2].set_title("more events (no break)")


# ---- The scenario


def producers(setting: Setting) -> dict[NodeId, NodeId]:
    """The producers, one at each of the two brokers between which the client moves."""
    return {"P1": "B1", "P2": f"B{setting.hops + 1}"}


def make_script(setting: Setting, seed: int) -> Script:
    """The client moves back and forth between the ends of a line, where the producers are."""
    rng = random.Random(f"figure 2 {seed}")  # noqa: S311 - reproducible, not secret.
    ends = list(producers(setting).values())
    moves = [STAY_MS * 1_000 * (number + 1) for number in range(setting.moves)]
    moves = [at + setting.away_ms * 1_000 * number for number, at in enumerate(moves)]
    end = moves[-1] + (setting.away_ms + STAY_MS) * 1_000
    plan: Plan = []
    for number, at in enumerate(moves, 1):
        attach = Do(client=CLIENT, what=Attach(broker=ends[number % 2]))
        if setting.away_ms:
            plan.append((at, Do(client=CLIENT, what=Detach())))
        plan.append((at + setting.away_ms * 1_000, attach))
    for producer in producers(setting):
        publish = Do(client=producer, what=Publish(attributes={"n": 1}))
        plan += [(at, publish) for at in at_any_time(rng, setting.rate, end)]
    subscribe = Do(client=CLIENT, what=Subscribe(subscription="all", filter=Filter("n = 1")))
    return Script(
        topology=line(setting.hops + 1),
        clients={CLIENT: ends[0], **producers(setting)},
        steps=(subscribe, Settle(), *timed(plan), Settle()),
        routing=RoutingOptions(strategy=setting.strategy),
        link=LinkModel(latency_us=LINK_MS * 1_000),
        latencies=tuple((client, end, 0) for client in (CLIENT, "P1", "P2") for end in ends),
        handover=HandoverOptions(protocol=setting.protocol),
        timing=RELIABLE,
        seed=seed,
    )


def expected(setting: Setting) -> tuple[float, float]:
    """How many events naive handover misses and repeats per move, from the lengths of the paths.

    A client leaves at 0 and is back after the break. An event of the producer at the new broker is
    there at once, and on its way to the old one; it is missed if it is published less than the way
    before 0 or during the break. For the producer at the old broker it is the other way round. If
    subscriptions travel, it has to learn of the new place first, and nothing goes both ways.
    """
    way, away = setting.hops * LINK_MS / 1_000, setting.away_ms / 1_000
    if setting.strategy is Strategy.FLOODING:
        missed = (way + away) + max(0.0, away - way)
        return setting.rate * missed, setting.rate * max(0.0, way - away)
    return setting.rate * 2 * (way + away), 0.0


# ---- Counting


class Watch(Observer):
    """Notes what was published and what the client received."""

    def __init__(self) -> None:
        self.published: list[EventId] = []
        self.received: list[EventId] = []

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Published():
                self.published += [event.id for event in fact.events]
            case facts.Delivered():
                self.received += [event.id for event in fact.events]
            case _:
                pass


# ---- Showing


def _is_figure_2(setting: Setting) -> bool:
    return setting.strategy is Strategy.FLOODING and setting.away_ms == 0


def _place(setting: Setting) -> tuple[object, ...]:
    return msgspec.structs.astuple(setting)


COLOURS = {"missed": "#c2571a", "duplicated": "#0b6e99"}


def _curves(axes: Axes, points: Points, place: Callable[[Setting], float]) -> None:
    for strategy, style in ((Strategy.FLOODING, "o-"), (Strategy.COVERING, "s--")):
        for what, colour in COLOURS.items():
            line_ = [
                (place(point.setting), getattr(point.median, f"{what}_per_move"))
                for point in points
                if point.setting.protocol == Handover.NAIVE and point.setting.strategy is strategy
            ]
            name = "missed" if what == "missed" else "twice"
            label = f"naive, {strategy}: {name}"
            axes.plot(*zip(*sorted(line_), strict=True), style, color=colour, markersize=4,
                      label=label, alpha=1 if strategy is Strategy.FLOODING else 0.6)  # fmt: skip
    kept = sorted(
        (place(p.setting), p.median.missed + p.median.duplicated)
        for p in points
        if p.setting.protocol == Handover.RELOCATION
    )
    axes.plot(*zip(*kept, strict=True), "^-", color="#3a8f3a", markersize=5,
              label="relocation: missed, twice")  # fmt: skip
