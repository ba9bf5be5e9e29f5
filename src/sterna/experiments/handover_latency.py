"""How long a client that has moved waits for its events, and what its handover costs. (PM-5)

The time runs from the moment when the client's link to the new broker is up.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.handover.messages import Fetch, Replay, Resubscribe
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Advertise, Attach, Detach, Publish, Subscribe
from sterna.core.link import RELIABLE
from sterna.core.messages import SubscriptionChange
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.experiments.counting import between_brokers, control
from sterna.experiments.experiment import (
    Claim,
    DeliveryError,
    Experiment,
    Point,
    PrintedTable,
    in_words,
)
from sterna.experiments.papers import FIEGE
from sterna.experiments.plot import Axes, panels
from sterna.experiments.routing import COLOURS, WAYS
from sterna.experiments.timeline import Plan, at_any_time, timed
from sterna.model.filters import Filter
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import Do, LinkModel, Script, Settle
from sterna.sim.topology import line

CLIENT, NEIGHBOUR = "C", "N"
"""The client that moves, and one that stays and subscribes to the same and more."""
LINK_MS = 10
"""The latency of every link, also to clients."""
STAY_MS, AWAY_MS = 800, 200
RATE = 100
"""Events per second of all producers together."""
HOPS, PRODUCERS = 8, 1
"""The values of the parameters that do not vary."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run."""

    strategy: Strategy
    advertisements: bool
    hops: int
    """The hops from the old broker to the new one; 0: it is the same one."""
    producers: int
    """How many producers are spread evenly over the brokers between."""
    moves: int


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the handovers of a run; messages are those between brokers, per handover."""

    to_replayed_ms: float
    """From reconnecting to the first event that was published before it."""
    to_live_ms: float
    """From reconnecting to the first event that was published since."""
    to_live_ms_max: float
    naive_to_live_ms: float
    """`to_live_ms` with naive handover, which has nothing to wait for and loses earlier events."""
    replayed: float
    """How many events arrived that were published before the client reconnected."""
    held: float
    """How many later events had to wait for the replayed ones at the new broker."""
    requests: float
    replays: float
    subscription_changes: float
    control_messages: float
    """All of these together, and whatever else is no event."""


Points = Sequence[Point[Setting, Measures]]


class HandoverLatency(Experiment[Setting, Measures]):
    name = "handover-latency"
    about = "How long a client that has moved waits for its events, and what the handover costs."
    takes = "about a minute and a quarter"
    paper = FIEGE

    def settings(self, *, quick: bool) -> list[Setting]:
        distances = (2, 8) if quick else (0, 1, 2, 4, 8, 16)
        numbers = (1, 4) if quick else (1, 2, 4, 8)
        places = [(hops, PRODUCERS) for hops in distances]
        places += [(HOPS, number) for number in numbers if number != PRODUCERS]
        return [
            Setting(
                strategy=strategy,
                advertisements=advertisements,
                hops=hops,
                producers=number,
                moves=2 if quick else 8,
            )
            for hops, number in places
            for strategy, advertisements in WAYS
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        naive = Watch()
        Simulation(make_script(setting, seed, Handover.NAIVE), [naive], judged=False).run()
        watch = Watch()
        script = make_script(setting, seed, Handover.RELOCATION)
        simulation = Simulation(script, [watch])
        begun = between_brokers(simulation)
        for step in script.steps:
            simulation.do(step)
            if isinstance(step, Settle) and not watch.handovers:
                begun = between_brokers(simulation)
        findings = simulation.oracle.findings()
        if findings or len(watch.handovers) != setting.moves:
            raise DeliveryError(f"{in_words(setting)}, seed {seed}", findings)
        sent = between_brokers(simulation)
        sent.subtract(begun)
        return Measures(
            to_replayed_ms=statistics.median(each.to_replayed_ms for each in watch.handovers),
            to_live_ms=statistics.median(each.to_live_ms for each in watch.handovers),
            to_live_ms_max=max(each.to_live_ms for each in watch.handovers),
            naive_to_live_ms=statistics.median(each.to_live_ms for each in naive.handovers),
            replayed=statistics.median(each.replayed for each in watch.handovers),
            held=statistics.median(each.held for each in watch.handovers),
            requests=(sent[Resubscribe] + sent[Fetch]) / setting.moves,
            replays=sent[Replay] / setting.moves,
            subscription_changes=sent[SubscriptionChange] / setting.moves,
            control_messages=control(sent) / setting.moves,
        )

    def work(self, setting: Setting) -> float:
        return setting.hops

    def claims(self, points: Points) -> list[Claim]:
        late = [abs(p.median.to_replayed_ms - expected_ms(p.setting.hops)) for p in points]
        moved = [point for point in points if point.setting.hops]
        live = [p.median.to_live_ms - p.median.to_replayed_ms for p in moved]
        costs = [p.median.control_messages / p.setting.hops for p in moved]
        return [
            Claim(
                "A request goes to the old broker and the replay comes back (4.1)",
                f"the first replayed event comes after that round trip, {_range(points)}, with "
                f"every strategy; at most {max(late):.1f} ms off what the links let one compute",
                holds=max(late) < 1,
            ),
            Claim(
                "Replayed events come first, then those that the new broker held back (4.1)",
                f"the first live event comes at most {max(live):.0f} ms (medians) after the first "
                f"replayed one; naive handover has it up to {_naive_gain(moved):.0f} ms earlier, "
                "and loses the others",
                holds=min(live) >= 0,
            ),
            Claim(
                "A handover concerns the path between both brokers, not the network (4)",
                f"{min(costs):.1f} to {max(costs):.1f} control messages per hop of it: a request, "
                "a replay, and changes of subscriptions",
                holds=max(costs) <= 4,
            ),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        return [_latencies(points), _messages(points)]

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 3, (13, 4.3)) as (left, middle, right):
            chosen = [p for p in _by_distance(points) if not p.setting.advertisements]
            for label, style, measure, strategies in CURVES:
                curve = sorted(
                    (point.setting.hops, measure(point.median))
                    for point in chosen
                    if point.setting.strategy in strategies
                )
                colour = COLOURS[strategies[0]] if "naive" in label else "#c2571a"
                left.plot(*zip(*curve, strict=True), style, label=label, markersize=4, color=colour)
            left.set(xlabel="hops from old to new broker", ylabel="ms",
                     title="Waiting for the first event")  # fmt: skip
            left.legend(frameon=False, fontsize=8)
            _lines(middle, _by_distance(points), lambda setting: setting.hops)
            middle.set(xlabel="hops from old to new broker (1 producer)",
                       title="Control messages per handover")  # fmt: skip
            middle.legend(frameon=False, fontsize=8, title="dashed: with advertisements",
                          title_fontsize=8)  # fmt: skip
            _lines(right, _by_producers(points), lambda setting: setting.producers)
            right.set(xlabel=f"producers ({HOPS} hops)", title="Control messages per handover")
            for each, place in ((left, 0), (middle, 0), (right, 1)):
                ticks = sorted({_places([point])[0][place] for point in points})
                each.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                each.set_ylim(0, 1.08 * each.dataLim.ymax)


# ---- The scenario


def make_script(setting: Setting, seed: int, protocol: Handover) -> Script:
    """The client moves back and forth between the ends of a line, or leaves and comes back."""
    rng = random.Random(f"handover {seed}")  # noqa: S311 - reproducible, not secret.
    topology = line(setting.hops + 1)
    ends = (topology.brokers[0], topology.brokers[-1])
    producers = _producers(setting, topology.brokers)
    cycle_us = (STAY_MS + AWAY_MS) * 1_000
    plan: Plan = []
    for number in range(1, setting.moves + 1):
        back = Do(client=CLIENT, what=Attach(broker=ends[number % 2]))
        plan.append((number * cycle_us - AWAY_MS * 1_000, Do(client=CLIENT, what=Detach())))
        plan.append((number * cycle_us, back))
    for producer in producers:
        times = at_any_time(rng, RATE / len(producers), (setting.moves + 1) * cycle_us)
        publish = Do(client=producer, what=Publish(attributes={"cost": 1}))
        plan += [(at, publish) for at in times]
    middle = topology.brokers[setting.hops // 2]
    return Script(
        topology=topology,
        clients={CLIENT: ends[0], NEIGHBOUR: middle, **producers},
        steps=(*_beginning(setting, producers), Settle(), *timed(plan), Settle()),
        routing=RoutingOptions(strategy=setting.strategy, advertisements=setting.advertisements),
        client=ClientOptions(advertisements=setting.advertisements),
        link=LinkModel(latency_us=LINK_MS * 1_000),
        handover=HandoverOptions(protocol=protocol),
        timing=RELIABLE,
        seed=seed,
    )


def _producers(setting: Setting, brokers: Sequence[NodeId]) -> dict[NodeId, NodeId]:
    number = setting.producers
    return {
        f"P{each + 1}": brokers[(2 * each + 1) * len(brokers) // (2 * number)]
        for each in range(number)
    }


def _beginning(setting: Setting, producers: dict[NodeId, NodeId]) -> list[Do]:
    offer = Advertise(advertisement="offer", filter=Filter("cost < 20"))
    offers = [Do(client=producer, what=offer) for producer in producers]
    return [
        *(offers if setting.advertisements else []),
        Do(client=NEIGHBOUR, what=Subscribe(subscription="s", filter=Filter("cost < 10"))),
        Do(client=CLIENT, what=Subscribe(subscription="s", filter=Filter("cost < 5"))),
    ]


def expected_ms(hops: int) -> float:
    """The client introduces itself, a request goes to the old broker, the replay comes back and
    goes to the client. If it is the same broker, that goes on as soon as the link is up.
    """
    return LINK_MS * (2 * hops + 2 if hops else 1)


# ---- Measuring


class Reception(msgspec.Struct):
    """One handover, from the moment when the new link is up."""

    since: Time
    to_replayed_ms: float = -1
    to_live_ms: float = -1
    replayed: int = 0
    held: int = 0


class Watch(Observer):
    """Notes when the client has a link, and which events arrive then."""

    def __init__(self) -> None:
        self.handovers: list[Reception] = []
        self._has_left = False

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, facts.HandoverFinished):
            self.handovers[-1].held = fact.held
        if fact.at != CLIENT:
            return
        match fact:
            case facts.Detached():
                self._has_left = True
            case facts.Attached() if self._has_left:
                self._has_left = False
                self.handovers.append(Reception(since=fact.time))
            case facts.Delivered() if self.handovers:
                self._deliver(fact, self.handovers[-1])
            case _:
                pass

    def _deliver(self, fact: facts.Delivered, handover: Reception) -> None:
        after_ms = (fact.time - handover.since) / 1_000
        for event in fact.events:
            if event.time_us < handover.since:
                handover.replayed += 1
                if handover.to_replayed_ms < 0:
                    handover.to_replayed_ms = after_ms
            elif handover.to_live_ms < 0:
                handover.to_live_ms = after_ms


# ---- Showing


def _by_distance(points: Points) -> list[Point[Setting, Measures]]:
    return [point for point in points if point.setting.producers == PRODUCERS]


def _by_producers(points: Points) -> list[Point[Setting, Measures]]:
    chosen = [point for point in points if point.setting.hops == HOPS]
    return sorted(chosen, key=lambda point: point.setting.producers)


def _range(points: Points) -> str:
    times = {point.setting.hops: point.median.to_replayed_ms for point in _by_distance(points)}
    moved = {hops: f"{ms:.0f}" for hops, ms in sorted(times.items()) if hops}
    return f"{', '.join(moved.values())} ms over {', '.join(map(str, moved))} hops"


def _naive_gain(points: Points) -> float:
    return max(point.median.to_live_ms - point.median.naive_to_live_ms for point in points)


def _latencies(points: Points) -> PrintedTable:
    """The table of latencies; strategies within a millisecond of each other share a row."""
    rows = []
    for hops, producers in _places(points):
        group = [
            point
            for point in points
            if (point.setting.hops, point.setting.producers) == (hops, producers)
        ]
        flooded = [p for p in group if p.setting.strategy is Strategy.FLOODING]
        routed = [p for p in group if p.setting.strategy is not Strategy.FLOODING]
        rows.append(
            (
                f"{hops}",
                f"{producers}",
                _span(group, lambda m: m.to_replayed_ms),
                f"{expected_ms(hops):.0f}",
                _span(group, lambda m: m.to_live_ms),
                _span(flooded, lambda m: m.naive_to_live_ms),
                _span(routed, lambda m: m.naive_to_live_ms),
                _span(group, lambda m: m.replayed),
                _span(group, lambda m: m.held),
            )
        )
    head = ("hops", "producers", "replayed", "(computed)", "live", "naive: live, flooding",
            "naive: live, others", "events replayed", "held back")  # fmt: skip
    note = (
        "ms from reconnecting to the first event; medians, from the lowest to the highest strategy "
        f"(11 with those with advertisements). {LINK_MS} ms a link; {RATE} events per second; "
        f"{AWAY_MS} ms away. 0 hops: back at the same broker."
    )
    return PrintedTable("Waiting for the first event", head, rows, note)


def _messages(points: Points) -> PrintedTable:
    places = _places(points)
    groups: dict[tuple[str, ...], list[str]] = {}
    for advertisements in (False, True):
        for strategy in Strategy:
            costs = {
                (point.setting.hops, point.setting.producers): point.median.control_messages
                for point in points
                if (point.setting.strategy, point.setting.advertisements)
                == (strategy, advertisements)
            }
            if costs:
                name = strategy.removesuffix("-merging") + "*" * advertisements
                groups.setdefault(tuple(f"{costs[p]:.1f}" for p in places), []).append(name)
    rows = [(", ".join(names), *costs) for costs, names in groups.items()]
    head = ("strategies", *(f"{hops}, {producers}" for hops, producers in places))
    note = "Between brokers; requests and replays take 2 a hop of these. *: with advertisements."
    return PrintedTable("Control messages per handover, over hops and producers", head, rows, note)


def _places(points: Points) -> list[tuple[int, int]]:
    places = {(point.setting.hops, point.setting.producers) for point in points}
    return sorted(places, key=lambda place: (place[1], place[0]))


def _span(points: Points, measure: Callable[[Measures], float]) -> str:
    values = sorted({round(measure(point.median)) for point in points})
    return str(values[0]) if len(values) == 1 else f"{values[0]}-{values[-1]}"


CURVES: tuple[tuple[str, str, Callable[[Measures], float], tuple[Strategy, ...]], ...] = (
    ("relocation: replayed, and live", "o-", lambda m: m.to_replayed_ms, (Strategy.COVERING,)),
    ("naive: live, covering", "s--", lambda m: m.naive_to_live_ms, (Strategy.COVERING,)),
    ("naive: live, flooding", "^--", lambda m: m.naive_to_live_ms, (Strategy.FLOODING,)),
)
"""The curves that are drawn; in all else, strategies do not differ."""


def _lines(axes: Axes, points: Points, place: Callable[[Setting], float]) -> None:
    for advertisements, style in ((False, "o-"), (True, "o--")):
        for rank, (strategy, colour) in enumerate(COLOURS.items()):
            curve = [
                (place(point.setting), point.median.control_messages)
                for point in points
                if (point.setting.strategy, point.setting.advertisements)
                == (strategy, advertisements)
            ]
            if curve:
                width = 1 + 0.8 * (len(COLOURS) - 1 - rank)  # What coincides shows under the next.
                label = None if advertisements else str(strategy)
                axes.plot(*zip(*sorted(curve), strict=True), style, color=colour, linewidth=width,
                          markersize=width + 2, label=label)  # fmt: skip
