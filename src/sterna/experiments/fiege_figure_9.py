"""Fiege, Figure 9: messages with location-dependent filters against flooding.

A tree of 364 brokers; 2430 producers at its 243 leaves publish once a second about one of 100
places; a consumer at the root walks about. The links of the leaves and of the consumer are slow.

The paper charges every link with all events that its filter would let through, wherever the
consumer is ("restricted flooding"). In a network that routes, an event goes only towards the
consumer. So there are three numbers here: the formula; the filters of a running network, charged
like the paper does; and the messages that really went over the links.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from sterna.core import facts
from sterna.core.broker import Broker
from sterna.core.facts import Fact
from sterna.core.inputs import MoveTo, Publish, Subscribe
from sterna.core.link import RELIABLE, Data, Frame
from sterna.core.location.messages import MovingChange
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.messages import Events
from sterna.core.names import NodeId, Peer, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.experiments.experiment import Claim, Experiment, Point, Table
from sterna.experiments.plot import Axes, panels
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.model.location import LocationSpace
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.run import Simulation
from sterna.sim.script import Do, LinkModel, Script
from sterna.sim.topology import tree

DEGREE, LEVELS = 3, 6
"""The paper's b, and its levels 0 to 5; it prints h = 4, but its counts are those of 5."""
PRODUCERS = 10
"""At each leaf, the paper's p; here one client publishes for all of them."""
PLACES, FACTOR = 100, 4
"""The paper's |L| and s: each step makes four times as many places possible."""
SLOW_MS, FAST_MS = 600, 10
TICK_MS = 10
"""Everything happens at multiples of this."""
CALM_US = 10_000_000_000
"""Links are measured once, before anything is counted: their delays are fixed here."""


class Skew(StrEnum):
    """What prefers some places to others, by Zipf's law."""

    NONE = "none"
    EVENTS = "events"
    BOTH = "both"
    """Events and consumers prefer the same places."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What one run is made from, and up to when it is counted."""

    rule: StepRule
    dwell_s: int
    consumers: int = 1
    """One is at the root, as in the paper; more are at random brokers other than leaves."""
    skew: Skew = Skew.NONE
    strategy: Strategy = Strategy.SIMPLE
    rate: float = 1.0
    """Events per second of each producer."""
    levels: int = LEVELS
    seconds: int
    run_s: int
    """How long the run is; the counts at several times come from the same run."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """Messages between brokers."""

    flooding: float
    """If all events were flooded."""
    formula: float
    """The paper's N_n(t); 0 where it has none."""
    charged: float
    """Links whose filter lets an event through when it is published, for all events; 0 with several
    consumers."""
    events: float
    """That went over links."""
    control: float
    """That told of moves."""
    formula_ratio: float
    charged_ratio: float
    """Of events charged like that and control messages together to flooding."""
    event_ratio: float
    control_ratio: float
    """To flooding, at one event per second of each producer."""
    real_ratio: float
    """Of both together."""
    control_per_move: float
    entries: float
    """Filters for moving subscriptions in the table of a broker, on average, at the end."""
    missed_share: float
    """What a single consumer does not get of the events that it would get by flooding."""


Points = Sequence[Point[Setting, Measures]]
TIMES = (1, 2, 5, 10, 15, 20, 25, 30)
SHOWN = (1, 10)
"""The times that are shown besides the last."""
CROWDS = {10: 10, 100: 4, 1000: 2}
"""How many consumers, and for how many seconds they are watched."""
EXPECTED = {10: 0.0400, 1: 0.1207}
"""What the formula gives for stays of so many seconds."""


class FiegeFigure9(Experiment[Setting, Measures]):
    name = "fiege-figure-9"
    about = "Messages with location-dependent filters against flooding, formula and simulation."
    takes = "about three minutes"
    seeds = 1

    def settings(self, *, quick: bool) -> list[Setting]:
        ceil, safe = StepRule.CEIL, StepRule.SAFE
        checked = Setting(rule=ceil, dwell_s=1, strategy=Strategy.FLOODING, levels=4, seconds=2,
                          run_s=2)  # fmt: skip
        if quick:
            return [
                Setting(rule=ceil, dwell_s=10, seconds=10, run_s=10),
                *(Setting(rule=ceil, dwell_s=1, seconds=t, run_s=4) for t in (2, 4)),
                *(
                    Setting(rule=ceil, dwell_s=1, consumers=consumers, skew=skew, strategy=strategy,
                            rate=0.1, levels=4, seconds=2, run_s=2)
                    for skew in (Skew.NONE, Skew.BOTH)
                    for consumers in (5, 40)
                    for strategy in (Strategy.SIMPLE, Strategy.COVERING)
                ),
                checked,
            ]  # fmt: skip
        one = [
            Setting(rule=ceil, dwell_s=dwell_s, seconds=t, run_s=TIMES[-1])
            for dwell_s in EXPECTED
            for t in TIMES
        ]
        one += [Setting(rule=safe, dwell_s=dwell_s, seconds=10, run_s=10) for dwell_s in EXPECTED]
        crowds = [
            Setting(rule=ceil, dwell_s=dwell_s, consumers=consumers, skew=skew,
                    strategy=strategy, rate=0.1, seconds=CROWDS[consumers],
                    run_s=CROWDS[consumers])
            for dwell_s, skew, counts in (
                (10, Skew.NONE, (10, 100, 1000)),
                (10, Skew.EVENTS, (100,)),
                (10, Skew.BOTH, (100, 1000)),
                (1, Skew.NONE, (10, 100, 1000)),
            )
            for consumers in counts
            for strategy in (Strategy.SIMPLE, Strategy.COVERING)
            # Simple routing sends each move over each link, which is known without a run.
            if not (strategy is Strategy.SIMPLE and consumers == 1000)
        ]  # fmt: skip
        return [*one, *crowds, checked]

    def measure(self, setting: Setting, seed: int) -> Measures:
        series = _run(msgspec.structs.replace(setting, seconds=setting.run_s), seed)
        topology = tree(DEGREE, setting.levels)
        published = series.published[setting.seconds - 1]
        flooding = published * len(topology.links)
        charged = series.charged[setting.seconds - 1]
        events = series.events[setting.seconds - 1]
        control = series.control[setting.seconds - 1]
        moves = series.moves[setting.seconds - 1]
        usual = flooding / setting.rate
        formula = formula_messages(setting) if setting.consumers == 1 else 0.0
        owed = len(series.owed)
        return Measures(
            flooding=flooding,
            formula=formula,
            charged=charged,
            events=events,
            control=control,
            formula_ratio=formula / flooding,
            charged_ratio=(charged + control) / flooding if setting.consumers == 1 else 0.0,
            event_ratio=events / flooding,
            control_ratio=control / usual,
            real_ratio=events / flooding + control / usual,
            control_per_move=control / max(1, moves),
            entries=series.entries,
            missed_share=len(series.owed - series.received) / owed if owed else 0.0,
        )

    def claims(self, points: Points) -> list[Claim]:
        claims = []
        last = {}
        for point in _alone(points, StepRule.CEIL):
            last[point.setting.dwell_s] = point.median
        for dwell_s, expected in EXPECTED.items():
            found = last[dwell_s]
            off = found.charged_ratio / expected - 1
            claims.append(
                Claim(
                    f"Stays of {dwell_s} s: {expected:.4f} of the messages of flooding (App. B.2, "
                    f"formula: {found.formula_ratio:.4f})",
                    f"{found.charged_ratio:.4f} if each link is charged as the paper does "
                    f"({off:+.1%}); {found.real_ratio:.4f} really went over links",
                    holds=abs(off) < 0.1,
                )
            )
        (flooded,) = (p.median for p in points if p.setting.strategy is Strategy.FLOODING)
        claims.append(
            Claim(
                "Flooding: each event goes over each link, n_ps · n_links · t",
                f"{flooded.events:,.0f} messages in a tree of 40 brokers; computed: "
                f"{flooded.flooding:,.0f}",
                holds=flooded.events == flooded.flooding,
            )
        )
        return [*claims, *_missing(last), *_sharing(points)]

    def tables(self, points: Points) -> list[Table]:
        return [_over_time(points), _crowds(points)]

    def summary(self, points: Points) -> dict[str, Any]:
        del points
        return {"expected": {f"{dwell_s} s": ratio for dwell_s, ratio in EXPECTED.items()}}

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 3, (16.5, 4.8)) as (left, middle, right):
            times = [0.5 * half for half in range(1, 2 * TIMES[-1] + 1)]
            per_second = PRODUCERS * DEGREE ** (LEVELS - 1) * len(tree(DEGREE, LEVELS).links)
            left.plot(times, [per_second * t for t in times], color="#8a8a8a", label="flooding")
            for dwell_s, colour in COLOURS.items():
                curve = [p for p in _alone(points, StepRule.CEIL) if p.setting.dwell_s == dwell_s]
                stay = f"stays of {dwell_s} s"
                left.plot(times, [_formula(StepRule.CEIL, dwell_s, t) for t in times], "-",
                          color=colour, label=f"{stay}: formula")  # fmt: skip
                seconds = [point.setting.seconds for point in curve]
                left.plot(seconds, [p.median.charged + p.median.control for p in curve], "o",
                          color=colour, markersize=5, label="simulated, charged alike")  # fmt: skip
                left.plot(seconds, [p.median.events + p.median.control for p in curve], "x",
                          color=colour, markersize=6, label="really sent")  # fmt: skip
            left.set(yscale="log", xlabel="seconds", ylabel="messages", xlim=(0, TIMES[-1] + 0.5),
                     ylim=(200, 6e7),
                     title="Figure 9: one consumer")  # fmt: skip
            left.legend(frameon=False, fontsize=7.5, ncols=2)
            _draw_shares(middle, points)
            _draw_control(right, points)


COLOURS = {1: "#c2571a", 10: "#0b6e99"}


# ---- The formula


def formula_messages(setting: Setting) -> float:
    """What the paper computes for one consumer at the root: N_n(t), or N_f(t) for flooding."""
    topology = tree(DEGREE, setting.levels)
    per_second = PRODUCERS * len(topology.leaves()) * setting.rate
    if setting.strategy is Strategy.FLOODING:
        return per_second * len(topology.links) * setting.seconds
    return _formula(setting.rule, setting.dwell_s, setting.seconds, setting.levels, setting.rate)


def _formula(
    rule: StepRule, dwell_s: int, t: float, levels: int = LEVELS, rate: float = 1.0
) -> float:
    """Restricted flooding over the leaves' links and the others, and control messages.

    For Δ = 1 s the paper has a control message more with each move, one for each broker.
    """
    n_lb: int = DEGREE ** (levels - 1)
    n_b: int = sum(DEGREE**level for level in range(levels))
    n_links = n_b - 1
    n_rest = n_links - n_lb
    n_ps = n_lb * PRODUCERS * rate
    near = SLOW_MS + (levels - 2) * FAST_MS
    share_rest = _share(rule, near, dwell_s)
    share_lb = _share(rule, near + SLOW_MS, dwell_s)
    control = t * n_b if dwell_s == 1 else n_links * (t // dwell_s)
    return n_ps * (n_lb * share_lb + n_rest * share_rest) * t + control


def _share(rule: StepRule, delay_ms: int, dwell_s: int) -> float:
    """The fraction of all events that a filter lets through at such a distance."""
    steps = rule.steps(2 * delay_ms * 1_000, dwell_s * 1_000_000)
    return 1.0 if steps is None else min(int(FACTOR**steps), PLACES) / PLACES


# ---- The network


class Ring:
    """Places in a ring, of which four times as many are possible with each step.

    From a place one can really go to its neighbours only. What the paper assumes is more: it has
    |ploc| multiplied by 4 with each step, which no movement graph of this size does.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], frozenset[str]] = {}

    def __contains__(self, location: object) -> bool:
        return isinstance(location, str) and location in _PLACES

    def __repr__(self) -> str:
        return f"<ring of {PLACES} places>"

    def ploc(self, location: str, steps: int) -> frozenset[str]:
        key = location, steps
        if key not in self._known:
            count = min(FACTOR**steps, PLACES)
            first = int(location[1:]) - (count - 1) // 2
            self._known[key] = frozenset(place(first + number) for number in range(count))
        return self._known[key]


def place(number: int) -> str:
    return f"p{number % PLACES}"


_PLACES = {place(number): number for number in range(PLACES)}


class RingOptions(PlacesOptions, frozen=True, kw_only=True):
    """The places are those of the ring."""

    def space(self) -> LocationSpace:
        return Ring()


def make_script(setting: Setting, chance: random.Random, seed: int) -> Script:
    """The network; what happens in it is done tick by tick."""
    topology = tree(DEGREE, setting.levels)
    leaves = set(topology.leaves())
    inner = [broker for broker in topology.brokers if broker not in leaves]
    producers = {f"P{broker}": broker for broker in topology.leaves()}
    consumers = {
        f"C{number}": chance.choice(inner) if setting.consumers > 1 else inner[0]
        for number in range(setting.consumers)
    }
    weights = popularity(skewed=setting.skew is Skew.BOTH, seed=seed)
    at = chance.choices(range(PLACES), weights, k=setting.consumers)
    slow = [*consumers.items(), *(link for link in topology.links if link[1] in leaves)]
    return Script(
        topology=topology,
        clients=producers | consumers,
        steps=(),
        routing=RoutingOptions(strategy=setting.strategy),
        link=LinkModel(latency_us=FAST_MS * 1_000),
        latencies=(
            *((a, b, SLOW_MS * 1_000) for a, b in slow),
            *((producer, broker, 0) for producer, broker in producers.items()),
        ),
        places=RingOptions(
            rule=setting.rule,
            dwell=Dwell.FIXED,
            dwell_us=setting.dwell_s * 1_000_000,
            probe_us=CALM_US,
        ),
        locations={name: place(number) for name, number in zip(consumers, at, strict=True)},
        timing=RELIABLE,
    )


def popularity(*, skewed: bool, seed: int) -> list[float]:
    """How popular each place is, to events and consumers alike."""
    weights = [1 / rank if skewed else 1.0 for rank in range(1, PLACES + 1)]
    random.Random(f"places {seed}").shuffle(weights)  # noqa: S311 - reproducible, not secret.
    return weights


def _brokers(simulation: Simulation) -> dict[NodeId, Broker]:
    hosts = simulation.network.hosts.items()
    return {id_: host.node for id_, host in hosts if isinstance(host.node, Broker)}


# ---- A run


class Series(msgspec.Struct, frozen=True):
    """Counts up to the end of each second. Events count from when they were published."""

    published: list[int]
    charged: list[int]
    events: list[int]
    control: list[int]
    moves: list[int]
    entries: float
    owed: set[EventId]
    received: set[EventId]


class Watch(Observer):
    """Counts messages between brokers, and notes what one consumer gets."""

    def __init__(self, seconds: int) -> None:
        self.start: Time | None = None
        self.events = [0] * seconds
        self.control = [0] * seconds
        self.received: set[EventId] = set()

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del fate
        if self.start is None or type(frame) is not Data:
            return
        if pipe.source.peer is not Peer.BROKER or pipe.target.peer is not Peer.BROKER:
            return
        message = frame.message
        if isinstance(message, Events):
            for event in message.events:
                self.events[(event.time_us - self.start) // 1_000_000] += 1
        elif isinstance(message, MovingChange):
            second = (now - self.start) // 1_000_000
            self.control[min(second, len(self.control) - 1)] += 1

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, facts.Delivered):
            self.received |= {event.id for event in fact.events}


class Run:
    """A network and what happens in it, tick by tick."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.chance = random.Random(f"figure 9 {seed}")  # noqa: S311 - reproducible, not secret.
        self.watch = Watch(setting.run_s)
        script = make_script(setting, self.chance, seed)
        self.simulation = Simulation(script, [self.watch], judged=False)
        self.at = {name: int(at[1:]) for name, at in script.locations.items()}
        self.walk: list[int] = []
        """Where the first consumer is in each tick."""
        weights = popularity(skewed=setting.skew is not Skew.NONE, seed=seed)
        self.weights = list(accumulate(weights))
        self.published = [0] * setting.run_s
        self.charged = [0] * setting.run_s
        self.moves = [0] * setting.run_s
        self.numbers: Counter[NodeId] = Counter()
        self.sent: list[tuple[int, int, EventId]] = []
        """Each event: in which tick it was published, and about which place."""

    def series(self) -> Series:
        """Do it all; moves and events stop after so many seconds, and all comes to rest."""
        setting, simulation = self.setting, self.simulation
        subscribe = Subscribe(subscription="here", filter=Filter("place IN myloc"))
        simulation.settle()
        for consumer in self.at:
            simulation.do(Do(client=consumer, what=subscribe))
        simulation.settle()
        network = simulation.network
        start = self.watch.start = network.kernel.now
        publishing, moving = self._phases()
        stay = setting.dwell_s * 1_000 // TICK_MS
        for tick in range(setting.run_s * 1_000 // TICK_MS):
            network.run(start + tick * TICK_MS * 1_000)
            self._move(moving.get(tick % stay, ()) if tick else (), tick)
            self.walk.append(self.at["C0"])
            self._publish(publishing.get(tick % self._period, ()), tick)
        simulation.settle()
        return Series(
            published=list(accumulate(self.published)),
            charged=list(accumulate(self.charged)),
            events=list(accumulate(self.watch.events)),
            control=list(accumulate(self.watch.control)),
            moves=list(accumulate(self.moves)),
            entries=self._entries(),
            owed=self._owed(stay),
            received=self.watch.received,
        )

    @property
    def _period(self) -> int:
        """How many ticks lie between two events of a producer."""
        return round(1_000 / TICK_MS / self.setting.rate)

    def _phases(self) -> tuple[dict[int, list[NodeId]], dict[int, list[NodeId]]]:
        """Who publishes, and who moves, in which tick of a period or a stay."""
        publishing: dict[int, list[NodeId]] = {}
        for client in self.simulation.script.clients:
            if client not in self.at:
                for _ in range(PRODUCERS):
                    tick = self.chance.randrange(self._period)
                    publishing.setdefault(tick, []).append(client)
        moving: dict[int, list[NodeId]] = {}
        for consumer in self.at:
            stay = self.setting.dwell_s * 1_000 // TICK_MS
            tick = self.chance.randrange(stay) if self.setting.consumers > 1 else 0
            moving.setdefault(tick, []).append(consumer)
        return publishing, moving

    def _move(self, consumers: Sequence[NodeId], tick: int) -> None:
        for consumer in consumers:
            self.at[consumer] = (self.at[consumer] + self.chance.choice((-1, 1))) % PLACES
            what = MoveTo(location=place(self.at[consumer]))
            self.simulation.do(Do(client=consumer, what=what))
            self.moves[tick * TICK_MS // 1_000] += 1

    def _publish(self, producers: Sequence[NodeId], tick: int) -> None:
        second = tick * TICK_MS // 1_000
        admits = self._admits() if producers and self.setting.consumers == 1 else {}
        for producer in producers:
            (about,) = self.chance.choices(range(PLACES), cum_weights=self.weights)
            what = Publish(attributes={"place": place(about)})
            self.simulation.do(Do(client=producer, what=what))
            self.published[second] += 1
            self.numbers[producer] += 1
            self.sent.append((tick, about, EventId(producer, self.numbers[producer])))
            for filter_, links in admits.items():
                if filter_.matches(what.attributes):
                    self.charged[second] += links

    def _admits(self) -> Counter[Filter]:
        """On how many links there is which filter just now, on the way to the root."""
        brokers = _brokers(self.simulation)
        return Counter(
            filter_
            for upper, lower in self.simulation.script.topology.links
            for filter_ in brokers[lower].router.subscriptions.entered(upper).values()
        )

    def _entries(self) -> float:
        brokers = _brokers(self.simulation).values()
        return sum(len(each.router.subscriptions.entered()) for each in brokers) / len(brokers)

    def _owed(self, stay: int) -> set[EventId]:
        """What the consumer gets by flooding: what is about the place where it is on arrival."""
        delay_ms = SLOW_MS + (self.setting.levels - 2) * FAST_MS + SLOW_MS  # From any leaf.
        later = delay_ms // TICK_MS
        return {
            id_
            for tick, about, id_ in self.sent
            if self.setting.consumers == 1
            and tick + later < len(self.walk)
            and (tick + later) % stay  # At the moment of a move either place would do.
            and self.walk[tick + later] == about
        }


@lru_cache(maxsize=1)
def _run(setting: Setting, seed: int) -> Series:
    return Run(setting, seed).series()


# ---- Showing


def _alone(points: Points, rule: StepRule) -> list[Point[Setting, Measures]]:
    return [
        point
        for point in points
        if point.setting.consumers == 1
        and point.setting.rule is rule
        and point.setting.strategy is not Strategy.FLOODING
    ]


def _crowded(points: Points) -> list[Point[Setting, Measures]]:
    return [point for point in points if point.setting.consumers > 1]


def _missing(last: dict[int, Measures]) -> list[Claim]:
    return [
        Claim(
            "The consumer gets what it would get by flooding (3.3)",
            "it misses "
            + ", ".join(f"{m.missed_share:.1%} with stays of {d} s" for d, m in last.items())
            + " (rule ceil)",
            holds=not any(measures.missed_share for measures in last.values()),
        )
    ]


def _sharing(points: Points) -> list[Claim]:
    """What covering saves of the control messages of simple routing."""
    chosen = {
        (p.setting.consumers, p.setting.strategy): p.median.control_per_move
        for p in _crowded(points)
        if p.setting.skew is Skew.NONE and p.setting.dwell_s == min(_dwells(points))
    }
    counts = sorted({consumers for consumers, _ in chosen})
    links = max(chosen.values())
    saved = ", ".join(
        f"{consumers:,}: {chosen[consumers, Strategy.COVERING]:.0f}" for consumers in counts
    )
    return [
        Claim(
            "With more consumers covering plays to its strengths (5.4)",
            f"control messages per move, not {links:.0f}: {saved}",
            holds=chosen[counts[-1], Strategy.COVERING] < 0.9 * links,
        )
    ]


def _dwells(points: Points) -> set[int]:
    return {point.setting.dwell_s for point in _crowded(points)}


def _over_time(points: Points) -> Table:
    rows = []
    for rule in (StepRule.CEIL, StepRule.SAFE):
        for point in _alone(points, rule):
            setting, median = point.setting, point.median
            if setting.seconds not in SHOWN and setting.seconds != setting.run_s:
                continue
            rows.append(
                (
                    f"{setting.dwell_s} s, {rule}",
                    f"{setting.seconds}",
                    f"{median.flooding:,.0f}",
                    f"{median.formula:,.0f} ({median.formula_ratio:.4f})",
                    f"{median.charged + median.control:,.0f} ({median.charged_ratio:.4f})",
                    f"{median.events + median.control:,.0f} ({median.real_ratio:.4f})",
                    f"{median.missed_share:.1%}",
                )
            )
    head = ("stay, rule", "t, s", "flooding", "formula", "charged", "sent", "missed")
    note = (
        "charged: for each event all links whose filter would let it through, as the paper counts, "
        "and control messages. sent: what went over links. In brackets: of flooding. missed: of "
        "what flooding delivers, in the whole run."
    )
    return Table("One consumer", head, rows, note)


def _crowds(points: Points) -> Table:
    rows = []
    for point in _crowded(points):
        setting, median = point.setting, point.median
        rows.append(
            (
                f"{setting.dwell_s} s; {setting.skew}",
                f"{setting.consumers:,}",
                str(setting.strategy),
                f"{median.event_ratio:.4f}",
                f"{median.control_ratio:.5f}",
                f"{median.real_ratio:.4f}",
                f"{median.control_per_move:.1f}",
                f"{median.entries:.1f}",
            )
        )
    head = ("stay; skew", "consumers", "strategy", "events", "control", "together",
            "control per move", "entries per broker")  # fmt: skip
    note = (
        "What went over links, of flooding; the rule is ceil. skew: of events, or of both events "
        "and consumers, towards some places."
    )
    return Table("More consumers", head, rows, note)


def _draw_shares(axes: Axes, points: Points) -> None:
    """What was really sent, over the number of consumers."""
    dwell_s = max(_dwells(points))
    chosen = [
        point
        for point in points
        if point.setting.dwell_s == dwell_s
        and point.setting.skew is Skew.NONE
        and point.setting.rule is StepRule.CEIL
        and point.setting.seconds == point.setting.run_s
        and point.setting.strategy is not Strategy.FLOODING
        and point.setting.levels == _crowded(points)[0].setting.levels
    ]
    curves: tuple[tuple[str, str, str, Strategy, Callable[[Measures], float]], ...] = (
        ("events", "#3a8f3a", "o-", Strategy.COVERING, lambda m: m.event_ratio),
        ("control, simple", "#222222", "s--", Strategy.SIMPLE, lambda m: m.control_ratio),
        ("control, covering", "#0b6e99", "o-", Strategy.COVERING, lambda m: m.control_ratio),
    )
    for label, colour, style, strategy, measure in curves:
        curve = sorted(
            (point.setting.consumers, measure(point.median))
            for point in chosen
            if point.setting.strategy is strategy or point.setting.consumers == 1
        )
        axes.plot(*zip(*curve, strict=True), style, color=colour, markersize=5, label=label)
    axes.set(xscale="log", yscale="log", xlabel="consumers", ylabel="of flooding",
             title=f"Messages really sent (stays of {dwell_s} s)")  # fmt: skip
    axes.legend(frameon=False, fontsize=8)


def _draw_control(axes: Axes, points: Points) -> None:
    crowds = _crowded(points)
    links = len(tree(DEGREE, crowds[0].setting.levels).links)
    axes.axhline(links, color="#222222", linestyle="--", label="simple: each link")
    colours = iter(("#0b6e99", "#9b3a8f", "#c2571a"))
    for dwell_s in sorted(_dwells(points), reverse=True):
        for skew in (Skew.NONE, Skew.BOTH):
            curve = sorted(
                (p.setting.consumers, p.median.control_per_move)
                for p in crowds
                if (p.setting.skew, p.setting.strategy, p.setting.dwell_s)
                == (skew, Strategy.COVERING, dwell_s)
            )
            if curve:
                what = f"stays of {dwell_s} s" + ", skewed" * (skew is Skew.BOTH)
                axes.plot(*zip(*curve, strict=True), "o-", color=next(colours), markersize=5,
                          label=f"covering, {what}")  # fmt: skip
    axes.set(xscale="log", xlabel="consumers", ylim=(0, 1.08 * links),
             title="Control messages for each move", ylabel="messages")  # fmt: skip
    axes.legend(frameon=False, fontsize=8, loc="lower left")
