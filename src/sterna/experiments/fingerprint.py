"""Which code the results of an experiment come from."""

import hashlib
import inspect
from collections.abc import Collection, Iterator
from functools import cache
from importlib import resources
from importlib.machinery import SourceFileLoader
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_type_hints
from zipimport import zipimporter

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

_DIGITS = 12

_known: dict[type[Experiment[Any, Any]], str] = {}


def fingerprint(experiment: Experiment[Any, Any]) -> str:
    """The code that simulates, and the names of what it measures, as a few digits.

    It is taken once in a process: what is loaded stays as it is, whatever becomes of the files.
    """
    kind = type(experiment)
    if kind not in _known:
        _known[kind] = _taken(experiment)
    return _known[kind]


def measures_of(experiment: Experiment[Any, Any]) -> type[msgspec.Struct]:
    """The record of what an experiment measures."""
    kind: type[msgspec.Struct] = get_type_hints(type(experiment).measure)["return"]
    return kind


def _taken(experiment: Experiment[Any, Any]) -> str:
    digest = hashlib.sha256(_digest_of(*map(str, _shared())).encode())
    digest.update(_digest_of(*map(str, _own(experiment))).encode())
    digest.update(repr(measures_of(experiment).__struct_fields__).encode())
    return digest.hexdigest()[:_DIGITS]


def _shared() -> Iterator[Traversable]:
    for package in SIMULATING:
        yield from _sources(_root() / package)
    yield from (_root() / "experiments" / name for name in SHARED)


def _own(experiment: Experiment[Any, Any]) -> Iterator[Traversable]:
    """The files of an experiment: its module or, if it has a folder of its own, all of that but
    what shows results.
    """
    package, *names = type(experiment).__module__.split(".")
    if package != sterna.__name__:
        yield Path(inspect.getfile(type(experiment)))
    elif (folder := _root() / "experiments" / names[1]).is_dir():
        yield from _sources(folder, but_not=SHOWING)
    else:
        yield _root() / "experiments" / f"{names[1]}.py"


def _root() -> Traversable:
    """The package: a folder or, on the workers of a cluster, a part of a zip file."""
    return resources.files(sterna)


def _sources(folder: Traversable, but_not: Collection[str] = ()) -> Iterator[Traversable]:
    for each in folder.iterdir():
        if each.name in but_not:
            continue
        if each.is_dir():
            yield from _sources(each, but_not)
        elif each.name.endswith((".py", ".lark")):
            yield each


@cache
def _digest_of(*paths: str) -> str:
    """The content of files."""
    loader = sterna.__loader__
    assert isinstance(loader, SourceFileLoader | zipimporter)  # noqa: S101 - for the type checker.
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = loader.get_data(path)
        digest.update(f"{Path(path).name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()
