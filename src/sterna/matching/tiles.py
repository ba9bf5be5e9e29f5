"""`SubscriptionTiles`: rows in tiles and under values, in arrays that the kernels work on."""

import sys
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.matching.division import NOTHING, NUMBER_CELLS, Division, Named, groups_max
from sterna.matching.growth import grown, zeros
from sterna.matching.kernels import entries, filing, layout, rows
from sterna.matching.kernels.layout import (
    BLOCKS_MAX,
    CELLS_MAX,
    CHUNK_STEP,
    MASK_WORDS,
    NODES,
    RECORD_WORDS,
    TILE_ROWS,
    TILES,
    WORDS,
    Arrays,
    Reading,
)
from sterna.matching.vocabulary import Vocabulary

FILL_ROWS = 52
"""How many rows a freshly packed tile has: room for some more, without wasting much."""

SPLIT_ROWS = TILE_ROWS // 2
"""How many rows a tile has after a split."""

Array = npt.NDArray[Any]


class SubscriptionTiles:
    """Rows, found by the tiles that they are in and the values that they are filed under.

    The division of values into cells is made before rows come and stays as it is. An index replaces
    its tiles by others from time to time: see `sterna.matching.packing`.
    """

    def __init__(self, vocabulary: Vocabulary, expected: int = 0) -> None:
        """Make empty tiles; so many rows are expected before these are replaced."""
        self.arrays = _first_arrays(vocabulary, _up_to_words(_tiles_for(expected)))
        self.arrays.counts[NODES] = 1
        self._vocabulary = vocabulary
        self._divided = 0
        self._summary_rows = 0
        self._chunk_bound = CHUNK_STEP
        self._free_records: dict[int, list[int]] = {}
        self._refresh()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_record_words": None, "reading": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        vocabulary = self._vocabulary
        self.arrays = self.arrays._replace(  # One array each, not a copy of it.
            value_number=vocabulary.number,
            value_uses=vocabulary.uses,
            value_filed=vocabulary.filed,
        )
        self._refresh()

    def __contains__(self, row: int) -> bool:
        return bool(self.arrays.row_slot[row])

    def _refresh(self) -> None:
        """Rebuild what refers to arrays."""
        self.arrays = self.arrays._replace(numbers=self.arrays.records.view(np.float64))
        words: Any = memoryview(self.arrays.records).cast("B").cast("q")
        self._record_words = words  # Faster to write to.
        self.reading = Reading(*(getattr(self.arrays, name) for name in Reading._fields))

    def use_keys(self, addresses: Array) -> None:
        """Set the addresses of the rows' keys in memory."""
        self.arrays = self.arrays._replace(keys=addresses)
        self._refresh()

    # ---- Cells

    def divide(self, place: int, named: Named) -> None:
        """Divide the values of an attribute into cells; earlier attributes are divided already."""
        self._divided = place + 1
        division = Division(named)
        rows_before = self._summary_rows
        self._summary_rows += division.cells
        self._chunk_bound += division.groups + 1
        if self._summary_rows > len(self.arrays.summary):
            self._grow(["summary"], self._summary_rows + self._summary_rows // 4)
        arrays = self.arrays
        arrays.attribute[place] = 0
        arrays.attribute[place, layout.CELLS] = division.cells
        arrays.attribute[place, layout.NUMBER_CELLS] = division.numbers
        arrays.attribute[place, layout.SHARED_FROM] = division.shared_from
        arrays.attribute[place, layout.GROUPS] = division.groups
        arrays.attribute[place, layout.SUMMARY_ROW] = rows_before
        arrays.bounds[place, : len(division.bounds)] = division.bounds
        arrays.group_of[place, : division.cells] = division.group_of
        arrays.cell_share[place, : division.cells] = division.share
        arrays.value_cell[division.strings] = np.arange(division.first_string, division.shared_from)

    def divide_new_attributes(self) -> None:
        """Give attributes that came later the fewest cells."""
        for place in range(self._divided, len(self._vocabulary.by_place)):
            self.divide(place, NOTHING)

    def forget_values(self, values: Iterable[int]) -> None:
        """Free the numbers of values that no row uses any more."""
        value_cell = self.arrays.value_cell
        for value in values:
            value_cell[value] = 0

    # ---- Rows

    def write(self, row: int, words: list[int]) -> None:
        """Write the record of a row."""
        free = self._free_records.get(len(words))
        record = free.pop() if free else self._append_record(len(words))
        self._record_words[record : record + len(words)] = array("q", words)
        self.arrays.row_record[row] = record

    def _append_record(self, length: int) -> int:
        record = int(self.arrays.counts[RECORD_WORDS])
        self.make_room_for_records(length)
        self.arrays.counts[RECORD_WORDS] = record + length
        return record

    def insert(self, row: int) -> None:
        """Put a row, whose record is written, into a tile."""
        self.make_room_for_tiles(2)
        entries.insert_row(row, *self.arrays)

    def file(self, row: int, values: list[int]) -> None:
        """File a row, whose record is written, under values."""
        self.make_room_for_nodes(len(values))
        for value in values:
            filing.file(self.arrays, row, value)

    def forget_key(self, row: int) -> None:
        """Forget a row's place in the order of rows."""
        self.arrays.row_key[row] = -1

    def leave_loose(self, row: int) -> None:
        """Have a row, whose record is written, wait for a packing."""
        self.arrays.row_slot[row] = layout.LOOSE

    def remove(self, row: int, unused: Array) -> int:
        """Remove a row. Return how many values no row uses any more, which are then listed."""
        length, count = rows.remove(self.arrays, row, unused)
        self._free_records.setdefault(length, []).append(int(self.arrays.row_record[row]))
        return count

    # ---- Room

    def make_room_for_rows(self, count: int) -> None:
        """Make room for rows with numbers below this one."""
        have = len(self.arrays.row_slot)
        if count > have:
            self._grow(_ROW, max(count, have + have // 4))

    def make_room_for_names(self) -> None:
        """Make room for what is in the vocabulary."""
        vocabulary = self._vocabulary
        have = len(self.arrays.attribute)
        if len(vocabulary.by_place) > have:
            self._grow(_ATTRIBUTE, max(len(vocabulary.by_place), 2 * have))
        if self.arrays.value_uses is not vocabulary.uses:
            self.arrays = self.arrays._replace(
                value_number=vocabulary.number,
                value_uses=vocabulary.uses,
                value_filed=vocabulary.filed,
            )
            self._grow(_VALUE, len(vocabulary.uses))

    def make_room_for_records(self, words: int) -> None:
        """Make room for so many more words of records."""
        have = len(self.arrays.records)
        needed = int(self.arrays.counts[RECORD_WORDS]) + words
        if needed > have:
            self._grow(["records"], max(needed, have + have // 4))

    def make_room_for_nodes(self, count: int) -> None:
        """Make room for so many more nodes."""
        have = len(self.arrays.node_record)
        needed = int(self.arrays.counts[NODES]) + count
        if needed > have:
            self._grow(_NODE, max(needed, have + have // 4))

    def make_room_for_tiles(self, count: int) -> None:
        """Make room for so many more tiles, whatever is in them."""
        arrays = self.arrays
        have = len(arrays.tile_alive)
        needed = int(arrays.counts[TILES]) + count
        if needed > have:
            self._widen_summary(needed)
            self._grow(_TILE, min(_up_to_words(have + have // 4 + count), self._tiles_in_summary))
        each = min(self._chunk_bound, BLOCKS_MAX * (groups_max() + 1)) + CHUNK_STEP
        have = len(arrays.words)
        needed = int(arrays.counts[WORDS]) + count * each
        if needed > have:
            self._grow(["words"], max(needed, have + have // 4))
        if each // CHUNK_STEP >= len(arrays.free_chunks):
            self._grow(["free_chunks"], each // CHUNK_STEP * 2)

    def make_room_like(self, other: "SubscriptionTiles") -> None:
        """Make room for what is in other tiles."""
        self.make_room_for_names()
        counts = other.arrays.counts
        self.make_room_for_rows(len(other.arrays.row_slot))
        self.make_room_for_records(int(counts[RECORD_WORDS]))
        self.make_room_for_nodes(int(counts[NODES]))
        self._grow(["words"], max(len(self.arrays.words), int(counts[WORDS])))
        tiles = min(_up_to_words(int(counts[TILES])), self._tiles_in_summary)
        self._grow(_TILE, max(len(self.arrays.tile_alive), tiles))

    def _grow(self, names: Iterable[str], length: int) -> None:
        larger = {name: grown(getattr(self.arrays, name), length) for name in names}
        self.arrays = self.arrays._replace(**larger)
        self._refresh()

    @property
    def _tiles_in_summary(self) -> int:
        """For how many tiles the lines of the summary are long enough."""
        return int(self.arrays.summary.shape[1]) * 64

    def _widen_summary(self, tiles: int) -> None:
        """Make the lines of the summary long enough for so many tiles.

        This copies it. It is not needed if there were as many rows as expected.
        """
        old = self.arrays.summary
        if tiles > self._tiles_in_summary:
            new = zeros((len(old), 2 * _up_to_words(tiles) // 64), old.dtype)
            new[:, : old.shape[1]] = old
            self.arrays = self.arrays._replace(summary=new)
            self._refresh()

    def dissolve(self) -> list[Array]:
        """Forget all arrays, and return them. The tiles cannot be used after this."""
        arrays = list(self.arrays)
        del self.arrays, self.reading, self._record_words
        return arrays

    def memory(self) -> int:
        """How many bytes are in use."""
        elsewhere = {"numbers", "keys", "value_number", "value_uses", "value_filed"}
        fields: Mapping[str, Array] = self.arrays._asdict()
        arrays = sum(each.nbytes for name, each in fields.items() if name not in elsewhere)
        free = sum(
            sys.getsizeof(each) + len(each) * sys.getsizeof(1 << 30)
            for each in self._free_records.values()
        )
        return int(arrays + free)


_ATTRIBUTE = ("attribute", "bounds", "cell_share", "group_of")
_VALUE = ("value_cell", "first_node")
_NODE = ("node_record", "node_next")
_ROW = ("row_record", "row_slot", "row_key")
_TILE = (
    *("tile_alive", "tile_record", "tile_chunk", "tile_length", "tile_blocks"),
    *("free_tiles", "order_key", "order_tile"),
)
"""The arrays that grow together."""


def _tiles_for(rows: int) -> int:
    """How many tiles there may be before the tiles of so many rows are replaced.

    Half as many rows come until the next packing begins, and some more until it ends. In the worst
    case they are spread such that every tile is split as soon as possible.
    """
    packed = rows // FILL_ROWS + 1
    coming = rows // 2 + rows // 16
    first_splits = min(packed, coming // (TILE_ROWS - FILL_ROWS + 1))
    coming -= first_splits * (TILE_ROWS - FILL_ROWS + 1)
    return packed + first_splits + coming // (TILE_ROWS - SPLIT_ROWS) + 64


def _up_to_words(tiles: int) -> int:
    """So many tiles that their bits fill words."""
    return tiles + 63 & ~63


def _first_arrays(vocabulary: Vocabulary, tiles: int) -> Arrays:
    """Arrays for empty tiles, with a summary that has room for so many."""
    few, some = 8, 64
    small, wide, word = np.int32, np.int64, np.uint64
    records = zeros((some,), wide)
    return Arrays(
        counts=np.zeros(8, wide),
        attribute=zeros((few, 8), small),
        bounds=zeros((few, NUMBER_CELLS - 1), np.float64),
        cell_share=zeros((few, CELLS_MAX), np.float64),
        group_of=zeros((few, CELLS_MAX), np.uint8),
        value_cell=zeros((len(vocabulary.uses),), np.int16),
        value_number=vocabulary.number,
        value_uses=vocabulary.uses,
        value_filed=vocabulary.filed,
        first_node=zeros((len(vocabulary.uses),), small),
        node_record=zeros((some,), small),
        node_next=zeros((some,), small),
        row_record=zeros((some,), small),
        row_slot=zeros((some,), small),
        row_key=zeros((some,), wide),
        records=records,
        numbers=records.view(np.float64),
        tile_alive=zeros((some,), word),
        tile_record=zeros((some, TILE_ROWS), small),
        tile_chunk=zeros((some,), wide),
        tile_length=zeros((some,), small),
        tile_blocks=zeros((some,), small),
        free_tiles=zeros((some,), small),
        order_key=zeros((some,), wide),
        order_tile=zeros((some,), small),
        words=zeros((some,), word),
        free_chunks=zeros((some,), wide),
        summary=zeros((some, tiles // 64), word),
        mask=np.zeros(MASK_WORDS, word),
        work=np.zeros(TILE_ROWS, wide),
        wanted=np.zeros((BLOCKS_MAX, 2), small),
        keys=np.zeros(0, wide),
    )
