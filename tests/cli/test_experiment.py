"""`sterna experiment`: tables for people, one JSON document for programs, files for both."""

import json
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
    return ["experiment", "run", "routing", "--quick", *options]


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
    assert entries == {"median": 70, "low": 70, "high": 70}  # Each at each of seven brokers.
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
    assert sorted(file.name for file in tmp_path.iterdir()) == names


def test_wrong_deliveries_end_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_self: Routing, _setting: Setting, _seed: int) -> Measures:
        raise DeliveryError("this run", ["lost: event P #1 for C"])

    monkeypatch.setattr(Routing, "measure", wrong)

    answer = CliRunner().invoke(app, run("--out", str(tmp_path)), env=WIDE)
    document = CliRunner().invoke(app, run("--json", "--out", str(tmp_path)))

    assert answer.exit_code == document.exit_code == 2
    assert "wrong deliveries in this run" in answer.stderr
    assert "lost: event P #1 for C" in answer.stderr
    assert json.loads(document.stdout)["findings"] == ["lost: event P #1 for C"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["rooting"], "there is no experiment 'rooting'; there are routing, quenching"),
        (["routing", "--out", "/dev/null/x"], "cannot make the folder /dev/null/x"),
        (["routing", "--seeds", "0"], "should be greater than or equal to 1"),
        ([], "Missing argument"),
    ],
)
def test_bad_options(arguments: list[str], problem: str) -> None:
    answer = CliRunner().invoke(app, ["experiment", "run", *arguments], env={"COLUMNS": "200"})

    assert answer.exit_code == 2
    assert problem in answer.output
