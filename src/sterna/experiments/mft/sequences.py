"""The migrations of Fig. 1 of Amozarrain and Larrea, message by message: Figs. 2 to 4."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from sterna.core.frames import Data, Frame
from sterna.experiments.experiment import Claim, Experiment, Point, PrintedTable
from sterna.experiments.mft.network import (
    COLOURS,
    NAMES,
    PROTOCOLS,
    Counted,
    begin,
    moved,
    wrong_ways,
)
from sterna.experiments.papers import AMOZARRAIN
from sterna.experiments.plot import panels
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.script import AnyStep, EndLink, Migrate, Settle
from sterna.sim.topology import Topology

BROKERS = tuple(f"b{number}" for number in range(1, 8))
NETWORK = Topology(
    BROKERS,
    (("b1", "b2"), ("b1", "b3"), ("b2", "b4"), ("b2", "b5"), ("b3", "b6"), ("b3", "b7")),
)
MOVES: dict[str, tuple[AnyStep, ...]] = {
    "1a": (Migrate(broker="b3", before="b1", to="b2"), Settle()),
    "1b": (
        EndLink(a="b3", b="b1"),
        Migrate(broker="b6", before="b3", to="b5"),
        Settle(),
        Migrate(broker="b3", before="b1", to="b2"),
        Settle(),
    ),
}
"""b3 moves from b1 to b2; and the same after b6, which was behind it, has moved to b5."""

PRINTED = {
    ("modular", "1a"): ("Fig. 2a", 13),
    ("modular", "1b"): ("Fig. 2b", 12),
    ("efficient", "1a"): ("Fig. 3", 2),
    ("efficient", "1b"): ("Fig. 4", 13),
}
"""Where the paper prints a sequence, and how many messages it has."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run."""

    protocol: str
    figure: str


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run."""

    messages: float
    message_bytes: float
    wrong: float
    """How many entries of all tables are wrong in the end."""
    sequence: str
    """The messages, one a line."""


Points = Sequence[Point[Setting, Measures]]


class MftSequences(Experiment[Setting, Measures]):
    name = "mft-sequences"
    about = "The messages of two migrations among seven brokers, one by one."
    takes = "a second"
    paper = AMOZARRAIN
    seeds = 1

    def settings(self, *, quick: bool) -> list[Setting]:
        del quick
        return [Setting(protocol=name, figure=figure) for figure in MOVES for name in PROTOCOLS]

    def measure(self, setting: Setting, seed: int) -> Measures:
        watch = Watch()
        simulation = begin(NETWORK, setting.protocol, seed=seed, observers=[watch])
        watch.lines.clear()
        counted = Counted(simulation)
        for step in MOVES[setting.figure]:
            simulation.do(step)
        after = moved(NETWORK.links, "b3", "b1", "b2")
        if setting.figure == "1b":
            after = moved(after, "b6", "b3", "b5")
        return Measures(
            messages=counted.messages().total(),
            message_bytes=counted.bytes(),
            wrong=wrong_ways(simulation, setting.protocol, after),
            sequence="\n".join(watch.lines),
        )

    def claims(self, points: Points) -> list[Claim]:
        claims = []
        for point in points:
            key = point.setting.protocol, point.setting.figure
            if key in PRINTED:
                figure, count = PRINTED[key]
                seen = point.median.messages
                claims.append(
                    Claim(
                        f"{figure}: {count} messages",
                        f"{seen:.0f} messages, {point.median.wrong:.0f} entries wrong in the end",
                        holds=seen == count and not point.median.wrong,
                    )
                )
        return claims

    def tables(self, points: Points) -> list[PrintedTable]:
        rows = [
            (
                point.setting.protocol,
                point.setting.figure,
                f"{point.median.messages:.0f}",
                f"{point.median.message_bytes:,.0f}",
                f"{point.median.wrong:.0f}",
            )
            for point in points
        ]
        head = ("protocol", "figure", "messages", "bytes", "wrong entries")
        return [
            PrintedTable("The migrations of Fig. 1", head, rows),
            *(_sequence(point) for point in points),
        ]

    def summary(self, points: Points) -> dict[str, Any]:
        return {f"{p.setting.protocol} {p.setting.figure}": p.median.messages for p in points}

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 1, (5.6, 3.6)) as (axes,):
            for place, protocol in enumerate(PROTOCOLS):
                mine = [point for point in points if point.setting.protocol == protocol]
                places = [index + 0.25 * (place - 1) for index in range(len(mine))]
                axes.bar(places, [point.median.messages for point in mine], 0.25,
                         color=COLOURS[protocol], label=protocol)  # fmt: skip
            axes.set_xticks(range(len(MOVES)), [f"Fig. {figure}" for figure in MOVES])
            axes.set(ylabel="messages", title="Two migrations among seven brokers")
            axes.legend(frameon=False, fontsize=8)


class Watch(Observer):
    """Writes down each message of the protocols."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: int) -> None:
        del now
        if type(frame) is Data and type(frame.message) in NAMES and not fate.again:
            self.lines.append(f"{pipe}: {NAMES[type(frame.message)]}")


def _sequence(point: Point[Setting, Measures]) -> PrintedTable:
    protocol, figure = point.setting.protocol, point.setting.figure
    printed = PRINTED.get((protocol, figure))
    title = f"Fig. {figure}, {protocol}" + (f": {printed[0]}" if printed else "")
    lines = point.median.sequence.splitlines()
    rows = [(str(number), *line.split(": ")) for number, line in enumerate(lines, 1)]
    return PrintedTable(title, ("", "from and to", "message"), rows)
