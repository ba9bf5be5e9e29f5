"""Sweeps an experiment of `fakes` to its end.

python -m tests.experiments.sweeping NAME DIR MASTER
"""

import sys
from pathlib import Path

from sterna.experiments.runners import runner_at
from sterna.experiments.sweep import Sweep
from tests.experiments import fakes


def main(name: str, folder: Path, master: str) -> None:
    sweep = Sweep(getattr(fakes, name)(), folder, quick=False, seeds=3)
    with runner_at(master, sweep.left) as runner:
        assert not sweep.run(runner, lambda *_: None)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
