"""What each command of the pipeline moves and keeps, at three sizes, on a cluster of two workers.

python -m benchmarks.costs [--out FILE] [COMMAND …]

Spark's own event log says what was read, shuffled, broadcast and collected, and how much memory the
processes of a worker took. The sizes are one, two and four times the same.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sterna.bench.moving_journals import write_moving
from tests.pipeline.cluster import cluster

SIZES = (1, 2, 4)
HOURS = 1.5
"""How long clients move about in the smallest journals."""
MATCHED, FILTERS = 100_000, 5_000
"""How many events are matched in the smallest case, and against how many filters in each."""
FIXES = 100_000

CONF = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.logStageExecutorMetrics": "true",
    "spark.executor.processTreeMetrics.enabled": "true",
    "spark.executor.metrics.pollingInterval": "200ms",
    "spark.sql.shuffle.partitions": "8",
}


@dataclass(frozen=True)
class Cost:
    """What one command has cost."""

    command: str
    size: int
    input_bytes: int
    """The size of its files."""
    seconds: float
    read_bytes: int
    """What Spark itself has read of files; Python reads journals."""
    shuffled_bytes: int
    broadcast_bytes: int
    collected_bytes: int
    """The results of tasks, which the driver gets."""
    task_bytes_max: int
    """The most memory that Spark took for one task's sorts and joins."""
    python_bytes_max: int
    """The most memory that the Python processes of one worker took."""
    java_bytes_max: int
    """The most memory on the heap of one worker."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=", ".join(COMMANDS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="sterna-costs-") as directory:
        folder = Path(directory)
        with cluster(folder / "cluster") as master:
            for name in options.commands or COMMANDS:
                for size in SIZES:
                    cost = _measured(name, size, folder / f"{name}-{size}", master)
                    found.append(asdict(cost))
                    print(json.dumps(found[-1]), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _measured(name: str, size: int, folder: Path, master: str) -> Cost:
    folder.mkdir()
    read, arguments = COMMANDS[name](folder, size)
    log = folder / "log"
    log.mkdir()
    conf = folder / "conf"
    conf.mkdir()
    lines = [f"{key} {value}" for key, value in CONF.items()] + [f"spark.eventLog.dir file://{log}"]
    (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    quiet = Path(__file__).parents[1] / "src" / "sterna" / "pipeline" / "log4j2.properties"
    (conf / "log4j2.properties").write_text(quiet.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-c", "from sterna.cli.main import app; app()", "pipeline"]
    began = time.perf_counter()
    subprocess.run(  # noqa: S603 - our own command.
        [*command, *arguments, "--master", master],
        env=os.environ | {"SPARK_CONF_DIR": str(conf)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    seconds = time.perf_counter() - began
    return Cost(
        command=name,
        size=size,
        input_bytes=sum(file.stat().st_size for file in _files(read)),
        seconds=round(seconds, 1),
        **_moved(log),
    )


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _moved(log: Path) -> dict[str, int]:
    """What Spark's log says."""
    sums, most = Counter[str](), Counter[str]()
    sizes: set[int] = set()
    for file in log.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            kind = said["Event"].rpartition(".")[2]
            if kind == "SparkListenerTaskEnd" and said.get("Task Metrics"):
                _add_task(said["Task Metrics"], sums, most)
            elif kind == "SparkListenerStageExecutorMetrics":
                of = said["Executor Metrics"]
                if said["Executor ID"] != "driver":
                    most["python"] = max(most["python"], of["ProcessTreePythonRSSMemory"])
                    most["java"] = max(most["java"], of["JVMHeapMemory"])
            elif "sparkPlanInfo" in said:
                sizes |= set(_broadcasts(said["sparkPlanInfo"]))
            elif kind == "SparkListenerDriverAccumUpdates":
                for number, value in said["accumUpdates"]:
                    if number in sizes:
                        sums["broadcast"] += value
    return {
        "read_bytes": sums["read"],
        "shuffled_bytes": sums["shuffled"],
        "broadcast_bytes": sums["broadcast"],
        "collected_bytes": sums["collected"],
        "task_bytes_max": most["task"],
        "python_bytes_max": most["python"],
        "java_bytes_max": most["java"],
    }


def _add_task(metrics: Any, sums: Counter[str], most: Counter[str]) -> None:
    sums["read"] += metrics["Input Metrics"]["Bytes Read"]
    sums["shuffled"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    sums["collected"] += metrics["Result Size"]
    most["task"] = max(most["task"], metrics["Peak Execution Memory"])


def _broadcasts(plan: Any) -> Iterator[int]:
    """The numbers under which a plan counts the bytes of what goes to all workers."""
    if plan["nodeName"] == "BroadcastExchange":
        for metric in plan["metrics"]:
            if metric["name"] == "data size":
                yield metric["accumulatorId"]
    for child in plan["children"]:
        yield from _broadcasts(child)


# ---- What each command gets


def _journals(folder: Path, size: int) -> Path:
    write_moving(folder / "journals", HOURS * size, clients=500)
    return folder / "journals"


def _run(folder: Path, size: int) -> tuple[list[Path], list[str]]:
    journals = _journals(folder, size)
    tables = ["events", "deliveries", "subscriptions", "traffic", "bootstrap_latency"]
    only = [word for name in tables for word in ("--only", name)]
    return [journals], ["run", str(journals), "--out", str(folder / "tables"), *only]


def _audit(folder: Path, size: int) -> tuple[list[Path], list[str]]:
    journals = _journals(folder, size)
    return [journals], ["audit", str(journals)]


def _match(folder: Path, size: int) -> tuple[list[Path], list[str]]:
    rng = np.random.default_rng(7)
    events, filters = folder / "events.parquet", folder / "filters.txt"
    count = MATCHED * size
    topics, prices = rng.integers(1000, size=count), rng.integers(100, size=count)
    pq.write_table(pa.table({"id": np.arange(count), "topic": topics, "price": prices}), events)
    wishes = zip(rng.integers(1000, size=FILTERS), rng.integers(100, size=FILTERS), strict=True)
    lines = [f"topic = {topic} AND price < {price}" for topic, price in wishes]
    filters.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["match", "--events", str(events), "--subscriptions", str(filters), "--count"]
    return [events, filters], command


def _mine(folder: Path, size: int) -> tuple[list[Path], list[str]]:
    rng = np.random.default_rng(7)
    count, clients = FIXES * size, 200
    fixes = folder / "fixes.parquet"
    client = np.repeat(np.arange(clients), count // clients)
    time_s = np.tile(np.arange(count // clients) * 60, clients)
    place = np.repeat(rng.integers(30, size=(len(client) // 10 + 1, 2)), 10, axis=0)[: len(client)]
    x, y = (place[:, axis] * 500.0 + 250 for axis in (0, 1))
    table = pa.table({"client": [f"c{each}" for each in client], "time": time_s, "x": x, "y": y})
    pq.write_table(table, fixes)
    out = str(folder / "mined")
    return [fixes], ["mine", "--fixes", str(fixes), "--grid", "500", "--out", out]


COMMANDS: Mapping[str, Callable[[Path, int], tuple[list[Path], list[str]]]] = {
    "run": _run,
    "audit": _audit,
    "match": _match,
    "mine": _mine,
}


if __name__ == "__main__":
    main()
