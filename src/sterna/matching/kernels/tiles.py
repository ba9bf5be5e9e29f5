"""Tiles: rows that are put into them and taken out, the blocks of words, and the summary."""

from typing import Any

import numpy as np

from sterna.matching.kernels.compiling import kernel, lowest_bit
from sterna.matching.kernels.conditions import accept, next_test
from sterna.matching.kernels.layout import (
    ALL,
    ATTRIBUTE,
    BLOCK_ROWS_SHARE,
    BLOCKS_MAX,
    CELLS,
    CHUNK_STEP,
    FREE_TILES,
    FULL,
    GROUPS,
    HALF,
    MASK_WORDS,
    NONE,
    ONE,
    ORDERED,
    START,
    SUMMARY_ROW,
    SUMMARY_USES,
    TESTED,
    TILE_ROWS,
    TILES,
    WORDS,
    Arrays,
)
from sterna.matching.kernels.order import position_of, put_in_order, write_key


@kernel
def _take_chunk(t: Arrays, length: int) -> int:
    size = length // CHUNK_STEP
    start = t.free_chunks[size] - 1
    if start >= 0:
        t.free_chunks[size] = np.int64(t.words[start])
    else:
        start = t.counts[WORDS]
        t.counts[WORDS] += length
    for i in range(start, start + length):
        t.words[i] = NONE
    return start


@kernel
def _clear_tile(t: Arrays, tile: int) -> None:
    """Empty a tile and give its chunk back."""
    chunk = t.tile_chunk[tile]
    for k in range(t.tile_blocks[tile]):
        block = t.words[chunk + k]
        if block & FULL:
            _leave_summary(t, tile, np.int64(block >> HALF & ATTRIBUTE))
    if t.tile_length[tile]:
        size = t.tile_length[tile] // CHUNK_STEP
        t.words[chunk] = np.uint64(t.free_chunks[size])
        t.free_chunks[size] = chunk + 1
    t.tile_length[tile] = 0
    t.tile_blocks[tile] = 0
    t.tile_alive[tile] = NONE


@kernel
def _leave_summary(t: Arrays, tile: int, attribute: int) -> None:
    keep = ~(ONE << np.uint64(tile & 63))
    first = t.attribute[attribute, SUMMARY_ROW]
    for row in range(first, first + t.attribute[attribute, CELLS]):
        t.summary[row, tile >> 6] &= keep
    t.attribute[attribute, SUMMARY_USES] -= 1


@kernel
def _new_tile(t: Arrays) -> int:
    if t.counts[FREE_TILES]:
        t.counts[FREE_TILES] -= 1
        return np.int64(t.free_tiles[t.counts[FREE_TILES]])
    t.counts[TILES] += 1
    return t.counts[TILES] - 1


@kernel
def _fill(t: Arrays, tile: int, rows: Any) -> None:
    """Write rows into an empty tile."""
    _make_blocks(t, tile, rows)
    for i in range(len(rows)):
        _set_bits(t, tile, rows[i], i)
    chunk = t.tile_chunk[tile]
    for k in range(t.tile_blocks[tile]):
        block = t.words[chunk + k]
        if block & FULL:
            attribute = np.int64(block >> HALF & ATTRIBUTE)
            first = t.attribute[attribute, SUMMARY_ROW]
            here = ONE << np.uint64(tile & 63)
            for row in range(first, first + t.attribute[attribute, CELLS]):
                t.summary[row, tile >> 6] |= here
            t.attribute[attribute, SUMMARY_USES] += 1
            for row in rows:
                _loosen(t, tile, row, attribute)


@kernel
def _make_blocks(t: Arrays, tile: int, rows: Any) -> None:
    """Give a tile the blocks that its rows need."""
    _count_tests(t, rows)
    least = max(2, len(rows) // BLOCK_ROWS_SHARE)
    blocks = 0
    length = 0
    for row in rows:
        record = t.row_record[row]
        test = record + 1
        for _ in range(t.records[record] & 0xFFFF):
            attribute = t.records[test] >> 8 & 0xFFFFFF
            if t.attribute[attribute, TESTED] >= least and blocks < BLOCKS_MAX:
                _list_block(t, blocks, attribute, len(rows))
                blocks += 1
                length += 1 + t.attribute[attribute, GROUPS]
            t.attribute[attribute, TESTED] = 0
            test = next_test(t, test)
    length = (length + CHUNK_STEP - 1) // CHUNK_STEP * CHUNK_STEP
    chunk = _take_chunk(t, length) if length else 0
    t.tile_chunk[tile] = chunk
    t.tile_length[tile] = length
    t.tile_blocks[tile] = blocks
    place = blocks
    for k in range(blocks):
        attribute = t.wanted[k, 0]
        block = np.uint64(attribute) << HALF | np.uint64(place)
        if t.wanted[k, 1] == len(rows):
            block |= FULL
        t.words[chunk + k] = block
        place += t.attribute[attribute, GROUPS]


@kernel
def _count_tests(t: Arrays, rows: Any) -> None:
    for row in rows:
        record = t.row_record[row]
        test = record + 1
        for _ in range(t.records[record] & 0xFFFF):
            t.attribute[t.records[test] >> 8 & 0xFFFFFF, TESTED] += 1
            test = next_test(t, test)


@kernel
def _list_block(t: Arrays, count: int, attribute: int, rows: int) -> None:
    """Add to the list of wanted blocks: what rules out most first, what the summary has last."""
    tested = t.attribute[attribute, TESTED]
    place = count
    while place and (t.wanted[place - 1, 1] == rows or (t.wanted[place - 1, 1] < tested < rows)):
        t.wanted[place, 0] = t.wanted[place - 1, 0]
        t.wanted[place, 1] = t.wanted[place - 1, 1]
        place -= 1
    t.wanted[place, 0] = attribute
    t.wanted[place, 1] = tested


@kernel
def _set_bits(t: Arrays, tile: int, row: int, slot: int) -> None:
    """Let a row take a place in a tile, ruled out where its tests say so."""
    record = t.row_record[row]
    bit = ONE << np.uint64(slot)
    chunk = t.tile_chunk[tile]
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        attribute = np.uint64(t.records[test] >> 8 & 0xFFFFFF)
        for k in range(t.tile_blocks[tile]):
            block = t.words[chunk + k]
            if block >> HALF & ATTRIBUTE == attribute:
                _rule_out(t, chunk + np.int64(block & START), test, bit)
                break
        test = next_test(t, test)
    t.tile_alive[tile] |= bit
    t.tile_record[tile, slot] = record
    t.row_slot[row] = tile * TILE_ROWS + slot + 1


@kernel
def _rule_out(t: Arrays, start: int, test: int, bit: Any) -> None:
    """Set a row's bit in each word of a block whose cells its test does not accept."""
    attribute = t.records[test] >> 8 & 0xFFFFFF
    accept(t, test, t.mask)
    accepted = NONE
    for i in range(MASK_WORDS):
        left = t.mask[i]
        while left:
            cell = i * 64 + np.int64(lowest_bit(left))
            left &= left - ONE
            accepted |= ONE << np.uint64(t.group_of[attribute, cell])
    for group in range(t.attribute[attribute, GROUPS]):
        if not accepted >> np.uint64(group) & ONE:
            t.words[start + group] |= bit


@kernel
def insert(t: Arrays, row: int) -> None:
    """Put a row, whose record is written, into the tile where it belongs."""
    write_key(t, row)
    key = t.row_key[row]
    if t.counts[ORDERED] == 0:
        put_in_order(t, 0, _new_tile(t), 0)
    position = position_of(t, key)
    if t.tile_alive[t.order_tile[position]] == ALL:
        _split(t, position)
        position = position_of(t, key)
    tile = np.int64(t.order_tile[position])
    _set_bits(t, tile, row, np.int64(lowest_bit(~t.tile_alive[tile])))
    chunk = t.tile_chunk[tile]
    for k in range(t.tile_blocks[tile]):
        block = t.words[chunk + k]
        if block & FULL:
            attribute = np.int64(block >> HALF & ATTRIBUTE)
            if not _loosen(t, tile, row, attribute):
                t.words[chunk + k] &= ~FULL
                _leave_summary(t, tile, attribute)


@kernel
def _loosen(t: Arrays, tile: int, row: int, attribute: int) -> bool:
    """Let the summary no longer rule a tile out where a row accepts; False if it has no test."""
    record = t.row_record[row]
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        if t.records[test] >> 8 & 0xFFFFFF == attribute:
            accept(t, test, t.mask)
            keep = ~(ONE << np.uint64(tile & 63))
            for i in range(MASK_WORDS):
                left = t.mask[i]
                while left:
                    cell = i * 64 + np.int64(lowest_bit(left))
                    left &= left - ONE
                    t.summary[t.attribute[attribute, SUMMARY_ROW] + cell, tile >> 6] &= keep
            return True
        test = next_test(t, test)
    return False


@kernel
def _split(t: Arrays, position: int) -> None:
    """Share a full tile's rows between it and a new one behind it."""
    tile = np.int64(t.order_tile[position])
    rows = t.work
    for i in range(TILE_ROWS):  # Sorted by key as they come.
        row = t.records[t.tile_record[tile, i]] >> 32
        place = i
        while place and t.row_key[rows[place - 1]] > t.row_key[row]:
            rows[place] = rows[place - 1]
            place -= 1
        rows[place] = row
    _clear_tile(t, tile)
    half = TILE_ROWS // 2
    other = _new_tile(t)
    _fill(t, tile, rows[:half])
    _fill(t, other, rows[half:])
    put_in_order(t, position + 1, other, t.row_key[rows[half]])


@kernel
def remove_from_tile(t: Arrays, row: int) -> None:
    """Take a row out of its tile; an empty tile is given back."""
    slot = np.int64(t.row_slot[row]) - 1
    tile = slot // TILE_ROWS
    keep = ~(ONE << np.uint64(slot % TILE_ROWS))
    chunk = t.tile_chunk[tile]
    for k in range(t.tile_blocks[tile]):
        block = t.words[chunk + k]
        start = chunk + np.int64(block & START)
        groups = t.attribute[np.int64(block >> HALF & ATTRIBUTE), GROUPS]
        for word in range(start, start + groups):
            t.words[word] &= keep
    t.tile_alive[tile] &= keep
    if not t.tile_alive[tile]:
        _drop_tile(t, tile, t.row_key[row])


@kernel
def _drop_tile(t: Arrays, tile: int, key: int) -> None:
    _clear_tile(t, tile)
    position = position_of(t, key)
    while t.order_tile[position] != tile:  # Equal keys may begin several tiles.
        position -= 1
    t.counts[ORDERED] -= 1
    for i in range(position, t.counts[ORDERED]):
        t.order_key[i] = t.order_key[i + 1]
        t.order_tile[i] = t.order_tile[i + 1]
    t.free_tiles[t.counts[FREE_TILES]] = tile
    t.counts[FREE_TILES] += 1


@kernel
def append_tile(t: Arrays, rows: Any) -> None:
    """Write rows, sorted by key, into a new tile behind all others."""
    tile = _new_tile(t)
    _fill(t, tile, rows)
    put_in_order(t, t.counts[ORDERED], tile, t.row_key[rows[0]])
