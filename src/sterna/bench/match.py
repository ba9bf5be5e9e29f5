"""How fast the matching index is, beside the baselines, on each workload."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from sterna.bench.baselines import Baseline, BruteForce, Counting
from sterna.bench.measure import Timing, Work, compare, measure
from sterna.bench.workloads import Event, Workload
from sterna.matching import MatchIndex
from sterna.matching import index as index_module
from sterna.matching.columns import Columns
from sterna.model.filters import Filter

BATCH = 1000
CHANGES = 2000
ROUND_S = 0.4
"""About how long a round of a contender takes; slow ones get fewer events."""

Progress = Callable[[str], None]


@dataclass
class Figures:
    """The time of each contender, and how many times faster the index is."""

    median_us: dict[str, float]
    spread_us: dict[str, tuple[float, float]]
    times_faster: dict[str, float]

    @classmethod
    def of(cls, timings: dict[str, Timing], ours: str = "index") -> "Figures":
        return cls(
            {name: round(timing.median_us, 3) for name, timing in timings.items()},
            {
                name: (round(timing.best_us, 3), round(timing.worst_us, 3))
                for name, timing in timings.items()
            },
            {
                name: round(timing / timings[ours], 2)
                for name, timing in timings.items()
                if name != ours
            },
        )


@dataclass
class MatchReport:
    """All that was measured on a workload."""

    workload: str
    about: str
    subscriptions: int
    match_rate: float
    single: Figures
    batch: Figures
    insert_us: float
    normal_form_us: float
    remove_us: float
    build_s: float
    bytes_per_subscription: float
    churn: Figures | None = None
    curve: "list[MatchReport]" = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(
    workload: Workload,
    subscriptions: int,
    events: int,
    progress: Progress,
    *,
    seed: int = 1,
    curve: bool = False,
) -> MatchReport:
    """Measure a workload; with `curve`, also at every power of ten from 1,000 up to that size."""
    index: MatchIndex[int] = MatchIndex()
    filters = enumerate(workload.filters(subscriptions, seed))
    happening = workload.events(events, seed)
    smaller: list[MatchReport] = []
    build_s = 0.0
    sizes = [size for size in (10**k for k in range(3, 7)) if size < subscriptions and curve]
    for size in (*sizes, subscriptions):
        build_s += _build(index, islice(filters, size - len(index)), size, progress)
        report = _measure(workload, index, happening, build_s, seed, progress)
        smaller.append(report)
    last = smaller.pop()
    if not curve:
        last.churn = _churn(workload, index, happening, seed, progress)
    last.curve = smaller
    return last


def few_or_many(workload: Workload, events: int, progress: Progress) -> dict[int, Figures]:
    """For small numbers of filters: testing them one by one, beside the compiled table."""
    found = {}
    happening = workload.events(events, 1)
    for size in (4, 8, 16, 24, 32, 48, 64):
        progress(f"asking {size} filters one by one")
        filters = list(workload.filters(size, 1))
        few, many = MatchIndex[int](), MatchIndex[int]()
        limit = index_module.FEW_MAX
        try:
            for index, index_module.FEW_MAX in ((few, size), (many, 0)):
                for key, filter_ in enumerate(filters):
                    index.add(key, filter_)
        finally:
            index_module.FEW_MAX = limit
        found[size] = Figures.of(
            compare(
                {
                    "one by one": _single(few.match, happening),
                    "table": _single(many.match, happening),
                }
            ),
            "one by one",
        )
    return found


def _build(
    index: MatchIndex[int], filters: Iterable[tuple[int, Filter]], size: int, progress: Progress
) -> float:
    """Add filters, each with its normal form ready; return the seconds that adding took."""
    spent = 0.0
    for key, filter_ in filters:
        if key % 1000 == 0:
            progress(f"adding subscriptions: {key:,} of {size:,}")
        _ = filter_.normal_form
        started = time.perf_counter()
        index.add(key, filter_)
        spent += time.perf_counter() - started
    return spent


def _measure(
    workload: Workload,
    index: MatchIndex[int],
    events: list[Event],
    build_s: float,
    seed: int,
    progress: Progress,
) -> MatchReport:
    size = len(index)
    progress(f"preparing the baselines for {size:,} subscriptions")
    baselines = {
        "counting": Counting(index.compiled()),
        "brute force": BruteForce(index.compiled()),
    }
    batch = columns_of(events[:BATCH])
    hits = _agreed(index, baselines, batch)
    progress(f"matching one by one in {size:,} subscriptions")
    contenders: dict[str, Work] = {"index": _single(index.match, events)}
    contenders |= {name: _single(b.match, _affordable(b, events)) for name, b in baselines.items()}
    single = Figures.of(compare(contenders))
    progress(f"matching batches in {size:,} subscriptions")
    contenders = {"index": (lambda: index.match_batch(batch), len(events[:BATCH]))}
    contenders |= {
        name: _batched(b, _affordable(b, events[:BATCH])) for name, b in baselines.items()
    }
    batched = Figures.of(compare(contenders))
    progress(f"adding and removing in {size:,} subscriptions")
    insert, normal_form, remove = _changes(workload, index, seed)
    return MatchReport(
        workload=workload.name,
        about=workload.about,
        subscriptions=size,
        match_rate=hits / len(events[:BATCH]) / size,
        single=single,
        batch=batched,
        insert_us=round(insert.median_us, 2),
        normal_form_us=round(normal_form, 2),
        remove_us=round(remove.median_us, 2),
        build_s=round(build_s, 3),
        bytes_per_subscription=round(index.memory() / size, 1),
    )


def _single(
    match: Callable[[Event], object], events: list[Event]
) -> tuple[Callable[[], None], int]:
    def work() -> None:
        for event in events:
            match(event)

    return work, len(events)


def _batched(baseline: Baseline, events: list[Event]) -> tuple[Callable[[], object], int]:
    batch = columns_of(events)
    return lambda: baseline.match_batch(Columns(batch)), len(events)


def _affordable(baseline: Baseline, events: list[Event]) -> list[Event]:
    """As many events as a baseline manages in a round."""
    work, count = _single(baseline.match, events[:3])
    each = measure(work, count, rounds=3).median_us
    return events[: max(3, int(ROUND_S * 1e6 / each))]


def _agreed(index: MatchIndex[int], baselines: dict[str, Baseline], batch: dict[str, Any]) -> int:
    """How many matches there are; all contenders have to agree."""
    positions, _ = index.match_batch(batch)
    first = {name: values[0] for name, values in batch.items()}
    few = {name: _first(values, 20) for name, values in batch.items()}
    expected = np.bincount(positions[positions < 20], minlength=20).tolist()
    for name, baseline in baselines.items():
        found, _ = baseline.match_batch(Columns(few))
        if np.bincount(found, minlength=20).tolist() != expected:
            raise AssertionError(f"the index and {name} disagree on {first}")
    return len(positions)


def _first(values: Any, count: int) -> Any:
    if isinstance(values, tuple):
        return tuple(part[:count] for part in values)
    return values[:count]


def _changes(workload: Workload, index: MatchIndex[int], seed: int) -> tuple[Timing, float, Timing]:
    """The costs of adding a subscription with a known normal form, of that form, of removing."""
    filters = list(workload.filters(CHANGES, seed + 7))
    each = []
    for filter_ in filters:  # Only the first time takes work; the median leaves out pauses.
        started = time.perf_counter()
        _ = filter_.normal_form
        each.append((time.perf_counter() - started) * 1e6)
    normal_form = statistics.median(each)

    def add() -> None:
        for key, filter_ in enumerate(filters):
            index.add(-1 - key, filter_)

    def remove() -> None:
        for key in range(CHANGES):
            index.remove(-1 - key)

    timings = compare({"add": (add, CHANGES), "remove": (remove, CHANGES)}, rounds=3)
    return timings["add"], normal_form, timings["remove"]


def _churn(
    workload: Workload,
    index: MatchIndex[int],
    events: list[Event],
    seed: int,
    progress: Progress,
) -> Figures:
    """Matching after half of the subscriptions were replaced, beside an index made afresh."""
    size = len(index)
    rng = np.random.default_rng(seed)
    replaced = set(rng.permutation(size)[: size // 2].tolist())
    fresh: MatchIndex[int] = MatchIndex()
    replacements = workload.filters(len(replaced), seed + 3)
    pairs = zip(sorted(replaced), replacements, strict=True)
    for done, (key, filter_) in enumerate(pairs):
        if done % 1000 == 0:
            progress(f"replacing subscriptions: {done:,} of {len(replaced):,}")
        index.remove(key)
        index.add(key, filter_)
        fresh.add(key, filter_)
    for key, filter_ in enumerate(workload.filters(size, seed)):
        if key % 1000 == 0:
            progress(f"building the result afresh: {key:,} of {size:,}")
        if key not in replaced:
            fresh.add(key, filter_)
    progress("matching after the changes")
    work = {"churned": _single(index.match, events), "fresh": _single(fresh.match, events)}
    return Figures.of(compare(work), "fresh")


def columns_of(events: list[Event]) -> dict[str, Any]:
    """Events as arrays: numbers with their validity, everything else as objects."""
    return dict(_columns(events))


def _columns(events: list[Event]) -> Iterator[tuple[str, Any]]:
    for name in dict.fromkeys(name for event in events for name in event):
        values = [event.get(name) for event in events]
        if all(value is None or isinstance(value, float) for value in values):
            valid = np.array([value is not None for value in values])
            yield name, (np.array([value or 0.0 for value in values]), valid)
        else:
            array = np.empty(len(values), object)
            array[:] = values
            yield name, array
