"""Counts of contexts on the driver, where they can be looked up in bulk."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sterna.model.mobility import WHOLE, Contexts
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.mining.contexts import LEVELS

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BUCKETS = 256
_TEXTS = ("place", "previous", "client")


@dataclass(frozen=True)
class Names:
    """The numbers of places and clients: their order by name."""

    places: pa.Array
    clients: pa.Array

    @classmethod
    def of(cls, places: list[pa.ChunkedArray], clients: pa.ChunkedArray) -> "Names":
        """The names in some columns."""
        chunks = [chunk for column in places for chunk in column.chunks]
        return cls(_in_order(pa.chunked_array(chunks, pa.string())), _in_order(clients))

    def numbers(self, column: pa.ChunkedArray, *, of_clients: bool = False) -> Integers:
        """The number of each name; -1 where there is none."""
        found = pc.index_in(column, self.clients if of_clients else self.places)
        return np.asarray(pc.fill_null(found, -1).to_numpy()).astype(np.int64)

    def codes(self, levels: Integers, columns: dict[str, Integers], bucket: Integers) -> Integers:
        """One number for each context; what it does not have is -1."""
        places, clients = len(self.places) + 1, len(self.clients) + 1
        if len(LEVELS) * places * places * clients * _BUCKETS >= 2**63:
            raise PipelineError(
                f"{places - 1:,} places and {clients - 1:,} clients are too many for one model; "
                "use larger cells"
            )
        code = levels * places + columns["place"] + 1
        code = code * places + columns["previous"] + 1
        code = code * clients + columns["client"] + 1
        return code * _BUCKETS + bucket + 1


class Counts:
    """How often clients went where in each context, by one tally."""

    def __init__(self, names: Names, counted: pa.Table, tally: str) -> None:
        counted = counted.filter(pc.greater(counted[tally], 0))
        self.names = names
        columns = {
            name: names.numbers(counted[name], of_clients=name == "client") for name in _TEXTS
        }
        levels = counted["level"].to_numpy().astype(np.int64)
        buckets = counted["bucket"].to_numpy().astype(np.int64)
        codes = names.codes(levels, columns, buckets)
        destinations = names.numbers(counted["destination"])
        order = np.lexsort((destinations, codes))
        self._rows = order
        self._columns = {**columns, "bucket": buckets, "level": levels}
        self.destinations = destinations[order]
        self.values = counted[tally].to_numpy().astype(np.int64)[order]
        self.codes, self._starts, self._sizes = np.unique(
            codes[order], return_index=True, return_counts=True
        )
        self._totals = np.add.reduceat(self.values, self._starts) if len(order) else self.values
        owner = np.repeat(np.arange(len(self.codes)), self._sizes)
        self._pairs = owner * len(names.places) + self.destinations

    @cached_property
    def popularity(self) -> Integers:
        """How often clients went to each place."""
        whole = self._columns["level"][self._rows] == 0
        return np.bincount(
            self.destinations[whole], weights=self.values[whole], minlength=len(self.names.places)
        ).astype(np.int64)

    def look_up(
        self, level: int, columns: dict[str, Integers], destinations: Integers
    ) -> tuple[Floats, Floats]:
        """How often each row's destination followed in its context, and how often any did."""
        owner = self._owners(level, columns)
        totals = np.where(owner >= 0, _taken(self._totals, owner), 0)
        pairs = owner * len(self.names.places) + destinations
        there = (owner >= 0) & (destinations >= 0)
        pair = positions(self._pairs, np.where(there, pairs, -1))
        counts = np.where(pair >= 0, _taken(self.values, pair), 0)
        return counts / WHOLE, totals / WHOLE

    def likely(
        self, level: int, columns: dict[str, Integers], count: int
    ) -> tuple[Integers, Integers]:
        """Rows, and for each some destinations that followed most often in its context."""
        owner = self._owners(level, columns)
        known = np.flatnonzero(owner >= 0)
        found = [(known[:0], known[:0])]
        for place in range(count):
            rows = known[self._sizes[owner[known]] > place]
            found.append((rows, self._by_count[self._starts[owner[rows]] + place]))
        return np.concatenate([rows for rows, _ in found]), np.concatenate([d for _, d in found])

    def contexts(self, level: int) -> Contexts:
        """The counts of one kind of context, as in a model."""
        features = LEVELS[level]
        first = self._rows[self._starts]  # A row of each context.
        chosen = np.flatnonzero(self._columns["level"][first] == level)
        rows = first[chosen]
        keys = [
            self._columns[name if name in _TEXTS else "bucket"][rows].tolist() for name in features
        ]
        inside = np.zeros(len(self.values), bool)
        for begin, size in zip(self._starts[chosen], self._sizes[chosen], strict=True):
            inside[begin : begin + size] = True
        return Contexts(
            features=features,
            keys=[number for key in zip(*keys, strict=True) for number in key],
            sizes=self._sizes[chosen].tolist(),
            destinations=self.destinations[inside].tolist(),
            counts=self.values[inside].tolist(),
        )

    @cached_property
    def _by_count(self) -> Integers:
        """The destinations of each context, the most frequent first."""
        owner = np.repeat(np.arange(len(self.codes)), self._sizes)
        return self.destinations[np.lexsort((self.destinations, -self.values, owner))]

    def _owners(self, level: int, columns: dict[str, Integers]) -> Integers:
        """The number of each row's context; -1 if it is not known."""
        features = LEVELS[level]
        unset = np.full(len(columns["place"]), -1)
        used = {name: columns[name] if name in features else unset for name in _TEXTS}
        timed = [name for name in features if name not in _TEXTS]
        bucket = columns[timed[0]] if timed else unset
        codes = self.names.codes(np.full(len(unset), level), used, bucket)
        known = np.all([columns[name] >= 0 for name in features], axis=0)
        return positions(self.codes, np.where(known, codes, -1))


def positions(ordered: Integers, wanted: Integers) -> Integers:
    """The index of each wanted number among ordered ones; -1 where it is missing."""
    if not len(ordered):
        return np.full(len(wanted), -1)
    found = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[found] == wanted, found, -1)


def _in_order(column: pa.ChunkedArray) -> pa.Array:
    names = pc.unique(column).drop_null()
    return names.take(pc.sort_indices(names))


def _taken(values: Integers, positions: Integers) -> Integers:
    return values[np.maximum(positions, 0)] if len(values) else np.zeros(len(positions), np.int64)
