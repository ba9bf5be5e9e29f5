"""The order of rows, in which similar ones are close, and of the tiles that hold them."""

from typing import Any

import numpy as np

from sterna.matching.kernels.compiling import kernel, lowest_bit
from sterna.matching.kernels.conditions import accept, next_test
from sterna.matching.kernels.layout import CELLS_MAX, MASK_WORDS, ONE, ORDERED, POINTS, Arrays

LIST_PENALTY = 4.0
"""How much better than its share of the events suggests another test has to be than one of several
values: rows with different lists, together in a tile, accept nearly anything."""


@kernel
def write_key(t: Arrays, row: int) -> None:
    """Find a row's place in the order: its two most selective tests, and what they accept."""
    best = second = np.inf
    key = other = _KEY_LAST
    record = t.row_record[row]
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        head = t.records[test]
        attribute = head >> 8 & 0xFFFFFF
        accept(t, test, t.mask)
        share, first, last = _extent(t, attribute, t.mask)
        if head & 255 == POINTS:
            share *= LIST_PENALTY
        place = (attribute & 0x3FFF) << 16 | first << 8 | last
        if share < best:
            best, second = share, best
            key, other = place, key
        elif share < second:
            second, other = share, place
        test = next_test(t, test)
    t.row_key[row] = key << 30 | other


_KEY_LAST = 0x3FFFFFFF


@kernel
def _extent(t: Arrays, attribute: int, mask: Any) -> tuple[float, int, int]:
    """About which share of the events lies in the cells of a mask, and the first and last cell."""
    share = 0.0
    first = CELLS_MAX - 1
    last = 0
    for i in range(MASK_WORDS):
        left = mask[i]
        while left:
            cell = i * 64 + np.int64(lowest_bit(left))
            left &= left - ONE
            share += t.cell_share[attribute, cell]
            first = min(first, cell)
            last = cell
    return share, first, last


@kernel
def position_of(t: Arrays, key: int) -> int:
    """The position, among the tiles in order, of the one where a key belongs."""
    low = 0
    high = t.counts[ORDERED]
    while low < high:
        middle = (low + high) >> 1
        if t.order_key[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


@kernel
def put_in_order(t: Arrays, position: int, tile: int, key: int) -> None:
    for i in range(t.counts[ORDERED], position, -1):
        t.order_key[i] = t.order_key[i - 1]
        t.order_tile[i] = t.order_tile[i - 1]
    t.order_key[position] = key
    t.order_tile[position] = tile
    t.counts[ORDERED] += 1
