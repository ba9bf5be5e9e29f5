"""`Generations`: the tiles of an index, and how fresh ones replace them."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.matching import packing
from sterna.matching.kernels.layout import FLAGS, Reading
from sterna.matching.tiles import SubscriptionTiles
from sterna.matching.vocabulary import Vocabulary

PACK_MIN, PACK_SHARE = 64, 2
"""A packing begins after so many changes, and at least one for so many rows."""

PACKED_AT_A_CHANGE = 256
"""About how many rows each change moves during a packing."""

Array = npt.NDArray[Any]


class Generations:
    """The tiles that rows are in. While a packing is under way there are two sets of them.

    Each row is in one set. Rows leave the old tiles for fresh ones, some at each change.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tiles = SubscriptionTiles(vocabulary)
        self._fresh: SubscriptionTiles | None = None
        """Tiles whose cells are being divided; no row is in them yet."""
        self._leaving: SubscriptionTiles | None = None
        """Tiles that rows leave for `_tiles`."""
        self._late: list[int] | None = None
        """Rows that come to the tiles that others leave, as long as those are moved in order."""
        self._packing: Iterator[float] | None = None
        self._changes_left = PACK_MIN
        self._numbered = 0
        self._free: list[int] = []
        self._keys: Array = np.empty(0, np.int64)

    @property
    def current(self) -> SubscriptionTiles:
        """The tiles that all rows are in or move to."""
        return self._tiles

    @property
    def packing(self) -> bool:
        """Whether a packing is under way."""
        return self._packing is not None

    @property
    def moving(self) -> bool:
        """Whether rows are in two sets of tiles."""
        return self._leaving is not None

    def matched(self) -> Iterator[SubscriptionTiles]:
        """The tiles that rows are in."""
        yield self._tiles
        if self._leaving is not None:
            yield self._leaving

    def readings(self) -> tuple[Reading, ...]:
        """The arrays that matching reads."""
        return tuple(tiles.reading for tiles in self.matched())

    def _all(self) -> Iterator[SubscriptionTiles]:
        yield from self.matched()
        if self._fresh is not None:
            yield self._fresh

    # ---- Rows

    def new_row(self) -> int:
        """The number of a new row, the least that was never used or one that is free again."""
        if self._free:
            return self._free.pop()
        self._numbered += 1
        for tiles in self.matched():
            tiles.make_room_for_rows(self._numbered)
        return self._numbered - 1

    def file(self, row: int, words: list[int], values: list[int]) -> None:
        """Write the record of a row and file it under values."""
        self._tiles.write(row, words)
        self._tiles.file(row, values)

    def insert(self, row: int, words: list[int]) -> None:
        """Write the record of a row and put it into a tile."""
        tiles = self._tiles
        if self._leaving is not None and self._late is not None:
            self._late.append(row)
            self._tiles.forget_key(row)  # That of a row that had its number.
            tiles = self._leaving
        tiles.write(row, words)
        tiles.insert(row)

    def leave_loose(self, row: int, words: list[int]) -> None:
        """Write the record of a row that is found after the next packing."""
        self._tiles.write(row, words)
        self._tiles.leave_loose(row)

    def remove(self, row: int, unused: Array) -> int:
        """Remove a row. Return how many values no row uses any more, which are then listed."""
        self._free.append(row)
        if self._leaving is not None and row in self._leaving:
            return self._leaving.remove(row, unused)
        return self._tiles.remove(row, unused)

    def flags(self, rows: Array) -> Array:
        """The flags of rows."""
        flags = np.zeros(len(rows), np.int64)
        for tiles in self.matched():
            arrays = tiles.arrays
            here = arrays.row_slot[rows] != 0
            flags[here] = arrays.records[arrays.row_record[rows[here]]] >> FLAGS
        return flags

    # ---- Room

    def forget_values(self, values: Iterable[int]) -> None:
        """Free the numbers of values that no row uses any more."""
        for tiles in self._all():
            tiles.forget_values(values)

    def make_room_for_names(self) -> None:
        """Make room for what is in the vocabulary, and cells for new attributes."""
        for tiles in self._all():
            tiles.make_room_for_names()
        for tiles in self.matched():
            tiles.divide_new_attributes()

    def use_keys(self, addresses: Array) -> None:
        """Set the addresses of the rows' keys in memory."""
        self._keys = addresses
        for tiles in self.matched():
            tiles.use_keys(addresses)

    def memory(self) -> int:
        """How many bytes are in use."""
        numbers = sys.getsizeof(self._free) + len(self._free) * sys.getsizeof(1 << 30)
        return sum(tiles.memory() for tiles in self._all()) + numbers

    # ---- Packing

    def pack(self) -> None:
        """Finish a packing that is under way, however long that takes."""
        for _ in self._packing or ():
            pass
        self._packing = self._leaving = None

    def pack_anew(self) -> None:
        """Do a whole packing at once."""
        self.pack()
        self._packing = self._pack()
        self.pack()

    def changed(self) -> None:
        """Continue a packing after a change, or begin one if there were many changes."""
        self._changes_left -= 1
        if self._packing is None:
            if self._changes_left > 0:
                return
            self._packing = self._pack()
        left: float = PACKED_AT_A_CHANGE
        for work in self._packing:
            left -= work
            if left <= 0:
                return
        self._packing = self._leaving = None

    def _pack(self) -> Iterator[float]:
        """Divide all values anew, and move all rows to fresh tiles."""
        old = self._tiles
        rows = self._numbered - len(self._free)
        self._changes_left = max(PACK_MIN, rows // PACK_SHARE)
        fresh = self._fresh = SubscriptionTiles(self._vocabulary, rows)
        yield from packing.provide_memory(old, fresh)
        yield from packing.divide_anew(old, fresh, self._vocabulary, self._numbered)
        fresh.make_room_for_names()
        fresh.divide_new_attributes()
        fresh.make_room_for_rows(self._numbered)
        fresh.use_keys(self._keys)
        self._tiles, self._leaving, self._fresh = fresh, old, None
        late = self._late = []
        yield from packing.move_in_order(old, fresh, self._numbered)
        self._late = None
        yield from packing.move_late(old, fresh, late)
        yield from packing.move_filed(old, fresh, self._vocabulary.values)
        self._leaving = None
        yield PACKED_AT_A_CHANGE  # After this change, nobody refers to the old arrays any more.
        yield from packing.release_memory(old)
