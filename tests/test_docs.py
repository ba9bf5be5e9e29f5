"""The documentation is true: programs run, commands print what it says, links lead on."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from sterna.core import actions, inputs
from sterna.sim import script

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED = {"cli.md", "conformance.md"}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if page.name not in GENERATED and blocks(page, language)]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(command: list[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )


@pytest.mark.parametrize("page", pages_with("python"), ids=name)
def test_python_blocks_run(page: Path, pyspark_python: str) -> None:
    """The blocks of a page are one program."""
    program = "\n".join(blocks(page, "python"))
    ended = run([sys.executable, "-c", program], PYSPARK_PYTHON=pyspark_python)

    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", pages_with("console"), ids=name)
def test_console_blocks_print_what_they_say(page: Path) -> None:
    for block in blocks(page, "console"):
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            ended = run(["bash", "-c", command])
            assert (ended.stdout + ended.stderr).strip() == expected.strip(), command


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("http") or (page.parent / target).exists(), target


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_examples_run(example: Path, pyspark_python: str) -> None:
    ended = run([sys.executable, example], PYSPARK_PYTHON=pyspark_python)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


def test_the_command_line_reference_is_up_to_date(tmp_path: Path) -> None:
    page = tmp_path / "cli.md"
    ended = run(
        [BIN / "typer", "sterna.cli.main", "utils", "docs", "--name", "sterna", "--output", page]
    )

    assert ended.returncode == 0, ended.stderr
    assert page.read_text() == (ROOT / "docs/reference/cli.md").read_text(), "run make docs"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=name)
def test_every_make_target_in_the_docs_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)

    assert set(named) <= targets


def test_the_architecture_page_names_every_input_and_action() -> None:
    page = (ROOT / "docs/concepts/architecture.md").read_text(encoding="utf-8")
    kinds = [kind for kind in vars(inputs).values() if isinstance(kind, type)]
    given = {kind.__name__ for kind in kinds if issubclass(kind, inputs.Input)} - {"Input"}
    asked = {kind.__name__ for kind in get_args(actions.Action)}

    assert {name for name in given | asked if f"`{name}`" not in page} == set()


def test_the_page_on_simulation_names_every_step() -> None:
    page = (ROOT / "docs/how-to/simulate.md").read_text(encoding="utf-8")
    steps = {kind.__name__ for kind in (*get_args(script.AnyStep), *get_args(script.Doing))}

    assert {name for name in steps if not re.search(rf"`{name}[`(]", page)} == set()
