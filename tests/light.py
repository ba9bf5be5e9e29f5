"""Python as `pip install sterna` leaves it: with the base dependencies and no other library."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sterna

ROOT = Path(__file__).parent.parent
SOURCE = Path(sterna.__file__).parent.parent


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def requirements(extra: str = "") -> set[str]:
    """The packages that an extra names, itself or by other extras; without one, the base."""
    table = project()
    found = set()
    for text in table["optional-dependencies"][extra] if extra else table["dependencies"]:
        requirement = Requirement(text)
        if requirement.name == table["name"]:
            found |= {name for other in requirement.extras for name in requirements(other)}
        else:
            found.add(canonicalize_name(requirement.name))
    return found


class LightPython:
    """Runs programs with the standard library, Sterna, and what its base dependencies install."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        todo, done = sorted(requirements()), set()
        while todo:
            name = canonicalize_name(todo.pop())
            if name not in done:
                done.add(name)
                todo += self._link(name)

    def run(self, program: str, *arguments: str) -> str:
        """What a program prints; the test fails if the program does."""
        answer = subprocess.run(
            [sys.executable, "-S", "-c", program, *arguments],
            cwd=self._directory,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(self._directory), str(SOURCE)])},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def _link(self, name: str) -> list[str]:
        """Install a package that is installed here; the packages that it needs."""
        installed = distribution(name)
        for top in {path.parts[0] for path in installed.files or ()} - {"..", "__pycache__"}:
            if not (self._directory / top).exists():
                (self._directory / top).symlink_to(Path(str(installed.locate_file(top))))
        needed = map(Requirement, installed.requires or ())
        return [
            each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})
        ]
