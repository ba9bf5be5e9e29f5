"""`sterna experiment`: tables for people, one JSON document for programs, files for both."""

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from sterna import extras
from sterna.cli.experiment import make_bar
from sterna.cli.main import app
from sterna.core.routing.options import Strategy
from sterna.experiments.experiment import DeliveryError
from sterna.experiments.registry import EXPERIMENTS
from sterna.experiments.routing import Measures, Routing, Setting
from sterna.experiments.sweep import Sweep
from tests.experiments.fakes import Detours, Strolls, Walks

WIDE = {"COLUMNS": "120"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The routing experiment with four settings."""
    settings = [
        Setting(strategy=strategy, advertisements=False, subscriptions=10, locality=locality,
                degree=2, events=6)
        for locality in (0.5, 1.0)
        for strategy in (Strategy.SIMPLE, Strategy.COVERING)
    ]  # fmt: skip

    def few(_self: Routing, *, quick: bool) -> list[Setting]:
        assert quick
        return settings

    monkeypatch.setattr(Routing, "settings", few)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_progress_keeps_its_bar_on_narrow_terminals(width: int) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=width, color_system=None)
    with make_bar(console) as bar:
        what = "imperfect-merging, 1,000 subscriptions, a tree of 85 brokers, " * 2
        bar.update(bar.add_task(what), completed=5, total=20, refresh=True)

    assert isinstance(console.file, StringIO)
    drawn = console.file.getvalue()
    assert "━━━━━                 25% " in drawn
    assert "imperfect-merging" in drawn


def run(*options: str) -> list[str]:
    """In the process of the test, which has other settings than the experiment."""
    return ["experiment", "run", "routing", "--quick", "--master", "processes[1]", *options]


def test_list() -> None:
    answer = CliRunner().invoke(app, ["experiment", "list"], env=WIDE)
    document = CliRunner().invoke(app, ["experiment", "list", "--json"])

    assert answer.exit_code == 0, answer.output
    assert "routing" in answer.output
    assert [each["name"] for each in json.loads(document.stdout)] == list(EXPERIMENTS)


@pytest.mark.usefixtures("small")
def test_tables_for_people_and_files(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"

    answer = CliRunner().invoke(app, run("--out", str(out)), env=WIDE)

    assert answer.exit_code == 0, answer.output
    assert "Over the number of subscriptions (locality 50%)" in answer.output
    assert "covering" in answer.output
    assert str(out / "routing.json") in answer.output.replace("\n", "")
    assert (out / "routing.svg").read_text().count("<svg") == 1
    assert (out / "routing.png").read_bytes().startswith(b"\x89PNG")
    text = (out / "routing.txt").read_text()
    assert "Tables: simple ≥ identity ≥ covering ≥ merging" in text
    assert "entries_high" in text
    document = json.loads((out / "routing.json").read_text())
    assert document["command"] == "sterna experiment run routing --quick --seeds 1"


@pytest.mark.usefixtures("small")
def test_one_json_document(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, run("--seeds", "2", "--json", "--out", str(tmp_path)))

    document = json.loads(answer.stdout)
    assert [point["strategy"] for point in document["points"]] == ["simple", "covering"] * 2
    entries = document["points"][0]["measures"]["entries"]
    # Each at each of seven brokers.
    assert entries == {"median": 70, "low": 70, "high": 70, "mean": 70, "interval": [70, 70]}
    assert document["points"][0]["seeds"] == 2
    kinds = ("json", "txt", "parquet", "svg", "png")
    assert document["files"] == [str(tmp_path / f"routing.{kind}") for kind in kinds]
    files = document.pop("files")
    assert json.loads(Path(files[0]).read_text()) == document


@pytest.mark.usefixtures("small")
def test_the_same_command_writes_the_same_files(tmp_path: Path) -> None:
    for out in ("a", "b"):
        CliRunner().invoke(app, run("--out", str(tmp_path / out)))

    for name in ("json", "txt", "parquet", "svg", "png"):
        first, second = (tmp_path / out / f"routing.{name}" for out in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.usefixtures("small")
def test_parquet_has_a_row_for_each_setting(tmp_path: Path) -> None:
    CliRunner().invoke(app, run("--out", str(tmp_path)))

    rows = pq.read_table(tmp_path / "routing.parquet").to_pylist()
    assert [row["strategy"] for row in rows] == ["simple", "covering"] * 2
    assert (rows[0]["entries"], rows[0]["entries_low"], rows[0]["entries_high"]) == (70, 70, 70)
    assert (rows[0]["entries_mean"], rows[0]["entries_margin"]) == (70, None)
    CliRunner().invoke(app, run("--seeds", "2", "--out", str(tmp_path / "two")))
    schema = pq.read_schema(tmp_path / "routing.parquet")
    assert pq.read_schema(tmp_path / "two" / "routing.parquet") == schema, "whatever the seeds"


@pytest.mark.usefixtures("small")
def test_without_matplotlib_and_pyarrow_there_is_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)

    answer = CliRunner().invoke(app, run("--json", "--out", str(tmp_path)))

    assert answer.exit_code == 0
    assert "pip install 'sterna[plots]'" in answer.stderr
    assert "pip install 'sterna[broker]'" in answer.stderr
    names = [Path(file).name for file in json.loads(answer.stdout)["files"]]
    assert names == ["routing.json", "routing.txt"]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "routing.json",
        "routing.runs.jsonl",
        "routing.txt",
    ]


def test_wrong_deliveries_are_named_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(_self: Routing, _setting: Setting, _seed: int) -> Measures:
        raise DeliveryError("this run", ["lost: event P #1 for C"])

    monkeypatch.setattr(Routing, "measure", wrong)

    answer = CliRunner().invoke(app, run("--out", str(tmp_path)), env=WIDE)
    document = CliRunner().invoke(app, run("--json", "--out", str(tmp_path)))

    assert answer.exit_code == document.exit_code == 1
    lines = answer.stderr.splitlines()
    count = len(EXPERIMENTS["routing"].settings(quick=True))
    assert len(lines) == count
    assert lines[0] == (
        "wrong: routing: strategy flooding, advertisements False, subscriptions 50, locality 0.5, "
        "degree 3, events 60, seed 1: wrong deliveries: lost: event P #1 for C"
    )
    assert json.loads(document.stdout)["findings"] == ["lost: event P #1 for C"] * count
    assert len(json.loads(document.stdout)["wrong"]) == count
    assert not list(tmp_path.glob("routing.json"))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two experiments that take no time, and one with wrong runs."""
    known = {each.name: each for each in (Walks(), Strolls(), Detours())}
    monkeypatch.setattr("sterna.experiments.registry.EXPERIMENTS", known)


HERE = ("--master", "processes[1]")


@pytest.mark.usefixtures("fakes")
def test_several_experiments(tmp_path: Path) -> None:
    words = ["experiment", "run", "walks", "strolls", *HERE, "--out", str(tmp_path), "--json"]

    document = json.loads(CliRunner().invoke(app, words).stdout)

    assert [each["experiment"] for each in document["experiments"]] == ["walks", "strolls"]
    assert all(len(each["points"]) == 10 for each in document["experiments"])
    claims = document["experiments"][0]["claims"]
    assert [claim["why"] for claim in claims] == ["", "The earth is <flat>."]
    assert (tmp_path / "strolls.json").exists()


@pytest.mark.usefixtures("fakes")
def test_all_experiments_and_wrong_runs(tmp_path: Path) -> None:
    """Those without wrong runs have results; the wrong ones are named last, one line each."""
    words = ["experiment", "run", "all", *HERE, "--out", str(tmp_path)]

    answer = CliRunner().invoke(app, words, env=WIDE)
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)

    assert answer.exit_code == 2  # One of them is a fault of ours.
    assert [line.split(", seed")[0] for line in answer.stderr.splitlines()] == [
        "wrong: detours: way direct, length 1",
        "wrong: detours: way detour, length 2",
    ]
    assert "All walks" in answer.stdout
    assert sorted(file.name for file in tmp_path.glob("*.json")) == ["strolls.json", "walks.json"]
    assert [each["seed"] for each in document["wrong"]] == [3, 1]
    assert document["wrong"][0]["setting"] == {"way": "direct", "length": 1}
    assert len(document["experiments"]) == 2


@pytest.mark.usefixtures("fakes")
def test_runs_of_another_version_are_simulated_again_and_it_is_said(tmp_path: Path) -> None:
    words = ["experiment", "run", "walks", "--quick", *HERE, "--out", str(tmp_path)]
    CliRunner().invoke(app, words)
    path = tmp_path / "walks.runs.jsonl"
    code = Sweep(Walks(), tmp_path, quick=True, seeds=1).code
    path.write_text(path.read_text().replace(code, "another"))

    used = CliRunner().invoke(app, [*words, "--reuse"], env=WIDE)
    answer = CliRunner().invoke(app, words, env={"COLUMNS": "400"})
    again = CliRunner().invoke(app, words)

    assert used.stderr == ""
    assert "4 runs are of another version of the code." in used.stdout
    assert answer.stderr == (
        f"4 runs in {path} are of another version of the code; they are simulated again (--reuse "
        "uses them)\n"
    )
    assert again.stderr == ""
    assert "another version" not in answer.stdout + again.stdout


@pytest.mark.usefixtures("fakes")
def test_the_report(tmp_path: Path) -> None:
    """It names what is missing, and makes it if asked to."""
    words = ["experiment", "report", "--quick", *HERE, "--out", str(tmp_path)]
    empty = CliRunner().invoke(app, words, env={"COLUMNS": "400"})
    assert empty.exit_code == 0, empty.output
    assert empty.stdout.splitlines() == [
        f"The report is {tmp_path / 'report.html'}.",
        "No results of: walks, strolls, detours. With --run, they are made first.",
    ]

    full = CliRunner().invoke(app, [*words, "--run"], env={"COLUMNS": "400"})
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)

    assert full.exit_code == 1
    assert full.stderr.startswith("wrong: detours: way detour, length 2, seed 1: wrong deliveries")
    assert document["experiments"] == ["walks", "strolls"]
    assert document["missing"] == ["detours"]
    assert (document["claims"], document["hold"]) == (4, 2)
    assert document["bytes"] == (tmp_path / "report.html").stat().st_size


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("command", ["run walks", "report --run"])
def test_errors_in_one_sentence(command: str, tmp_path: Path) -> None:
    def told(*options: str) -> str:
        words = ["experiment", *command.split(), *options]
        answer = CliRunner().invoke(app, [*words, "--out", str(tmp_path)], env={"COLUMNS": "400"})
        assert (answer.exit_code, answer.stdout) == (2, "")
        (line,) = answer.stderr.splitlines()
        return line

    assert "no Spark master answers at 127.0.0.1:1" in told("--master", "spark://127.0.0.1:1")
    assert "--master 'moon' is none that Spark knows" in told("--master", "moon")
    (tmp_path / "walks.runs.jsonl").write_text("[]\n")
    assert "line 1: this is no result of a run" in told()


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    words = ["experiment", "run", "fiege-figure-2", "--quick", "--master", "processes[2]"]
    command = subprocess.Popen(
        [sys.executable, "-m", "sterna.cli", *words, "--out", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    path = tmp_path / "fiege-figure-2.runs.jsonl"
    while not path.exists() or not path.read_bytes():
        assert command.poll() is None
        time.sleep(0.01)

    os.killpg(command.pid, signal.SIGINT)  # As a terminal does.
    out, told = command.communicate(timeout=60)

    assert (command.returncode, out) == (130, "")
    kept = len(path.read_text().splitlines())
    assert told == f"error: interrupted; {kept} of 12 runs are kept, and the same command goes on\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["rooting"], "there is no experiment 'rooting'; there are routing, quenching"),
        (["routing", "--out", "/dev/null/x"], "cannot make the folder /dev/null/x"),
        (["routing", "--seeds", "0"], "should be greater than or equal to 1"),
        (["all", "rooting"], "there is no experiment 'rooting'; there are routing, quenching"),
        ([], "Missing argument"),
    ],
)
def test_bad_options(arguments: list[str], problem: str) -> None:
    answer = CliRunner().invoke(app, ["experiment", "run", *arguments], env={"COLUMNS": "200"})

    assert answer.exit_code == 2
    assert problem in answer.output
