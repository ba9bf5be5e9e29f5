"""How fast the pipeline is: a list of measurements, each on one Spark session."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.bench.measure import Progress
from sterna.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE_SHARE, SOURCE_MIN = 10, 2_000
"""One in so many events is written to journals and read from there; at least so many."""

MOVING_H, MOVING_CLIENTS = 24, 1_000
"""So many hours so many clients move about, in a full measurement."""

Figures = dict[str, Any]
"""The results of a measurement, as JSON has them."""


@dataclass(frozen=True)
class Setting:
    """The environment of a measurement."""

    spark: "SparkSession"
    folder: Path
    """An empty folder of its own."""
    progress: Progress
    events: int
    subscriptions: int
    match_rate: float
    rounds: int


@dataclass(frozen=True)
class Options:
    """How much is measured, and where."""

    measurements: Sequence[str] = ()
    """The names of the measurements; all if there are none."""
    events: int = 1_000_000
    subscriptions: int = 100_000
    match_rate: float = 0.001
    rounds: int = 3
    master: str = "local[2]"
    """Spark's master: as many cores as the plain processes that it is compared with."""
    data: Path | None = None


def run(options: Options, progress: Progress) -> Figures:
    """Measure, one after the other."""
    progress(f"starting Spark ({options.master})")
    started = time.perf_counter()
    spark = spark_session("sterna bench pipeline", options.master)
    found: Figures = {"spark_start_s": round(time.perf_counter() - started, 1)}
    try:
        for name in options.measurements or MEASUREMENTS:
            with tempfile.TemporaryDirectory(prefix="sterna-bench-", dir=options.data) as folder:
                setting = Setting(
                    spark=spark,
                    folder=Path(folder),
                    progress=progress,
                    events=options.events,
                    subscriptions=options.subscriptions,
                    match_rate=options.match_rate,
                    rounds=options.rounds,
                )
                found[name] = MEASUREMENTS[name](setting)
    finally:
        spark.stop()
    return found


def _matching(setting: Setting) -> Figures:
    from sterna.bench import bulk_matching  # noqa: PLC0415 - numba is large.

    return bulk_matching.run(setting)


def _source(setting: Setting) -> Figures:
    """How fast `format("sterna")` reads the journals of brokers and clients."""
    from sterna.bench.audit_journals import write_journals  # noqa: PLC0415 - NumPy is large.

    count = max(SOURCE_MIN, setting.events // SOURCE_SHARE)
    setting.progress(f"writing the journals of {count:,} events")
    written = write_journals(setting.folder / "journals", count, clients=20, publishers=10)
    found: Figures = {"events_written": count, "facts_written": written.facts}
    for table in ("events", "deliveries", "facts"):
        read = setting.spark.read.format("sterna").option("table", table)
        rows = read.load(str(setting.folder / "journals"))
        seconds = []
        for number in range(setting.rounds + 1):  # The first one warms up.
            setting.progress(f"reading {table}: round {number} of {setting.rounds}")
            started = time.perf_counter()
            rows.write.format("noop").mode("overwrite").save()
            seconds.append(time.perf_counter() - started)
        many = rows.count()
        median = statistics.median(seconds[1:])
        found[table] = {
            "rows": many,
            "seconds": round(median, 2),
            "seconds_spread": [round(min(seconds[1:]), 2), round(max(seconds[1:]), 2)],
            "rows_per_s": round(many / median),
        }
    return found


def _audit(setting: Setting) -> Figures:
    """How long an audit takes of journals in which each fact is about one event."""
    from sterna.bench.audit_journals import write_journals  # noqa: PLC0415 - NumPy is large.
    from sterna.pipeline.audit import audit_journals  # noqa: PLC0415

    setting.progress(f"writing the journals of {setting.events:,} events")
    written = write_journals(setting.folder / "journals", setting.events, batch=1)
    setting.progress(f"auditing {written.facts:,} facts")
    started = time.perf_counter()
    verdict = audit_journals(setting.spark, setting.folder / "journals")
    seconds = time.perf_counter() - started
    found = {(each.fault, each.client, each.publisher, each.seq) for each in verdict.findings}
    if found != set(written.planted):
        raise AssertionError(f"planted were {written.planted}, found {verdict.findings}")
    return {
        "facts": written.facts,
        "events": verdict.published,
        "deliveries": verdict.delivered,
        "planted_and_found": len(found),
        "seconds": round(seconds, 1),
        "facts_per_s": round(written.facts / seconds),
    }


def _moving(setting: Setting) -> Figures:
    """How the cost of an audit grows while clients move about: a quarter, a half, and all of it."""
    from sterna.bench.moving_journals import write_moving  # noqa: PLC0415 - NumPy is large.
    from sterna.pipeline.audit import audit_journals  # noqa: PLC0415

    hours = MOVING_H * setting.events / Options.events
    found: Figures = {}
    before_s = 0.0
    for share in (4, 2, 1):
        journals = setting.folder / f"journals-{share}"
        setting.progress(f"writing the journals of {MOVING_CLIENTS:,} clients, {hours / share:g} h")
        written = write_moving(journals, hours / share, clients=MOVING_CLIENTS)
        if not found:
            setting.progress("warming up")
            audit_journals(setting.spark, journals)
        setting.progress(f"auditing {written.facts:,} facts")
        started = time.perf_counter()
        verdict = audit_journals(setting.spark, journals)
        seconds = time.perf_counter() - started
        if verdict.findings or verdict.delivered != written.deliveries:
            raise AssertionError(f"{verdict.delivered} deliveries, {verdict.findings[:3]}")
        found[f"{hours / share:g}_hours"] = {
            "facts": written.facts,
            "deliveries": verdict.delivered,
            "owed": verdict.owed,
            "pairs_by_deliveries": round(verdict.compared / verdict.delivered, 3),
            "seconds": round(seconds, 1),
            "seconds_by_half": round(seconds / before_s, 2) if before_s else None,
        }
        before_s = seconds
    return found


MEASUREMENTS: dict[str, Callable[[Setting], Figures]] = {
    "matching": _matching,
    "source": _source,
    "audit": _audit,
    "moving": _moving,
}
"""The measurements by name."""
