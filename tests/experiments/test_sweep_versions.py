"""Sweeps do not mix the results of several versions of the code."""

import inspect
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sterna.experiments import fingerprint as fingerprints
from sterna.experiments import sweep as sweeps
from sterna.experiments.fingerprint import fingerprint
from sterna.experiments.quenching.experiment import Quenching
from sterna.experiments.registry import EXPERIMENTS
from sterna.experiments.report import Report
from sterna.experiments.results import read_runs
from sterna.experiments.routing import Routing
from sterna.experiments.runners import Here
from sterna.experiments.sweep import Outcome, Sweep, Task, found_sweep, perform
from sterna.pipeline.shipping import package
from tests.experiments import fakes
from tests.experiments.conftest import by_another_version, rows, swept, table
from tests.experiments.fakes import Detours, Walks, Way

ROOT = Path(__file__).parent.parent.parent


def test_results_of_another_version_of_the_code_are_not_mixed_in(
    whole: Path, tmp_path: Path
) -> None:
    path = tmp_path / "walks.runs.jsonl"
    path.write_bytes((whole / "walks.runs.jsonl").read_bytes())
    by_another_version(path)
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
    by_another_version(path)

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
    by_another_version(path)
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
        by_another_version(part, code, 1000 * number)
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
