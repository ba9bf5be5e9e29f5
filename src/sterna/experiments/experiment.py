"""What an experiment is: independent simulations, and what follows from them."""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from sterna.errors import SternaError
from sterna.sim.oracle import Finding

S = TypeVar("S", bound=msgspec.Struct)
"""The input of a simulation, apart from the seed: a record of settings."""
M = TypeVar("M", bound=msgspec.Struct)
"""What is measured in a simulation: a record of numbers."""

Progress = Callable[[str, int, int], None]
"""Called before each simulation: what it is, its number from 0, and how many there are."""


class DeliveryError(SternaError):
    """A run delivered something wrong, so that its figures mean nothing."""

    def __init__(self, where: str, findings: Sequence[Finding | str]) -> None:
        self.findings = [str(finding) for finding in findings]
        wrong = "\n".join(f"  {finding}" for finding in self.findings)
        super().__init__(f"wrong deliveries in {where}:\n{wrong}")


@dataclass(frozen=True)
class Point(Generic[S, M]):
    """What several seeds gave for the same settings."""

    setting: S
    median: M
    low: M
    high: M

    def as_json(self) -> dict[str, Any]:
        """The settings, and each measure as its median and its range."""
        settings: dict[str, Any] = msgspec.to_builtins(self.setting)
        middle, low, high = map(msgspec.structs.asdict, (self.median, self.low, self.high))
        measures = {
            name: {"median": middle[name], "low": low[name], "high": high[name]} for name in middle
        }
        return {**settings, "measures": measures}

    def as_row(self) -> dict[str, Any]:
        """The point as one row of a table: `x`, and `x_low` and `x_high` where they can differ."""
        row: dict[str, Any] = msgspec.to_builtins(self.setting)
        middle, low, high = map(msgspec.structs.asdict, (self.median, self.low, self.high))
        for name, value in middle.items():
            row[name] = value
            if not isinstance(value, str):
                row |= {f"{name}_low": low[name], f"{name}_high": high[name]}
        return row


class PrintedTable(NamedTuple):
    """A table for people."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


class Claim(NamedTuple):
    """What a paper claims (or is generally expected), and what came out."""

    paper: str
    seen: str
    holds: bool


class Experiment(ABC, Generic[S, M]):
    """Settings to try, a simulation for each of them and each seed, and a picture of them all."""

    name: ClassVar[str]
    about: ClassVar[str]
    takes: ClassVar[str]
    """How long it runs, as text."""
    seeds: ClassVar[int] = 3
    """How many seeds the median is taken of by default; 1 if nothing is random."""

    @abstractmethod
    def settings(self, *, quick: bool) -> list[S]:
        """The settings to try."""

    @abstractmethod
    def measure(self, setting: S, seed: int) -> M:
        """Simulate once; raises `DeliveryError` if the oracle finds any."""

    @abstractmethod
    def claims(self, points: Sequence[Point[S, M]]) -> list[Claim]:
        """What was expected, beside what came out."""

    @abstractmethod
    def tables(self, points: Sequence[Point[S, M]]) -> list[PrintedTable]:
        """The results for people."""

    def summary(self, points: Sequence[Point[S, M]]) -> dict[str, Any]:
        """Conclusions from the points, for programs."""
        del points
        return {}

    @abstractmethod
    def draw(self, points: Sequence[Point[S, M]], path: Path) -> None:
        """The results as a picture, as `panels` writes it; needs matplotlib."""

    def run(self, progress: Progress, *, quick: bool, seeds: int) -> list[Point[S, M]]:
        """Simulate all settings with so many seeds."""
        settings = self.settings(quick=quick)
        points = []
        for place, setting in enumerate(settings):
            measured = []
            for seed in range(1, seeds + 1):
                progress(f"{in_words(setting)}, seed {seed}", place * seeds + seed - 1,
                         len(settings) * seeds)  # fmt: skip
                measured.append(self.measure(setting, seed))
            points.append(summarize(setting, measured))
        return points


def summarize(setting: S, measured: Sequence[M]) -> Point[S, M]:
    """Median and range over the seeds, measure by measure; words are in their alphabetic order."""
    columns = list(zip(*map(msgspec.structs.astuple, measured), strict=True))
    names = measured[0].__struct_fields__
    kind = type(measured[0])

    def record(choose: Callable[[Sequence[Any]], Any]) -> M:
        return msgspec.convert(dict(zip(names, map(choose, columns), strict=True)), kind)

    return Point(setting, record(_middle), record(min), record(max))


def _middle(values: Sequence[Any]) -> Any:
    is_text = isinstance(values[0], str)
    return statistics.median_low(values) if is_text else statistics.median(values)


def in_words(setting: msgspec.Struct) -> str:
    """The settings as text, such as `strategy covering, subscriptions 400`."""
    values: dict[str, Any] = msgspec.to_builtins(setting)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
