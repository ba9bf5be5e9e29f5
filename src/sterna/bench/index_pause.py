"""How long the longest single call of the matching index takes, while it grows and changes."""

import gc
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from sterna.bench import workloads
from sterna.bench.workloads import Event, Workload
from sterna.matching import MatchIndex
from sterna.model.filters import Filter

CHURN_SHARE = 4
"""One in so many subscriptions is replaced after the index has grown."""

NAMES = 200
"""How many attributes are introduced, each with a filter of its own."""

MATCH_EVERY = 50
"""After so many changes, an event is matched."""


@dataclass
class Longest:
    """The longest single call of one sort."""

    wall_ms: float = 0.0
    """The wall-clock time. On a busy machine, other processes make it longer."""
    cpu_ms: float = 0.0
    """The processor time of the call that took most of it, including the system's."""
    calls: int = 0
    each_cpu_ms: "array[float]" = field(default_factory=lambda: array("f"), repr=False)
    """The processor time of each call."""

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time a call."""
        wall, cpu = time.perf_counter(), time.thread_time()
        yield
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        self.calls += 1
        self.wall_ms = max(self.wall_ms, wall * 1e3)
        self.cpu_ms = max(self.cpu_ms, cpu * 1e3)
        self.each_cpu_ms.append(cpu * 1e3)


@dataclass
class LongestCalls:
    """The longest single calls, and what the whole took."""

    workload: str
    subscriptions: int
    add: Longest = field(default_factory=Longest)
    """The longest add while the index grows from empty."""
    replace: Longest = field(default_factory=Longest)
    """The longest add or remove while subscriptions are replaced."""
    introduce: Longest = field(default_factory=Longest)
    """The longest add that brings a new attribute."""
    match: Longest = field(default_factory=Longest)
    """The longest match in between."""
    grow_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        for each in found.values():
            if isinstance(each, dict):
                del each["each_cpu_ms"]
        return found


def longest_calls(
    n: int,
    workload: Workload | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
    index: Callable[[], Any] = MatchIndex,
) -> LongestCalls:
    """Let an index grow to `n` subscriptions, replace some and introduce attributes.

    Normal forms are made before the clock starts, and so is compiled code. Python's collector of
    cyclic garbage is off meanwhile: how long it takes depends on all objects of the process.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _measure(n, workload or workloads.standard(0.001), progress, index)
    finally:
        if collects:
            gc.enable()


def _measure(
    n: int, workload: Workload, progress: Callable[[str], None], index: Callable[[], Any]
) -> LongestCalls:
    found = LongestCalls(workload.name, n)
    events = workload.events(500, 1)
    warm: Any = index()
    for key, filter_ in enumerate(workload.filters(200, 5)):
        warm.add(key, filter_)
    warm.match(events[0])
    subject: Any = index()
    started = time.perf_counter()
    for key, filter_ in _ready(workload.filters(n, 1)):
        if key % 1000 == 0:
            progress(f"adding subscriptions: {key:,} of {n:,}")
        with found.add.timed():
            subject.add(key, filter_)
        _match_sometimes(subject, key, events, found)
    found.grow_s = round(time.perf_counter() - started, 3)
    count = n // CHURN_SHARE
    for key, filter_ in _ready(workload.filters(count, 3)):
        if key % 1000 == 0:
            progress(f"replacing subscriptions: {key:,} of {count:,}")
        with found.replace.timed():
            subject.remove(key * 2)
        with found.replace.timed():
            subject.add(key * 2, filter_)
        _match_sometimes(subject, key, events, found)
    names = (Filter(f"new{k} > {k} AND new{k // 2} <> 'v{k}'") for k in range(NAMES))
    for key, filter_ in _ready(names):
        with found.introduce.timed():
            subject.add(-1 - key, filter_)
        _match_sometimes(subject, key * MATCH_EVERY // 5, events, found)
    return found


def _ready(filters: Iterable[Filter]) -> Iterator[tuple[int, Filter]]:
    for key, filter_ in enumerate(filters):
        _ = filter_.normal_form
        yield key, filter_


def _match_sometimes(index: Any, change: int, events: list[Event], found: LongestCalls) -> None:
    if change % MATCH_EVERY == 0:
        with found.match.timed():
            index.match(events[change // MATCH_EVERY % len(events)])
