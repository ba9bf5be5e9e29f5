"""The page on all experiments: each is there with all that is known of it, or is missed."""

import errno
import os
import re
import shlex
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sterna import extras
from sterna.cli.main import app
from sterna.experiments.page import gather, write_page
from sterna.experiments.registry import EXPERIMENTS
from sterna.experiments.report import Report
from sterna.experiments.results import ResultsError
from sterna.experiments.runners import Here
from sterna.experiments.sweep import Sweep
from tests.experiments.conftest import by_another_version
from tests.experiments.fakes import Outings, Strolls, Walks

VOID = {"meta", "br", "link", "img", "hr"}


class Checked(HTMLParser):
    """Reads a page whose elements must all be closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [str(found["id"])] if "id" in found else []
        for name in ("href", "src", "xlink:href"):
            self.links += [str(found[name])] if name in found else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made(folder: Path, experiment: Any, *, quick: bool = False, seeds: int = 3) -> None:
    assert not Sweep(experiment, folder, quick=quick, seeds=seeds).run(Here(), lambda *_: None)


def written(folder: Path, *experiments: Any, quick: bool = False) -> str:
    write_page([gather(each, folder, quick=quick) for each in experiments], folder)
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.spec("PL-6")
def test_every_experiment_is_on_the_page(tmp_path: Path) -> None:
    """With results or among those that are missing."""
    made(tmp_path, EXPERIMENTS["fiege-tables"], seeds=1)

    page = written(tmp_path, *EXPERIMENTS.values())

    assert 'id="fiege-tables"' in page
    shown, _, missing = page.partition('id="missing"')
    for name, experiment in EXPERIMENTS.items():
        assert (name in missing) == (name != "fiege-tables")
        assert f"sterna experiment run {name}" in page
        assert experiment.paper in unescape(page) or name in missing
    assert "Fig. 13 counts begun multiples" in shown
    assert "<svg" in shown


@pytest.mark.spec("PL-6")
def test_claims_results_intervals_reasons_tables_and_commands(tmp_path: Path) -> None:
    made(tmp_path, Walks())

    page = written(tmp_path, Walks())

    text = unescape(re.sub(r"<[^>]+>", "", page.split("<main>")[1]))
    assert "Nobody 1999: Walks" in text
    assert "Walks that are <long> & winding." in text
    assert "up to 66.0 ±13.7" in text
    assert "The earth is <flat>." in text
    assert page.count('class="holds"') == page.count('class="differs"') == 1
    assert "1 of 2 claims hold." in unescape(page)
    assert "sterna experiment run walks --seeds 3" in text
    assert "10 settings, 3 seeds." in text
    assert "13.20 ±2.73" in text
    assert "What is missing" not in text


def test_the_page_is_complete_and_needs_nothing_else(tmp_path: Path) -> None:
    made(tmp_path, Walks())
    made(tmp_path, Strolls())

    checked = Checked(written(tmp_path, Walks(), Strolls(), EXPERIMENTS["routing"]))

    assert len(set(checked.ids)) == len(checked.ids), "two pictures have the same identifiers"
    assert all(link.removeprefix("#") in checked.ids for link in checked.links)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    picture = text[text.index("<svg") : text.index("</svg>")]
    assert "#ffffff" not in picture
    assert "var(--ink)" in picture
    assert not list(tmp_path.glob("*.partial"))


def test_small_settings_stand_in_and_it_is_said(tmp_path: Path) -> None:
    made(tmp_path, Walks(), quick=True, seeds=1)

    page = written(tmp_path, Walks())

    assert "sterna experiment run walks --quick --seeds 1" in page
    assert "small settings for a first look" in page
    made(tmp_path, Walks(), seeds=2)
    assert "sterna experiment run walks --seeds 2" in written(tmp_path, Walks())
    assert "walks --quick --seeds 2" in written(tmp_path, Walks(), quick=True)


def test_the_page_says_how_many_settings_have_fewer_seeds(tmp_path: Path) -> None:
    made(tmp_path, Outings())

    assert "10 settings, up to 3 seeds (5 settings have 2)." in written(tmp_path, Outings())
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    made(fewer, Outings(), seeds=2)
    assert "10 settings, 2 seeds." in written(fewer, Outings())


def test_results_of_another_version_are_shown_and_it_is_said(tmp_path: Path) -> None:
    made(tmp_path, Walks())
    assert "another version" not in written(tmp_path, Walks())

    by_another_version(tmp_path / "walks.runs.jsonl")

    assert "30 runs were simulated by another version of the code" in written(tmp_path, Walks())


def test_results_that_are_not_complete_are_missing(tmp_path: Path) -> None:
    made(tmp_path, Walks(), seeds=1)
    path = tmp_path / "walks.runs.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")

    page = written(tmp_path, Walks())

    assert "9 of 30" in page
    assert "There are no results yet." in page


@pytest.mark.parametrize("quick", [False, True])
def test_the_commands_give_what_the_page_has(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small settings if it is about these, and the folder unless it is the usual one."""
    small = " --quick --seeds 1" if quick else " --seeds 3"
    other = tmp_path / "it's mine"
    other.mkdir()
    made(other, Walks(), quick=quick, seeds=1 if quick else 3)
    quoted = shlex.quote(str(other))

    page = unescape(written(other, Walks(), Strolls(), quick=quick))

    assert f"<code>sterna experiment run walks{small} --out {quoted}</code>" in page
    assert f"<code>sterna experiment run strolls{small} --out {quoted}</code>" in page
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    usual = written(Path("results"), Strolls(), quick=quick)
    assert f"<code>sterna experiment run strolls{small}</code>" in usual


def test_without_matplotlib_there_is_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, Walks())
    monkeypatch.setattr(extras, "find_spec", lambda _: None)

    result = write_page([gather(Walks(), tmp_path, quick=False)], tmp_path)

    assert result.notes == ["drawing needs matplotlib: pip install 'sterna[plots]'"]
    assert "pip install" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (result.holding, result.claims, result.shown) == (1, 2, ["walks"])


def test_a_page_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    """A folder is in its place; nothing else is left behind."""
    (tmp_path / "report.html").mkdir()

    problem = rf"^cannot write {tmp_path}/report\.html \(Is a directory\); give another --out$"
    with pytest.raises(ResultsError, match=problem):
        written(tmp_path, Walks())

    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_full_disk_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, Walks())
    written(tmp_path, Walks())
    before = (tmp_path / "report.html").read_bytes()

    def full(path: Path, *_: object, **__: object) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # A stream does not know its name.

    monkeypatch.setattr(Path, "write_text", full)
    problem = rf"^cannot write {tmp_path}/report\.html \(No space left on device\); give"
    with pytest.raises(ResultsError, match=problem):
        written(tmp_path, Walks())

    assert (tmp_path / "report.html").read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_two_pages_are_not_written_to_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is written, another one is."""
    partial: list[Path] = []
    write_text = Path.write_text

    def watched(path: Path, text: str, **how: Any) -> int:
        partial.append(path)
        if len(partial) == 1:
            written(tmp_path, Walks())
        return write_text(path, text, **how)

    monkeypatch.setattr(Path, "write_text", watched)
    written(tmp_path, Walks())

    assert len(set(partial)) == len(partial) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("kind", ["json", "txt", "parquet", "svg"])
def test_results_that_cannot_be_written_are_one_error(kind: str, tmp_path: Path) -> None:
    made(tmp_path, Walks())
    sweep = Sweep(Walks(), tmp_path, quick=False, seeds=3)
    (tmp_path / f"walks.{kind}").mkdir()

    problem = rf"^cannot write {tmp_path}/walks\.{kind} \(.*\); give another --out$"
    with pytest.raises(ResultsError, match=problem):
        Report(Walks(), sweep.points(), sweep.command).write(tmp_path)


@pytest.mark.parametrize("command", ["report", "run walks --master processes[1]"])
def test_the_command_says_in_one_line_what_it_cannot_write(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.experiments.registry.EXPERIMENTS", {"walks": Walks()})
    for name in ("report.html", "walks.json"):
        (tmp_path / name).mkdir()
    words = ["experiment", *command.split(), "--out", str(tmp_path)]

    answer = CliRunner().invoke(app, words, env={"COLUMNS": "400"})

    assert (answer.exit_code, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"error: cannot write {tmp_path}/")
