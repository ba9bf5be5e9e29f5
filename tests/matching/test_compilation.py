"""The kernels are compiled once for an installation, with a log message, and then loaded."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sterna.matching.compilation import compile_kernels
from sterna.matching.kernels import compiling, entries

PROGRAM = """
from numba.core import event
from sterna import Filter
from sterna.matching import MatchIndex
compiled = event.RecordingListener()
index = MatchIndex()
with event.install_listener("numba:compile", compiled):
    for key in range(60):
        index.add(key, Filter(f"a > {key}"))
    print(len(index.match({"a": 10.5})), len(compiled.buffer))
"""

NOTICE = "compiling the matching index"


@pytest.fixture
def incomplete(tmp_path: Path) -> Path:
    """A folder with the compiled kernels, without those that pack: all of them would take long."""
    compile_kernels()
    program = (
        "from sterna.matching.kernels.entries import match_event as m; print(m._cache.cache_path)"
    )
    folder = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    Path(folder).mkdir(parents=True, exist_ok=True)
    here: Any = entries.match_event
    for file in Path(here._cache.cache_path).glob("*.nb?"):
        if not file.name.startswith("packing."):
            shutil.copy(file, folder)
    return tmp_path


def test_compiling_is_said_and_done_once(incomplete: Path) -> None:
    """Of two processes that begin together one compiles; the other waits, and loads the result."""

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "NUMBA_CACHE_DIR": str(incomplete)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(process: subprocess.Popen[str]) -> tuple[int, str]:
        """How many functions it has compiled, and what it has logged."""
        out, errors = process.communicate()
        found, compiled = out.split()
        assert found == "11"
        return int(compiled), errors

    (few, waited), (many, said) = sorted(map(end, [start(), start()]))
    again = end(start())

    assert few < many / 5, "it had begun with one when it saw the other"
    assert waited.count(NOTICE) == said.count(NOTICE) == 1
    assert again == (0, "")


def test_without_a_place_for_files_it_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_place(_: Callable[..., Any]) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiling, "KernelCache", no_place)

    assert compiling.kernel(lambda number: number + 1)(2) == 3


OTHER_FILE = """
import sys
sys.path.insert(0, {source!r})
from sterna.matching.kernels import compiling, layout
from sterna.matching.kernels.conditions import next_test
import numpy as np
nothing = np.zeros(0)
room = layout.Room(nothing, nothing, np.array([layout.RANGE]), nothing)
print(next_test(room, 0), compiling.__file__.startswith({source!r}))
"""


def test_code_is_compiled_again_when_another_kernel_file_changes(tmp_path: Path) -> None:
    """`next_test` is in one file, the number of the form RANGE in another one."""
    source = Path(compiling.__file__).parents[3]
    shutil.copytree(source, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    program = OTHER_FILE.format(source=str(tmp_path / "src"))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""}

    def run() -> list[str]:
        found = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout.split()

    assert run() == ["3", "True"]
    layout = tmp_path / "src" / "sterna" / "matching" / "kernels" / "layout.py"
    text = layout.read_text(encoding="utf-8")
    forms = "POINT, RANGE, POINTS, KINDS, SET = range(5)"
    assert forms in text
    layout.write_text(text.replace(forms, "POINT, KINDS, POINTS, RANGE, SET = range(5)"))
    assert run() == ["3", "True"]  # Code from before would take it for KINDS, of one word.


IN_THE_BACKGROUND = """
import sys
from time import perf_counter
from sterna import Filter
from sterna.matching import MatchIndex
from sterna.matching.loading import load_in_background
from sterna.model.filters.long_texts import LongTexts

def match(attributes):
    return index.match(attributes)

def match_in_slices(attributes):
    began = perf_counter()
    slices = index.match_in_slices([attributes, {}], LongTexts(lambda: perf_counter() > began + 1))
    while True:
        try:
            next(slices)
        except StopIteration as ended:
            return [key for key, places in ended.value.items() if places == [0]]

matching = globals()[sys.argv[1]]
load_in_background()
index = MatchIndex()
for key in range(300):
    index.add(key, Filter(f"a > {key}"))
print(index.uncompiled)
matches = 0
began = perf_counter()
while index.uncompiled:
    assert sorted(matching({"a": 10.5})) == list(range(11))
    matches += 1
    assert perf_counter() - began < 60
assert sorted(matching({"a": 299.5})) == list(range(300))
index.remove(5)
assert sorted(matching({"a": 10.5})) == [0, 1, 2, 3, 4, *range(6, 11)]
print(matches)
"""


@pytest.mark.parametrize("call", ["match", "match_in_slices"])
def test_kernels_come_in_the_background(call: str) -> None:
    """Before, while and after filters move to the compiled index, the same ones match."""
    compile_kernels()
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND, call], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before, matches = map(int, done.stdout.split())
    assert before > 200  # The kernels are not there yet.
    if call == "match":  # Else what is left of a slice is for compiling, too.
        assert matches > before / 16 / 2
