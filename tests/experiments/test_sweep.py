"""Sweeps: each run once, whatever is killed, and the same table wherever they are simulated."""

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from io import StringIO
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from sterna.experiments import fingerprint as fingerprints
from sterna.experiments import runners
from sterna.experiments import sweep as sweeps
from sterna.experiments.experiment import Experiment, Point
from sterna.experiments.fiege_figure_3 import FiegeFigure3
from sterna.experiments.fiege_figure_9.experiment import FiegeFigure9
from sterna.experiments.fingerprint import fingerprint
from sterna.experiments.quenching.experiment import Quenching
from sterna.experiments.registry import EXPERIMENTS
from sterna.experiments.report import Report
from sterna.experiments.results import ResultsError, appending, read_runs
from sterna.experiments.routing import Routing
from sterna.experiments.runners import (
    PROCESSES,
    SMALL,
    Here,
    SparkJobs,
    choose_master,
    runner_at,
)
from sterna.experiments.sweep import Outcome, Sweep, Task, WrongRun, found_sweep, perform
from sterna.pipeline.errors import SparkUnavailable
from sterna.pipeline.session import LOCAL
from sterna.pipeline.shipping import package
from tests.experiments import fakes
from tests.experiments.fakes import SECONDS, Detours, Falls, Strolls, Walks, Way
from tests.pipeline.cluster import cluster
from tests.pipeline.killing import content, run_and_kill
from tests.scale import CAMPAIGN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "processes[1]"

ROOT = Path(__file__).parent.parent.parent


def swept(
    experiment: Experiment[Any, Any], folder: Path, master: str = HERE, *, seeds: int = 3
) -> tuple[Sweep[Any, Any], list[WrongRun]]:
    folder.mkdir(exist_ok=True)
    sweep = Sweep(experiment, folder, quick=False, seeds=seeds)
    with runner_at(master, sweep.left) as runner:
        wrong = sweep.run(runner, lambda *_: None)
    return sweep, wrong


def table(folder: Path) -> list[dict[str, Any]]:
    sweep = Sweep(Walks(), folder, quick=False, seeds=3)
    return [point.as_json() for point in sweep.points()]


def rows(path: Path) -> Counter[tuple[str, int]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return Counter((json.dumps(line["setting"]), line["seed"]) for line in lines)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of a sweep that nobody has stopped."""
    folder = tmp_path_factory.mktemp("whole")
    _, wrong = swept(Walks(), folder)
    assert not wrong
    return folder


# ---- Each run once


@pytest.mark.spec("PL-6")
def test_all_settings_with_all_seeds_in_the_order_of_the_settings(whole: Path) -> None:
    sweep = Sweep(Walks(), whole, quick=False, seeds=3)
    points: list[Point[Any, Any]] = sweep.points()

    assert (sweep.total, sweep.done, sweep.left) == (30, 30, 0)
    assert [point.setting for point in points] == Walks().settings(quick=False)
    assert points[2].median.messages == 1.1 * 2 * 12
    assert points[2].seeds == 3
    assert set(rows(whole / "walks.runs.jsonl").values()) == {1}


@pytest.mark.spec("PL-6")
@pytest.mark.parametrize("seed", range(2 * CAMPAIGN))
def test_a_sweep_that_is_killed_goes_on_and_gives_the_same_table(
    whole: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes are killed with SIGKILL while they append results."""
    monkeypatch.setenv(SECONDS, "0.02")
    path = tmp_path / "walks.runs.jsonl"
    before: list[bytes] = []

    def look() -> None:
        kept, _, _ = content(path).rpartition(b"\n")
        before.append(kept)
        if len(read_runs(path, "walks")) == 30:
            path.unlink()  # It was done before it could be killed.
            before.clear()

    run_and_kill(
        ["-m", "tests.experiments.sweeping", "Walks", tmp_path, "processes[2]"],
        kills=3,
        moments=[lambda: content(path)],
        rng=Random(f"sweeps {seed}"),  # noqa: S311
        between=look,
    )

    assert table(tmp_path) == table(whole)
    assert rows(path) == rows(whole / "walks.runs.jsonl")
    assert all(path.read_bytes().startswith(kept) for kept in before), "what was done was kept"
    assert any(before), "it was never killed in the middle"


@pytest.mark.spec("PL-6")
def test_wherever_a_line_is_cut_off_its_run_is_simulated_again(whole: Path, tmp_path: Path) -> None:
    name = "walks.runs.jsonl"
    complete = (whole / name).read_bytes()
    ends = [0, *(at for at, byte in enumerate(complete) if byte == ord("\n"))]
    places = {at + more for at in ends[::7] for more in (0, 1, 2, 40)}
    for cut in sorted(places | {len(complete) - 1}):
        (tmp_path / name).write_bytes(complete[:cut])
        sweep, wrong = swept(Walks(), tmp_path)

        assert not wrong
        assert rows(tmp_path / name) == rows(whole / name)
        assert [point.as_json() for point in sweep.points()] == table(whole)


class Nowhere:
    """A place where nothing may be simulated."""

    slots = 1

    def run(self, task: Task) -> list[Outcome]:
        raise AssertionError(task)


def test_what_is_there_is_not_simulated_again(whole: Path) -> None:
    before = (whole / "walks.runs.jsonl").read_bytes()
    for quick, seeds, points in ((False, 3, 10), (True, 2, 4)):
        sweep = Sweep(Walks(), whole, quick=quick, seeds=seeds)

        assert sweep.run(Nowhere(), lambda *_: None) == []
        assert len(sweep.points()) == points
    assert (whole / "walks.runs.jsonl").read_bytes() == before


def test_more_seeds_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    swept(Walks(), tmp_path, seeds=1)
    first = (tmp_path / "walks.runs.jsonl").read_bytes()

    sweep, _ = swept(Walks(), tmp_path, seeds=2)

    assert (tmp_path / "walks.runs.jsonl").read_bytes().startswith(first)
    assert sum(rows(tmp_path / "walks.runs.jsonl").values()) == 20
    assert {point.seeds for point in sweep.points()} == {2}


def test_two_sweeps_do_not_write_to_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "walks.runs.jsonl"
    with appending(path), pytest.raises(ResultsError, match="another process is writing to"):
        swept(Walks(), tmp_path)

    assert swept(Walks(), tmp_path)[1] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense\n", r"line 1: this is no result of a run \(.*\); delete the line"),
        ('{"experiment": "walks"}\n', r"line 1: this is no result of a run \(.*setting"),
        (
            '{"experiment":"runs","setting":{},"seed":1,"code":"","measures":{},"seconds":1}\n',
            "line 1: this is a result of runs, not of walks",
        ),
    ],
)
def test_a_file_that_is_no_results_file(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "walks.runs.jsonl").write_text(text, encoding="utf-8")

    with pytest.raises(ResultsError, match=problem):
        Sweep(Walks(), tmp_path, quick=True, seeds=1)


# ---- Which code


def _by_another_version(path: Path, code: str = "old", more: int = 1000) -> None:
    lines = [json.loads(line) | {"code": code} for line in path.read_text().splitlines()]
    for line in lines:
        line["measures"]["messages"] += more
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_results_of_another_version_of_the_code_are_not_mixed_in(
    whole: Path, tmp_path: Path
) -> None:
    path = tmp_path / "walks.runs.jsonl"
    path.write_bytes((whole / "walks.runs.jsonl").read_bytes())
    _by_another_version(path)
    sweep = Sweep(Walks(), tmp_path, quick=False, seeds=3)
    assert (sweep.left, sweep.of_other_code) == (30, 30)

    swept(Walks(), tmp_path)

    assert table(tmp_path) == table(whole)
    sweep = Sweep(Walks(), tmp_path, quick=False, seeds=3)
    assert (sweep.left, sweep.of_other_code) == (0, 0)
    assert Sweep(Walks(), tmp_path, quick=False, seeds=3, reuse=True).of_other_code == 0


def test_results_of_another_version_are_found_if_there_are_no_others(
    whole: Path, tmp_path: Path
) -> None:
    assert found_sweep(Walks(), tmp_path, quick=False) is None
    path = tmp_path / "walks.runs.jsonl"
    path.write_bytes((whole / "walks.runs.jsonl").read_bytes())
    _by_another_version(path)

    old = found_sweep(Walks(), tmp_path, quick=False)
    assert old is not None
    assert (old.of_other_code, old.seeds) == (30, 3)
    assert old.points()[0].median.messages > 1000

    path.write_text(path.read_text().replace('"messages"', '"packets"'))
    assert found_sweep(Walks(), tmp_path, quick=False) is None, "it measured something else"

    swept(Walks(), tmp_path, seeds=1)
    new = found_sweep(Walks(), tmp_path, quick=False)
    assert new is not None
    assert (new.of_other_code, new.seeds) == (0, 1)


def test_results_of_another_version_are_used_if_the_user_wants_it(
    whole: Path, tmp_path: Path
) -> None:
    path = tmp_path / "walks.runs.jsonl"
    lines = (whole / "walks.runs.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:20]))
    _by_another_version(path)
    sweep = Sweep(Walks(), tmp_path, quick=False, seeds=3, reuse=True)
    assert (sweep.left, sweep.of_other_code) == (10, 20)

    assert sweep.run(Here(), lambda *_: None) == []

    assert (sweep.left, sweep.of_other_code) == (0, 20)
    assert sum(point.high.messages > 1000 for point in sweep.points()) > 0
    assert sum(rows(path).values()) == 30


def _of_versions(whole: Path, folder: Path, **lines: slice) -> None:
    """Some lines each of several versions, which measured 1,000 more each time."""
    complete = (whole / "walks.runs.jsonl").read_text().splitlines(keepends=True)
    written = ""
    for number, (code, chosen) in enumerate(lines.items(), 1):
        part = folder / code
        part.write_text("".join(complete[chosen]))
        _by_another_version(part, code, 1000 * number)
        written += part.read_text()
    (folder / "walks.runs.jsonl").write_text(written)


def test_versions_are_not_mixed_to_find_results(whole: Path, tmp_path: Path) -> None:
    """Each has one half of the runs only."""
    _of_versions(whole, tmp_path, one=slice(15), two=slice(15, 30))

    assert found_sweep(Walks(), tmp_path, quick=False) is None


def test_the_latest_complete_version_is_found(whole: Path, tmp_path: Path) -> None:
    whole_one = slice(30)
    _of_versions(whole, tmp_path, one=whole_one, two=whole_one, three=slice(20))

    found = found_sweep(Walks(), tmp_path, quick=False)

    assert found is not None
    assert (found.of_other_code, found.other_versions, found.seeds) == (30, 1, 3)
    assert all(point.low.messages > 2000 for point in found.points())
    assert all(point.high.messages < 3000 for point in found.points())


def test_versions_are_mixed_if_the_user_wants_it_and_it_is_said(
    whole: Path, tmp_path: Path
) -> None:
    _of_versions(whole, tmp_path, one=slice(20), two=slice(10, 25))
    sweep = Sweep(Walks(), tmp_path, quick=False, seeds=3, reuse=True)

    assert sweep.run(Here(), lambda *_: None) == []

    assert (sweep.left, sweep.of_other_code, sweep.other_versions) == (0, 25, 2)
    report = Report(Walks(), sweep.points(), "", of_other_code=25, other_versions=2)
    document = report.document()
    assert (document["of_other_code"], document["other_versions"]) == (25, 2)
    console = Console(file=StringIO(), width=120)
    report.show(console)
    assert isinstance(console.file, StringIO)
    assert "25 runs are of 2 other versions of the code." in console.file.getvalue()


def test_the_code_of_an_experiment_is_what_its_results_depend_on() -> None:
    own = {path.name for path in fingerprints._own(Quenching())}
    shared = {str(path) for path in fingerprints._shared()}

    assert own == {"__init__.py", "break_even.py", "experiment.py", "settings.py", "simulation.py"}
    assert [path.name for path in fingerprints._own(Routing())] == ["routing.py"]
    assert any(path.endswith("sim/run.py") for path in shared)
    assert any(path.endswith("experiments/workload.py") for path in shared)
    assert fingerprint(Walks()) == fingerprint(Detours())  # They are in the same file.


def test_another_line_in_an_experiment_is_another_version_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(fakes.__file__).read_text(encoding="utf-8")

    def code(place: str, text: str) -> str:
        path = tmp_path / place / "fakes.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        spec = spec_from_file_location(place, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, place, module)
        spec.loader.exec_module(module)
        return fingerprint(module.Walks())

    assert code("one", source) == code("other", source) == fingerprint(Walks())
    assert code("third", source.replace("1 / 3", "1 / 4")) != fingerprint(Walks())
    assert code("fourth", source.replace("messages", "packets")) != fingerprint(Walks())


EACH_FILE = """
from pathlib import Path
from sterna.experiments import burcea, fingerprint
from sterna.experiments.registry import EXPERIMENTS

def codes(*, anew=True):
    if anew:
        fingerprint._digest_of.cache_clear()
        fingerprint._known.clear()
    return [fingerprint.fingerprint(each) for name, each in EXPERIMENTS.items() if "burcea" in name]

before = codes()
folder = Path(burcea.__file__).parent
update = folder / "new.py"
update.touch()
print("update", before != codes(anew=False), before != codes())
update.unlink()
for path in sorted(folder.rglob("*.py")):
    source = path.read_text(encoding="utf-8")
    path.write_text(source + "# Another word.", encoding="utf-8")
    changed = sum(a != b for a, b in zip(before, codes(), strict=True))
    print(path.relative_to(folder), changed)
    path.write_text(source, encoding="utf-8")
"""


def test_a_word_in_a_table_repeats_no_sweep_of_hours(tmp_path: Path) -> None:
    """In a copy of the package: a change of any file that simulates is another version of all."""
    copied = tmp_path / "sterna"
    copied.mkdir()
    for path in (ROOT / "src" / "sterna").iterdir():
        if path.name != "experiments":
            (copied / path.name).symlink_to(path)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src/sterna/experiments", copied / "experiments", ignore=ignored)

    lines = subprocess.run(
        [sys.executable, "-B", "-c", EACH_FILE],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    ).stdout.splitlines()

    assert lines[0] == "update False True", "what is loaded stays the same"
    changed = {name: int(count) for name, count in map(str.split, lines[1:])}
    showing = {name for name in changed if name.startswith("showing")}
    assert {name: changed[name] for name in showing} == dict.fromkeys(showing, 0)
    assert len(showing) > 5
    simulating = changed.keys() - showing
    assert {name: changed[name] for name in simulating} == dict.fromkeys(simulating, 5)
    assert simulating >= {"city.py", "settings.py", "measuring.py", "model.py", "analysis.py"}


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("burcea")])
def test_what_simulates_does_not_depend_on_what_shows(name: str) -> None:
    measure = Path(inspect.getfile(type(EXPERIMENTS[name]).measure))
    simulating = list(fingerprints._own(EXPERIMENTS[name]))

    assert measure in simulating
    assert not [path for path in simulating if ".showing" in path.read_text(encoding="utf-8")]


def test_the_code_is_the_same_in_the_file_that_clusters_get() -> None:
    """Else all that their workers simulate would be refused. It is in their working directory."""
    script = (
        f"import sys; sys.path.insert(0, './{package().name}'); import sterna; "
        "from sterna.experiments.fingerprint import fingerprint; "
        "from sterna.experiments.registry import EXPERIMENTS; "
        "print(sterna.__file__, *map(fingerprint, EXPERIMENTS.values()))"
    )

    said = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        cwd=package().parent,
    ).stdout.split()

    assert said[0] == f"./{package().name}/sterna/__init__.py"
    assert said[1:] == [fingerprint(each) for each in EXPERIMENTS.values()]
    assert len(set(said[1:])) > 7


# ---- What is wrong


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


class Elsewhere:
    """A place with other code for long walks, such as a worker with an older Sterna."""

    slots = 1

    def run(self, task: Task) -> list[Outcome]:
        return [
            replace(outcome, code="old") if setting.length == 5 else outcome
            for setting, outcome in zip(task.settings, perform(task), strict=True)
        ]


def test_a_run_of_other_code_is_no_result(tmp_path: Path) -> None:
    sweep = Sweep(Walks(), tmp_path, quick=False, seeds=1)

    wrong = sweep.run(Elsewhere(), lambda *_: None)

    assert [str(each) for each in wrong] == [
        f"walks: way {way}, length 5, seed 1: it was simulated by other code than this command "
        "has; install the same Sterna wherever it simulates, and start the command again"
        for way in Way
    ]
    assert (sweep.left, sum(rows(sweep.path).values())) == (2, 8)
    assert {run.code for run in read_runs(sweep.path, "walks")} == {sweep.code}


def test_outcomes_say_which_code_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the command has that gave the task."""
    task = Task(Walks(), tuple(Walks().settings(quick=True)), 1)

    assert {outcome.code for outcome in perform(task)} == {fingerprint(Walks())}
    monkeypatch.setattr(sweeps, "fingerprint", lambda _: "changed")
    assert {outcome.code for outcome in perform(task)} == {"changed"}


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


def test_progress_counts_the_runs(whole: Path, tmp_path: Path) -> None:
    lines = (whole / "walks.runs.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "walks.runs.jsonl").write_text("".join(lines[:25]))
    seen: list[tuple[str, int, int]] = []

    Sweep(Walks(), tmp_path, quick=False, seeds=3).run(Here(), lambda *how: seen.append(how))

    assert seen[0] == ("5 runs are left", 25, 30)
    assert [(done, total) for _, done, total in seen] == [(done, 30) for done in range(25, 31)]
    assert all("way " in what and ", seed " in what for what, _, _ in seen[1:])


# ---- In which order


def test_what_takes_longest_is_begun_first(tmp_path: Path) -> None:
    tasks = Sweep(Walks(), tmp_path, quick=False, seeds=2).tasks()

    assert [task.settings[0].length for task in tasks] == [
        length for length in (5, 4, 3, 2, 1) for _ in range(4)
    ]


def test_settings_of_one_simulation_are_one_task(tmp_path: Path) -> None:
    tasks = Sweep(Strolls(), tmp_path, quick=False, seeds=2).tasks()

    assert len(tasks) == 10
    assert all([setting.way for setting in task.settings] == list(Way) for task in tasks)
    sweep, _ = swept(Strolls(), tmp_path)
    assert (sweep.left, sum(rows(sweep.path).values())) == (0, 30)


@pytest.mark.parametrize(
    ("experiment", "most", "count"), [(FiegeFigure9(), 8, 20), (FiegeFigure3(), 5, 9)]
)
def test_figures_that_share_simulations_do_not_repeat_them(
    experiment: Experiment[Any, Any], most: int, count: int, tmp_path: Path
) -> None:
    tasks = Sweep(experiment, tmp_path, quick=False, seeds=1).tasks()

    assert len(tasks) == count
    assert max(len(task.settings) for task in tasks) == most


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
