"""Bulk matching on Spark, beside plain processes with the same index, and beside Spark SQL."""

import multiprocessing
import os
import pickle
import statistics
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sterna.bench import bulk_sql
from sterna.bench.workloads import ATTRIBUTES, id_columns, ids, standard, standard_columns
from sterna.matching import MatchIndex
from sterna.model.filters import Filter
from sterna.pipeline.matching import Layout, Matching
from sterna.pipeline.matching.figures import WorkerFigures, listener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sterna.bench.pipeline import Figures, Setting

PROCESSES = 2
PORTION = 125_000
"""How many events a file has, and a row group of it."""
BATCH = 10_000
"""How many events plain processes match at a time; Spark sends as many."""
SEED = 1
BRUTE_EVENTS = 50
PAIRS_SHARE = 10
"""One event in so many is matched when writing pairs is timed."""


def run(setting: "Setting") -> "Figures":
    """Measure all contenders in turns, and compare what they find."""
    spark, progress = setting.spark, setting.progress
    progress(f"making {setting.events:,} events and {setting.subscriptions:,} subscriptions")
    files = write_events(setting.folder / "events", setting.events)
    filters = list(standard(setting.match_rate).filters(setting.subscriptions, SEED))
    table = pa.table({"id": range(len(filters)), "filter": [str(each) for each in filters]})
    pq.write_table(table, setting.folder / "subscriptions.parquet")
    events = spark.read.parquet(str(setting.folder / "events"))
    subscriptions = spark.read.parquet(str(setting.folder / "subscriptions.parquet"))

    contenders: dict[str, MatchingContender] = {}
    for layout in (Layout.EVENTS, Layout.SUBSCRIPTIONS):
        progress(f"compiling {setting.subscriptions:,} subscriptions (layout {layout})")
        contenders[f"spark, {layout}"] = Spark(events, subscriptions, layout, setting.folder)
    progress("building the index for plain processes")
    plain = contenders["plain"] = Plain(setting.folder / "index", filters, files)
    try:
        for number in range(setting.rounds + 1):  # The first one warms up.
            for name, contender in contenders.items():
                progress(f"round {number} of {setting.rounds}: {name}")
                contender.round()
    finally:
        plain.close()
    if any(contender.pairs != plain.pairs for contender in contenders.values()):
        raise AssertionError({name: contender.pairs for name, contender in contenders.items()})
    progress("asking every filter about some events")
    by_spark = [each for each in contenders.values() if isinstance(each, Spark)]
    brute_force = _brute_force(by_spark, filters, files[0])
    sql = bulk_sql.by_predicates(by_spark[0].first, filters, setting)
    equi_join = bulk_sql.by_equi_join(by_spark[0].first, filters, setting)
    return {
        "workload": f"3 to 5 tests on {ATTRIBUTES} attributes, {setting.match_rate:.2%} match",
        "events": setting.events,
        "subscriptions": setting.subscriptions,
        "pairs": plain.pairs,
        "contenders": {
            name: contender.figures(setting.events) for name, contender in contenders.items()
        },
        "brute_force": brute_force,
        "sql": sql,
        "sql_equi_join": equi_join,
        "pairs_written": _pairs_written(by_spark[0], setting),
        "ratios": _ratios(
            contenders,
            plain,
            {"SQL": sql["extrapolated_s"], "SQL equi-join": equi_join["all_events_s"]},
        ),
        "ids": _ids(setting),
    }


# ---- Contenders


class MatchingContender(ABC):
    """Something that counts all pairs of events and subscriptions that match."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.cpu: list[float] = []
        """The processor time of each round, in all processes."""
        self.pairs = 0

    @abstractmethod
    def round(self) -> None:
        """Do it once, and note the time."""

    @property
    def seconds(self) -> list[float]:
        """The times without the first one, in which caches are filled and processes start."""
        return self.times[1:]

    def figures(self, events: int) -> "Figures":
        median = statistics.median(self.seconds)
        return {
            "seconds": round(median, 2),
            "seconds_spread": [round(min(self.seconds), 2), round(max(self.seconds), 2)],
            "first_s": round(self.times[0], 2),
            "events_per_s": round(events / median),
            "pairs_per_s": round(self.pairs / median),
            "cpu_us_per_event": round(statistics.median(self.cpu[1:]) / events * 1e6, 2),
        }


class Spark(MatchingContender):
    """Bulk matching, counting: what `sterna pipeline match --count` does."""

    def __init__(
        self, events: "DataFrame", subscriptions: "DataFrame", layout: Layout, folder: Path
    ) -> None:
        super().__init__()
        self._context = events.sparkSession.sparkContext
        self._told: list[WorkerFigures] = []
        self._plan_s: list[float] = []
        """How long it takes to compile, and then to read what is compiled."""
        for _ in range(2):
            started = time.perf_counter()
            self.matching = Matching.plan(
                events, subscriptions, layout=layout, cache=folder / "cache"
            )
            self._plan_s.append(time.perf_counter() - started)

    def round(self) -> None:
        told = listener(self._context)
        orders = replace(self.matching.orders, listener=told)
        matching = replace(self.matching, orders=orders)
        spent, started = self._cpu_of_spark(), time.perf_counter()
        matching.counts().write.format("noop").mode("overwrite").save()
        self.times.append(time.perf_counter() - started)
        workers = sum(work["cpu_s"] for work in told.value.values())
        self.cpu.append(workers + self._cpu_of_spark() - spent)
        self._told.append(told.value)
        self.pairs = sum(work["pairs"] for work in told.value.values())

    def _cpu_of_spark(self) -> float:
        """The processor time of our Java process; 0 if the system does not report it."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # It has ended meanwhile.
                name, rest = stat.read_text(encoding="utf-8", errors="replace").rsplit(")", 1)
                fields = rest.split()
                if name.endswith("(java") and int(fields[1]) == os.getpid():
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def first(self, count: int) -> Matching:
        """Bulk matching for the first events only."""
        return replace(self.matching, events=self.matching.events.where(f"event < {count}"))

    def figures(self, events: int) -> "Figures":
        told = self._told[-1].values()
        busy = {
            name: sum(work[name] for work in told) for name in ("decode_s", "match_s", "encode_s")
        }
        return {
            **super().figures(events),
            "plan_s": round(self._plan_s[0], 2),
            "plan_again_s": round(self._plan_s[1], 2),
            "shares": self.matching.shares,
            "index_mb": round(self.matching.index_bytes / 1e6, 1),
            "worker_memory_mb": [
                round(work["memory_bytes"] / 1e6) for work in self._told[-1].values()
            ],
            "worker_index_mb": [
                round(work["index_bytes"] / 1e6, 1) for work in self._told[-1].values()
            ],
            "worker_seconds": {name: round(spent, 2) for name, spent in busy.items()},
            "load_s": round(
                max((work["load_s"] for told in self._told for work in told.values()), default=0), 2
            ),
        }


class Plain(MatchingContender):
    """Processes of their own with `match_batch`, their events in memory before the clock starts."""

    def __init__(self, place: Path, filters: list[Filter], files: list[Path]) -> None:
        super().__init__()
        started = time.perf_counter()
        index: MatchIndex[int] = MatchIndex()
        for key, filter_ in enumerate(filters):
            index.add(key, filter_)
        self._build_s = time.perf_counter() - started
        place.write_bytes(pickle.dumps(index, protocol=5))
        context = multiprocessing.get_context("spawn")
        self._processes: list[tuple[Any, Connection]] = []
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_match_alone, args=(place, files[number::PROCESSES], theirs), daemon=True
            )
            process.start()
            self._processes.append((process, ours))
        for _, connection in self._processes:
            connection.recv()

    def round(self) -> None:
        started = time.perf_counter()
        for _, connection in self._processes:
            connection.send("go")
        answers = [connection.recv() for _, connection in self._processes]
        self.times.append(time.perf_counter() - started)
        self.pairs = sum(pairs for pairs, _ in answers)
        self.cpu.append(sum(cpu for _, cpu in answers))

    def figures(self, events: int) -> "Figures":
        return {
            **super().figures(events),
            "processes": PROCESSES,
            "build_without_parsing_s": round(self._build_s, 2),
        }

    def close(self) -> None:
        for process, connection in self._processes:
            connection.send(None)
            process.join()


def _match_alone(place: Path, files: list[Path], connection: Connection) -> None:
    index: MatchIndex[int] = pickle.loads(place.read_bytes())  # noqa: S301 - the parent's own.
    batches = [
        batch.drop_columns(["event"])
        for file in files
        for batch in pq.ParquetFile(file).iter_batches(BATCH)
    ]
    connection.send("ready")
    while connection.recv() is not None:
        started = time.process_time()
        pairs = sum(len(index.match_batch(batch)[0]) for batch in batches)
        connection.send((pairs, time.process_time() - started))


class Sql(MatchingContender):
    """An equi-join in Spark SQL, counting pairs."""

    def __init__(self, events: "DataFrame", filters: list[Filter]) -> None:
        super().__init__()
        self._events = events
        started = time.perf_counter()
        self.join = bulk_sql.EquiJoin(events, filters)
        self._prepare_s = time.perf_counter() - started

    def round(self) -> None:
        started = time.perf_counter()
        self.pairs = self.join.pairs(self._events).count()
        self.times.append(time.perf_counter() - started)
        self.cpu.append(0.0)

    def figures(self, events: int) -> "Figures":
        found = super().figures(events)
        del found["cpu_us_per_event"]
        return {**found, "prepare_s": round(self._prepare_s, 2)}


# ---- Filters that all test one attribute with =


def _ids(setting: "Setting") -> "Figures":
    """Bulk matching beside SQL where SQL is good: an equi-join finds nearly only what matches."""
    spark, folder = setting.spark, setting.folder / "ids"
    folder.mkdir()
    columns = {"event": np.arange(setting.events), **id_columns(setting.events, SEED)}
    pq.write_table(pa.table(columns), folder / "events.parquet", row_group_size=PORTION)
    filters = list(ids().filters(setting.subscriptions, SEED))
    table = pa.table({"id": range(len(filters)), "filter": [str(each) for each in filters]})
    pq.write_table(table, folder / "subscriptions.parquet")
    events = spark.read.parquet(str(folder / "events.parquet"))
    subscriptions = spark.read.parquet(str(folder / "subscriptions.parquet"))
    setting.progress("compiling subscriptions to identifiers")
    ours = Spark(events, subscriptions, Layout.EVENTS, folder)
    sql = Sql(events, filters)
    for number in range(setting.rounds + 1):  # The first one warms up.
        setting.progress(f"identifiers: round {number} of {setting.rounds}")
        ours.round()
        sql.round()
    bulk_sql.require_equal(sql.join.pairs(events), ours.matching.pairs())
    sql.join.close()
    each = zip(sql.seconds, ours.seconds, strict=True)
    return {
        "workload": ids().about,
        "pairs": ours.pairs,
        "contenders": {
            "spark, events": ours.figures(setting.events),
            "SQL equi-join": sql.figures(setting.events),
        },
        "ratio": round(statistics.median(theirs / mine for theirs, mine in each), 2),
    }


# ---- Events


def write_events(folder: Path, count: int) -> list[Path]:
    """The events of the standard workload, in files."""
    folder.mkdir()
    files = []
    portion = min(PORTION, -(-count // PROCESSES))
    for number, first in enumerate(range(0, count, portion)):
        size = min(portion, count - first)
        columns = {"event": np.arange(first, first + size), **standard_columns(size, number)}
        files.append(folder / f"{number:05}.parquet")
        pq.write_table(pa.table(columns), files[-1])
    return files


# ---- Results


def _brute_force(spark: list[Spark], filters: list[Filter], file: Path) -> "Figures":
    """Whether Spark finds the pairs that testing every filter gives."""
    rows = next(pq.ParquetFile(file).iter_batches(BRUTE_EVENTS)).to_pylist()
    expected = sorted(
        (row["event"], key)
        for key, filter_ in enumerate(filters)
        for row in rows
        if filter_.matches(row)
    )
    for contender in spark:
        if sorted(map(tuple, contender.first(len(rows)).pairs().collect())) != expected:
            raise AssertionError(f"layout {contender.matching.layout} and brute force disagree")
    return {"events": len(rows), "pairs": len(expected), "equal": True}


def _pairs_written(spark: Spark, setting: "Setting") -> "Figures":
    """How long it takes to write pairs as Parquet, for some of the events."""
    count = max(1, setting.events // PAIRS_SHARE)
    setting.progress(f"writing the pairs of {count:,} events")
    some = spark.first(count)
    out = str(setting.folder / "pairs")
    started = time.perf_counter()
    some.pairs().write.parquet(out)
    seconds = time.perf_counter() - started
    pairs = setting.spark.read.parquet(out).count()
    return {
        "events": count,
        "pairs": pairs,
        "seconds": round(seconds, 2),
        "pairs_per_s": round(pairs / seconds),
    }


def _ratios(
    contenders: dict[str, MatchingContender], plain: Plain, sql_s: dict[str, float]
) -> dict[str, float]:
    """How many times as fast bulk matching is, round by round for what ran side by side."""
    found = {}
    for name, contender in contenders.items():
        if contender is not plain:
            pairs = zip(plain.seconds, contender.seconds, strict=True)
            found[f"{name} / plain"] = round(statistics.median(p / s for p, s in pairs), 2)
            cpu = zip(plain.cpu[1:], contender.cpu[1:], strict=True)
            found[f"{name} / plain, processor time"] = round(
                statistics.median(p / s for p, s in cpu), 2
            )
            for sql, seconds in sql_s.items():
                found[f"{name} / {sql}"] = round(seconds / statistics.median(contender.seconds), 1)
    return found
