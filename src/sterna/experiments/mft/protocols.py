"""What a migration costs: modular, efficient, ours, and our usual routing, over size and distance.

Amozarrain and Larrea argue that the efficient protocol "reduces network traffic" (1, 6), and do
not measure it.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from sterna.experiments.experiment import MEDIANS, Claim, Experiment, Point, PrintedTable
from sterna.experiments.mft.network import (
    COLOURS,
    PROTOCOLS,
    USUAL,
    Counted,
    Links,
    begin,
    behind,
    moved,
    near,
    wrong_ways,
)
from sterna.experiments.papers import AMOZARRAIN
from sterna.experiments.plot import error_bars, panels, plain_ticks
from sterna.sim.script import Migrate
from sterna.sim.topology import Topology, random_tree

COMPARED = (*PROTOCOLS, USUAL)
SIZES = (8, 16, 32, 64)
DISTANCES = (1, 2, 3, 4, 6)
SIZE, DISTANCE = 32, 3
"""Where the other one varies."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run."""

    protocol: str
    brokers: int
    distance: int
    """How many hops the new parent is from the old one."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run."""

    messages: float
    message_bytes: float
    branch: float
    """How many brokers have moved with their parent, and that one."""
    is_wrong: float
    """1 if any entry of any table is wrong in the end."""


Points = Sequence[Point[Setting, Measures]]


class MftProtocols(Experiment[Setting, Measures]):
    name = "mft-protocols"
    about = "Messages and bytes of a migration, by protocol, size of the network and distance."
    takes = "about two minutes"
    paper = AMOZARRAIN
    seeds = 20

    def settings(self, *, quick: bool) -> list[Setting]:
        if quick:
            where = [(8, 1), (16, 1), (16, 3)]
        else:
            where = [(size, DISTANCE) for size in SIZES]
            where += [(SIZE, distance) for distance in DISTANCES if distance != DISTANCE]
        return [
            Setting(protocol=name, brokers=brokers, distance=distance)
            for brokers, distance in where
            for name in COMPARED
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        topology, step, branch = migration(setting.brokers, setting.distance, seed)
        simulation = begin(topology, setting.protocol, seed=seed)
        counted = Counted(simulation)
        simulation.do(step)
        simulation.settle()
        after = moved(topology.links, step.broker, step.before, step.to)
        return Measures(
            messages=counted.messages().total(),
            message_bytes=counted.bytes(),
            branch=branch,
            is_wrong=float(wrong_ways(simulation, setting.protocol, after) > 0),
        )

    def work(self, setting: Setting) -> float:
        return setting.brokers**2

    def claims(self, points: Points) -> list[Claim]:
        found = {_key(point): point for point in points}
        sizes = {(p.setting.brokers, p.setting.distance) for p in points}
        largest = max(sizes)
        means = {name: found[name, *largest].mean for name in COMPARED}
        where = f"{largest[0]} brokers, {largest[1]} hops"
        text = ", ".join(f"{name} {mean.messages:,.0f}" for name, mean in means.items())
        text_bytes = ", ".join(
            f"{name} {mean.message_bytes / 1_000:,.1f}" for name, mean in means.items()
        )
        wrong = {
            name: sum(p.mean.is_wrong * p.seeds for p in points if p.setting.protocol == name)
            for name in COMPARED
        }
        runs = sum(p.seeds for p in points) / len(COMPARED)
        shares = ", ".join(f"{name} {count:.0f}" for name, count in wrong.items())
        return [
            Claim(
                "The efficient protocol reduces network traffic (1, 6)",
                f"mean messages of a migration ({where}): {text}; kB: {text_bytes}",
                holds=means["efficient"].messages < means["modular"].messages
                and means["efficient"].message_bytes < means["modular"].message_bytes,
                why="a whole table goes to each broker of a branch in the modular protocol; where "
                "the efficient one finds contradictions, it tells the whole network of each "
                "subscriber",
            ),
            Claim(
                "Brokers detect how the topology is changing by timestamps and hop counts (6)",
                f"of {runs:.0f} migrations, wrong in the end: {shares}",
                holds=not wrong["efficient"],
                why="a broker whose link is dead still claims to be near; ours compares no hop "
                "counts",
            ),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        note = f"All are {MEDIANS}."
        return [
            _table(points, "Messages of a migration", "messages", ",.0f", note),
            _table(points, "kB of these messages", "message_bytes", ",.1f", "", 1_000),
            _wrong(points),
        ]

    def summary(self, points: Points) -> dict[str, Any]:
        return {
            name: {
                f"{p.setting.brokers} brokers, {p.setting.distance} hops": p.mean.messages
                for p in points
                if p.setting.protocol == name
            }
            for name in COMPARED
        }

    def draw(self, points: Points, path: Path) -> None:
        by_size = [p for p in points if p.setting.distance == DISTANCE]
        by_distance = [p for p in points if p.setting.brokers == SIZE]
        with panels(path, 2, 2, (8.4, 6.4)) as axes:
            for row, (name, scale, unit) in enumerate(
                (("messages", 1, "messages"), ("message_bytes", 1_000, "kB"))
            ):
                for column, (some, what) in enumerate(
                    ((by_size, "brokers"), (by_distance, "distance"))
                ):
                    _curves(axes[2 * row + column], some, name, scale, what)
                    axes[2 * row + column].set(
                        xlabel=what if what == "brokers" else "hops from the old parent",
                        ylabel=f"{unit} of a migration",
                        yscale="log",
                    )
                    plain_ticks(axes[2 * row + column])
            axes[0].legend(frameon=False, fontsize=8)


def migration(brokers: int, distance: int, seed: int) -> tuple[Topology, Migrate, int]:
    """A random tree, and a random migration in it over so many hops, with the size of the branch.

    At most half of the brokers move.
    """
    for attempt in range(1_000):
        tree = f"{seed} {attempt}"
        rng = random.Random(f"migration {brokers} {distance} {tree}")  # noqa: S311 - reproducible.
        topology = random_tree(brokers, rng.randrange(2**32))
        moves = [
            (broker, before, to, len(branch))
            for a, b in topology.links
            for broker, before in ((a, b), (b, a))
            if len(branch := behind(topology.links, before, broker)) <= brokers // 2
            for to in _at(topology.links, before, broker, distance)
        ]
        if moves:
            size = rng.choice(sorted({size for *_, size in moves}))  # Most branches are leaves.
            broker, before, to, _ = rng.choice([move for move in moves if move[-1] == size])
            return topology, Migrate(broker=broker, before=before, to=to), size
    raise ValueError(f"no tree of {brokers} brokers has a way of {distance} hops beside a branch")


def _at(links: Links, start: str, but: str, distance: int) -> list[str]:
    """The brokers so many hops from one, not over a neighbour."""
    found, before = [start], {but}
    for _ in range(distance):
        before |= {*found}
        found = [n for each in found for n in near(links, each) if n not in before]
    return found


# ---- Showing


def _key(point: Point[Setting, Measures]) -> tuple[str, int, int]:
    setting = point.setting
    return setting.protocol, setting.brokers, setting.distance


def _table(
    points: Points, title: str, name: str, form: str, note: str, scale: float = 1
) -> PrintedTable:
    found = {_key(point): point for point in points}
    where = dict.fromkeys((p.setting.brokers, p.setting.distance) for p in points)
    rows = [
        (
            str(brokers),
            str(distance),
            *(
                found[protocol, brokers, distance].text(lambda m: getattr(m, name) / scale, form)
                for protocol in COMPARED
            ),
        )
        for brokers, distance in sorted(where)
    ]
    return PrintedTable(title, ("brokers", "hops", *COMPARED), rows, note)


def _wrong(points: Points) -> PrintedTable:
    found = {_key(point): point for point in points}
    where = dict.fromkeys((p.setting.brokers, p.setting.distance) for p in points)
    rows = [
        (
            str(brokers),
            str(distance),
            *(f"{found[name, brokers, distance].mean.is_wrong:.0%}" for name in COMPARED),
        )
        for brokers, distance in sorted(where)
    ]
    title = "Migrations that end with wrong tables"
    return PrintedTable(title, ("brokers", "hops", *COMPARED), rows)


def _curves(axes: Any, points: Points, name: str, scale: float, what: str) -> None:
    for protocol in COMPARED:
        curve = sorted(
            (point for point in points if point.setting.protocol == protocol),
            key=lambda point: getattr(point.setting, what),
        )
        where = [getattr(point.setting, what) for point in curve]
        colour = COLOURS[protocol]
        axes.plot(where, [getattr(point.mean, name) / scale for point in curve], "o-",
                  color=colour, markersize=4, label=protocol)  # fmt: skip
        error_bars(axes, where, curve, lambda m: getattr(m, name) / scale, colour)
