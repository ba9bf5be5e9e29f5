"""Experiments without simulations, for tests of what is around them."""

import os
import signal
import time
from collections.abc import Hashable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from sterna.experiments.experiment import (
    MEDIANS,
    Claim,
    DeliveryError,
    Experiment,
    Point,
    PrintedTable,
)
from sterna.experiments.plot import error_bars, panels


class Way(StrEnum):
    DIRECT = "direct"
    DETOUR = "detour"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    way: Way
    length: int


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    messages: float
    name: str


Points = Sequence[Point[Setting, Measures]]

SECONDS = "STERNA_FAKE_SECONDS"
"""A variable of the environment: how long a measurement takes."""


class Walks(Experiment[Setting, Measures]):
    name = "walks"
    about = "Walks that are <long> & winding."
    takes = "no time"
    seeds = 3
    paper = "Nobody 1999: Walks"

    def settings(self, *, quick: bool) -> list[Setting]:
        lengths = (1, 2) if quick else (1, 2, 3, 4, 5)
        return [Setting(way=way, length=length) for length in lengths for way in Way]

    def measure(self, setting: Setting, seed: int) -> Measures:
        time.sleep(float(os.environ.get(SECONDS, "0")))
        factor = 1.1 if setting.way is Way.DIRECT else 1 / 3
        return Measures(messages=factor * setting.length * (10 + seed), name=f"w{setting.length}")

    def work(self, setting: Setting) -> float:
        return setting.length

    def claims(self, points: Points) -> list[Claim]:
        most = max(points, key=lambda point: point.median.messages)
        seen = most.text(lambda m: m.messages, ".1f")
        return [
            Claim("Walks are long", f"up to {seen}", holds=True),
            Claim("Walks are round", "they are not", holds=False, why="The earth is <flat>."),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        rows = [
            (str(p.setting.way), f"{p.setting.length}", p.text(lambda m: m.messages, ".2f"))
            for p in points
        ]
        return [PrintedTable("All walks", ("way", "length", "messages"), rows, MEDIANS)]

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 1, (4, 3)) as (axes,):
            where = [point.setting.length for point in points]
            axes.plot(where, [point.median.messages for point in points], "o")
            error_bars(axes, where, points, lambda m: m.messages, "#222222")


class Detours(Walks):
    """One run is wrong, one fails, one ends its process."""

    name = "detours"

    def measure(self, setting: Setting, seed: int) -> Measures:
        match setting.way, setting.length, seed:
            case Way.DETOUR, 2, 1:
                lost = [f"lost: event P #{number} for C" for number in range(1, 10)]
                raise DeliveryError("a detour", lost)
            case Way.DIRECT, 1, 3:
                raise ZeroDivisionError("no\nlength")
            case _:
                return super().measure(setting, seed)


class Falls(Walks):
    """One run ends its process."""

    name = "falls"

    def measure(self, setting: Setting, seed: int) -> Measures:
        if (setting.way, setting.length, seed) == (Way.DETOUR, 2, 2):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().measure(setting, seed)


class Strolls(Walks):
    """All ways of a length come from the same simulation."""

    name = "strolls"

    def together(self, setting: Setting) -> Hashable:
        return setting.length


class Outings(Walks):
    """Detours need two seeds only."""

    name = "outings"

    def seeds_max(self, setting: Setting) -> int | None:
        return 2 if setting.way is Way.DETOUR else None


class Waits(Walks):
    """Leaves the number of its process, and takes long."""

    name = "waits"

    def measure(self, setting: Setting, seed: int) -> Measures:
        del setting, seed
        Path(f"{os.getpid()}.pid").touch()
        time.sleep(600)
        raise AssertionError
