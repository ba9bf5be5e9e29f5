"""How much each predictor counts, and how sure the blend is: checked on the validation time.

The weights that make the validation time most probable do not always make the best guesses. So they
are compared with each predictor alone, and changed if one of them guesses better.
"""

from dataclasses import replace as changed

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from sterna.model.mobility import neighbours
from sterna.pipeline.mining.counts import Counts, Floats, Integers, positions
from sterna.pipeline.mining.tuning import Evidence, Tuning, features

GUESSES = (1, 3)
"""How many guesses may be needed; a blend has to be good in each of these cases."""

LIKELY = 8
"""How many destinations of each context are taken for possible guesses."""

SHARES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 1.0)
"""How much of the blend a single predictor gets that guesses better."""

ERRORS = 2.0
"""How many standard errors a predictor must be better by to be taken for better."""

SHARPNESSES = tuple(2 ** (number / 16) for number in sorted(range(-32, 17), key=abs))
"""From a quarter to twice as sharp, the smallest change first."""

BINS = 10


def blended(counts: Counts, steps: pa.Table, grid: str, tuning: Tuning) -> Tuning:
    """The tuning, with a blend that guesses no worse than its parts and is as sure as it is right.

    `counts` are of what was known before the steps; these are as in `tuned`.
    """
    if not steps.num_rows:
        return tuning
    guesses = _Guesses(counts, steps, grid, tuning)
    weights = guesses.no_worse(np.array([each.weight for each in tuning.predictors]))
    predictors = [
        replace(each, weight=float(weight))
        for each, weight in zip(tuning.predictors, weights, strict=True)
    ]
    return changed(tuning, predictors=predictors, sharpness=guesses.sharpness(weights))


class _Guesses:
    """The probability of each likely destination of each step, by each predictor."""

    def __init__(self, counts: Counts, steps: pa.Table, grid: str, tuning: Tuning) -> None:
        chains = {each.name: each.levels for each in tuning.predictors}
        columns = features(counts.names, steps)
        actual = counts.names.numbers(steps["destination"])
        self._places = len(counts.names.places)
        self._times = steps["times"].to_numpy().astype(np.float64)
        around = _Around(counts.names.places.to_pylist(), grid if tuning.near else "")
        codes = self._likely(counts, columns, actual, around, chains)
        self._steps, self._destinations = codes // self._places, codes % self._places
        self._starts = np.searchsorted(self._steps, np.arange(steps.num_rows))
        wanted = np.where(actual >= 0, np.arange(steps.num_rows) * self._places + actual, -1)
        self._actual = positions(codes, wanted)
        evidence = Evidence(
            counts,
            {name: column[self._steps] for name, column in columns.items()},
            self._destinations,
            around.nearness(columns["place"][self._steps], self._destinations),
            chains,
        )
        root = evidence.root(tuning.near)
        self._said = np.stack(
            [evidence.said(each.levels, each.strengths, root) for each in tuning.predictors]
        )

    def no_worse(self, weights: Floats) -> Floats:
        """These weights; if one predictor alone guesses better, weights with more of that one."""
        alone = [self._hits(said) for said in self._said]
        best = {max(range(len(alone)), key=lambda n: self._mean(alone[n][g])) for g in GUESSES}
        mixed = [weights]
        for share in SHARES:
            mixed += [(1 - share) * weights + share * np.eye(len(weights))[n] for n in sorted(best)]
        shortfalls = [self._shortfall(self._hits(each @ self._said), alone) for each in mixed]
        # The first ones make the steps most probable.
        fair = [each for each, short in zip(mixed, shortfalls, strict=True) if short <= 0]
        return fair[0] if fair else mixed[int(np.argmin(shortfalls))]

    def sharpness(self, weights: Floats) -> float:
        """The power that makes the first guess as probable as it was right.

        It is the one nearest to 1 that is as good as any, as far as one can tell from so few steps.
        """
        scores = weights @ self._said
        hits = self._hits(scores)[GUESSES[0]]
        tried = [self._miscalibration(scores, hits, power) for power in SHARPNESSES]
        enough = min(off + by_chance for off, by_chance in tried)
        return next(
            power for power, (off, _) in zip(SHARPNESSES, tried, strict=True) if off <= enough
        )

    def _likely(
        self,
        counts: Counts,
        columns: dict[str, Integers],
        actual: Integers,
        around: "_Around",
        chains: dict[str, tuple[int, ...]],
    ) -> Integers:
        """Pairs of a step and a destination, as numbers in order; what happened is among them."""
        every = np.arange(len(actual))
        known = every[actual >= 0]
        levels = sorted({level for chain in chains.values() for level in chain})
        found = [counts.likely(level, columns, LIKELY) for level in levels]
        found += [(known, actual[known]), around.of(columns["place"])]
        for place in np.argsort(-counts.popularity, kind="stable")[: max(GUESSES)]:
            found.append((every, np.full(len(every), place)))
        codes = [rows * self._places + destinations for rows, destinations in found]
        return np.unique(np.concatenate(codes))

    def _hits(self, scores: Floats) -> dict[int, Floats]:
        """Whether what happened was among so many best guesses, as 1.0 or 0.0."""
        own = np.where(self._actual >= 0, scores[np.maximum(self._actual, 0)], np.inf)
        own_destination = self._destinations[np.maximum(self._actual, 0)]
        other = own[self._steps]
        is_better = (scores > other) | (
            (scores == other) & (self._destinations < own_destination[self._steps])
        )
        rank = np.add.reduceat(is_better.astype(np.int64), self._starts)
        return {
            count: ((self._actual >= 0) & (rank < count)).astype(np.float64) for count in GUESSES
        }

    def _shortfall(self, hits: dict[int, Floats], alone: list[dict[int, Floats]]) -> float:
        """By how much a predictor alone is better than chance explains, at most; or less than 0."""
        worst = -np.inf
        for other in alone:
            for count in GUESSES:
                lead = other[count] - hits[count]
                mean = self._mean(lead)
                error = np.sqrt(self._mean((lead - mean) ** 2) / self._times.sum())
                worst = max(worst, mean - ERRORS * error)
        return float(worst)

    def _miscalibration(self, scores: Floats, hits: Floats, power: float) -> tuple[float, float]:
        """How far the probability of the first guess is from how often it is right.

        The second number is how far it would be by chance if it was right as often as it says.
        """
        sums = np.add.reduceat(scores, self._starts)
        others = np.maximum(self._places - np.diff(self._starts, append=len(scores)), 1)
        rest = np.maximum(1 - sums, 0) / others  # What is left, for each of the other places.
        whole = np.add.reduceat(scores**power, self._starts) + others * rest**power
        first = np.maximum.reduceat(scores, self._starts) ** power / whole
        bins = np.minimum((first * BINS).astype(np.int64), BINS - 1)
        off = np.bincount(bins, weights=self._times * (hits - first), minlength=BINS)
        spread = np.bincount(bins, weights=self._times * first * (1 - first), minlength=BINS)
        steps = self._times.sum()
        return float(np.abs(off).sum() / steps), float(np.sqrt(2 / np.pi * spread).sum() / steps)

    def _mean(self, values: Floats) -> float:
        return float(np.average(values, weights=self._times))


class _Around:
    """The neighbours of places in a grid, by numbers."""

    def __init__(self, places: list[str], grid: str) -> None:
        numbers = {name: number for number, name in enumerate(places)}
        cells = [neighbours(grid, name) if grid else () for name in places]
        self._count = len(places)
        self._sizes = np.array([*(len(each) for each in cells), 0])  # The last is for -1.
        self._codes = np.array(
            sorted(
                number * len(places) + numbers[name]
                for number, each in enumerate(cells)
                for name in each
                if name in numbers
            ),
            dtype=np.int64,
        )

    def of(self, places: Integers) -> tuple[Integers, Integers]:
        """Rows, and the neighbours of their places."""
        owner = self._codes // max(self._count, 1)
        begin, end = (np.searchsorted(owner, places, side) for side in ("left", "right"))
        rows = np.repeat(np.arange(len(places)), end - begin)
        first = np.repeat(end - np.cumsum(end - begin), end - begin)
        return rows, self._codes[first + np.arange(len(rows))] % max(self._count, 1)

    def nearness(
        self, places: Integers, destinations: Integers
    ) -> tuple[Floats, "np.ndarray[tuple[int], np.dtype[np.bool_]]"]:
        """How probable a move is among all moves to neighbours, and if there are any."""
        sizes = self._sizes[places]
        wanted = np.where(places >= 0, places * self._count + destinations, -1)
        is_near = positions(self._codes, wanted) >= 0
        return np.where(is_near, 1 / np.maximum(sizes, 1), 0.0), sizes > 0
