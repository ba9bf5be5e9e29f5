"""Timing on small, noisy machines: several rounds, their median, and how far they spread."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROUNDS = 7

Progress = Callable[[str], None]
"""Takes a line about what is going on."""


@dataclass(frozen=True)
class Timing:
    """Microseconds per operation, one figure for each round."""

    rounds_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        return statistics.median(self.rounds_us)

    @property
    def best_us(self) -> float:
        return min(self.rounds_us)

    @property
    def worst_us(self) -> float:
        return max(self.rounds_us)

    def __truediv__(self, other: "Timing") -> float:
        """How many times as long this takes: the median over rounds run side by side."""
        pairs = zip(self.rounds_us, other.rounds_us, strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)


Work = tuple[Callable[[], object], int]
"""Something to do, and how many operations that is."""


def measure(work: Callable[[], object], operations: int, rounds: int = ROUNDS) -> Timing:
    """Time a function that does so many operations a call."""
    return compare({"": (work, operations)}, rounds)[""]


def compare(
    contenders: Mapping[str, Work],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time several contenders in turns, so that a slow moment of the machine meets them all.

    What only computes may be timed by `time.process_time`: other processes do not count then.
    """
    for work, _ in contenders.values():
        work()  # Warm up: caches, lazy compilation.
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, (work, operations) in contenders.items():
            started = clock()
            work()
            times[name].append((clock() - started) / operations * 1e6)
    return {name: Timing(tuple(figures)) for name, figures in times.items()}
