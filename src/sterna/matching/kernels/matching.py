"""Matching: which rows hold for an event, or for many events at a time."""

from typing import Any

import numpy as np

from sterna.matching.kernels.compiling import kernel, lowest_bit, prefetch, prefetch_object
from sterna.matching.kernels.conditions import holds, number_cell, string_cell
from sterna.matching.kernels.layout import (
    ATTRIBUTE,
    BLOCKS_AHEAD,
    FLAGS,
    HALF,
    NONE,
    NUMBER,
    ONE,
    ORDERED,
    OTHER_STRING,
    RECORDS_AHEAD,
    START,
    STRING,
    SUMMARY_ROW,
    SUMMARY_USES,
    TILE_ROWS,
    TILES,
    TILES_AHEAD,
    Events,
    Reading,
    Room,
)


@kernel
def match_one(t: Reading, e: Events, room: Room) -> tuple[int, int]:
    """Find the rows that match the one event; return how many, and all their flags together."""
    count = 0
    flags = 0
    kinds, numbers, rests, values = e.kinds[0], e.numbers[0], e.rests[0], e.values[0]
    for i in range(e.values.shape[1] + len(e.tokens)):
        node = _first_node(t, e, 0, i)
        while node:
            record = np.int64(t.node_record[node])
            if holds(t, record, kinds, numbers, rests, values):
                room.found[count] = t.records[record] >> 32
                count += 1
                flags |= t.records[record]
            node = t.node_next[node]
    survived = 0
    if t.counts[ORDERED]:
        _find_cells(t, e, 0)
        listed = _list_tiles(t, e, 0, room.excluded, room.tiles)
        groups = e.groups[0]
        for i in range(listed):
            if i + TILES_AHEAD < listed:
                ahead = t.tile_chunk[room.tiles[i + TILES_AHEAD]]
                prefetch(t.words, ahead)
                prefetch(t.words, ahead + 8)
            if i + BLOCKS_AHEAD < listed:
                _prefetch_blocks(t, room.tiles[i + BLOCKS_AHEAD], groups)
            tile = room.tiles[i]
            alive = _survivors(t, tile, groups)
            while alive:
                room.records[survived] = t.tile_record[tile, lowest_bit(alive)]
                alive &= alive - ONE
                survived += 1
    for i in range(survived):
        if i + RECORDS_AHEAD < survived:
            ahead = np.int64(room.records[i + RECORDS_AHEAD])
            prefetch(t.records, ahead)
            prefetch(t.records, ahead + 8)
        record = np.int64(room.records[i])
        if holds(t, record, kinds, numbers, rests, values):
            row = t.records[record] >> 32
            prefetch(t.keys, row)
            room.found[count] = row
            count += 1
            flags |= t.records[record]
    for i in range(count):
        prefetch_object(t.keys[room.found[i]])
    return count, flags >> FLAGS & 3


@kernel
def _first_node(t: Reading, e: Events, event: int, i: int) -> int:
    """The first row filed under the i-th of the event's values and tokens, or 0."""
    attributes = e.values.shape[1]
    value = np.int64(e.values[event, i] if i < attributes else e.tokens[i - attributes])
    return np.int64(t.first_node[value]) if value >= 0 else 0


@kernel
def _find_cells(t: Reading, e: Events, event: int) -> None:
    for attribute in range(e.values.shape[1]):
        kind = np.int64(e.kinds[event, attribute])
        cell = kind
        if kind == NUMBER:
            cell = number_cell(t, attribute, e.numbers[event, attribute])
        elif kind == STRING:
            value = np.int64(e.values[event, attribute])
            cell = string_cell(t, attribute, value) if value >= 0 else OTHER_STRING
        e.cells[event, attribute] = cell
        e.groups[event, attribute] = t.group_of[attribute, cell]


@kernel
def _list_tiles(t: Reading, e: Events, event: int, excluded: Any, tiles: Any) -> int:
    """List the tiles that the event's cells do not rule out entirely."""
    made = t.counts[TILES]
    words = (made + 63) >> 6
    for i in range(words):
        excluded[i] = NONE
    for attribute in range(e.values.shape[1]):
        if t.attribute[attribute, SUMMARY_USES]:
            row = t.attribute[attribute, SUMMARY_ROW] + e.cells[event, attribute]
            for i in range(words):
                excluded[i] |= t.summary[row, i]
    count = 0
    for i in range(words):
        left = ~excluded[i]
        if i == made >> 6:
            left &= (ONE << np.uint64(made & 63)) - ONE
        while left:
            tiles[count] = i * 64 + np.int64(lowest_bit(left))
            left &= left - ONE
            count += 1
    return count


@kernel
def _prefetch_blocks(t: Reading, tile: int, groups: Any) -> None:
    chunk = np.uint64(t.tile_chunk[tile])
    for k in range(np.uint64(t.tile_blocks[tile])):
        block = t.words[chunk + k]
        group = np.uint64(groups[block >> HALF & ATTRIBUTE])
        prefetch(t.words, np.int64(chunk + (block & START) + group))


@kernel
def _survivors(t: Reading, tile: int, groups: Any) -> Any:
    """The rows of a tile that no block rules out for an event with these groups."""
    alive = t.tile_alive[tile]
    chunk = np.uint64(t.tile_chunk[tile])
    for k in range(np.uint64(t.tile_blocks[tile])):
        block = t.words[chunk + k]
        group = np.uint64(groups[block >> HALF & ATTRIBUTE])
        alive &= ~t.words[chunk + (block & START) + group]
        if not alive:
            break
    return alive


@kernel
def match_filed(t: Reading, e: Events, first: int, hits: Any) -> tuple[int, int, int]:
    """Find the rows filed under values of events, from the first on, while there is room.

    A hit is an event and a row. Return the event to go on with, how many hits there are, and the
    flags of all their rows together.
    """
    attributes = e.values.shape[1]
    count = 0
    flags = 0
    for event in range(first, len(e.values)):
        before = count
        kinds, numbers = e.kinds[event], e.numbers[event]
        rests, values = e.rests[event], e.values[event]
        start = np.int64(e.token_ends[event - 1]) if event else 0
        for i in range(attributes + np.int64(e.token_ends[event]) - start):
            node = _first_node(t, e, event, i if i < attributes else i + start)
            while node:
                record = np.int64(t.node_record[node])
                if holds(t, record, kinds, numbers, rests, values):
                    if count == len(hits):
                        return event, before, flags >> FLAGS & 3
                    hits[count, 0] = event
                    hits[count, 1] = t.records[record] >> 32
                    count += 1
                    flags |= t.records[record]
                node = t.node_next[node]
    return len(e.values), count, flags >> FLAGS & 3


@kernel
def plan_visits(
    t: Reading, e: Events, first: int, most: int, room: Room, ends: Any, visits: Any
) -> int:
    """Find for each tile which events, from the first on, have to visit it.

    `ends` has for each tile where its events end in the last column of `visits`. Return the event
    to go on with: no more than `most` are planned, nor more than there is surely room for.
    """
    made = t.counts[TILES]
    for tile in range(made + 1):
        ends[tile] = 0
    count = 0
    event = first
    last = min(len(e.values), first + most)
    while event < last and (event == first or count + made <= len(visits)):
        _find_cells(t, e, event)
        listed = _list_tiles(t, e, event, room.excluded, room.tiles)
        for i in range(listed):
            tile = room.tiles[i]
            ends[tile + 1] += 1
            visits[count, 0] = tile
            visits[count, 1] = event
            count += 1
        event += 1
    for tile in range(made):
        ends[tile + 1] += ends[tile]
    for i in range(count):
        tile = visits[i, 0]
        visits[ends[tile], 2] = visits[i, 1]
        ends[tile] += 1
    return event


@kernel
def match_tiles(
    t: Reading, e: Events, first: int, ends: Any, visits: Any, hits: Any
) -> tuple[int, int, int]:
    """Find the rows of tiles, from the first on, that match events, while there is room.

    Return the tile to go on with, how many hits there are, and the flags of all their rows.
    """
    count = 0
    flags = 0
    for tile in range(first, t.counts[TILES]):
        start = ends[tile - 1] if tile else 0
        if count + (ends[tile] - start) * TILE_ROWS > len(hits):
            return tile, count, flags >> FLAGS & 3
        survived = count
        for i in range(start, ends[tile]):
            event = visits[i, 2]
            alive = _survivors(t, tile, e.groups[np.int64(event)])
            while alive:
                record = np.int64(t.tile_record[tile, lowest_bit(alive)])
                prefetch(t.records, record)
                prefetch(t.records, record + 8)
                alive &= alive - ONE
                hits[survived, 0] = event
                hits[survived, 1] = record
                survived += 1
        for i in range(count, survived):
            event = np.int64(hits[i, 0])
            record = np.int64(hits[i, 1])
            kinds, numbers = e.kinds[event], e.numbers[event]
            if holds(t, record, kinds, numbers, e.rests[event], e.values[event]):
                hits[count, 0] = event
                hits[count, 1] = t.records[record] >> 32
                count += 1
                flags |= t.records[record]
    return t.counts[TILES], count, flags >> FLAGS & 3


@kernel
def sort_hits(hits: Any, ends: Any, positions: Any, rows: Any) -> None:
    """Sort hits by event; those of an event stay in their order. `ends` is room to count."""
    for i in range(len(ends)):
        ends[i] = 0
    for i in range(len(hits)):
        ends[hits[i, 0] + 1] += 1
    for i in range(1, len(ends)):
        ends[i] += ends[i - 1]
    for i in range(len(hits)):
        event = hits[i, 0]
        positions[ends[event]] = event
        rows[ends[event]] = hits[i, 1]
        ends[event] += 1


@kernel
def prefetch_keys(keys: Any, rows: Any) -> None:
    """Begin to load the keys of rows: as objects of Python they are spread over all memory."""
    for i in range(len(rows)):
        prefetch(keys, np.int64(rows[i]))
    for i in range(len(rows)):
        prefetch_object(keys[rows[i]])
