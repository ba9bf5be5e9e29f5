"""The weight of each level of each predictor: what makes the validation time most probable."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sterna.model.mobility import WHOLE, Chain, neighbours
from sterna.pipeline.mining.contexts import CHAINS
from sterna.pipeline.mining.counts import Counts, Floats

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


def tuned(counts: Counts, steps: pa.Table, grid: str, *, clients: bool) -> Tuning:
    """The best blend for these steps, by counts of what was known before them."""
    chains = {
        name: levels for name, levels in CHAINS.items() if clients or not name.startswith("client")
    }
    evidence = _Evidence(counts, steps, grid, chains)
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
    return max((evidence.tuned(near) for near in nears), key=lambda each: each.gain)


class _Evidence:
    """The counts for each step, ready for trying strengths."""

    def __init__(
        self, counts: Counts, steps: pa.Table, grid: str, chains: dict[str, tuple[int, ...]]
    ) -> None:
        self._chains = chains
        names = counts.names
        columns = {
            "place": names.numbers(steps["place"]),
            "previous": names.numbers(steps["previous"]),
            "client": names.numbers(steps["client"], of_clients=True),
            **{
                name: steps[name].to_numpy().astype(np.int64)
                for name in ("part", "hour", "quarter")
            },
        }
        destinations = names.numbers(steps["destination"])
        levels = sorted({level for chain in chains.values() for level in chain})
        self._found = {level: counts.look_up(level, columns, destinations) for level in levels}
        popularity = counts.popularity + WHOLE  # As the model does it.
        shares = np.append(popularity / max(popularity.sum(), 1), 0.0)  # The last is for -1.
        self._popular = shares[destinations]
        self._near, self._has_near = _nearness(steps, grid)

    def tuned(self, near: float) -> Tuning:
        share = np.where(self._has_near, near, 0.0)
        root = np.maximum(share * self._near + (1 - share) * self._popular, _LEAST)
        strengths = {name: self._strengths(chain, root) for name, chain in self._chains.items()}
        said = np.stack(
            [self._said(chain, strengths[name], root) for name, chain in self._chains.items()]
        )
        weights = _weights(said)
        predictors = [
            Chain(name=name, levels=chain, strengths=strengths[name], weight=float(weight))
            for (name, chain), weight in zip(self._chains.items(), weights, strict=True)
        ]
        return Tuning(predictors, near, float(np.log(weights @ said).mean()))

    def _strengths(self, chain: tuple[int, ...], root: Floats) -> tuple[float, ...]:
        """Tune one strength after the other, twice: the best while the others stay."""
        best = [DEFAULT_STRENGTH] * len(chain)
        for _ in range(ROUNDS):
            for position in range(len(chain)):
                tries = [[*best[:position], each, *best[position + 1 :]] for each in STRENGTHS]
                best = max(tries, key=lambda each: np.log(self._said(chain, each, root)).sum())
        return tuple(best)

    def _said(
        self, chain: tuple[int, ...], strengths: "list[float] | tuple[float, ...]", root: Floats
    ) -> Floats:
        """The probability that a chain of levels gave to what happened."""
        said = root
        for level, strength in zip(chain, strengths, strict=True):
            counts, totals = self._found[level]
            said = (counts + strength * said) / (totals + strength)
        return said


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


def _weights(said: Floats) -> Floats:
    """The mixture of predictors that makes the steps most probable (expectation maximisation)."""
    weights: Floats = np.full(len(said), 1 / len(said))
    for _ in range(EM_ROUNDS):
        parts = weights[:, None] * said
        weights = (parts / parts.sum(axis=0)).mean(axis=1)
    weights[weights < WEIGHT_MIN] = 0.0
    return weights / float(weights.sum())
