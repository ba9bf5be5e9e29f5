"""The weight of each level of each predictor: what makes the validation time most probable."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sterna.model.mobility import WHOLE, Chain, neighbours
from sterna.pipeline.mining.contexts import CHAINS
from sterna.pipeline.mining.counts import Counts, Floats, Integers, Names

STRENGTHS = (0.5, 1.5, 4.0, 12.0, 32.0, 96.0, 256.0, 768.0)
NEARS = (0.0, 0.3, 0.6, 0.9, 0.98)
ROUNDS = 2
EM_ROUNDS = 200
WEIGHT_MIN = 0.01
"""A predictor of less weight is left out of the blend."""

DEFAULT_STRENGTH = 4.0
"""The strength if there is nothing to tune on."""

_LEAST = 1e-9
"""The probability of what a model takes to be impossible."""


@dataclass(frozen=True)
class Tuning:
    """A blend of predictors, and how well it predicted the validation time."""

    predictors: list[Chain]
    near: float
    gain: float
    """The mean logarithm of the probability of what happened."""
    sharpness: float = 1.0
    """The power of its probabilities, as in a model."""


def tuned(counts: Counts, steps: pa.Table, grid: str, *, clients: bool) -> Tuning:
    """The best blend for these steps, by counts of what was known before them.

    Steps have features and `times`, how often they were made.
    """
    chains = {
        name: levels for name, levels in CHAINS.items() if clients or not name.startswith("client")
    }
    nears = NEARS if grid else NEARS[:1]
    if not steps.num_rows:
        even = [
            Chain(
                name=name,
                levels=levels,
                strengths=(DEFAULT_STRENGTH,) * len(levels),
                weight=1 / len(chains),
            )
            for name, levels in chains.items()
        ]
        return Tuning(even, nears[len(nears) // 2], -np.inf)
    evidence = Evidence(
        counts,
        features(counts.names, steps),
        counts.names.numbers(steps["destination"]),
        _nearness(steps, grid),
        chains,
    )
    times = steps["times"].to_numpy().astype(np.float64)
    return max((_tuned(evidence, times, near) for near in nears), key=lambda each: each.gain)


def features(names: Names, steps: pa.Table) -> dict[str, Integers]:
    """The features of steps, as numbers."""
    return {
        "place": names.numbers(steps["place"]),
        "previous": names.numbers(steps["previous"]),
        "client": names.numbers(steps["client"], of_clients=True),
        **{name: steps[name].to_numpy().astype(np.int64) for name in ("part", "hour", "quarter")},
    }


class Evidence:
    """The counts for each of some moves, ready for trying strengths."""

    def __init__(
        self,
        counts: Counts,
        columns: dict[str, Integers],
        destinations: Integers,
        nearness: tuple[Floats, npt.NDArray[np.bool_]],
        chains: dict[str, tuple[int, ...]],
    ) -> None:
        self.chains = chains
        levels = sorted({level for chain in chains.values() for level in chain})
        self._found = {level: counts.look_up(level, columns, destinations) for level in levels}
        popularity = counts.popularity + WHOLE  # As the model does it.
        shares = np.append(popularity / max(popularity.sum(), 1), 0.0)  # The last is for -1.
        self._popular = shares[destinations]
        self._near, self._has_near = nearness

    def root(self, near: float) -> Floats:
        """The probability of each move by popular and neighbouring places."""
        share = np.where(self._has_near, near, 0.0)
        root: Floats = share * self._near + (1 - share) * self._popular
        return np.maximum(root, _LEAST)

    def said(
        self, chain: tuple[int, ...], strengths: "list[float] | tuple[float, ...]", root: Floats
    ) -> Floats:
        """The probability that a chain of levels gave to each move."""
        said = root
        for level, strength in zip(chain, strengths, strict=True):
            counts, totals = self._found[level]
            said = (counts + strength * said) / (totals + strength)
        return said


def _tuned(evidence: Evidence, times: Floats, near: float) -> Tuning:
    root = evidence.root(near)
    chains = evidence.chains
    strengths = {name: _strengths(evidence, chain, times, root) for name, chain in chains.items()}
    said = np.stack([evidence.said(chain, strengths[name], root) for name, chain in chains.items()])
    weights = _weights(said, times)
    predictors = [
        Chain(name=name, levels=chain, strengths=strengths[name], weight=float(weight))
        for (name, chain), weight in zip(chains.items(), weights, strict=True)
    ]
    return Tuning(predictors, near, float(np.average(np.log(weights @ said), weights=times)))


def _strengths(
    evidence: Evidence, chain: tuple[int, ...], times: Floats, root: Floats
) -> tuple[float, ...]:
    """Tune one strength after the other, twice: the best while the others stay."""
    best = [DEFAULT_STRENGTH] * len(chain)
    for _ in range(ROUNDS):
        for position in range(len(chain)):
            tries = [[*best[:position], each, *best[position + 1 :]] for each in STRENGTHS]
            best = max(
                tries, key=lambda each: (times * np.log(evidence.said(chain, each, root))).sum()
            )
    return tuple(best)


def _nearness(steps: pa.Table, grid: str) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """How probable each step is among all steps to neighbouring cells, and if there are any."""
    around: dict[str, tuple[str, ...]] = {}
    near, has = np.zeros(steps.num_rows), np.zeros(steps.num_rows, bool)
    pairs = zip(steps["place"].to_pylist(), steps["destination"].to_pylist(), strict=True)
    for number, (place, destination) in enumerate(pairs):
        if place not in around:
            around[place] = neighbours(grid, place)
        cells = around[place]
        has[number] = bool(cells)
        near[number] = 1 / len(cells) if destination in cells else 0.0
    return near, has


def _weights(said: Floats, times: Floats) -> Floats:
    """The mixture of predictors that makes the steps most probable (expectation maximisation)."""
    weights: Floats = np.full(len(said), 1 / len(said))
    for _ in range(EM_ROUNDS):
        parts = weights[:, None] * said
        weights = np.average(parts / parts.sum(axis=0), axis=1, weights=times)
    weights[weights < WEIGHT_MIN] = 0.0
    return weights / float(weights.sum())
