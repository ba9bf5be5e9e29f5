"""Sweeps give the same table wherever they are simulated, and name the runs that went wrong."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from sterna.experiments import runners
from sterna.experiments.runners import PROCESSES, SMALL, SparkJobs, choose_master
from sterna.experiments.sweep import Sweep, WrongRun
from sterna.pipeline.errors import SparkUnavailable
from sterna.pipeline.session import LOCAL
from tests.experiments.conftest import HERE, rows, swept, table
from tests.experiments.fakes import Detours, Falls, Walks
from tests.pipeline.cluster import cluster
from tests.pipeline.killing import content, run_and_kill
from tests.scale import CAMPAIGN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.spec("PL-6")
@pytest.mark.parametrize("master", [HERE, "processes[2]"])
def test_a_wrong_run_is_named_and_the_others_are_finished(tmp_path: Path, master: str) -> None:
    sweep, wrong = swept(Detours(), tmp_path, master)

    _assert_detours(sweep, wrong)
    assert swept(Detours(), tmp_path, master)[1] == wrong, "they are tried again"
    assert sum(rows(sweep.path).values()) == 28


def _assert_detours(sweep: Sweep[Any, Any], wrong: list[WrongRun]) -> None:
    failed, lost = wrong
    assert str(failed).startswith(
        "detours: way direct, length 1, seed 3: ZeroDivisionError: no length (fakes.py, line "
    )
    assert str(lost) == (
        "detours: way detour, length 2, seed 1: wrong deliveries: lost: event P #1 for C; lost: "
        "event P #2 for C; lost: event P #3 for C; 6 more"
    )
    assert lost.findings == tuple(f"lost: event P #{number} for C" for number in range(1, 10))
    assert sweep.left == 2


@pytest.mark.spec("PL-6")
def test_a_run_that_ends_its_process_takes_no_other_along(tmp_path: Path) -> None:
    sweep, (wrong,) = swept(Falls(), tmp_path, "processes[2]")

    assert str(wrong) == (
        "falls: way detour, length 2, seed 2: its process was ended by SIGKILL; perhaps there is "
        "too little memory"
    )
    assert sweep.left == 1
    assert swept(Falls(), tmp_path, "processes[2]")[1] == [wrong], "nor the sweep, if it is alone"


def test_processes_end_with_the_sweep(tmp_path: Path) -> None:
    """Only the sweep itself is killed, in the middle of long runs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    sweeping = subprocess.Popen(
        [sys.executable, "-m", "tests.experiments.sweeping", "Waits", tmp_path, "processes[2]"],
        cwd=tmp_path,
        env=environment,
    )
    _wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    numbers = [int(path.stem) for path in tmp_path.glob("*.pid")]

    sweeping.send_signal(signal.SIGKILL)
    sweeping.wait()

    _wait_until(lambda: not any(Path(f"/proc/{number}/cmdline").exists() for number in numbers))


def _wait_until(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Ended:
    """A Spark that has ended: its context has no Java any more."""

    _jsc = None
    defaultParallelism = 2  # noqa: N815 - as Spark calls it.

    @property
    def sparkContext(self) -> "Ended":  # noqa: N802 - as Spark calls it.
        return self

    def parallelize(self, *_: object) -> None:
        raise RuntimeError("no Java")


def test_the_end_of_spark_ends_the_sweep(tmp_path: Path) -> None:
    """It does not call all that is left wrong."""
    sweep = Sweep(Walks(), tmp_path, quick=False, seeds=3)
    jobs = SparkJobs(Ended())  # type: ignore[arg-type]

    with pytest.raises(SparkUnavailable, match=r"Spark has ended \(no Java\); the same command"):
        sweep.run(jobs, lambda *_: None)

    assert swept(Walks(), tmp_path)[1] == []


# ---- Where


@pytest.mark.spec("PL-6", "PL-7")
def test_spark_gives_the_same_table(whole: Path, tmp_path: Path, spark: "SparkSession") -> None:
    del spark  # It is the running session.
    sweep, wrong = swept(Walks(), tmp_path, "local[2]")

    assert not wrong
    assert table(tmp_path) == table(whole)
    assert rows(sweep.path) == rows(whole / "walks.runs.jsonl")


@pytest.mark.spec("PL-6")
def test_a_wrong_run_stops_no_other_on_spark(tmp_path: Path, spark: "SparkSession") -> None:
    del spark
    sweep, wrong = swept(Detours(), tmp_path, "local[2]")

    _assert_detours(sweep, wrong)


@pytest.mark.spec("PL-6")
def test_a_run_that_ends_its_worker_stops_no_other_on_spark(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    spark.sparkContext.setLogLevel("OFF")
    try:
        sweep, (wrong,) = swept(Falls(), tmp_path, "local[2]")
    finally:
        spark.sparkContext.setLogLevel("ERROR")

    assert str(wrong).startswith("falls: way detour, length 2, seed 2: Spark failed: ")
    assert sweep.left == 1


@pytest.mark.skipif(CAMPAIGN == 1, reason="five Java processes for two minutes; make test-long")
@pytest.mark.spec("PL-6", "PL-7")
def test_a_cluster_gives_the_same_results_also_if_the_command_is_killed(tmp_path: Path) -> None:
    """A master and two workers, which get the package sent."""
    name = "fiege-figure-2"
    run = ["-m", "sterna.cli", "experiment", "run", name, "--quick", "--seeds", "2"]
    here, there = tmp_path / "here", tmp_path / "there"
    subprocess.run(
        [sys.executable, *run, "--out", here, "--master", "processes"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    path = there / f"{name}.runs.jsonl"
    with cluster(tmp_path / "cluster") as master:
        run_and_kill(
            [*run, "--out", there, "--master", master],
            kills=2,
            moments=[lambda: content(path)],
            rng=Random("a sweep on a cluster"),  # noqa: S311
            between=lambda: None if len(content(path).splitlines()) < 24 else path.unlink(),
        )

    assert rows(path) == rows(here / f"{name}.runs.jsonl")
    for kind in ("json", "txt", "svg"):
        one, other = ((folder / f"{name}.{kind}").read_bytes() for folder in (here, there))
        assert one == other


def test_small_sweeps_need_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_master(None, SMALL) == PROCESSES
    assert choose_master(None, SMALL + 1) == LOCAL
    assert choose_master("spark://there:7077", 1) == "spark://there:7077"
    monkeypatch.setattr(runners, "_has_spark", lambda: False)
    assert choose_master(None, 10_000) == PROCESSES


def test_without_java_or_pyspark_there_are_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert choose_master(None, 10_000) == PROCESSES
