"""What an experiment is: independent simulations, and what follows from them."""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from sterna.errors import SternaError
from sterna.experiments.interval import margin
from sterna.sim.oracle import Finding

S = TypeVar("S", bound=msgspec.Struct)
"""The input of a simulation, apart from the seed: a record of settings."""
M = TypeVar("M", bound=msgspec.Struct)
"""What is measured in a simulation: a record of numbers."""


MEDIANS = "medians (±: half the 95 % confidence interval of the mean, with several seeds)"
"""What tables show that `Point.text` has made, for the note below them."""


class DeliveryError(SternaError):
    """A run delivered something wrong, so that its figures mean nothing."""

    def __init__(self, where: str, findings: Sequence[Finding | str]) -> None:
        self.findings = [str(finding) for finding in findings]
        wrong = "\n".join(f"  {finding}" for finding in self.findings)
        super().__init__(f"wrong deliveries in {where}:\n{wrong}")


class Interval(NamedTuple, Generic[M]):
    """A confidence interval of the mean, measure by measure."""

    low: M
    high: M


@dataclass(frozen=True)
class Point(Generic[S, M]):
    """What several seeds gave for the same settings."""

    setting: S
    median: M
    low: M
    high: M
    mean: M
    """The mean over the seeds; of words, the median."""
    interval: Interval[M] | None
    """The 95 % confidence interval of the mean; None with one seed."""
    measured: tuple[M, ...]
    """What each seed gave, from the first one on."""

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return len(self.measured)

    def first(self, seeds: int) -> "Point[S, M]":
        """The same settings with the first so many seeds only, or with all if there are fewer.

        Points with the same seeds can be compared: their simulations differ in nothing else.
        """
        return self if seeds >= self.seeds else summarize(self.setting, self.measured[:seeds])

    def text(self, measure: Callable[[M], float], form: str) -> str:
        """The median and half the confidence interval, such as `533 ±12`.

        The second part is missing with one seed, and where it rounds to 0. A measure may be scaled;
        of other functions of measures the interval is not known.
        """
        middle = format(measure(self.median), form)
        if self.interval is None:
            return middle
        half = format(abs(measure(self.interval.high) - measure(self.interval.low)) / 2, form)
        return middle if half == format(0.0, form) else f"{middle} ±{half}"

    def as_json(self) -> dict[str, Any]:
        """The settings, and each measure as its median, its range, its mean and the interval."""
        settings: dict[str, Any] = msgspec.to_builtins(self.setting)
        fields = msgspec.structs.asdict
        middle, low, high, mean = map(fields, (self.median, self.low, self.high, self.mean))
        ends = None if self.interval is None else [*map(fields, self.interval)]
        measures: dict[str, Any] = {}
        for name, value in middle.items():
            measures[name] = {"median": value, "low": low[name], "high": high[name]}
            if not isinstance(value, str):
                interval = None if ends is None else [end[name] for end in ends]
                measures[name] |= {"mean": mean[name], "interval": interval}
        return {**settings, "seeds": self.seeds, "measures": measures}

    def as_row(self) -> dict[str, Any]:
        """The point as one row of a table: its settings, `seeds` and each measure as `x`, and of
        numbers `x_low`, `x_high`, `x_mean` and `x_margin`, which is half the confidence interval of
        the mean.
        """
        row: dict[str, Any] = {**msgspec.to_builtins(self.setting), "seeds": self.seeds}
        for name, measure in self.as_json()["measures"].items():
            row[name] = measure.pop("median")
            if "mean" in measure:
                ends = measure.pop("interval")
                row |= {f"{name}_{which}": value for which, value in measure.items()}
                row[f"{name}_margin"] = None if ends is None else _of_each(_half, ends)
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
    why: str = ""
    """Why it differs, or on what it depends that it holds."""


class Experiment(ABC, Generic[S, M]):
    """Settings to try, a simulation for each of them and each seed, and a picture of them all."""

    name: ClassVar[str]
    about: ClassVar[str]
    takes: ClassVar[str]
    """How long it takes, as text; on one core, unless it says otherwise."""
    paper: ClassVar[str] = "Other experiments"
    """The paper whose figures and tables these are, as a heading of the report."""
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

    def seeds_max(self, setting: S) -> int | None:
        """How many seeds are enough for a setting, however many are asked for; None: all."""
        del setting
        return None

    def together(self, setting: S) -> Hashable:
        """What settings share that come from the same simulation; one task measures them all."""
        return setting

    def work(self, setting: S) -> float:
        """How long a setting takes, in any unit: what takes longest is begun first."""
        del setting
        return 0.0


def summarize(setting: S, measured: Sequence[M]) -> Point[S, M]:
    """Median, range and confidence interval over the seeds, measure by measure.

    Words are in their alphabetic order, and have no interval. Of a measure over time, which is a
    tuple, each element is taken by itself.
    """
    columns = list(zip(*map(msgspec.structs.astuple, measured), strict=True))
    names = measured[0].__struct_fields__
    kind = type(measured[0])

    def record(choose: Callable[[Sequence[Any]], Any]) -> M:
        values = (_of_each(choose, column) for column in columns)
        return msgspec.convert(dict(zip(names, values, strict=True)), kind)

    def end(direction: int) -> M:
        values = (_of_each(lambda each: _mean(each, direction), column) for column in columns)
        return kind(**dict(zip(names, values, strict=True)))

    return Point(
        setting,
        record(_middle),
        record(min),
        record(max),
        mean=end(0),
        interval=Interval(end(-1), end(+1)) if len(measured) > 1 else None,
        measured=tuple(measured),
    )


def _of_each(choose: Callable[[Sequence[Any]], Any], column: Sequence[Any]) -> Any:
    """What is chosen of a column; of one of tuples, a tuple of what is chosen at each place."""
    if isinstance(column[0], tuple):
        return tuple(choose(at) for at in zip(*column, strict=True))
    return choose(column)


def _half(ends: Sequence[float]) -> float:
    return (ends[1] - ends[0]) / 2


def _mean(values: Sequence[Any], direction: int) -> Any:
    """The mean, or an end of its confidence interval."""
    if isinstance(values[0], str):
        return _middle(values)
    mean = statistics.fmean(values)
    return mean + direction * margin(values) if direction else mean


def _middle(values: Sequence[Any]) -> Any:
    is_text = isinstance(values[0], str)
    return statistics.median_low(values) if is_text else statistics.median(values)


def in_words(setting: msgspec.Struct) -> str:
    """The settings as text, such as `strategy covering, subscriptions 400`."""
    values: dict[str, Any] = msgspec.to_builtins(setting)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
