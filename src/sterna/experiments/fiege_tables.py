"""Fiege, Tables 1 to 4: which locations the filters on the way to a consumer let through.

All tables are read off running networks: F_0 is what the consumer's client filters by, F_1, F_2, …
are the filters in the tables of the brokers behind it, and the last one is what comes over the
producer's own link, on which there is no filter.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from sterna.core import facts
from sterna.core.broker import Broker
from sterna.core.facts import Fact
from sterna.core.inputs import MoveTo, Publish, Subscribe
from sterna.core.link import RELIABLE, Data, Frame
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.messages import Events
from sterna.core.names import NodeId, Time
from sterna.experiments.experiment import Claim, Experiment, Point, PrintedTable
from sterna.experiments.papers import FIEGE
from sterna.experiments.plot import panels
from sterna.model.filters import Filter
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Script, Settle
from sterna.sim.topology import line

CONSUMER, PRODUCER = "consumer", "producer"
FIGURE_7 = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
"""The movement graph."""
WALK = "abd"
"""Where the consumer is at the times of Table 2."""
DWELL_MS = 100
EVEN_MS = (100, 100, 100)
"""Delays as long as a stay: each broker adds a step, whatever the rule."""
FIGURE_8_MS = (120, 50, 50, 20)
"""The delays of the timing example."""

Rows = tuple[tuple[str, ...], ...]


class Printed(msgspec.Struct, frozen=True):
    """A table as the paper has it. A cell lists its locations: `abc` is {a, b, c}."""

    head: tuple[str, ...]
    rows: Rows


ALL = "abcd"
PRINTED = {
    "1": Printed(
        ("t", "x = a", "x = b", "x = c", "x = d"),
        (tuple("abcd"), ("abc", "abd", "acd", "bcd"), (ALL,) * 4, (ALL,) * 4),
    ),
    "2": Printed(
        ("t", "F_3", "F_2", "F_1", "F_0"),
        ((ALL, ALL, "abc", "a"), (ALL, ALL, "abd", "b"), (ALL, ALL, "bcd", "d")),
    ),
    "3, sub/unsub": Printed(
        ("t", "x = a", "x = b", "x = c", "x = d"),
        (tuple("abcd"), tuple("abcd"), tuple("abcd"), (ALL,) * 4),
    ),
    "3, flooding": Printed(
        ("t", "x = a", "x = b", "x = c", "x = d"),
        (tuple("abcd"), (ALL,) * 4, (ALL,) * 4, (ALL,) * 4),
    ),
    "4": Printed(
        ("t", "x = a", "x = b", "x = c", "x = d"),
        (
            tuple("abcd"),
            ("abc", "abd", "acd", "bcd"),
            ("abc", "abd", "acd", "bcd"),
            (ALL,) * 4,
        ),
    ),
}
"""Table 1 prints {b.c.d} in its last column, which can only mean {b, c, d}."""

RULES: dict[str, tuple[StepRule, ...]] = {
    "1": (StepRule.FLOOR,),
    "2": (StepRule.FLOOR,),
    "3, sub/unsub": (StepRule.SUB_UNSUB,),
    "3, flooding": (StepRule.EVERYWHERE,),
    "4": (StepRule.FLOOR, StepRule.CEIL, StepRule.SAFE),
}
"""The rule by which steps are counted; in Tables 1 and 2, FLOOR and CEIL give the same."""

EQUAL, DIFFERS = "equal", "differs"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a table."""

    table: str
    rule: StepRule
    row: int
    printed: str


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """The row, read off a running network."""

    simulated: str
    verdict: str


Points = Sequence[Point[Setting, Measures]]


class FiegeTables(Experiment[Setting, Measures]):
    name = "fiege-tables"
    about = "Tables 1 to 4 of Fiege et al., read off running networks, beside the printed ones."
    takes = "a few seconds"
    paper = FIEGE
    seeds = 1

    def settings(self, *, quick: bool) -> list[Setting]:
        del quick
        return [
            Setting(table=name, rule=rule, row=row, printed=in_braces(cells))
            for name, table in PRINTED.items()
            for rule in RULES[name]
            for row, cells in enumerate(table.rows)
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        del seed  # Nothing is random.
        row, rule = setting.row, setting.rule
        if setting.table == "2":
            cells = filters(rule, EVEN_MS, WALK[: row + 1])[len(EVEN_MS) :: -1]
        else:
            # In Table 3 the fourth filter is that of the producer's own link.
            delays = {"1": EVEN_MS, "4": FIGURE_8_MS}.get(setting.table, EVEN_MS[:2])
            cells = [filters(rule, delays, x)[row] for x in ALL]
        simulated = in_braces(cells)
        return Measures(
            simulated=simulated, verdict=EQUAL if simulated == setting.printed else DIFFERS
        )

    def claims(self, points: Points) -> list[Claim]:
        claims = []
        for name in PRINTED:
            rule = RULES[name][0]
            same = [p.median.verdict == EQUAL for p in _rows(points, name, rule)]
            seen = f"{sum(same)} of {len(same)} rows equal, by the rule {rule}"
            claims.append(Claim(f"Table {name}", seen, all(same)))
        steps = {rule: figure_8_steps(rule) for rule in RULES["4"]}
        sums = ", ".join(f"{ms}" for ms in _sums())
        wrong = [p.setting.row for p in _rows(points, "4", StepRule.CEIL) if _differs(p)]
        return [
            *claims,
            Claim(
                f"Fig. 8: after {sums} ms, with stays of {DWELL_MS} ms, the steps are 1, 1, 2, 2 "
                "(5.3: the multiples that are exceeded)",
                f"floor: {_list(steps[StepRule.FLOOR])}",
                steps[StepRule.FLOOR] == [1, 1, 2, 2],
            ),
            Claim(
                "Fig. 13 counts begun multiples (ceil) and should give the same Table 4",
                f"ceil: {_list(steps[StepRule.CEIL])}; rows {_list(wrong)} of Table 4 differ: the "
                f"paper contradicts itself. Safe (our rule): {_list(steps[StepRule.SAFE])}",
                holds=not wrong,
                why="Section 5.3 takes a step when the delays exceed a multiple of the stay, "
                "Fig. 13 rounds up. The two give different filters.",
            ),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        rows = [
            (
                point.setting.table,
                str(point.setting.rule),
                str(point.setting.row),
                point.setting.printed,
                "as printed" if not _differs(point) else point.median.simulated,
                point.median.verdict,
            )
            for point in points
        ]
        head = ("table", "rule", "t", "printed", "simulated", "verdict")
        note = (
            "Cells from left to right as in the paper; {abc} is {a, b, c}. Table 4 is here three "
            "times: floor is the rule of section 5.3, which made it; ceil that of Fig. 13; safe is "
            "ours."
        )
        return [PrintedTable("Row by row", head, rows, note)]

    def summary(self, points: Points) -> dict[str, Any]:
        del points
        steps = {str(rule): figure_8_steps(rule) for rule in RULES["4"]}
        return {"figure_8": {"delays_ms": _sums(), "dwell_ms": DWELL_MS, "steps": steps}}

    def draw(self, points: Points, path: Path) -> None:
        del points
        with panels(path, 1, 1, (8, 4)) as (axes,):
            delays = range(300)
            for rule, colour in COLOURS.items():
                steps = [rule.steps(2 * ms * 1_000, DWELL_MS * 1_000) for ms in delays]
                axes.plot(delays, steps, "-", color=colour, drawstyle="steps-post", label=rule)
                axes.plot(_sums(), figure_8_steps(rule), "o", color=colour, markersize=6)
            for number, ms in enumerate(_sums(), 1):
                axes.axvline(ms, color="#bbbbbb", linewidth=1, linestyle=":", zorder=0)
                axes.annotate(f"F_{number}", (ms, 7.15), ha="center", fontsize=9,
                              annotation_clip=False)  # fmt: skip
            axes.set(
                xlabel="ms from the consumer to the broker, one way (stays of 100 ms)",
                ylabel="steps of ploc",
                ylim=(-0.2, 7),
                xlim=(0, 300),
            )
            axes.set_title("Figure 8: how many steps a filter is wide", pad=20)
            axes.legend(frameon=False, title="dots: running brokers", loc="upper left")


# ---- Reading filters off a network


def filters(rule: StepRule, delays_ms: Sequence[int], walk: str) -> list[str]:
    """F_0, F_1, … when the consumer has walked so far, and last the producer's own link."""
    simulation, watch = _network(rule, delays_ms, walk[0])
    for location in walk[1:]:
        simulation.do(Do(client=CONSUMER, what=MoveTo(location=location)))
        simulation.settle()
    for location in ALL:
        simulation.do(Do(client=PRODUCER, what=Publish(attributes={"room": location})))
    simulation.settle()
    return [
        _passing([watch.exact]),
        *(
            _passing(list(broker.router.subscriptions.entered(nearer).values()))
            for nearer, broker in _way(simulation)
        ),
        "".join(sorted(watch.published)),
    ]


def figure_8_steps(rule: StepRule) -> list[int]:
    """How many steps wide the filters of the timing example are, in a network along a corridor."""
    rooms = [f"r{number}" for number in range(41)]
    simulation, _ = _network(rule, FIGURE_8_MS, rooms[20], tuple(pairwise(rooms)))
    return [
        (len(_matching(list(broker.router.subscriptions.entered(nearer).values()), rooms)) - 1) // 2
        for nearer, broker in _way(simulation)
    ]


def _network(
    rule: StepRule,
    delays_ms: Sequence[int],
    at: str,
    edges: tuple[tuple[str, str], ...] = FIGURE_7,
) -> tuple[Simulation, "Watch"]:
    """A consumer, a line of brokers with such delays, and a producer at its end; all settled."""
    topology = line(len(delays_ms))
    way = (CONSUMER, *topology.brokers)
    subscribe = Subscribe(subscription="here", filter=Filter("room IN myloc"))
    script = Script(
        topology=topology,
        clients={CONSUMER: topology.brokers[0], PRODUCER: topology.brokers[-1]},
        steps=(Settle(), Do(client=CONSUMER, what=subscribe), Settle()),
        latencies=tuple(
            (one, next_, ms * 1_000)
            for (one, next_), ms in zip(pairwise(way), delays_ms, strict=True)
        ),
        places=PlacesOptions(edges=edges, rule=rule, dwell=Dwell.FIXED, dwell_us=DWELL_MS * 1_000),
        locations={CONSUMER: at},
        timing=RELIABLE,
    )
    watch = Watch()
    simulation = Simulation(script, [watch])
    for step in script.steps:
        simulation.do(step)
    return simulation, watch


class Watch(Observer):
    """Notes the filter of the consumer, and what goes over the producer's link."""

    exact: Filter

    def __init__(self) -> None:
        self.published: set[str] = set()

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, facts.Adapted):
            self.exact = fact.filter

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del fate, now
        if pipe.source.node.id == PRODUCER and isinstance(frame, Data):
            message = frame.message
            if isinstance(message, Events):
                self.published |= {str(event.attributes["room"]) for event in message.events}


def _way(simulation: Simulation) -> list[tuple[NodeId, Broker]]:
    """The brokers from the consumer on, each with the node before it."""
    brokers = simulation.script.topology.brokers
    nodes = [simulation.network.hosts[name].node for name in brokers]
    return [
        (nearer, node)
        for nearer, node in zip((CONSUMER, *brokers), nodes, strict=False)
        if isinstance(node, Broker)
    ]


def _passing(instances: Sequence[Filter]) -> str:
    return "".join(_matching(instances, ALL))


def _matching(instances: Sequence[Filter], rooms: Sequence[str]) -> list[str]:
    return [r for r in rooms if any(each.matches({"room": r}) for each in instances)]


# ---- Showing


COLOURS = {StepRule.FLOOR: "#c2571a", StepRule.CEIL: "#0b6e99", StepRule.SAFE: "#3a8f3a"}


def in_braces(cells: Sequence[str]) -> str:
    return " ".join(f"{{{cell}}}" for cell in cells)


def _rows(points: Points, table: str, rule: StepRule) -> list[Point[Setting, Measures]]:
    return [p for p in points if (p.setting.table, p.setting.rule) == (table, rule)]


def _differs(point: Point[Setting, Measures]) -> bool:
    return point.median.verdict == DIFFERS


def _sums() -> list[int]:
    return [sum(FIGURE_8_MS[: number + 1]) for number in range(len(FIGURE_8_MS))]


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
