"""What a consumer misses after a move: sub/unsub, flooding, and filters that are wide enough.

Fiege, Fig. 3: a subscription takes t_d to the producer, and an event as long back. A consumer that
unsubscribes and subscribes at each move gets nothing for that time. Fig. 4: it should get what it
would get if all events were flooded.
"""

import random
import statistics
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.inputs import MoveTo, Publish, Subscribe
from sterna.core.link import RELIABLE
from sterna.core.location.messages import MovingChange
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.messages import Events
from sterna.core.names import Time
from sterna.experiments.counting import between_brokers
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
from sterna.experiments.timeline import Plan, timed
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import Do, LinkModel, Script, Settle
from sterna.sim.topology import line

CONSUMER, PRODUCER = "consumer", "producer"
LINK_MS = 20
"""The latency of every link but the producer's own, which has no filter and takes no time."""
PLACES = 16
"""How many places are in the ring along which the consumer walks."""
GAP_MS = 10
"""The time between two events about the same place."""
HOPS = 5
"""The hops from the consumer to the producer's broker, if they do not vary: t_d is 100 ms."""
RATIO = 4.0
"""The ratio of stay and t_d, if it does not vary."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run."""

    rule: StepRule
    hops: int
    stay_per_delay: float
    """How long the consumer stays at a place, as a multiple of t_d."""
    moves: int

    @property
    def delay_ms(self) -> int:
        """The paper's t_d."""
        return self.hops * LINK_MS

    @property
    def stay_us(self) -> Time:
        return round(1_000 * self.delay_ms * self.stay_per_delay)


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What the consumer receives, and what it costs."""

    blackout_ms: float
    """From a move to the first event about the new place; the whole stay if none came. Median."""
    blackout_per_delay: float
    starved: float
    """The share of stays without any event."""
    owed: float
    """Events that the consumer receives if all are flooded, from the first move on."""
    missed: float
    missed_share: float
    event_messages: float
    """Messages with events between brokers."""
    event_share: float
    """Messages with events between brokers, as a share of those under flooding."""
    moving_messages: float
    """Messages between brokers that announce moves."""


Points = Sequence[Point[Setting, Measures]]


class FiegeFigure3(Experiment[Setting, Measures]):
    name = "fiege-figure-3"
    about = "What a consumer misses after a move: sub/unsub, flooding, and wide enough filters."
    takes = "about a minute and a quarter"
    paper = FIEGE

    def settings(self, *, quick: bool) -> list[Setting]:
        ratios = (0.5, 1.5, 4.0) if quick else (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
        distances = (HOPS,) if quick else (2, HOPS, 10)
        places = [(HOPS, ratio) for ratio in ratios]
        places += [(hops, RATIO) for hops in distances if hops != HOPS]
        return [
            Setting(rule=rule, hops=hops, stay_per_delay=ratio, moves=8 if quick else 12)
            for hops, ratio in places
            for rule in RULES
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        flooded = msgspec.structs.replace(setting, rule=StepRule.EVERYWHERE)
        all_, most = _flooded(flooded, seed)
        watch, sent = (all_, most) if setting == flooded else simulate(setting, seed)
        received = watch.received(setting)
        owed, got = set(all_.received(setting)), set(received)
        more = len(received) - len(owed & got)
        missed = len(owed - got)
        if more or (setting.rule is StepRule.SAFE and missed):
            wrong = [f"{more} events that flooding does not deliver, {missed} missed"]
            raise DeliveryError(f"{in_words(setting)}, seed {seed}", wrong)
        waits = watch.blackouts_ms(setting)
        return Measures(
            blackout_ms=statistics.median(waits),
            blackout_per_delay=statistics.median(waits) / setting.delay_ms,
            starved=sum(ms >= setting.stay_us / 1_000 for ms in waits) / len(waits),
            owed=len(owed),
            missed=missed,
            missed_share=missed / len(owed),
            event_messages=sent.events,
            event_share=sent.events / most.events,
            moving_messages=sent.moves,
        )

    def together(self, setting: Setting) -> Hashable:
        return setting.hops, setting.stay_per_delay  # All rules are compared with one of them.

    def work(self, setting: Setting) -> float:
        return setting.hops * setting.stay_us

    def claims(self, points: Points) -> list[Claim]:
        def of(
            rule: StepRule, chosen: Callable[[Setting], bool] = lambda _: True
        ) -> list[Measures]:
            return [p.median for p in points if p.setting.rule is rule and chosen(p.setting)]

        slow = of(StepRule.SUB_UNSUB, lambda setting: setting.stay_per_delay > 2)
        fast = of(StepRule.SUB_UNSUB, lambda setting: setting.stay_per_delay < 2)
        black = [each.blackout_per_delay for each in slow]
        gaps = [p.median.blackout_ms for p in points if p.setting.rule in NONE]
        costs = [each.event_share for each in of(StepRule.SAFE)]
        safe = sum(each.missed for each in of(StepRule.SAFE))
        return [
            Claim(
                "After sub/unsub there is a blackout of 2·t_d (3.3, Fig. 3 a)",
                f"{min(black):.2f} to {max(black):.2f} t_d (medians) where stays are longer; "
                f"events about a place are {GAP_MS} ms apart",
                holds=all(2 <= p.blackout_per_delay <= 2 + _gap_share(points) for p in slow),
            ),
            Claim(
                "A consumer that stays less than 2·t_d starves (3.3)",
                f"{_percent([each.missed_share for each in fast])} missed",
                holds=all(each.missed_share > 0.99 for each in fast),
            ),
            Claim(
                "No blackout with flooding (Fig. 3 b), nor with filters of ploc (5.1)",
                f"flooding and safe: at most {max(gaps):.0f} ms, the time between two events; safe "
                f"misses {safe:.0f} events of {sum(p.owed for p in of(StepRule.SAFE)):,.0f} with "
                f"{_percent(costs)} of the event messages",
                holds=max(gaps) <= GAP_MS and safe == 0,
            ),
            *(
                Claim(
                    f"The rule {rule} ({where}) suffices for that",
                    f"it misses up to {max(e.missed_share for e in of(rule)):.0%} of the events",
                    holds=not any(each.missed for each in of(rule)),
                    why="An event was filtered by where the consumer was when it passed a broker, "
                    "and arrives as much later again: moves in twice the delay count, not in once.",
                )
                for rule, where in ((StepRule.FLOOR, "5.3"), (StepRule.CEIL, "Fig. 13"))
            ),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        places = list(dict.fromkeys((p.setting.hops, p.setting.stay_per_delay) for p in points))
        missed, sent = [], []
        for hops, ratio in places:
            group = {
                p.setting.rule: p.median
                for p in points
                if (p.setting.hops, p.setting.stay_per_delay) == (hops, ratio)
            }
            place = f"{hops * LINK_MS}", f"{ratio:g}"
            blackouts = (group[rule].blackout_per_delay for rule in (StepRule.SUB_UNSUB, *NONE))
            shares = (group[rule].missed_share for rule in RULES[:-1])
            missed.append(
                (*place, *(f"{b:.2f}" for b in blackouts), *(f"{100 * m:.0f}" for m in shares))
            )
            costs = (group[rule].event_share for rule in RULES)
            sent.append((*place, *(f"{100 * cost:.0f}" for cost in costs)))
        first = ("t_d, ms", "stay / t_d")
        names = tuple(map(str, RULES))
        return [
            PrintedTable(
                "Blackout (in t_d) of three rules, and events missed (%) of four",
                (*first, "sub-unsub", "safe", "everywhere", *names[:-1]),
                missed,
                "Medians. A blackout ends with the next move at the latest. Missed: of what "
                "flooding (everywhere) delivers from the first move on.",
            ),
            PrintedTable(
                "Event messages between brokers (% of those of flooding)",
                (*first, *names),
                sent,
            ),
        ]

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 3, (13.5, 4.2)) as (left, middle, right):
            _draw_deliveries(left)
            for rule in RULES:
                curve = [p for p in points if p.setting.rule is rule and p.setting.hops == HOPS]
                ratios = [point.setting.stay_per_delay for point in curve]
                width = WIDTHS[rule]
                middle.plot(ratios, [p.median.blackout_per_delay for p in curve], "o-", label=rule,
                            color=COLOURS[rule], linewidth=width, markersize=width + 2)  # fmt: skip
                right.plot(ratios, [100 * p.median.missed_share for p in curve], "o-", label=rule,
                           color=COLOURS[rule], linewidth=width, markersize=width + 2)  # fmt: skip
            middle.axhline(2, color="#222222", linewidth=1, linestyle=":")
            middle.set(title="Blackout after a move", ylabel="in t_d", ylim=(-0.1, 2.6))
            right.set(title="Events missed", ylabel="%, of what flooding delivers", ylim=(-3, 105))
            ticks = sorted({p.setting.stay_per_delay for p in points})
            for each in (middle, right):
                each.set(xscale="log", xlabel="stay, in t_d")
                each.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                each.set_xticks([], minor=True)
            right.legend(frameon=False, fontsize=8)


RULES = (
    StepRule.SUB_UNSUB,
    StepRule.FLOOR,
    StepRule.CEIL,
    StepRule.SAFE,
    StepRule.EVERYWHERE,
)
NONE = (StepRule.SAFE, StepRule.EVERYWHERE)
"""The rules that leave no blackout."""


# ---- The scenario


def make_script(setting: Setting, seed: int) -> Script:
    """The consumer walks along a ring of places; there are events about each of them all the time.

    The first `Settle` is before the walk.
    """
    rng = random.Random(f"figure 3 {seed}")  # noqa: S311 - reproducible, not secret.
    rooms = [f"r{number}" for number in range(PLACES)]
    plan: Plan = [
        (number * setting.stay_us, Do(client=CONSUMER, what=MoveTo(location=room)))
        for number, room in enumerate(rooms * (1 + setting.moves // PLACES))
        if 0 < number <= setting.moves
    ]
    for room in rooms:
        publish = Do(client=PRODUCER, what=Publish(attributes={"room": room}))
        first = rng.randrange(GAP_MS * 1_000)
        end = (setting.moves + 1) * setting.stay_us
        plan += [(at, publish) for at in range(first, end, GAP_MS * 1_000)]
    topology = line(setting.hops)
    subscribe = Subscribe(subscription="here", filter=Filter("room IN myloc"))
    return Script(
        topology=topology,
        clients={CONSUMER: topology.brokers[0], PRODUCER: topology.brokers[-1]},
        steps=(
            Settle(),
            Do(client=CONSUMER, what=subscribe),
            Settle(),
            *timed(plan),
            Settle(),
        ),
        link=LinkModel(latency_us=LINK_MS * 1_000),
        latencies=((PRODUCER, topology.brokers[-1], 0),),
        places=PlacesOptions(
            edges=tuple(zip(rooms, [*rooms[1:], rooms[0]], strict=True)),
            rule=setting.rule,
            dwell=Dwell.FIXED,
            dwell_us=setting.stay_us,
        ),
        locations={CONSUMER: rooms[0]},
        timing=RELIABLE,
        seed=seed,
    )


# ---- Measuring


class Sent(msgspec.Struct, frozen=True):
    """Messages between brokers since the walk began."""

    events: int
    moves: int


class Watch(Observer):
    """Notes where the consumer is, and what it receives there."""

    def __init__(self) -> None:
        self.moved: list[Time] = []
        self.deliveries: list[tuple[Time, EventId]] = []

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Moved():
                self.moved.append(fact.time)
            case facts.Delivered():
                self.deliveries += [(fact.time, event.id) for event in fact.events]
            case _:
                pass

    def received(self, setting: Setting) -> list[EventId]:
        """The events after the first move, until the last stay was over."""
        end = self.moved[-1] + setting.stay_us
        return [id_ for time, id_ in self.deliveries if self.moved[1] <= time < end]

    def blackouts_ms(self, setting: Setting) -> list[float]:
        """For each move, how long it took to the first event; the stay if there was none."""
        times = [time for time, _ in self.deliveries]
        found = []
        for moved in self.moved[1:]:
            first = min((time for time in times if time >= moved), default=moved + setting.stay_us)
            found.append(min(first - moved, setting.stay_us) / 1_000)
        return found


def simulate(setting: Setting, seed: int) -> tuple[Watch, Sent]:
    """Run once; return what arrived, and how many messages it took."""
    watch = Watch()
    script = make_script(setting, seed)
    simulation = Simulation(script, [watch], judged=False)
    before = between_brokers(simulation)
    for step in script.steps:
        simulation.do(step)
        if isinstance(step, Settle) and len(watch.moved) == 1:
            before = between_brokers(simulation)
    sent = between_brokers(simulation)
    sent.subtract(before)
    return watch, Sent(events=sent[Events], moves=sent[MovingChange])


_flooded = lru_cache(maxsize=1)(simulate)
"""The run under flooding, with which all rules are compared."""


# ---- Showing

COLOURS = {
    StepRule.SUB_UNSUB: "#c2571a",
    StepRule.FLOOR: "#9b3a8f",
    StepRule.CEIL: "#0b6e99",
    StepRule.SAFE: "#3a8f3a",
    StepRule.EVERYWHERE: "#8a8a8a",
}
WIDTHS = {rule: 7 - 1.5 * rank for rank, rule in enumerate(RULES)}
"""The widths of lines: one that coincides with the next shows under it."""


def _draw_deliveries(axes: Axes) -> None:
    """Draw each event that the consumer receives in a short run, under each rule."""
    for row, rule in enumerate(RULES):
        setting = Setting(rule=rule, hops=HOPS, stay_per_delay=1.5, moves=6)
        watch, _ = simulate(setting, 1)
        start = watch.moved[1] - setting.stay_us
        times = [(time - start) / 1_000 for time, _ in watch.deliveries]
        axes.plot(times, [-row] * len(times), "|", color=COLOURS[rule], markersize=13)
        if row == 0:
            for moved in watch.moved[1:]:
                axes.axvline((moved - start) / 1_000, color="#222222", linewidth=0.8, zorder=0)
    axes.set_yticks([-row for row in range(len(RULES))], RULES)
    axes.set(title="What arrives (t_d = 100 ms, stay 150 ms)", xlabel="ms; lines: the moves",
             ylim=(-len(RULES) + 0.4, 0.6))  # fmt: skip


def _gap_share(points: Points) -> float:
    return 2 * GAP_MS / min(point.setting.delay_ms for point in points)


def _percent(shares: Sequence[float]) -> str:
    low, high = round(100 * min(shares)), round(100 * max(shares))
    return f"{low} %" if low == high else f"{low} to {high} %"
