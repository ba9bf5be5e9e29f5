"""Sweeps of experiments that simulate nothing, and what they have written."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sterna.experiments.experiment import Experiment
from sterna.experiments.runners import runner_at
from sterna.experiments.sweep import Sweep, WrongRun
from tests.experiments.fakes import Walks

HERE = "processes[1]"


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of a sweep that nobody has stopped."""
    folder = tmp_path_factory.mktemp("whole")
    _, wrong = swept(Walks(), folder)
    assert not wrong
    return folder


def swept(
    experiment: Experiment[Any, Any], folder: Path, master: str = HERE, *, seeds: int = 3
) -> tuple[Sweep[Any, Any], list[WrongRun]]:
    folder.mkdir(exist_ok=True)
    sweep = Sweep(experiment, folder, quick=False, seeds=seeds)
    with runner_at(master, sweep.left) as runner:
        wrong = sweep.run(runner, lambda *_: None)
    return sweep, wrong


def table(folder: Path) -> list[dict[str, Any]]:
    sweep = Sweep(Walks(), folder, quick=False, seeds=3)
    return [point.as_json() for point in sweep.points()]


def rows(path: Path) -> Counter[tuple[str, int]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return Counter((json.dumps(line["setting"]), line["seed"]) for line in lines)


def by_another_version(path: Path, code: str = "old", more: int = 1000) -> None:
    lines = [json.loads(line) | {"code": code} for line in path.read_text().splitlines()]
    for line in lines:
        line["measures"]["messages"] += more
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
