"""What the experiments on the cost of moving subscribers have in common."""

from typing import ClassVar

from sterna.experiments.burcea.measuring import Measures, measure
from sterna.experiments.burcea.settings import Setting, is_in_figures, work
from sterna.experiments.experiment import Experiment
from sterna.experiments.papers import BURCEA

BESIDE_SEEDS = 3
"""How many seeds are enough for what no figure of the paper has."""


class CityExperiment(Experiment[Setting, Measures]):
    """An experiment in the paper's city."""

    paper: ClassVar[str] = BURCEA
    seeds = 10

    def measure(self, setting: Setting, seed: int) -> Measures:
        return measure(setting, seed)

    def work(self, setting: Setting) -> float:
        """About how many frames a run has: what takes longest is begun first."""
        return work(setting)

    def seeds_max(self, setting: Setting) -> int | None:
        return None if is_in_figures(setting) else BESIDE_SEEDS
