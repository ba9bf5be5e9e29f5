"""The kernels are compiled once for an installation, which is said, and then loaded."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sterna.matching.kernels import compiling

PROGRAM = """
from sterna import Filter
from sterna.matching import MatchIndex
index = MatchIndex()
for key in range(60):
    index.add(key, Filter(f"a > {key}"))
print(len(index.match({"a": 10.5})))
"""

NOTICE = "compiling the matching index"


def test_compiling_is_said_and_done_once(tmp_path: Path) -> None:
    """Numba is told to keep its files in an empty folder, as after an installation."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )

    first, second = run(), run()

    assert (first.stdout, second.stdout) == ("11\n", "11\n")
    assert first.stderr.count(NOTICE) == 1
    assert not second.stderr


def test_without_a_place_for_files_it_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_place(function: Callable[..., Any]) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiling, "KernelCache", no_place)

    assert compiling.kernel(lambda number: number + 1)(2) == 3
