"""How the values of an attribute are divided into cells, and those into groups."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sterna.matching.kernels.layout import NUMBERS

NUMBER_CELLS, STRING_CELLS, SHARED_CELLS = 64, 120, 8
"""How finely an attribute's values are divided: into so many cells for numbers, for strings that
have one to themselves, and for all other strings. The last is a power of two."""

NUMBER_GROUPS, STRING_GROUPS = 16, 16
"""How finely tiles divide them: into so many groups of number cells, and of single strings."""

Array = npt.NDArray[Any]


def groups_max() -> int:
    """The most groups that result; a word has a bit for each."""
    return NUMBERS + NUMBER_GROUPS + STRING_GROUPS + SHARED_CELLS


class Named(NamedTuple):
    """The constants that tests compare an attribute with."""

    constants: Array
    """The numbers."""
    strings: Array
    """The strings that most tests name, each as the number of a value, most first."""
    uses: Array
    """How many tests name each of those strings."""
    total: int
    """How often tests name any string."""


NOTHING = Named(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64), 0)


class Division:
    """The cells of an attribute: kinds, numbers, strings with a cell each, and the others."""

    def __init__(self, named: Named) -> None:
        self.bounds = _bounds(named.constants)
        """Where number cells begin, all but the first."""
        self.numbers = len(self.bounds) + 1
        """How many number cells there are."""
        self.strings = named.strings[:STRING_CELLS]
        """The strings that have cells of their own."""
        self.first_string = NUMBERS + self.numbers
        self.shared_from = self.first_string + len(self.strings)
        shared = SHARED_CELLS if len(named.strings) else 1
        self.cells = self.shared_from + shared
        self.group_of, self.groups = self._grouped(shared)
        self.share = self._shares(named, shared)
        """The estimated share of the events in each cell."""

    def _grouped(self, shared: int) -> tuple[Array, int]:
        """The group of each cell, and how many there are."""
        own = len(self.strings)
        numbers = min(self.numbers, NUMBER_GROUPS)
        single = min(own, STRING_GROUPS)
        first = NUMBERS + numbers
        group_of = np.concatenate(
            [
                np.arange(NUMBERS),
                NUMBERS + np.arange(self.numbers) * numbers // self.numbers,
                first + np.arange(single),
                first + single + np.arange(own - single + shared) % shared,
            ]
        )
        return group_of, first + single + shared

    def _shares(self, named: Named, shared: int) -> Array:
        share = np.full(self.cells, 1 / self.cells)
        share[NUMBERS : self.first_string] = 1 / self.numbers
        if named.total:
            uses = named.uses[: len(self.strings)]
            share[self.first_string : self.shared_from] += uses / named.total
            share[self.shared_from :] += (1 - uses.sum() / named.total) / shared
        return share


def _bounds(constants: Array) -> Array:
    if not len(constants):
        return constants
    steps = np.arange(1, NUMBER_CELLS) / NUMBER_CELLS
    places = np.rint(steps * (len(constants) - 1)).astype(np.int64)
    return np.unique(np.sort(constants)[places])
