"""All experiments, by name."""

from typing import Any

from sterna.experiments.experiment import Experiment
from sterna.experiments.quenching import Quenching
from sterna.experiments.routing import Routing

EXPERIMENTS: dict[str, Experiment[Any, Any]] = {
    experiment.name: experiment for experiment in (Routing(), Quenching())
}
