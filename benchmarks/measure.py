"""Timing on small, noisy machines: the median of several rounds, and how far they spread."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Microseconds per operation over several rounds."""

    median_us: float
    best_us: float
    worst_us: float

    def __truediv__(self, other: "Timing") -> float:
        return self.median_us / other.median_us


def measure(work: Callable[[], object], operations: int, rounds: int = 7) -> Timing:
    """Time a function that does so many operations a call."""
    work()  # Warm up: caches, lazy compilation.
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) / operations * 1e6)
    return Timing(statistics.median(times), min(times), max(times))
