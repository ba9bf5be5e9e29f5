"""Sweeps: each run once, in the best order, whatever is killed."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from sterna.experiments.experiment import Experiment, Point
from sterna.experiments.fiege_figure_3 import FiegeFigure3
from sterna.experiments.fiege_figure_9.experiment import FiegeFigure9
from sterna.experiments.results import ResultsError, appending, read_runs
from sterna.experiments.runners import Here
from sterna.experiments.sweep import Outcome, Sweep, Task
from tests.experiments.conftest import rows, swept, table
from tests.experiments.fakes import SECONDS, Strolls, Walks, Way
from tests.pipeline.killing import content, run_and_kill
from tests.scale import CAMPAIGN


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
