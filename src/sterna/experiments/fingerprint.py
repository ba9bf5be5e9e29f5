"""Which code the results of an experiment come from."""

import hashlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

import sterna
from sterna.experiments.experiment import Experiment

SIMULATING = ("model", "matching", "core", "wire", "sim")
"""The packages that every simulation consists of."""
SHARED = ("counting.py", "timeline.py", "workload.py")
"""What several experiments make their simulations of."""
SHOWING = {"claims.py", "showing.py", "showing"}
"""Files and folders of an experiment that results do not depend on, only what is said of them.

They may also have the list of settings: each run names its own."""

_HERE = Path(__file__).parent
_DIGITS = 12


def fingerprint(experiment: Experiment[Any, Any]) -> str:
    """The code that simulates, and the names of what it measures, as a few digits."""
    digest = hashlib.sha256(_digest_of(*map(str, _shared())).encode())
    digest.update(_digest_of(*map(str, _own(experiment))).encode())
    digest.update(repr(measures_of(experiment).__struct_fields__).encode())
    return digest.hexdigest()[:_DIGITS]


def measures_of(experiment: Experiment[Any, Any]) -> type[msgspec.Struct]:
    """The record of what an experiment measures."""
    kind: type[msgspec.Struct] = get_type_hints(type(experiment).measure)["return"]
    return kind


def _shared() -> Iterator[Path]:
    root = Path(sterna.__file__).parent
    for package in SIMULATING:
        yield from (root / package).rglob("*.py")
        yield from (root / package).rglob("*.lark")
    yield from (_HERE / name for name in SHARED)


def _own(experiment: Experiment[Any, Any]) -> Iterator[Path]:
    """The files of an experiment: its module or, if it has a folder of its own, all of that but
    what shows results.
    """
    path = Path(inspect.getfile(type(experiment)))
    if path.parent != _HERE and path.is_relative_to(_HERE):
        folder = _HERE / path.relative_to(_HERE).parts[0]
        for each in folder.rglob("*.py"):
            if SHOWING.isdisjoint(each.relative_to(folder).parts):
                yield each
    else:
        yield path


@cache
def _digest_of(*paths: str) -> str:
    digest = hashlib.sha256()
    for path in sorted(map(Path, paths)):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()
